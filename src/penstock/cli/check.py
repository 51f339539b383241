"""`penstock check STORE`: whether a store is complete; with `--deep`, whether all checksums and invariants hold."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.console import AsJson, make_progress, show
from penstock.report import words


def check(
    store: Annotated[Path, typer.Argument(help="Folder of the store, of a partition, or of a part.")],
    deep: Annotated[bool, typer.Option("--deep", help="Read everything: checksums and every invariant.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check a store or a partition: sizes and headers, with --deep everything. Exit code 2 if it is damaged."""
    from penstock.partition import check_partition, is_partition
    from penstock.store import check as check_store

    check_it = check_partition if is_partition(store) else check_store
    report = check_it(store, deep=deep, progress=make_progress() if deep else None)
    show({**asdict(report), "is_ok": report.is_ok}, lambda: str(report), as_json)
    if not report.is_ok:
        words.say(f"penstock: {store} is damaged: make it again, or restore it from a copy")
    return 0 if report.is_ok else 2
