"""Writing files atomically.

In: a path. Out: another path beside it to write to, which replaces it at the end. Invariant: after a failure the old file is unchanged, and
no temporary file is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import StoreError, reason_of


@contextmanager
def replacing(path: Path, hint: str = "", *, what: str = "") -> Iterator[Path]:
    """Yield a path to write to within the block; at its end that file replaces `path`.

    Args:
        hint: advice for the message if it cannot be written. what: put before the path in the message, such as "the checkpoint ".
    Raises:
        StoreError: it cannot be written.
    """
    aside = path.with_name(f".{path.name}.partial")
    try:
        aside.unlink(missing_ok=True)  # if it is a link, its target must not be written to
        yield aside
        os.replace(aside, path)
    except OSError as error:
        message = f"cannot write {what}{path}: {reason_of(error)}"
        raise StoreError(f"{message}: {hint}" if hint else message) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
