"""Live progress of a training run: a panel that updates in place in a terminal, plain lines elsewhere. Writes to standard error."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from penstock.report import words
from penstock.train import EpochRecord, Observer

_REFRESH_S = 0.1
_QUIET_S = 60.0


def choose_observer() -> Observer:
    """Return a panel if standard error is a terminal, else lines."""
    console = Console(stderr=True)
    return Panel(console) if console.is_terminal else Lines()


def summary_of(record: EpochRecord, metric: str, seeds: str = "nodes") -> str:
    """Return one line about an epoch of a run with that metric. `seeds`: what they are, as the run is described."""
    parts = [f"epoch {record.epoch + 1:>3}", f"loss {record.loss:.4f}", f"train {words.score(record.train_score, metric)}"]
    if record.val is not None:
        parts.append(f"val {words.score(record.val, metric)}")
    if record.test is not None:
        parts.append(f"test {words.score(record.test, metric)}")
    if record.hit_rate is not None:
        parts.append(f"cache hits {100 * record.hit_rate:.1f} %")
    if record.list_hit_rate is not None:
        parts.append(f"list hits {100 * record.list_hit_rate:.1f} %")
    if record.num_verified:
        parts.append(f"{record.num_verified} {'batch' if record.num_verified == 1 else 'batches'} verified")
    rate = f"{words.count(record.seeds_per_s)} {words.unit(seeds)}/s"
    parts += [rate, f"{words.seconds(record.train_s)} + {words.seconds(record.eval_s)} evaluation"]
    return "  ".join(parts)


def where_time_goes(record: EpochRecord) -> str:
    """Return the shares of the caller's time, and the stages of the feed."""
    total = record.train_s or 1e-9
    stages = sum(record.stage_s.values()) or 1e-9
    feeding = "  ".join(f"{name} {100 * value / stages:.0f} %" for name, value in record.stage_s.items() if value / stages >= 0.01)
    rates = {"cache": record.hit_rate, "list": record.list_hit_rate}
    hits = "".join(f"   {name} hits {100 * rate:.0f} %" for name, rate in rates.items() if rate is not None)
    return f"model {100 * record.step_s / total:.0f} %  wait {100 * record.wait_s / total:.0f} %   threads: {feeding or '-'}{hits}"


def what_is_there(description: dict[str, Any]) -> str:
    """Return a line about the graph."""
    nodes, edges = sum(description["nodes"].values()), sum(description["edges"].values())
    parts = ", ".join(f"{count:,} {part}" for part, count in description["parts"].items())
    return f"{description['store']}: {words.count(nodes)} nodes, {words.count(edges)} edges; {parts}"


def introduction(description: dict[str, Any], num_epochs: int) -> str:
    """Return lines about a run that begins: the model and the batches, and what is kept where."""
    fanouts, batch_size = description["config"]["num_neighbors"], description["config"]["batch_size"]
    together = "" if description["num_ranks"] == 1 else f" by each of {description['num_ranks']} processes"
    above = f" above features aggregated by {description['aggregated']}" if description["aggregated"] else ""
    batches = f"fanouts {','.join(map(str, fanouts))}{above}, batches of {batch_size:,}{together}"
    epochs = f"{num_epochs} epoch" + ("" if num_epochs == 1 else "s")
    threads = f"{description['num_workers']} sampling and {description['torch_threads']} model threads"
    names = " and ".join(words.scored_parts(description))
    scored = f", {names} by sampled neighbourhoods" if names and description["evaluation"] == "sampled" else ""
    by = f", {'links' if description['seeds'] == 'links' else 'labels'} scored by {description['metric']}"
    return f"{description['model']}, {batches}, {epochs}, {threads}{by}{scored}{_kept(description)}{_on_device(description)}"


def _kept(description: dict[str, Any]) -> str:
    """Return a line about what the plan keeps in memory, with the sum; empty without a plan."""
    plan = description["plan"]
    if not plan:
        is_waiting = description["config"]["recipe"] == "uva" and description["config"]["device"] == "cpu"
        return "\nuva: without a GPU (--device cuda) there is nothing for it to do" if is_waiting else ""
    disks = "".join(f"\n{name}: {how}" for name, how in description["disks"].items())
    memory = f"\nmemory: {description['memory']}" if description["memory"] else ""
    took = f"; found out and filled in {words.seconds(description['setup_s'])}" if description["setup_s"] >= 1 else ""
    return f"\n{plan['recipe']}: {words.kept(description)}{took}{disks}{memory}"


