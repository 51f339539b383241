"""Which columns of a CSV or Parquet file make a field, and how Arrow columns become arrays.

In: requested fields (`Request`) and the columns of a file. Out: a `Field` with its dtype and row shape, and the conversion of record
batches. Shared by both kinds of file, so that the same rules hold for both.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute

from penstock.errors import InputError, MissingFieldError, argument
from penstock.sources.source import LABELS, Chunk, Column, Table
from penstock.sources.time_units import TimeUnit, finest, unit_of

pc: Any = pyarrow.compute
"""Its functions are created at run time, so type checkers do not know them."""

ColumnSpec = str | Sequence[str]
"""Columns by name ("age"), position from 0 ("3"), pattern ("feat_*"), inclusive range ("f0:f127", "2:"); or several of them."""

IdKind = Literal["number", "int", "string"]

_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A requested field.

    Attributes:
        name: of the field.
        columns: from which it is made.
        kind: "id" (integers or strings), "text" (strings), "number".
        dtype: of the result; None: as in the file.
        as_string: ids become strings even if they look like numbers.
        is_default: `columns` is the default name, not given by the user.
        is_optional: leave the field out if the file lacks the column.
    """

    name: str
    columns: ColumnSpec
    kind: Literal["id", "text", "number"] = "number"
    dtype: np.dtype | None = None
    as_string: bool = False
    is_default: bool = False
    is_optional: bool = False

    @property
    def is_vector(self) -> bool:
        """Whether a row is an array even if there is only one column."""
        return self.name == "x" or not isinstance(self.columns, str) or any(sign in self.columns for sign in "*?:,")

    @property
    def is_by_position(self) -> bool:
        """Whether columns are asked for by their places alone."""
        items = [self.columns] if isinstance(self.columns, str) else self.columns
        return all(set(item) <= set("0123456789:, ") for item in items)


@dataclass(frozen=True, slots=True)
class Field:
    """A field as it is in one file.

    Attributes:
        name: of the field.
        columns: of the file.
        is_text: chunks hold pyarrow string arrays.
        dtype, row_shape: of the chunks' arrays; object for text.
        is_empty: the file has no value of it.
        units: unit of each column, if any holds dates or times, else (). Values are converted to these units.
    """

    name: str
    columns: tuple[str, ...]
    is_text: bool
    dtype: np.dtype
    row_shape: tuple[int, ...]
    is_empty: bool = False
    units: tuple[TimeUnit | None, ...] = ()

    @property
    def column(self) -> Column:
        """The field as a column of a table."""
        return Column(name=self.name, dtype=self.dtype, row_shape=self.row_shape, is_empty=self.is_empty, units=self.units)


class ColumnsTable(Table):
    """Fields of one file that has named columns; the base of such tables."""

    _fields: dict[str, Field]

    def columns_of(self, name: str) -> tuple[str, ...]:
        """Return the columns that a field is made of; none if it is not there."""
        return self._fields[name].columns if name in self._fields else ()

    def count_in(self, name: str, units: tuple[TimeUnit | None, ...]) -> None:
        """Convert dates and times of a field to other units from now on, which must not be coarser."""
        self._fields[name] = replace(self._fields[name], units=units)
        self.columns = {**self.columns, name: replace(self.columns[name], units=units)}


def resolve(request: Request, available: Sequence[str], file: str) -> tuple[str, ...]:
    """Return the columns of a file for a request. An exact name has precedence over a range, a pattern, a position and a list with
    commas."""
    items = [request.columns] if isinstance(request.columns, str) else list(request.columns)
    items = [part for item in items for part in ([item] if _matches(item, available) else map(str.strip, item.split(",")))]
    found: list[str] = []
    for item in items:
        matches = _matches(item, available)
        if not matches:
            shown = ", ".join(available[:_SHOWN]) + (", ..." if len(available) > _SHOWN else "")
            hint = f": name it by {argument(request.name)}" if request.is_default else ""
            raise MissingFieldError(f"{file}: {_fault(item, request.name, available)}; the columns are {shown}{hint}")
        found += matches
    counts = Counter(available)
    for column in found:
        if counts[column] > 1:
            raise InputError(f"{file}: column {column!r}, wanted for {request.name!r}, is there more than once")
    return tuple(found)


def _matches(item: str, available: Sequence[str]) -> list[str]:
    return [item] if item in available else _range(item, available) or fnmatch.filter(available, item) or _position(item, available)


def _position(item: str, available: Sequence[str]) -> list[str]:
    return [available[int(item)]] if item.isdecimal() and len(item) < 10 and int(item) < len(available) else []


def _range(item: str, available: Sequence[str]) -> list[str]:
    first, colon, last = item.partition(":")
    if not colon:
        return []
    start, stop = _place(first, 0, available), _place(last, len(available) - 1, available)
    return [] if start is None or stop is None else list(available[start : stop + 1])


