"""What commands share: printing a result as text or JSON, progress on standard error, and how options are spelled.

In a terminal, progress is a bar per stage; elsewhere it is one line at the end of each stage.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.errors import PenstockError
from penstock.report import words

if TYPE_CHECKING:
    from penstock.store import Progress

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Memory = Annotated[
    str | None, typer.Option(metavar="BYTES", help="Memory bound for the whole process, e.g. 2GiB. (default: half of the free memory)")
]

_OTHER_NAMES = {"edge_fields": "edge-field", "node_fields": "node-field"}
_QUOTES = "'\"[("


def as_typed(name: str, value: str | None) -> str:
    """Return an argument of the library, with its value as in Python, as the option that is typed."""
    option = f"--{_OTHER_NAMES.get(name, name).replace('_', '-')}"
    if value in (None, "True"):
        return option
    if value == "None":
        return f"no {option}"
    if value == "False":
        return option.replace("--", "--no-", 1)
    if value[0] in _QUOTES:
        value = value[1 : -2 if value.endswith(",)") else -1].replace(", ", ",")
    return f"{option} {value}"


def require_least_room() -> None:
    """Refuse if the container around this process has no room for torch and PyG: the process would be killed while it loads them."""
    from penstock.store.budget import TORCH_BYTES, require_room

    if "torch" not in sys.modules:
        require_room(TORCH_BYTES, "torch with PyG", "give the container more memory")


def show(result: dict[str, Any], text: Callable[[], str], as_json: bool) -> None:
    """Print a result on standard output."""
    try:
        typer.echo(json.dumps(result, default=str) if as_json else words.printable(text()))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PenstockError(f"cannot write to standard output: {error.strerror}") from error


def make_progress() -> Progress:
    """Choose bars or lines."""
    return Bars() if sys.stderr.isatty() else Lines()


class Lines:
    """One line per stage."""

    def __init__(self) -> None:
        self._stage = ""
        self._unit = ""
        self._count = 0
        self._start = 0.0

    def note(self, message: str) -> None:
        """Print a message."""
        words.say(message)

    def begin(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage."""
        self._stage = stage
        self._unit = unit
        self._count = 0
        self._start = time.perf_counter()

    def advance(self, amount: int) -> None:
        """Count."""
        self._count += amount

    def end(self) -> None:
        """Print the stage that ends."""
        unit = self._unit if self._count != 1 else re.sub(r"(?<=ch|ss)es$|s$", "", self._unit)
        words.say(f"{self._stage}: {self._count:,} {unit} in {time.perf_counter() - self._start:.1f} s")


class Bars:
    """A bar per stage; a stage that ends leaves a line."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._columns = (
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=30), MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._console, self._make, self._bars = Console(stderr=True), Progress, None
        self._task: Any = None

    def note(self, message: str) -> None:
        """Print a message."""
        self._console.print(words.printable(message), highlight=False, markup=False)

    def begin(self, stage: str, total: int | None, unit: str) -> None:
        """Show a bar."""
        self._bars = self._make(*self._columns, console=self._console, refresh_per_second=5)
        self._task = self._bars.add_task(words.printable(stage), total=total, unit=unit)
        self._bars.start()

    def advance(self, amount: int) -> None:
        """Move the bar."""
        if self._bars is not None:
            self._bars.advance(self._task, amount)

    def end(self) -> None:
        """Leave the bar as it is."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
