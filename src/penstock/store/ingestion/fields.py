"""Fields: every value is checked and converted once, on its way into the store.

In: chunks of a column as the source has it. Out: the same rows in the dtype of the store. Rules by name of the field:

    x        features: the requested dtype; by default the dtype is kept, except that float64 becomes float32
    y        labels: one integer per node becomes int64; -1 means no label; other values below 0, or from `num_classes` on, are refused;
             if `num_classes` is not known, so is a label that implies far more classes than there are rows;
             in floating-point or two-dimensional labels NaN means no label, and float64 becomes float32
    time     integers, int64, not negative; whether they ascend in input order is recorded, but not required
    weight   float64 becomes float32, the dtype that models compute in
    others   kept

NaN (missing values of floating-point fields become NaN) and infinite values are refused unless allowed; a value that the conversion makes
infinite is always refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import InputError, argument
from penstock.sources.source import LABELS, Column, Table
from penstock.store.format import BFLOAT16, DTYPES
from penstock.store.ingestion.options import IngestOptions

FEATURES, TIMES, WEIGHTS = "x", "time", "weight"
FEW_CLASSES, CLASSES_PER_ROW = 1 << 16, 100
"""Labels from max(FEW_CLASSES, CLASSES_PER_ROW * rows) on are refused: they are ids or amounts, and a model has one output per class."""


def stored_dtype(column: Column, options: IngestOptions, table_name: str) -> str:
    """Return the logical dtype that a column is stored in.

    Raises:
        InputError: a store does not hold this dtype, or the field must not have it.
    """
    name, dtype = column.name, np.dtype(np.float32) if column.is_bfloat16 else column.dtype
    if dtype.kind not in "biuf":
        kind = "strings" if dtype.kind == "O" else str(dtype)
        raise InputError(f"{table_name}: field '{name}' holds {kind}; a store holds numbers: leave the column out or encode it")
    if name == TIMES and dtype.kind not in "iu":
        raise InputError(f"{table_name}: field 'time' is {dtype}; times must be integers (seconds, days, steps): convert them first")
    if name == FEATURES and options.feature_dtype is not None:
        return options.feature_dtype
    if name == TIMES or (name == LABELS and dtype.kind in "biu" and column.row_shape == ()):
        return "int64"
    if column.is_bfloat16:
        return BFLOAT16
    is_computed_with = name in (FEATURES, LABELS, WEIGHTS)
    stored = "float32" if dtype == np.float64 and is_computed_with else dtype.newbyteorder("=").name
    if stored not in DTYPES:
        raise InputError(f"{table_name}: field '{name}' is {dtype}; a store holds {', '.join(DTYPES)}: convert it first")
    return stored


class FieldConverter:
    """Check and convert one column, chunk by chunk.

    Args:
        table: for messages.
        column: of the table.
        options: of the ingestion.
        table_name: for messages that name no row.
        num_classes: of `y`, if declared.
    Attributes:
        dtype: logical dtype of the result.
        row_shape: shape of a row.
    """

    def __init__(self, table: Table, column: Column, options: IngestOptions, table_name: str, num_classes: int | None = None) -> None:
        self.dtype, self.row_shape, self.name = stored_dtype(column, options, table_name), column.row_shape, column.name
        self._table, self._num_classes, self._storage = table.holding(column.name), num_classes, DTYPES[self.dtype]
        self._is_bfloat16, self._unit = column.is_bfloat16, column.unit
        self._is_label = column.name == LABELS and self.dtype == "int64" and column.row_shape == ()
        self._allow_nan = options.allow_nan or column.name == LABELS
        self._largest_label, self._row_of_largest, self._num_rows = -1, 0, 0
        self._last_time, self._is_ascending = 0, True

    def convert(self, values: Any, first_row: int) -> np.ndarray:
        """Return storage dtype[n, *row_shape], C-contiguous.

        Args:
            values: array[n, *row_shape] as the source has it.
            first_row: number of its first row in the table.
        Raises:
            InputError: names the row, the value and what is allowed.
        """
        values = np.asarray(values)
        if self._is_bfloat16:
            values = from_bfloat16(values)
        if values.shape[1:] != self.row_shape:
            raise InputError(f"{self._table.where(first_row)}: field '{self.name}' has rows of {values.shape[1:]}, not {self.row_shape}")
        if values.dtype.kind == "f" and not self._allow_nan:
            rule = f"NaN, infinite and missing values are refused; clean them, or allow them ({argument('allow_nan', True)})"
            self._refuse(values, first_row, ~np.isfinite(values), rule)
        elif values.dtype.kind == "f" and self.name == LABELS:
            self._refuse(values, first_row, np.isinf(values), "labels must be finite; NaN means no label")
        converted = self._cast(values, first_row)
        if self._is_label:
            self._check_labels(converted, first_row)
            self._num_rows += len(converted)
        if self.name == TIMES:
            self._check_times(converted, first_row)
        return converted

    def _cast(self, values: np.ndarray, first_row: int) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            if self.dtype == BFLOAT16:
                single = np.ascontiguousarray(values, dtype=np.float32)
                converted, as_float = to_bfloat16(single), None
                overflowed = (converted & 0x7FFF) == 0x7F80
            else:
                converted = np.ascontiguousarray(values, dtype=self._storage)
                as_float = converted if converted.dtype.kind == "f" and values.dtype != converted.dtype else None
                overflowed = None if as_float is None else np.isinf(as_float)
        if overflowed is not None and overflowed.any():
            way_out = f"choose a wider {argument('feature_dtype')}" if self.name == FEATURES else "scale the values down"
            rule = f"too large for {self.dtype}; {way_out}"
            self._refuse(values, first_row, overflowed & np.isfinite(values), rule)
        if values.dtype == np.uint64 and converted.dtype == np.int64:
            self._refuse(values, first_row, values > np.iinfo(np.int64).max, "too large for int64")
        return converted

    def _check_labels(self, labels: np.ndarray, first_row: int) -> None:
        largest = int(labels.max(initial=-1))
        if self._num_classes is not None and largest >= self._num_classes:
            self._refuse(labels, first_row, labels >= self._num_classes, f"labels must lie in [0, {self._num_classes}), or be -1 for none")
        if int(labels.min(initial=0)) < -1:
            self._refuse(labels, first_row, labels < -1, "labels must be 0 or more, or -1 for none")
        if largest > self._largest_label:
            self._largest_label, self._row_of_largest = largest, first_row + int(labels.argmax())

    def _check_times(self, times: np.ndarray, first_row: int) -> None:
        if int(times.min(initial=0)) < 0:
            self._refuse(times, first_row, times < 0, "times must not be negative; leave out what has no time, or shift the origin")
        if times.size and self._is_ascending:
            flat = times.reshape(len(times), -1)
            self._is_ascending = bool(flat[:1].min() >= self._last_time and (flat[1:] >= flat[:-1]).all())
            self._last_time = int(flat[-1:].max())

    def _refuse(self, values: np.ndarray, first_row: int, bad: np.ndarray, rule: str) -> None:
        """Raise if anything is bad; the message names the first offender."""
        if not bad.any():
            return
        row, *place = (int(index) for index in np.unravel_index(int(np.argmax(bad)), bad.shape))
        column = f" at {place}" if place else ""
        raise InputError(f"{self._table.where(first_row + row)}: field '{self.name}' is {values[row, *place]}{column}: {rule}")

    def properties(self) -> dict[str, Any]:
        """Return properties of all values, for the manifest; refuse labels that cannot be classes."""
        if self._is_label and self._num_classes is None and self._largest_label >= max(FEW_CLASSES, CLASSES_PER_ROW * self._num_rows):
            raise InputError(
                f"{self._table.where(self._row_of_largest)}: field 'y' is {self._largest_label}, which makes as many classes for "
                f"{self._num_rows} rows: number the classes from 0, or give the field another name if it holds no classes"
            )
        if self._is_label:
            return {"num_classes": self._num_classes if self._num_classes is not None else self._largest_label + 1}
        unit = {} if self._unit is None else {"unit": str(self._unit)}
        return unit | ({"is_ascending": self._is_ascending} if self.name == TIMES else {})


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Widen bfloat16, given as uint16 bits, to float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16, to nearest even; returns the bits as uint16. NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)