def _place(end: str, default: int, available: Sequence[str]) -> int | None:
    """Return the index of an end of a range among the columns."""
    match = [end] if end in available else _position(end, available)
    return default if end == "" else list(available).index(match[0]) if match else None


def _fault(item: str, name: str, available: Sequence[str]) -> str:
    """Return the message for a request without columns: no such column, or a range with an unknown end."""
    start, colon, end = item.partition(":")
    wrong = {verb: each for verb, each in (("starts", start), ("ends", end)) if _place(each, 0, available) is None}
    if not colon or len(wrong) == 2:
        return f"no column {item!r} for {name!r}"
    fault = "".join(f"{verb} at {each!r}, which is no column" for verb, each in wrong.items()) or "runs backwards"
    return f"range {item!r} for {name!r} {fault}"


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether an Arrow column holds strings, plain or dictionary encoded."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type)


def _numpy_dtype(arrow_type: pa.DataType, column: str, name: str, file: str) -> np.dtype:
    if unit_of(arrow_type) is not None or pa.types.is_null(arrow_type):  # null: there are no rows, or the first one is refused
        return np.dtype(np.int64)
    if pa.types.is_decimal(arrow_type):
        return np.dtype(np.float64)
    if pa.types.is_boolean(arrow_type) or pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type):
        return pa.array([], arrow_type).to_numpy(zero_copy_only=False).dtype
    hint = "; number the words, or leave the column out" if is_text(arrow_type) else ""
    if _is_list(arrow_type):
        hint = ": a column of lists is a field of its own, apart from other columns"
    raise InputError(f"{file}: column {column!r}, wanted for {name!r}, holds {arrow_type}; fields are numbers{hint}")


def make_field(
    request: Request, columns: tuple[str, ...], types: Mapping[str, pa.DataType], file: str, list_width: Callable[[str], int]
) -> Field:
    """Describe a requested field of a file.

    Args:
        request: the request. columns: to which it resolved.
        types: column -> Arrow type.
        file: for messages.
        list_width: column of lists -> length of its first list.
    """
    is_word_label = request.name == LABELS and request.dtype is None and len(columns) == 1 and is_text(types[columns[0]])
    if request.kind != "number" or is_word_label:
        return _make_key_field(request, columns, types, file)
    if len(columns) == 1 and _is_list(types[columns[0]]):
        arrow_type = types[columns[0]]
        width = arrow_type.list_size if pa.types.is_fixed_size_list(arrow_type) else list_width(columns[0])
        dtype = _numpy_dtype(arrow_type.value_type, columns[0], request.name, file)
        return Field(request.name, columns, False, request.dtype or dtype, (width,), units=_units(request, [arrow_type.value_type]))
    dtypes = [_numpy_dtype(types[column], column, request.name, file) for column in columns]
    if request.name == "time" and request.dtype is None and np.result_type(*dtypes).kind == "f":
        raise InputError(
            f"{file}: column {columns[0]!r}, wanted for 'time', holds {types[columns[0]]}; times are integers: round them first"
        )
    row_shape = (len(columns),) if request.is_vector or len(columns) > 1 else ()
    is_empty = not row_shape and request.dtype is None and all(pa.types.is_null(types[column]) for column in columns)
    units = _units(request, [types[column] for column in columns])
    dtype = request.dtype or np.result_type(*dtypes)
    if request.name == LABELS and request.dtype is None and row_shape == () and dtype.kind in "bu":
        dtype = np.dtype(np.int64)  # can hold -1, which means no label
    return Field(request.name, columns, False, dtype, row_shape, is_empty, units)


def _units(request: Request, types: Sequence[pa.DataType]) -> tuple[TimeUnit | None, ...]:
    """Return the unit of each column of a field. Columns of `time` are compared, so they get the same unit."""
    units = tuple(unit_of(each) for each in types)
    if request.name == "time" and (common := finest(units)) is not None:
        return (common,) * len(units)
    return units if any(units) else ()


def _make_key_field(request: Request, columns: tuple[str, ...], types: Mapping[str, pa.DataType], file: str) -> Field:
    if len(columns) != 1:
        raise InputError(f"{file}: {request.name!r} is one column, got {', '.join(columns[:_SHOWN])}")
    arrow_type = types[columns[0]]
    if request.kind == "text" or request.as_string or is_text(arrow_type):
        return Field(request.name, columns, True, np.dtype(object), ())
    if not pa.types.is_integer(arrow_type) and not pa.types.is_null(arrow_type):
        hint = f". To take them as strings say {argument('ids', 'string')}" if request.dtype is None else ""
        raise InputError(
            f"{file}: column {columns[0]!r}, wanted for {request.name!r}, holds {arrow_type}; ids are 64-bit integers or strings{hint}"
        )
    return Field(request.name, columns, False, np.dtype(np.int64), ())


def _is_list(arrow_type: pa.DataType) -> bool:
    return pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type)


