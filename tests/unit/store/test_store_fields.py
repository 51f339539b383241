"""Fields at the door: conversion, NaN, overflow, labels, times, and what the messages say."""

import numpy as np
import pytest
import torch
from tests.stores import ChunkedTable, build, homogeneous

from penstock.errors import InputError, UsageError
from penstock.sources.source import Column
from penstock.store.ingestion.fields import FieldConverter, from_bfloat16, stored_dtype, to_bfloat16
from penstock.store.ingestion.options import IngestOptions


def converter(name, values, *, num_classes=None, is_bfloat16=False, **options):
    values = np.asarray(values)
    column = Column(name=name, dtype=values.dtype, row_shape=values.shape[1:], is_bfloat16=is_bfloat16)
    return FieldConverter(ChunkedTable({name: values}, "nodes.csv"), column, IngestOptions(**options), "nodes", num_classes)


def convert(name, values, **options):
    return converter(name, values, **options).convert(np.asarray(values), 10)


@pytest.mark.parametrize(
    ("name", "given", "feature_dtype", "stored"),
    [
        ("x", "float64", None, "float32"),
        ("x", "float32", None, "float32"),
        ("x", "float16", None, "float16"),
        ("x", "uint8", None, "uint8"),
        ("x", "float64", "float64", "float64"),
        ("x", "float32", "float16", "float16"),
        ("x", "int64", "float32", "float32"),
        ("x", "bool", "bfloat16", "bfloat16"),
        ("y", "int8", None, "int64"),
        ("y", "uint64", None, "int64"),
        ("y", "float64", None, "float32"),
        ("time", "int32", None, "int64"),
        ("weight", "float64", None, "float32"),
        ("weight", "float64", "float16", "float32"),
        ("weight", "int32", None, "int32"),
        ("mask", "bool", None, "bool"),
        ("at", "float64", None, "float64"),
        ("at", "float64", "float16", "float64"),
        ("big", ">i4", None, "int32"),
    ],
)
def test_stored_dtypes(name, given, feature_dtype, stored):
    column = Column(name=name, dtype=np.dtype(given))
    assert stored_dtype(column, IngestOptions(feature_dtype=feature_dtype), "nodes") == stored
    assert convert(name, np.zeros(3, given), feature_dtype=feature_dtype).flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("title", object, "field 'title' holds strings; a store holds numbers"),
        ("z", "complex64", "field 'z' holds complex64"),
        ("time", "float64", "field 'time' is float64; times must be integers"),
        ("when", "datetime64[s]", "field 'when' holds datetime64"),
        ("wide", np.longdouble, "a store holds bool, int8"),
    ],
)
def test_dtypes_that_a_store_does_not_hold(name, dtype, message):
    with pytest.raises(InputError, match=message):
        stored_dtype(Column(name=name, dtype=np.dtype(dtype)), IngestOptions(), "nodes")


def test_unknown_feature_dtype():
    with pytest.raises(UsageError, match="feature_dtype must be one of float16, bfloat16, float32, float64, got 'int8'"):
        IngestOptions(feature_dtype="int8")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity(bad):
    values = np.ones((5, 3))
    values[3, 1] = bad
    with pytest.raises(InputError, match=rf"nodes.csv, line 15: field 'x' is {bad} at \[1\]: NaN, infinite and missing values are refused"):
        convert("x", values)
    np.testing.assert_array_equal(convert("x", values, allow_nan=True), values.astype(np.float32))


def test_labels_may_be_nan_but_not_infinite():
    assert np.isnan(convert("y", [1.0, np.nan])[1])
    with pytest.raises(InputError, match="line 13: field 'y' is inf: labels must be finite; NaN means no label"):
        convert("y", [1.0, np.inf])


@pytest.mark.parametrize(("target", "value"), [("float16", 70000.0), ("float32", 1e39), ("bfloat16", 3.4e38), ("bfloat16", 1e39)])
def test_overflow_on_conversion(target, value):
    with pytest.raises(InputError, match=f"line 13: field 'x' is .* too large for {target}; choose a wider feature_dtype"):
        convert("x", [0.0, value], feature_dtype=target)
    with pytest.raises(InputError, match="too large for"):
        convert("x", [0.0, value], feature_dtype=target, allow_nan=True)


