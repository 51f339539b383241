"""Checking the parts of a partition, as `penstock.store.check` checks a store.

In: a path. Out: a report with all findings; those of a partition name the part.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from penstock.errors import CorruptStoreError, NotAStoreError
from penstock.partition.part import Part, num_parts_at
from penstock.store.checking import Ascending, Bounds, CheckReport, Finding, Rule, check_contents, has_shape
from penstock.store.format import ENDS, MANIFEST
from penstock.store.progress import Progress, Quiet, stage


def check_partition(path: str | os.PathLike[str], *, deep: bool = False, progress: Progress | None = None) -> CheckReport:
    """Check a partition, or a part of one.

    Args:
        path: the folder of either. deep: read everything, to check checksums and invariants. progress: receives the bytes read.
    """
    report, started = CheckReport(path=os.fspath(path), is_deep=deep), time.perf_counter()
    try:
        num_parts = num_parts_at(path)
    except CorruptStoreError as error:
        report.findings.append(Finding(MANIFEST, str(error)))
        return report
    digests = set()
    for folder in [Path(path)] if num_parts is None else [Path(path) / f"part-{number}" for number in range(num_parts)]:
        prefix = "" if num_parts is None else f"{folder.name}/"
        try:
            part = Part(folder, check_arrays=False)
        except (CorruptStoreError, NotAStoreError) as error:
            report.findings.append(Finding(f"{prefix}{MANIFEST}", str(error)))
            continue
        digests.add(part.manifest.digest)
        found = _check_part(part, report, progress or Quiet())
        report.findings += [Finding(prefix + one.file, one.message) for one in found]
    if len(digests) > 1:
        report.findings.append(Finding(MANIFEST, "the parts are of several partitions"))
    report.seconds = time.perf_counter() - started
    return report


def _check_part(part: Part, report: CheckReport, progress: Progress) -> list[Finding]:
    arrays, own = part.manifest.arrays(), CheckReport(path=report.path, is_deep=report.is_deep)
    report.num_arrays += len(arrays)
    report.num_bytes += sum(spec.data_bytes for spec in arrays)
    sound = [spec for spec in arrays if has_shape(part, spec, own)]
    if report.is_deep:
        rules = _rules(part)
        with stage(progress, f"check part {part.number}", sum(spec.data_bytes for spec in sound), "bytes"):
            for spec in sound:
                own.findings += check_contents(part, spec, rules.get(spec.file, []), progress)
        if own.is_ok:
            own.findings += _check_books(part)
    return own.findings


def _rules(part: Part) -> dict[str, list[Rule]]:
    """Return the rules for the values of each file."""
    rules: dict[str, list[Rule]] = {}
    for node in part.manifest.nodes.values():
        rules[node.places.file] = [Bounds(0, node.num_nodes - 1)]
        if node.trainers is not None:
            rules[node.trainers.file] = [Bounds(0, part.manifest.num_trainers - 1)]
        for spec in (spec for parts in node.splits.values() for spec in parts.values()):
            rules[spec.file] = [Ascending(spec.shape[0], is_strict=True), Bounds(0, node.num_nodes - 1)]
    for (source, _, target), edge in part.manifest.edges.items():
        rules[edge.indptr.file] = [Ascending(edge.indptr.shape[0], first=0, last=edge.num_edges)]
        rules[edge.list_ptr.file] = [Ascending(edge.list_ptr.shape[0], first=0, last=edge.indices.shape[0])]
        rules[edge.indices.file] = [Bounds(0, part.manifest.nodes[source].num_nodes - 1)]
        for columns in edge.links.values():
            for end, node_type in zip(ENDS, (source, target), strict=True):
                rules[columns[end].file] = [Bounds(0, part.manifest.nodes[node_type].num_nodes - 1)]
    return rules


def _check_books(part: Part) -> list[Finding]:
    """Check that every node has a place of its own, and that this part's lists have the lengths given by the row pointers."""
    found, nodes = [], part.manifest.nodes
    for node_type, book in part.books.items():
        if np.unique(book.places).size != book.num_rows:
            found.append(Finding(nodes[node_type].places.file, "two nodes have one place"))
    if found:
        return found
    for edge_type, edge in part.manifest.edges.items():
        book = part.books[edge_type[2]]
        mine = np.flatnonzero(book.owners(np.arange(book.num_rows)) == part.number)
        indptr = part.map(edge.indptr)
        if not np.array_equal(np.diff(part.map(edge.list_ptr)), indptr[mine + 1] - indptr[mine]):
            found.append(Finding(edge.list_ptr.file, f"does not fit {edge.indptr.file}: a list has another length"))
    return found
