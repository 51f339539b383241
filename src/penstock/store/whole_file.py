"""Files that are there whole or not at all.

In: a path. Out: another beside it to write to, which takes its place at the end. Invariant: whatever fails, what was there before is
untouched and nothing lies beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import StoreError, reason_of


@contextmanager
def replacing(path: Path, hint: str = "", *, what: str = "") -> Iterator[Path]:
    """Give a path to write to within the block, in place of `path`.

    Args:
        hint: what to do where it cannot be written; what: that it is, before its name.
    Raises:
        StoreError: where the system refuses.
    """
    aside = path.with_name(f".{path.name}.partial")
    try:
        aside.unlink(missing_ok=True)  # what a link of that name leads to is not to be written to
        yield aside
        os.replace(aside, path)
    except OSError as error:
        message = f"cannot write {what}{path}: {reason_of(error)}"
        raise StoreError(f"{message}: {hint}" if hint else message) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