@pytest.mark.parametrize("name", ["y", "weight"])
def test_overflow_of_what_has_no_other_dtype(name):
    with pytest.raises(InputError, match=f"line 13: field '{name}' is 1e[+]39: too large for float32; scale the values down"):
        convert(name, [0.0, 1e39])


def test_fields_that_no_model_computes_with_keep_their_precision():
    assert convert("at", [1600000001.5]).tolist() == [1600000001.5]


def test_infinite_values_that_are_allowed_stay():
    assert np.isinf(convert("x", [np.inf, 1.0], feature_dtype="float16", allow_nan=True)[0])


def test_labels():
    labels = converter("y", np.array([-1, 0, 4], np.int8))
    assert labels.convert(np.array([-1, 0, 4], np.int8), 0).tolist() == [-1, 0, 4]
    assert labels.properties() == {"num_classes": 5}
    with pytest.raises(InputError, match=r"nodes.csv, line 13: field 'y' is -2: labels must be 0 or more, or -1 for none"):
        convert("y", [0, -2])
    with pytest.raises(InputError, match=r"line 14: field 'y' is 3: labels must lie in \[0, 3\), or be -1 for none"):
        convert("y", [0, 2, 3, 9], num_classes=3)
    with pytest.raises(InputError, match="is 18446744073709551615: too large for int64"):
        convert("y", np.array([2**64 - 1], np.uint64))


def test_labels_that_number_no_classes():
    values = np.array([0, 10**12, 1])
    labels = converter("y", values)
    labels.convert(values, 10)
    with pytest.raises(InputError, match=r"nodes.csv, line 13: field 'y' is 1000000000000, which makes as many classes for 3 rows"):
        labels.properties()
    for few, declared in ((2**16 - 1, None), (10**12, 10**12 + 1)):
        labels = converter("y", np.array([few]), num_classes=declared)
        labels.convert(np.array([few]), 0)
        assert labels.properties() == {"num_classes": few + 1}


def test_multi_label_stays_as_it_is():
    values = np.eye(3, dtype=np.uint8)
    assert convert("y", values).dtype == np.uint8
    assert converter("y", values).properties() == {}


def test_times():
    times = converter("time", np.array([3, 4], np.int32))
    times.convert(np.array([3, 4], np.int32), 0)
    assert times.properties() == {"is_ascending": True}
    times.convert(np.array([3], np.int32), 2)
    assert times.properties() == {"is_ascending": False}
    with pytest.raises(InputError, match="line 12: field 'time' is -1: times must not be negative"):
        convert("time", [-1])


def test_rows_of_another_shape():
    fields = converter("x", np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"line 7: field 'x' has rows of \(4,\), not \(3,\)"):
        fields.convert(np.zeros((2, 4)), 5)


def test_bfloat16_is_that_of_torch():
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1.00390625, 1.01171875], np.float32)
    values = np.concatenate([bits.view(np.float32), edges])
    theirs = torch.from_numpy(values).to(torch.bfloat16)
    ours = to_bfloat16(values)
    np.testing.assert_array_equal(from_bfloat16(ours), theirs.to(torch.float32).numpy())
    np.testing.assert_array_equal(to_bfloat16(from_bfloat16(ours)), ours)


def test_bfloat16_in_and_out_of_a_store(tmp_path):
    values = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    source = homogeneous({"src": np.array([0]), "dst": np.array([1])}, node_columns={"x": values})
    store, _ = build(source, tmp_path / "store", feature_dtype="bfloat16")
    assert (store.node_fields()["x"].dtype, store.node_field("x").dtype) == ("bfloat16", np.uint16)
    np.testing.assert_array_equal(store.node_field("x"), to_bfloat16(values))
    wide = convert("x", to_bfloat16(values), is_bfloat16=True, feature_dtype="float32")
    np.testing.assert_array_equal(wide, from_bfloat16(to_bfloat16(values)))
    np.testing.assert_array_equal(convert("x", to_bfloat16(values), is_bfloat16=True), to_bfloat16(values))