def _on_device(description: dict[str, Any]) -> str:
    """Return lines about whether the device or the CPU samples and gathers; empty on the CPU."""
    if description["config"]["device"] == "cpu":
        return ""
    rows = "".join(f"\n{name}: {how}" for name, how in description["devices"].items())
    kept = f"{words.num_bytes(description['device_bytes'])} of its memory for rows, topology and sampling"
    return f"\n{description['config']['device']}: {kept}; samples are drawn {description['sampling']}{rows}"


class Lines(Observer):
    """A line per epoch, and one per minute within an epoch, for logs and pipes."""

    def __init__(self) -> None:
        self._said_at = time.monotonic()
        self._metric, self._seeds = "", "nodes"

    def note(self, message: str) -> None:
        """Print it."""
        words.say(message)
        self._said_at = time.monotonic()

    def batch_done(self, record: EpochRecord, batches_per_epoch: int) -> None:
        """Print the progress of the epoch, once a minute."""
        self._say_rarely(f"epoch {record.epoch + 1}: batch {record.num_batches:,} of {batches_per_epoch:,}, loss {record.loss:.4f}")

    def evaluating(self, done: int, total: int) -> None:
        """Print the progress of an evaluation, once a minute."""
        self._say_rarely(f"evaluation: {100 * done / total:.0f} %")

    def _say_rarely(self, message: str) -> None:
        if time.monotonic() - self._said_at >= _QUIET_S:
            self.note(message)

    def opened(self, description: dict[str, Any]) -> None:
        """Print what is there."""
        self.note(what_is_there(description))

    def started(self, description: dict[str, Any], num_epochs: int) -> None:
        """Print what begins."""
        self._metric, self._seeds = description["metric"], description["seeds"]
        self.note(introduction(description, num_epochs))

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        """Print the epoch."""
        self.note(summary_of(record, self._metric, self._seeds) + ("  best so far" if is_best else ""))


class Panel(Observer):
    """Bars and numbers that update in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:>6.0f}/{task.total:.0f}"),
            TimeRemainingColumn(),
        )
        self._epochs, self._batches = self._bars.add_task("epochs", total=1), self._bars.add_task("batches", total=1)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._record: EpochRecord | None = None
        self._metric, self._seeds = "", "nodes"
        self._shown_at = 0.0

    def note(self, message: str) -> None:
        """Print above the panel."""
        self._console.print(Text(words.printable(message)), highlight=False)  # markup=False would also hold for the panel beneath

    def opened(self, description: dict[str, Any]) -> None:
        """Print what is there."""
        self.note(what_is_there(description))

    def started(self, description: dict[str, Any], num_epochs: int) -> None:
        """Open the panel."""
        self._metric, self._seeds = description["metric"], description["seeds"]
        self.note(introduction(description, num_epochs))
        self._bars.update(self._epochs, total=num_epochs)
        self._live.start()

    def batch_done(self, record: EpochRecord, batches_per_epoch: int) -> None:
        """Show the epoch so far."""
        self._record = record
        self._bars.update(self._batches, total=batches_per_epoch, completed=record.num_batches, description="batches")
        self._bars.update(self._epochs, completed=record.epoch + record.num_batches / batches_per_epoch)
        self._show(at_once=record.num_batches == batches_per_epoch)

    def evaluating(self, done: int, total: int) -> None:
        """Show an evaluation."""
        self._bars.update(self._batches, total=total, completed=done, description="evaluation")
        self._show(at_once=done == total)

    def epoch_done(self, record: EpochRecord, is_best: bool) -> None:
        """Leave a line behind."""
        self._console.print(
            summary_of(record, self._metric, self._seeds) + ("  [bold green]best so far[/]" if is_best else ""), highlight=False
        )
        self._bars.update(self._epochs, completed=record.epoch + 1)

    def close(self) -> None:
        """Close the panel."""
        self._live.stop()

    def _show(self, *, at_once: bool) -> None:
        now = time.monotonic()
        if now - self._shown_at < _REFRESH_S and not at_once:
            return
        self._shown_at = now
        table = Table.grid(padding=(0, 2))
        if self._record is not None:
            record = self._record
            table.add_row(
                f"loss [bold]{record.loss:.4f}[/]",
                f"train [bold]{words.score(record.train_score, self._metric)}[/]",
                f"[bold]{words.count(record.seeds_per_s)}[/] {words.unit(self._seeds)}/s",
                where_time_goes(record),
            )
        self._live.update(Group(self._bars, table), refresh=True)
