"""How kernels are compiled: Numba, without the GIL, cached on disk in a folder that changes whenever any kernel source changes.

In: a Python function. Out: a compiled one. Invariants: a cached kernel always equals its source, also if only a helper in another module
was edited (Numba itself checks one file only); a cache folder that is not writable, on a full disk or damaged costs compile time, never a
failure.

Switches, read once at import: `PENSTOCK_CACHE_DIR` chooses the folder, `PENSTOCK_CHECKED_KERNELS=1` compiles with bounds checks.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba.extending
import numpy as np
from numba.core import config
from numba.core.caching import FunctionCache, NullCache

logger = logging.getLogger("penstock")

CHECKED = os.environ.get("PENSTOCK_CHECKED_KERNELS", "") not in ("", "0")
_cache_folder_lock = threading.Lock()
_is_new = False
"""Whether this process created the folder of compiled kernels, so that all kernels it uses must be compiled."""


def source_digest() -> str:
    """Return a digest, 16 hex digits, of all source files that kernels are compiled from."""
    package = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted([package.parent / "rng.py", *package.rglob("*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def chosen_folder() -> Path:
    """Return the folder for this version's compiled kernels, which may not exist yet. OSError if it would be in a home folder and there is
    none."""
    chosen = os.environ.get("PENSTOCK_CACHE_DIR")
    try:
        base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    except RuntimeError:  # a container's user may have none
        raise OSError(errno.ENOENT, "HOME is not set", "~/.cache/penstock") from None
    return base.absolute() / f"kernels-{source_digest()}"


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of this version's compiled kernels, created on first use; None if it is not writable."""
    global _is_new
    folder: Path | None = None
    try:
        folder = chosen_folder()
        _is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}-{threading.get_ident()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        _warn(str(folder or error.filename), error.strerror or str(error))
        return None
    return folder


@functools.cache
def _warn(folder: str, reason: str) -> None:
    logger.warning(
        "cannot write compiled kernels to %s (%s): they are compiled again in every process, which costs some seconds. "
        "Set PENSTOCK_CACHE_DIR to a writable folder.",
        folder,
        reason,
    )


@functools.cache
def _note_first_use() -> None:
    logger.warning("compiling kernels, once for this installation: this run takes up to half a minute longer")


class _Cache(FunctionCache):
    """Numba's file cache, except that an error of the disk does not fail a kernel."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if _is_new:
            _note_first_use()
        try:
            return super().load_overload(sig, target_context)
        except OSError:
            return None
        except Exception:  # pickle raises nearly anything for a damaged file
            with suppress(OSError):
                self.flush()  # else saving the kernel would fail at the same unreadable index
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(os.path.dirname(self.cache_path), error.strerror or str(error))


def _enable_cache(dispatcher: Any) -> None:
    """Let Numba's file cache of one kernel use our folder. Numba reads the folder from a global while it builds the cache object."""
    folder = None if CHECKED else cache_folder()
    if folder is None:
        dispatcher._cache = NullCache()
        return
    with _cache_folder_lock:
        before = config.CACHE_DIR  # pyright: ignore[reportAttributeAccessIssue] (set at run time)
        config.CACHE_DIR = str(folder)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            dispatcher._cache = _Cache(dispatcher.py_func)
        finally:
            config.CACHE_DIR = before  # pyright: ignore[reportAttributeAccessIssue]


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a serial kernel that runs without the GIL. Numba compiles it at the first call with each set of types."""
    dispatcher = numba.njit(nogil=True, boundscheck=CHECKED)(function)
    _enable_cache(dispatcher)
    return dispatcher


def load_compiler() -> None:
    """Call a kernel that does nothing. The first call of any kernel makes Numba load half of itself; this chooses the moment."""
    _do_nothing(np.empty(0, np.int64))


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a small function that kernels call; always inlined. It must not create arrays: reference counting is off in it.

    Otherwise Numba would count references to the arguments, the kernel's arrays, by atomic instructions at every call in a loop.
    """
    options: dict[str, Any] = dict(nogil=True, boundscheck=CHECKED, forceinline=True, _nrt=False)
    return numba.njit(**options)(function)


intrinsic: Any = numba.extending.intrinsic
"""Numba's decorator. Numba's type annotation gives the decorated function one argument too many, so this one is Any."""


@kernel
def _do_nothing(array):
    return array.size
