"""Files of one table: names, patterns and folders of part files -> one table, whatever the format of the files."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from penstock.errors import InputError, MissingFileError, UsageError, refuse_unseen
from penstock.sources.array_file import ArrayFile, open_npy
from penstock.sources.array_table import ArrayFileTable, ArrayRows, array_rows, edge_columns
from penstock.sources.columns import ColumnsTable, Request
from penstock.sources.csv_layout import COMPRESSED, CsvLayout, find_layout
from penstock.sources.csv_table import CsvTable
from penstock.sources.matrix_market import Header, MatrixTable, read_header
from penstock.sources.parquet_table import ParquetTable
from penstock.sources.source import Table
from penstock.sources.tables import ConcatenatedTable, has_rows
from penstock.sources.time_units import finest
from penstock.sources.torch_file import open_pt

Files = str | Path | Sequence[str | Path]
"""A file, a pattern, a folder of part files, or a list of these. Parts are taken in the order of their names."""

_ARRAYS = (".npy", ".pt")
_CSV, _PARQUET, _MATRIX = (".csv", ".tsv", ".txt", ".edges"), (".parquet", ".pq"), (".mtx",)


def file_format(path: Path) -> str:
    """Return "csv", "mtx", "parquet", "npy" or "" by the suffix, in lower or upper case, ignoring compression."""
    suffix = (Path(path.stem) if path.suffix.lower() in COMPRESSED else path).suffix.lower()
    formats = {"csv": _CSV, "mtx": _MATRIX, "parquet": _PARQUET, "npy": (".npy",)}
    return next((name for name, suffixes in formats.items() if suffix in suffixes), "")


def are_arrays(files: Files) -> bool:
    """Tell whether these are names of arrays (`.npy`), or of tensors that `torch.save` wrote (`.pt`)."""
    return all(Path(item).suffix.lower() in _ARRAYS for item in ([files] if isinstance(files, str | Path) else files))


def open_array(path: Path) -> ArrayFile:
    """Describe the array in a `.npy` or `.pt` file."""
    return open_pt(path) if path.suffix.lower() == ".pt" else open_npy(path)


def expand(files: Files, base: Path) -> list[Path]:
    """Return the files for a name, pattern, folder or list; relative names start at `base`."""
    found: list[Path] = []
    for item in [files] if isinstance(files, str | Path) else files:
        path = base / item
        if path.is_dir():
            parts = sorted(part for part in path.iterdir() if file_format(part))
        elif any(sign in str(item) for sign in "*?[") and not path.exists():
            parts = [Path(part) for part in sorted(glob.glob(str(path)))]
        elif path.exists():
            parts = [path]
        else:
            refuse_unseen(path)
            raise MissingFileError(f"{path}: no such file or folder")
        if not parts:
            raise MissingFileError(f"{path}: no CSV, Parquet, .mtx or .npy file there")
        found += parts
    return found


def open_files(
    files: Files, requests: Sequence[Request], base: Path, delimiter: str | None = None, has_header: bool | None = None
) -> Table:
    """Open the part files of one table of columns.

    Args:
        files: CSV, Parquet or Matrix Market files.
        requests: the fields to read.
        base: where relative names start.
        delimiter, has_header: of CSV files; None: detect them.
    """
    parts: list[ColumnsTable] = []
    paths = expand(files, base)
    layouts = _layouts([path for path in paths if file_format(path) == "csv"], requests, delimiter, has_header)
    for path in paths:
        kind = file_format(path)
        if kind == "csv":
            parts.append(CsvTable(path, requests, layout=layouts[path]))
        elif kind == "mtx":
            parts.append(MatrixTable(path, requests))
        elif kind == "parquet":
            parts.append(ParquetTable(path, requests))
        else:
            known = ", ".join(_CSV + _MATRIX + _PARQUET)
            raise UsageError(f"{path}: not a table; known endings are {known}, and .gz, .bz2 or .zst after all but the last two")
    for request in requests:
        _check_columns(parts, request)
    _agree_on_units(parts)
    return parts[0] if len(parts) == 1 else ConcatenatedTable(parts, str(base / files if isinstance(files, str | Path) else base))


def _layouts(paths: Sequence[Path], requests: Sequence[Request], delimiter: str | None, has_header: bool | None) -> dict[Path, CsvLayout]:
    """Return the layout of each CSV file. Where some have a header, the others have the columns of the first of these, as of a file that
    was cut by lines."""
    found = {path: find_layout(path, requests, delimiter, has_header) for path in paths}
    first = next((path for path, layout in found.items() if layout.has_header), None)
    if first is None:
        return found
    names = found[first].column_names
    for path, layout in found.items():
        if layout.has_header:
            continue
        if len(layout.column_names) != len(names):
            raise InputError(
                f"{path}: has no header, and {len(layout.column_names)} columns where that of {first} names {len(names)}; parts of one "
                "table must agree"
            )
        found[path] = replace(layout, has_header=True, column_names=names)
    return found


def matrix_header(files: Files, base: Path) -> Header | None:
    """Return the header of the matrix that these files are; None if they are anything else."""
    paths = [] if are_arrays(files) else expand(files, base)
    if not any(file_format(path) == "mtx" for path in paths):
        return None
    if len(paths) > 1:
        raise UsageError(f"{paths[0]}: one of {len(paths)} files, and a matrix is in one")
    return read_header(paths[0])


def _check_columns(parts: Sequence[ColumnsTable], request: Request) -> None:
    """Refuse parts in which a pattern or range means other columns than in the first part, or these in another order."""
    made_of = {part: part.columns_of(request.name) for part in parts}
    if request.is_default or request.is_by_position or len({*made_of.values()}) == 1:
        return
    first, ours = next(((part, columns) for part, columns in made_of.items() if columns and has_rows(part)), (parts[0], ()))
    for part, theirs in made_of.items():
        differ = [(here, there) for here, there in zip(theirs, ours, strict=False) if here != there]
        if len(ours) == len(theirs) and differ and has_rows(part):
            here, there = differ[0]
            raise InputError(
                f"{part.name}: {request.name!r} has column {here!r} where it has {there!r} in {first.name}; parts of one table must agree: "
                "list the columns in their order"
            )


def _agree_on_units(parts: Sequence[ColumnsTable]) -> None:
    """Convert dates and times of a field to the finest unit of all parts that have rows."""
    for name in parts[0].columns:
        alike = [part for part in parts if name in part.columns]
        if len({part.columns[name].units for part in alike}) == 1:
            continue
        alike = [part for part in alike if has_rows(part)]
        units = [part.columns[name].units for part in alike]
        if len({len(each) for each in units}) == 1:
            common = [finest(each) for each in zip(*units, strict=True)]
            for part, own in zip(alike, units, strict=True):
                part.count_in(name, tuple(new or old for new, old in zip(common, own, strict=True)))


def open_arrays(fields: Mapping[str, Files], base: Path) -> list[Table]:
    """Open fields that are arrays, one row of the array for each row of the table."""
    return [_open_parts(files, base, lambda file, name=name: {name: array_rows(file)}) for name, files in fields.items()]


def open_edge_arrays(files: Files, base: Path) -> Table:
    """Open the ends of edges that are arrays of shape [2, edges], or pairs of shape [edges, 2]."""
    return _open_parts(files, base, lambda file: edge_columns(file, or_pairs=True))


def _open_parts(files: Files, base: Path, rows: Callable[[ArrayFile], dict[str, ArrayRows]]) -> Table:
    parts = [ArrayFileTable(rows(open_array(path)), str(path)) for path in expand(files, base)]
    return parts[0] if len(parts) == 1 else ConcatenatedTable(parts, parts[0].name)
