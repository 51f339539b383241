"""The format of a store on disk: names, versions, dtypes and the header of its arrays.

In: dtypes and shapes. Out: bytes and file names. Invariant: the header of an array is a pure function of dtype and shape, so a reader
compares it as a whole instead of parsing it. Every array is an `.npy` whose data begin at byte 4096 (the format allows the padding):
`np.load(mmap_mode="r")` reads it, and it is aligned for direct I/O.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from penstock.errors import InputError
from penstock.records import EdgeType

FORMAT = "penstock-store"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
FOLDERS = ("nodes", "edges")
DATA_OFFSET = 4096
BLOCK_BYTES = 1 << 26
"""Each 64 MiB of an array's data have their own checksum (XXH3-64), so that damage can be located."""

ENDS = ("src", "dst")
"""Columns that hold the ends of links that were held out of the graph."""
HELD_OUT = "held_out"
"""In the provenance of a store: edge type -> how links were held out of it."""

BFLOAT16 = "bfloat16"
DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
} | {BFLOAT16: np.dtype("<u2")}
"""Logical dtype -> the dtype of its bytes on disk. NumPy lacks bfloat16: its bits are kept as uint16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """One array of a store.

    Attributes:
        file: path within the store, with forward slashes.
        dtype: logical dtype, a key of `DTYPES`.
        shape: rows first.
        checksums: XXH3-64 of each `BLOCK_BYTES` of the data, as 16 hex digits.
        properties: facts about the values: `num_classes` of labels and their `class_names` if they were words, `is_ascending` of times,
            `unit` of dates and times ("seconds since 1970-01-01"), how features were `aggregated` (see `penstock.aggregate`).
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    checksums: tuple[str, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def storage_dtype(self) -> np.dtype:
        """The dtype of the bytes on disk."""
        return DTYPES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return row_bytes(self.storage_dtype, self.shape[1:])

    @property
    def data_bytes(self) -> int:
        """Bytes of the data, without the header."""
        return self.shape[0] * self.row_bytes


def row_bytes(dtype: np.dtype, row_shape: tuple[int, ...]) -> int:
    """Return the bytes of one row, as a Python integer: the shape in a damaged manifest cannot make it overflow."""
    total = int(dtype.itemsize)
    for length in row_shape:
        total *= int(length)
    return total


def npy_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Return the first 4096 bytes of an `.npy` file (version 1.0) of this dtype and shape."""
    lengths = ", ".join(str(int(length)) for length in shape) + ("," if len(shape) == 1 else "")
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({lengths}), }}"
    length = DATA_OFFSET - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.encode("latin1").ljust(length - 1) + b"\n"


def folder_of_nodes(node_type: str) -> str:
    """Return the folder of a node type within the store."""
    return f"nodes/{file_name(node_type)}"


def folder_of_edges(edge_type: EdgeType) -> str:
    """Return the folder of an edge type within the store; `__` separates its parts and occurs nowhere else."""
    return "edges/" + "__".join(re.sub("^_|_$|(?<=_)_", "%5F", file_name(part)) for part in edge_type)


def folder_of_links(edge_type: EdgeType, part: str) -> str:
    """Return the folder of a part of the links of an edge type within the store."""
    return f"{folder_of_edges(edge_type)}/links/{file_name(part)}"


def file_name(name: str) -> str:
    """Turn the name of a type, field or split into a file name; unusual characters are percent-encoded, as in URLs."""
    if not name or len(name) > 80:
        raise InputError(f"names of types, fields and splits have 1 to 80 characters, got {len(name)}: {name[:100]!r}")
    try:
        encoded = quote(name, safe=" +,=@")
    except UnicodeEncodeError:
        raise InputError(f"names of types, fields and splits are text, got {name!r}: half a character") from None
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded
