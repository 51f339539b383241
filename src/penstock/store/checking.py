"""Checking a store: quickly, that it is complete; deeply, that all checksums and invariants hold.

In: a path. Out: a report with all findings. A deep check reads each array once, in blocks, in bounded memory; a checksum that does not
match is reported with the file and the range of bytes, a value that breaks a rule with its row.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xxhash

from penstock.errors import CorruptStoreError, StoreError
from penstock.store.arrays import ArrayFile
from penstock.store.check_ids import check_id_table
from penstock.store.check_packed import check_packed
from penstock.store.files import as_bytes
from penstock.store.format import BLOCK_BYTES, DATA_OFFSET, ENDS, MANIFEST, ArraySpec
from penstock.store.ingestion.splits import shared_nodes
from penstock.store.manifest import Manifest
from penstock.store.opened import Store
from penstock.store.progress import Progress, Quiet, stage

PIECE_BYTES = 4 << 20
assert BLOCK_BYTES % PIECE_BYTES == 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with one file of a store."""

    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


@dataclass(slots=True, kw_only=True)
class CheckReport:
    """Result of a check.

    Attributes:
        path: the store.
        is_deep: whether contents were read.
        findings: empty if nothing is wrong.
        num_arrays, num_bytes, seconds: how much was checked, and how long that took.
    """

    path: str
    is_deep: bool
    findings: list[Finding] = field(default_factory=list)
    num_arrays: int = 0
    num_bytes: int = 0
    seconds: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        if self.is_ok:
            what = (
                "every checksum and invariant holds"
                if self.is_deep
                else "sizes and headers fit the manifest (a deep check reads the contents too)"
            )
            return f"{self.path}: {what}; {self.num_arrays} arrays, {self.num_bytes:,} bytes, {self.seconds:.1f} s"
        number = len(self.findings)
        return "\n".join([f"{self.path}: {number} finding{'s' * (number > 1)}", *(f"  {finding}" for finding in self.findings)])


class Bounds:
    """A rule about the values of an array: they lie in [low, high]."""

    def __init__(self, low: int, high: int | None) -> None:
        self._low, self._high = low, high

    def feed(self, first_row: int, rows: np.ndarray) -> str | None:
        """Return what is wrong with the next block of rows, or None."""
        bad = rows < self._low if self._high is None else (rows < self._low) | (rows > self._high)
        if not bad.any():
            return None
        row = int(np.argmax(bad.reshape(len(rows), -1).any(axis=1)))
        return f"row {first_row + row} is {rows[row]}, which is not in [{self._low}, {'...' if self._high is None else self._high}]"


class Ascending:
    """A rule: values ascend, strictly or not; the first and last value may be prescribed."""

    def __init__(self, num_rows: int, *, is_strict: bool = False, first: int | None = None, last: int | None = None) -> None:
        self._num_rows = num_rows
        self._is_strict = is_strict
        self._first = first
        self._last = last
        self._before: Any = None

    def feed(self, first_row: int, rows: np.ndarray) -> str | None:
        """Return what is wrong with the next block of rows, or None."""
        if first_row == 0 and self._first is not None and rows[0] != self._first:
            return f"row 0 is {rows[0]}, not {self._first}"
        if first_row + len(rows) == self._num_rows and self._last is not None and rows[-1] != self._last:
            return f"the last row is {rows[-1]}, not {self._last}"
        joined = rows if self._before is None else np.concatenate([self._before, rows])
        bad = joined[1:] <= joined[:-1] if self._is_strict else joined[1:] < joined[:-1]
        offset = first_row + len(rows) - len(joined)
        self._before = rows[-1:].copy()
        if not bad.any():
            return None
        row = int(np.argmax(bad))
        return f"row {offset + row + 1} is {joined[row + 1]} after {joined[row]}: values must ascend"


Rule = Bounds | Ascending


def check(path: str | os.PathLike[str], *, deep: bool = False, progress: Progress | None = None) -> CheckReport:
    """Check a store.

    Args:
        path: the folder.
        deep: read everything: checksums and invariants.
        progress: receives the bytes read.
    Raises:
        NotAStoreError, FormatVersionError: there is no store, or none that this version can check.
    """
    report = CheckReport(path=os.fspath(path), is_deep=deep)
    start = time.perf_counter()
    try:
        store = Store(path, check_arrays=False)
    except CorruptStoreError as error:
        report.findings.append(Finding(MANIFEST, str(error)))
        return report
    manifest = store.manifest
    arrays = list(manifest.all_arrays())
    report.num_arrays, report.num_bytes = len(arrays), sum(spec.data_bytes for spec in arrays)
    sound = [spec for spec in arrays if has_shape(store, spec, report)]
    report.findings += _check_ends(store, {spec.file for spec in sound})
    if deep:
        rules = _rules(manifest)
        with stage(progress or Quiet(), f"check {report.path}", sum(spec.data_bytes for spec in sound), "bytes"):
            for spec in sound:
                report.findings += check_contents(store, spec, rules.get(spec.file, []), progress or Quiet())
        if report.is_ok:
            report.findings += _check_relations(store)
    report.seconds = time.perf_counter() - start
    return report


