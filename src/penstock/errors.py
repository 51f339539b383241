"""What can go wrong, as a tree. Every error also derives from the builtin that a Python user expects to catch.

    PenstockError
    ├── UsageError (ValueError)            an argument or option that cannot work
    │   ├── NotSupportedError (NotImplementedError)   asked for something that Penstock does not do (yet)
    │   └── BudgetError                    the stated memory cannot hold what was asked for
    ├── InputError (ValueError)            data handed in is wrong: ids, shapes, dtypes, values
    │   ├── MissingFileError (FileNotFoundError)   a file that was named is not there
    │   ├── NodeIdError (IndexError)       a node id outside its type's range
    │   └── MissingFieldError (KeyError)   a feature, label or split that is not there
    ├── StoreError (OSError)               a store on disk cannot be read or written
    │   ├── NotAStoreError                 the path holds no store
    │   ├── FormatVersionError             written by a newer Penstock
    │   ├── CorruptStoreError              truncated, altered or inconsistent files
    │   └── StoreBusyError                 another process is writing there
    ├── TierError (OSError)                rows could not be read from where they live
    ├── StateError (ValueError)            a saved state that does not belong to this configuration
    ├── DivergedError (ArithmeticError)    the loss is no longer a number
    ├── MismatchError (AssertionError)     a batch is not what its graph and its place give
    └── PipelineError (RuntimeError)       a stage failed or stopped answering; carries stage and batch

The command line prints `str(error)` as one line and exits with 2 for UsageError, InputError, StoreError, StateError and
DivergedError, and with 1 for everything else. An argument that a message names by `argument` is spelled as the reader writes it.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_ARGUMENT = re.compile("\x01(\\w+)(?:=([^\x02]*))?\x02")


def argument(name: str, *value: Any) -> str:
    """Name an argument in the message of an error, alone or with a value (`...` for any): marked, for `PenstockError.spelled`."""
    return f"\x01{name}" + (f"={'...' if value[0] is ... else repr(value[0])}" if value else "") + "\x02"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Ask, at the end of a message about an argument that is not known, whether the nearest one was meant; nothing where none is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f": did you mean '{argument(near[0])}'?" if near else ""


def reason_of(error: OSError) -> str:
    """Say why the system refused: in its words, and what to do where they do not tell."""
    reason = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        return f"{reason} (this process may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]}: raise the limit by `ulimit -n`)"
    return reason


def refuse_unseen(path: str | os.PathLike[str]) -> None:
    """Raise OSError where it cannot be seen whether anything is at a path: since Python 3.14, `Path.exists` says that nothing is."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says; its name where it says nothing."""
    return (str(error) or type(error).__name__).splitlines()[0]


def line_of(error: OSError) -> str:
    """Say what the system refused, and why."""
    return reason_of(error) if error.filename is None else f"{error.filename}: {reason_of(error)}"


class PenstockError(Exception):
    """Root of all errors raised on purpose by Penstock."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __str__(self) -> str:
        return self.spelled(lambda name, value: name if value is None else f"{name}={value}")

    def spelled(self, spell: Callable[[str, str | None], str]) -> str:
        """Return the message with its arguments as `spell` writes (name, value as Python has it or None): `str` writes Python."""
        message = str(self.args[0]) if len(self.args) == 1 else super().__str__()
        return _ARGUMENT.sub(lambda match: spell(match[1], match[2]), message)


class UsageError(PenstockError, ValueError):
    """An argument or option that cannot work."""


class NotSupportedError(UsageError, NotImplementedError):
    """Asked for something that Penstock does not do (yet); the message says what to do instead."""


class BudgetError(UsageError):
    """The stated memory cannot hold what was asked for; the message writes out the sum."""


class InputError(PenstockError, ValueError):
    """Data handed in is wrong; the message names the source, the place and the first offender."""


class MissingFileError(InputError, FileNotFoundError):
    """A file or folder that was named is not there."""


class NodeIdError(InputError, IndexError):
    """A node id outside the range of its node type."""


class MissingFieldError(InputError, KeyError):
    """A feature, label, weight or split that is needed and not there."""


class StoreError(PenstockError, OSError):
    """A store on disk cannot be read or written."""


class NotAStoreError(StoreError, FileNotFoundError):
    """The path holds no store."""


class FormatVersionError(StoreError):
    """The store was written by a newer version of the format."""


MAKE_AGAIN = "put the file back or make the store again"
"""What to do about a file that is not what it was."""


class CorruptStoreError(StoreError):
    """Files of the store are truncated, altered or inconsistent."""


class StoreBusyError(StoreError):
    """Another process is writing at the same place."""


class TierError(PenstockError, OSError):
    """Rows could not be read from the tier that holds them."""


class StateError(PenstockError, ValueError):
    """A saved state that does not belong to this configuration; the message names the difference."""


class DivergedError(PenstockError, ArithmeticError):
    """The loss of a training run became NaN or infinite."""


class MismatchError(PenstockError, AssertionError):
    """A batch is not what its graph and its place in the run give."""


class PipelineError(PenstockError, RuntimeError):
    """A stage of the pipeline failed or stopped answering.

    Attributes:
        stage: name of the stage, for instance "sample" or "gather".
        batch: index of the batch within its epoch, or None where none was at work.
    """

    def __init__(self, message: str, *, stage: str = "", batch: int | None = None) -> None:
        super().__init__(message)
        self.stage = stage
        self.batch = batch


def damaged_neighbor(edge_type: tuple[str, str, str], num_src: int, position: int, neighbor: int) -> CorruptStoreError:
    """What to raise where a neighbour is no node."""
    where = f"the edge at position {position} comes from node {neighbor}"
    return damaged(_edges(edge_type), f"{where}, but '{edge_type[0]}' has {num_src} nodes")


def damaged_list(edge_type: tuple[str, str, str], node: int, num_edges: int) -> CorruptStoreError:
    """What to raise where a list lies outside the edges."""
    return damaged(_edges(edge_type), f"the list of node {node} of '{edge_type[2]}' lies outside its {num_edges} edges")


def listed(names: Iterable[Any]) -> str:
    """Names for a message."""
    return ", ".join(map(repr, names)) or "none"


def pick(items: Mapping[Any, T], name: Any, where: str, kind: str = "field") -> T:
    """Return one of them by its name; MissingFieldError, which says what there is, where it is not among them."""
    if name not in items:
        raise MissingFieldError(f"{where} has no {kind} {name!r}; it has {listed(items)}")
    return items[name]


def damaged(where: object, what: str) -> CorruptStoreError:
    """What to raise where the values of arrays say what cannot be."""
    return CorruptStoreError(f"{where} are damaged: {what}. Look with `penstock check --deep`, and ingest again")


def _edges(edge_type: tuple[str, str, str]) -> str:
    return f"edges {'/'.join(edge_type)}"