def make_chunk(fields: Sequence[Field], batch: pa.RecordBatch, first_row: int, where: Callable[[int], str]) -> Chunk:
    """Make a chunk of a record batch; `where`: describes the place of a row of the table, for messages."""
    return Chunk(first_row, {field.name: convert(field, batch, lambda row: where(first_row + row)) for field in fields})


def convert(field: Field, batch: pa.RecordBatch, where: Callable[[int], str]) -> Any:
    """Make the array of one field.

    Args:
        field: the field.
        batch: holds its columns.
        where: row of the batch -> place in the file, for messages.
    Returns:
        array[num_rows, *row_shape], or a pyarrow string array for text.
    """
    columns = [batch.column(column) for column in field.columns]
    if field.name == LABELS and len(columns) == 1 and columns[0].null_count:
        (column,) = columns
        if _is_class(column.type, field):
            if pa.types.is_uint64(column.type):
                _numbers(pc.fill_null(column, 0), replace(field, dtype=np.dtype(np.int64)), 0, where)  # refuses what the cast cannot hold
            columns = [pc.fill_null(column.cast(pa.int64()), -1)]  # no label
        elif field.dtype.kind == "i" and pa.types.is_floating(column.type):  # classes, as pandas writes them where some are missing
            columns = [pc.fill_null(column, pa.scalar(-1.0, column.type))]
    for name, column in zip(field.columns, columns, strict=True):
        if column.null_count and not (field.is_text and field.name != "id") and not _becomes_nan(field, column.type):
            row = int(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[0])
            raise InputError(f"{where(row)}: column {name!r} is empty; {field.name!r} needs a value in every row")
    if field.is_text:
        return as_strings(columns[0])
    if _is_list(columns[0].type):
        return _vectors(field, columns[0], where)
    if field.row_shape == ():
        return _numbers(columns[0], field, 0, where)
    out = np.empty((batch.num_rows, len(columns)), dtype=field.dtype)
    for i, column in enumerate(columns):
        out[:, i] = _numbers(column, field, i, where)
    return out


def _is_class(arrow_type: pa.DataType, field: Field) -> bool:
    is_whole = pa.types.is_integer(arrow_type) or pa.types.is_boolean(arrow_type)
    return is_whole or (pa.types.is_null(arrow_type) and not field.is_text)


def _becomes_nan(field: Field, arrow_type: pa.DataType) -> bool:
    """Whether nulls become NaN (to be allowed or refused when stored): those of numbers in floating-point fields."""
    return field.dtype.kind == "f" and (
        pa.types.is_floating(arrow_type) or pa.types.is_integer(arrow_type) or pa.types.is_decimal(arrow_type)
    )


def as_strings(column: pa.Array) -> pa.Array:
    """A text column, decoded."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _numbers(column: pa.Array, field: Field, index: int, where: Callable[[int], str]) -> np.ndarray:
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    unit, wanted = unit_of(column.type), field.units[index] if field.units else None
    array = column.to_numpy(zero_copy_only=False) if unit is None or wanted is None else _times(column, field, index, where)
    if array.dtype == field.dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(field.dtype)
        if field.dtype.kind in "iub":
            is_lost = (converted.astype(array.dtype) != array) | ((converted < 0) != (array < 0))
        else:
            is_lost = np.isinf(converted) & ~np.isinf(array.astype(np.float64))
    if is_lost.any():
        row = int(np.flatnonzero(is_lost)[0])
        raise InputError(
            f"{where(row)}: column {field.columns[index]!r} holds {array[row]}, which {field.name!r} cannot hold as {field.dtype}"
        )
    return converted


def _times(column: pa.Array, field: Field, index: int, where: Callable[[int], str]) -> np.ndarray:
    """Return dates and times as numbers in the unit of the field."""
    unit, wanted = unit_of(column.type), field.units[index]
    assert unit is not None
    assert wanted is not None
    factor = wanted.per(unit)
    array = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_numpy().astype(np.int64)
    limit = np.iinfo(np.int64).max // factor
    is_far = (array > limit) | (array < -limit)
    if factor > 1 and is_far.any():
        row = int(np.flatnonzero(is_far)[0])
        raise InputError(
            f"{where(row)}: column {field.columns[index]!r} holds {column[row]}, which is too far from {wanted.origin} for {wanted.step}, "
            f"in which other parts of {field.name!r} are written: write those in coarser units, or leave the row out"
        )
    return array * factor


def _vectors(field: Field, column: pa.Array, where: Callable[[int], str]) -> np.ndarray:
    width = field.row_shape[0]
    if not pa.types.is_fixed_size_list(column.type):
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != width)
        if wrong.size:
            raise InputError(
                f"{where(int(wrong[0]))}: list {field.columns[0]!r} has {lengths[wrong[0]]} entries, the first row has {width}"
            )
    values = column.flatten()
    if values.null_count and not _becomes_nan(field, values.type):
        row = int(np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False))[0]) // width
        raise InputError(f"{where(row)}: list {field.columns[0]!r} has an empty entry")
    return _numbers(values, field, 0, lambda entry: where(entry // width)).reshape(len(column), width)