class Holder(Protocol):
    """An object with arrays: a store, or a part of a partition."""

    @property
    def path(self) -> Path: ...  # noqa: D102

    def array_file(self, spec: ArraySpec) -> ArrayFile: ...  # noqa: D102


def has_shape(store: Holder, spec: ArraySpec, report: CheckReport) -> bool:
    """Whether size and header of an array agree with the manifest; if not, a finding is added to the report."""
    try:
        store.array_file(spec).check_shape()
    except StoreError as error:
        message = str(error).removeprefix(f"{store.path}: ").removeprefix(f"{spec.file} ")  # the finding names both anyway
        report.findings.append(Finding(spec.file, message))
        return False
    return True


def _check_ends(store: Store, sound: set[str]) -> Iterator[Finding]:
    """Check the first and last value of every indptr, which show whether it belongs to its indices."""
    for entry in store.manifest.edges.values():
        if entry.indptr.file not in sound:
            continue
        indptr = store.array_file(entry.indptr)
        ends = int(indptr.read(0, 1)[0]), int(indptr.read(entry.indptr.shape[0] - 1, 1)[0])
        if ends != (0, entry.num_edges):
            yield Finding(entry.indptr.file, f"goes from {ends[0]} to {ends[1]}, not from 0 to {entry.num_edges}")


def _rules(manifest: Manifest) -> dict[str, list[Rule]]:
    """Return the rules for the values of each file."""
    rules: dict[str, list[Rule]] = {}
    for node in manifest.nodes.values():
        for spec in node.fields.values():
            if "num_classes" in spec.properties:
                rules[spec.file] = [Bounds(-1, spec.properties["num_classes"] - 1)]
        for spec in (spec for parts in node.splits.values() for spec in parts.values()):
            rules[spec.file] = [Ascending(spec.shape[0], is_strict=True), Bounds(0, node.num_nodes - 1)]
        if node.packed:
            rules[node.packed.rows.file] = [Bounds(0, node.num_nodes - 1)]
        if node.ids:
            arrays = node.ids.arrays
            rules[arrays["id_cells"].file] = [Ascending(arrays["id_cells"].shape[0], last=node.num_nodes), Bounds(0, node.num_nodes)]
            rules[arrays["id_rows"].file] = [Bounds(0, node.num_nodes - 1)]
            if "id_offsets" in arrays:
                num_bytes = arrays["id_bytes"].shape[0]
                rules[arrays["id_offsets"].file] = [Ascending(node.num_nodes + 1, first=0, last=num_bytes)]
    for (source, _, destination), edge in manifest.edges.items():
        rules[edge.indptr.file] = [Ascending(edge.indptr.shape[0], first=0, last=edge.num_edges)]
        rules[edge.indices.file] = [Bounds(0, manifest.nodes[source].num_nodes - 1)]
        if edge.edge_id:
            rules[edge.edge_id.file] = [Bounds(0, None)]
        for columns in edge.links.values():
            for end, node_type in zip(ENDS, (source, destination), strict=True):
                rules[columns[end].file] = [Bounds(0, manifest.nodes[node_type].num_nodes - 1)]
    return rules


def check_contents(store: Holder, spec: ArraySpec, rules: list[Rule], progress: Progress) -> Iterator[Finding]:
    """Read one array; yield blocks whose checksum does not match, and the first violation of each rule about its values."""
    open_rules = list(rules)
    checksum, block, position = xxhash.xxh3_64(), 0, 0
    for first_row, rows in store.array_file(spec).blocks(PIECE_BYTES):
        buffer = as_bytes(rows)
        while len(buffer):
            part = buffer[: (block + 1) * BLOCK_BYTES - position]
            checksum.update(part)
            position, buffer = position + len(part), buffer[len(part) :]
            if position in ((block + 1) * BLOCK_BYTES, spec.data_bytes):
                if checksum.hexdigest() != spec.checksums[block]:
                    first_byte = DATA_OFFSET + block * BLOCK_BYTES
                    yield Finding(
                        spec.file, f"bytes {first_byte} to {DATA_OFFSET + position - 1} do not match their checksum: they were altered"
                    )
                checksum, block = xxhash.xxh3_64(), block + 1
        for rule in list(open_rules):
            if message := rule.feed(first_row, rows):
                open_rules.remove(rule)
                yield Finding(spec.file, message)
        progress.advance(rows.nbytes)


def _check_relations(store: Store) -> Iterator[Finding]:
    """Check rules between arrays, for arrays that passed their own checks."""
    for name, node in store.manifest.nodes.items():
        for split, parts in node.splits.items():
            for (one, spec), (other, others) in combinations(parts.items(), 2):
                shared = shared_nodes(store.map(spec), store.map(others))
                if shared.size:
                    yield Finding(spec.file, f"node {shared[0]} of split '{split}' is in '{one}' and in '{other}'")
        for file, message in check_packed(store, node):
            yield Finding(file, message)
        if node.ids:
            message = check_id_table(node.ids, {key: store.map(spec) for key, spec in node.ids.arrays.items()})
            if message:
                yield Finding(node.ids.arrays["id_rows"].file, f"ids of '{name}': {message}")
