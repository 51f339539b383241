"""JSON that ends in a checksum of itself, and the entries of arrays in manifests.

In: objects. Out: bytes, and back. Invariant: whatever bytes are read, the result is an object as `seal` wrote it, or a `StoreError` that
says what is wrong; functions that read entries raise ValueError, which `parse` turns into StoreError.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import xxhash

from penstock.errors import MAKE_AGAIN, CorruptStoreError, FormatVersionError, NotAStoreError
from penstock.store.format import BLOCK_BYTES, DTYPES, FORMAT, ArraySpec, row_bytes

T = TypeVar("T")

PART, PARTITION = "penstock-part", "penstock-partition"
_WHAT = {
    FORMAT: "a Penstock store",
    PART: "a part of a partition (penstock.exchange.join opens it)",
    PARTITION: "a partition (penstock.exchange.join opens it)",
}
_CHECKSUM_KEY = '\n "manifest_xxh3": "'
_END = '"\n}\n'
_FILE = re.compile(r"(nodes|edges)(/(?!\.)[\w.~%+,=@ -]+)+\.npy", re.ASCII)
"""Paths that `file_name` can produce: within the store, of plain characters."""
_MAX_BYTES = 1 << 62
"""Largest array, counting dimensions of 0 as 1: NumPy counts in 63 bits."""


def seal(document: dict[str, Any]) -> bytes:
    """Serialise; numbers of NumPy as numbers, and what else JSON lacks as text."""
    text = json.dumps(document, indent=1, ensure_ascii=True, default=_plain).removesuffix("\n}") + "," + _CHECKSUM_KEY
    return (text + xxhash.xxh3_64_hexdigest(text.encode()) + _END).encode()


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def unseal(raw: bytes, where: str, kind: str, version: int) -> dict[str, Any]:
    """Parse and check the bytes of a manifest.

    Args:
        raw: content of the file.
        where: the file, for messages.
        kind, version: the expected "format", and the newest "format_version" that is supported.
    """
    try:
        document = json.loads(raw, parse_float=_number, parse_constant=_number, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise CorruptStoreError(f"{where} is not readable as JSON ({error}): the store is damaged; {MAKE_AGAIN}") from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != kind and isinstance(found, str) and found in _WHAT:
        cut_from = ": give the store that it was cut from" * (kind == FORMAT)
        raise NotAStoreError(f"{where} is that of {_WHAT[found]}, not of {_WHAT[kind].split(' (')[0]}{cut_from}")
    if found != kind:
        raise NotAStoreError(f"{where} is not that of {_WHAT[kind].split(' (')[0]} (its \"format\" is not '{kind}')")
    newest = document.get("format_version")
    if isinstance(newest, int) and newest > version:
        raise FormatVersionError(f"{where} has format version {newest}, this Penstock reads up to {version}: install a newer Penstock")
    body, key, tail = raw.rpartition(_CHECKSUM_KEY.encode())
    if not key or tail != (xxhash.xxh3_64_hexdigest(body + key) + _END).encode():
        raise CorruptStoreError(f"{where} does not match its own checksum: it was damaged or edited; {MAKE_AGAIN}")
    return document


def parse(raw: bytes, where: str, kind: str, version: int, read: Callable[[dict[str, Any]], T]) -> T:
    """Return `read(object)` for a sealed object. An error of `read`, for inconsistent contents, becomes a StoreError that names the
    file."""
    document = unseal(raw, where, kind, version)
    try:
        return read(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptStoreError(f"{where} is inconsistent: {type(error).__name__}: {error}") from None


def to_json(value: Any) -> Any:
    """Return the fields of a dataclass by name, without those that are None."""
    if isinstance(value, ArraySpec):
        spec = {"file": value.file, "dtype": value.dtype, "shape": value.shape, "bytes": value.data_bytes, "xxh3": value.checksums}
        return spec | ({"properties": value.properties} if value.properties else {})
    if is_dataclass(value):
        return {each.name: to_json(found) for each in fields(value) if (found := getattr(value, each.name)) is not None}
    return {key: to_json(each) for key, each in value.items()} if isinstance(value, dict) else value


def spec_from_json(document: dict[str, Any], num_rows: int | None = None) -> ArraySpec:
    """Read the entry of an array as `to_json` wrote it; `num_rows`: that the array must have."""
    spec = ArraySpec(
        file=document["file"],
        dtype=document["dtype"],
        shape=tuple(count(length) for length in document["shape"]),
        checksums=tuple(texts(document["xxh3"])),
        properties=dict(document.get("properties", {})),
    )
    demand(_FILE.fullmatch(spec.file) is not None, f"{spec.file!r} is no file of an array of a store")
    demand(spec.dtype in DTYPES and 1 <= len(spec.shape) <= 32, f"{spec.file} has dtype {spec.dtype} and shape {spec.shape}")
    demand(row_bytes(spec.storage_dtype, tuple(n or 1 for n in spec.shape)) <= _MAX_BYTES, f"{spec.file} has shape {spec.shape}")
    demand(num_rows in (None, *spec.shape[:1]), f"{spec.file} has shape {spec.shape} for {num_rows} rows")
    demand(len(spec.checksums) == -(-spec.data_bytes // BLOCK_BYTES), f"{spec.file} has {len(spec.checksums)} checksums")
    if "num_classes" in spec.properties or "class_names" in spec.properties:
        num_classes = count(spec.properties["num_classes"])
        names = texts(spec.properties.get("class_names", []))
        demand(len(names) in (0, num_classes), f"{spec.file} has {len(names)} names for {num_classes} classes")
    return spec


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; a name that occurs twice is refused, since parsers differ in which value they take."""
    document = dict(pairs)
    demand(len(document) == len(pairs), "an object has a name twice")
    "".join(document).encode()  # raises for half a character
    return document


def _number(text: str) -> Any:
    """Parse a JSON number with a point or exponent; NaN and infinity stay text, since they could not be written again."""
    value = float(text)
    return value if math.isfinite(value) else text


def texts(value: Any) -> list[str]:
    """Return a list of texts, or raise."""
    demand(isinstance(value, list) and all(isinstance(each, str) for each in value), f"{value!r:.60} is no list of texts")
    "".join(value).encode()  # raises for half a character
    return value


def count(value: Any) -> int:
    """Return an integer from 0 on, or raise."""
    demand(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62, f"{value!r} is not a count")
    return value


def demand(condition: bool, message: str) -> None:
    """Raise ValueError unless `condition` holds."""
    if not condition:
        raise ValueError(message)
