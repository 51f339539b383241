"""The interface of sources for ingestion: typed tables of nodes and edges that are read in chunks.

In: files, arrays or a generator. Out: chunks of columns in row order. Invariants: a table can be read any number of times, and delivers the
same rows each time (ingestion reads edges twice); only one chunk is in memory; row numbers are kept, so that a message about bad input can
name the file and the line.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.errors import InputError
from penstock.records import EdgeType, NodeType
from penstock.sources.time_units import TimeUnit

SRC = "src"
DST = "dst"
ID = "id"
LABELS = "y"
"""Names of the columns that hold the ends of an edge, the user's id of a node, and its class."""

CHUNK_ROWS = 1 << 16
"""Rows to read at once if the size of rows does not matter."""

TEXT_BYTES = 40
"""Estimated memory of a text, with its offset and hash. Tables with longer texts deliver fewer rows at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One field of a table.

    Attributes:
        name: `src` and `dst` in edge tables, `id` in node tables, or a field: x, y, weight, time, ...
        dtype: of one element; `object` only for strings: ids, and labels to be numbered (chunks then hold pyarrow string arrays).
        row_shape: shape of one row: () for a scalar, (128,) for 128 features.
        is_bfloat16: the dtype is uint16, holding the bits of bfloat16 numbers, which NumPy lacks.
        is_parsed: the values are written as text; used only to forecast time.
        is_empty: there is no value, so the dtype is arbitrary.
        units: if file columns hold dates or times: the unit of each, or None for numbers; else ().
    """

    name: str
    dtype: np.dtype
    row_shape: tuple[int, ...] = ()
    is_bfloat16: bool = False
    is_parsed: bool = field(default=False, compare=False)
    is_empty: bool = field(default=False, compare=False)
    units: tuple[TimeUnit | None, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (strings count as their 8-byte hash)."""
        return int(np.prod(self.row_shape, dtype=np.int64)) * (8 if self.dtype == object else self.dtype.itemsize)

    @property
    def unit(self) -> TimeUnit | None:
        """The common unit of all values, if they are times with one unit."""
        return self.units[0] if len({*self.units}) == 1 else None


@dataclass(slots=True)
class Chunk:
    """Consecutive rows of a table.

    Attributes:
        first_row: number of the first row within the table.
        columns: column name -> array[num_rows, *row_shape], or a pyarrow string array for string ids.
    Raises:
        InputError: columns of different lengths.
    """

    first_row: int
    columns: dict[str, Any]

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len({*lengths.values()}) > 1:
            raise InputError(f"columns of a chunk must have equally many rows, got {lengths}")

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))


class Table(ABC):
    """Rows with named columns, read in order and as often as needed.

    Attributes:
        name: for messages: a file, a folder, an array.
        columns: by name.
        num_rows: None if it is not known before reading.
        class_names: the word of each class, if labels are words.
    """

    name: str
    columns: Mapping[str, Column]
    num_rows: int | None
    class_names: Sequence[str] = ()

    @abstractmethod
    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Yield chunks from the first row on, of 1 to `max_rows` rows, with columns as in `columns`; `names`: only these, in this order.
        Every call yields the same rows, also while another reading is under way."""

    @property
    def expected_rows(self) -> int | None:
        """The number of rows; an estimate, or None, if it is not known before reading."""
        return self.num_rows

    @property
    def reader_bytes(self) -> int:
        """Memory of the reader beside the rows, if it is large."""
        return 0

    def where(self, row: int) -> str:
        """Return where a row is, for a message: 'edges.csv, line 17'."""
        return f"{self.name}, row {row}"

    def holding(self, column: str) -> Table:
        """The table that has a column, if several are joined."""
        return self


class ChangedTable(Table):
    """Base of tables that change the rows of another table.

    Args:
        table: the other table.
        columns: as delivered.
    """

    def __init__(self, table: Table, columns: Mapping[str, Column]) -> None:
        self.name = table.name
        self.columns = columns
        self.num_rows = table.num_rows
        self._table = table

    @property
    def expected_rows(self) -> int | None:
        """As the other table."""
        return self._table.expected_rows

    @property
    def reader_bytes(self) -> int:
        """That of the other table."""
        return self._table.reader_bytes

    def where(self, row: int) -> str:
        """The place of a row in the other table."""
        return self._table.where(row)

    def holding(self, column: str) -> Table:
        """That of the other table."""
        return self._table.holding(column) if column in self._table.columns else self


@dataclass(slots=True, kw_only=True)
class NodeTable:
    """The nodes of one type.

    Attributes:
        node_type: name.
        num_nodes: None if it is not known before reading (the largest id in use plus one, or the number of distinct ids).
        table: per-node fields in row order; with a column `id` the rows name the nodes, else row i is node i. None without fields.
        num_classes: of the labels `y`, if the source gives it; None: the largest label plus one.
    """

    node_type: NodeType
    num_nodes: int | None = None
    table: Table | None = None
    num_classes: int | None = None


@dataclass(slots=True, kw_only=True)
class EdgeTable:
    """The edges of one type: columns `src`, `dst` and any fields (weight, time, x, ...)."""

    edge_type: EdgeType
    table: Table


@dataclass(slots=True, kw_only=True)
class Source:
    """A whole graph.

    Attributes:
        nodes, edges: tables by type, in the order of the store.
        is_homogeneous: there is one node type and one edge type, and batches are `Data`.
        is_undirected: of edges between nodes of one type only one direction is here; ingestion adds the other.
        mapped: node types whose ids are not 0..n-1: any 64-bit integers, or strings.
        splits: node type -> split name -> part ("train", "val", "test") -> int64 row numbers of the node type.
        provenance: information about the origin, to be recorded.
    """

    nodes: dict[NodeType, NodeTable]
    edges: dict[EdgeType, EdgeTable]
    is_homogeneous: bool
    is_undirected: bool = False
    mapped: frozenset[NodeType] = frozenset()
    splits: dict[NodeType, dict[str, dict[str, np.ndarray]]] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)


class ArrayTable(Table):
    """A table over arrays in memory or memory-mapped; also the way to give strings: pyarrow arrays."""

    def __init__(self, columns: Mapping[str, Any], name: str, bfloat16: frozenset[str] = frozenset()) -> None:
        self._arrays, self.name = dict(columns), name
        self.columns = {key: _describe(key, array, key in bfloat16) for key, array in self._arrays.items()}
        self.num_rows = len(next(iter(self._arrays.values()))) if self._arrays else 0

    def chunks(self, max_rows: int, names: tuple[str, ...] | None = None) -> Iterator[Chunk]:
        """Yield slices of the arrays."""
        names = tuple(self._arrays) if names is None else names
        for first in range(0, self.num_rows or 0, max_rows):
            yield Chunk(first, {name: self._arrays[name][first : first + max_rows] for name in names})


def _describe(name: str, array: Any, is_bfloat16: bool) -> Column:
    if isinstance(array, np.ndarray):
        return Column(name=name, dtype=array.dtype, row_shape=array.shape[1:], is_bfloat16=is_bfloat16)
    return Column(name=name, dtype=np.dtype(object))
