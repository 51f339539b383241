"""Recipes and PyG end to end on a device: complete batches there, and training with them. Fanouts 15, 10, 5.

    python -m bench.gpu_recipes FOLDER [--minutes 9] [--dims 128 256] [--batches 1024 8000] [--contenders PyG pyg ...] [--out FOLDER]
    python -m bench.gpu_recipes --toy

Graphs of 10M nodes and 200M edges are made in FOLDER if they are not there (`bench.graphs`: ten-128, ten-256; 6 and 11 GB). All contenders
of a configuration are there at the same time, each in a process of its own (`bench.gpu_contender`); one after the other gets ready and goes
its first round, and then they take turns, round by round, while the others rest. Where memory does not hold all of them, they are split
into groups, one after the other. Each round is in the result file when it is over; a command that is stopped goes on there when it is given
again.

What a recipe keeps on the device is a tenth of the rows' bytes for every one of them, and beside it gnnlab has all lists there. `rows` and
`lists` are ducati with its whole budget for one of the two: the single caches that it is to beat.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bench import graphs
from bench.common import ROOT
from bench.gpu_common import Deadline, ResultFile, set_up
from bench.gpu_contender import Settings

CONTENDERS = ("gnnlab", "PyG", "recorded", "uva", "pagraph", "mmap", "ducati", "rows", "lists", "bgl", "pyg")
"""Those first that tell most."""
DIMS, BATCHES, MODES, ROUNDS, KEPT = (128, 256), (1024, 8000), ("load", "train"), 3, 0.1
EXPECTED_S = 90.0
"""Until a group has begun to go its rounds, before the first was seen."""
ROUND_S = 15.0
PATIENCE_S = 120.0
"""For an answer of a contender."""
SLOW = {("PyG", "prepare"): 2, **{(name, "build"): 2 for name in CONTENDERS}}
"""How often that: some seconds for each setting of PyG; an epoch presampled, and everything compiled, while all others do so too."""
TAKES_S = {("PyG", "prepare"): 60.0, ("ducati", "build"): 45.0}
"""What begins with less time left is not over in time."""
TIMES_ITSELF = ("ducati",)
"""Measures while it is built what its division depends on: alone, when its turn has come."""
COPY = ("PyG", "pyg")
"""Have the features in memory of their own; the others register or read the pages of one file."""
OTHER_BYTES = 6 << 30
"""That a contender needs beside the rows; one that gathers on the CPU has batches in memory of the host too."""
TOY = dict(num_nodes=200, num_edges=600, feature_dim=4, num_classes=50, train=0.2, seed=1)


class Contender:
    """A process that serves rounds; what it says, it says in one line."""

    def __init__(self, name: str, store: Path, settings: Settings) -> None:
        self.name, self._patience_s = name, PATIENCE_S
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.gpu_contender", name, str(store), json.dumps(asdict(settings))],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def read(self) -> dict[str, Any]:
        """The next thing it says; a process that says nothing is ended."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], self._patience_s)[0]:
            self._process.kill()
            return {"failed": f"no answer within {self._patience_s:.0f} s"}
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"failed": f"the process ended with code {self._process.wait()}"}

    def ask(self, word: str) -> None:
        """See `bench.gpu_contender`."""
        assert self._process.stdin is not None
        self._patience_s = PATIENCE_S * SLOW.get((self.name, word), 1)
        with suppress(BrokenPipeError):  # it has ended, and reading says so
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()

    def close(self, patience_s: float = 20.0) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it ended before it had read all
            self._process.stdin.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Comparison:
    """One configuration: what is there of it, and what is missing."""

    def __init__(self, result: ResultFile, deadline: Deadline, dim: int, batch_size: int, names: list[str], rounds: int) -> None:
        self._result, self._deadline, self._name = result, deadline, f"{dim} features, batches of {batch_size}"
        self._names, self._rounds = names, rounds
        found = result.values["pieces"].get(self._name, {})
        self.rows: dict[str, dict[str, Any]] = found.get("contenders", {})

    def missing(self) -> list[str]:
        """Contenders that still have rounds to go."""
        return [name for name in self._names if not self._is_through(name)]

    def _is_through(self, name: str) -> bool:
        row = self.rows.get(name, {})
        return "failed" in row or all(len(row.get(mode, [])) >= self._rounds for mode in MODES)

    def run(self, names: list[str], store: Path, settings: Settings) -> bool:
        """Run a group of contenders. Returns whether there was time for all of it."""
        if not self._deadline.allows(self._deadline.longest_s or EXPECTED_S, f"{self._name}: {', '.join(names)}"):
            return False
        started = time.monotonic()
        contenders = [Contender(name, store, settings) for name in names]
        try:
            alive = [one for one in contenders if self._answers(one, "begin")]  # one by one: it measures the link
            alive = self._built_together([one for one in alive if one.name not in TIMES_ITSELF], alive)
            self._deadline.longest_s = max(self._deadline.longest_s, time.monotonic() - started + 2 * len(MODES) * ROUND_S)
            return self._take_turns(alive)
        finally:
            for contender in contenders:
                contender.close()

    def _built_together(self, some: list[Contender], alive: list[Contender]) -> list[Contender]:
        """All that are `alive` but those of `some` that could not be built."""
        for contender in some:
            contender.ask("build")
        failed = [one for one in some if not self._note(one.name, one.read(), "build")]
        return [one for one in alive if one not in failed]

    def _answers(self, contender: Contender, word: str) -> bool:
        """Ask for something. Returns whether it could be done."""
        contender.ask(word)
        return self._note(contender.name, contender.read(), word)

    def _take_turns(self, alive: list[Contender]) -> bool:
        longest_s, waiting = ROUND_S, list(alive)
        for _ in range(self._rounds):
            for contender in list(alive):
                words = [mode for mode in MODES if len(self.rows[contender.name].get(mode, [])) < self._rounds]
                if contender in waiting:
                    waiting.remove(contender)
                    words = [*(["build"] if contender.name in TIMES_ITSELF else []), "prepare", *words]
                for word in words:
                    expected_s = max(longest_s, TAKES_S.get((contender.name, word), 0.0))
                    if not self._deadline.allows(expected_s, f"{self._name}: {contender.name}, {word}"):
                        return False
                    started = time.monotonic()
                    if not self._answers(contender, word):
                        alive.remove(contender)
                        break
                    longest_s = max(longest_s, time.monotonic() - started if word in MODES else 0.0)
        return True

    def _note(self, name: str, said: dict[str, Any], word: str) -> bool:
        row = self.rows.setdefault(name, {})
        if word in MODES and "failed" not in said:
            row["about"] = said.pop("about")
            row.setdefault(word, []).append(said)
        else:
            row.update(said)
        line = json.dumps({key: round(value, 1) for key, value in said.items() if isinstance(value, float)} or said)[:200]
        before = {one for part in self._result.values["earlier"] for one in part["pieces"].get(self._name, {}).get("contenders", ())}
        found, is_whole = summary(self.rows), all(map(self._is_through, before | set(self._names)))
        replaces = is_whole and all(found["seeds_per_s"].values())
        self._result.put(self._name, {"contenders": self.rows, **found}, f"{self._name}: {name}, {word} {line}", replaces=replaces)
        return "failed" not in said


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Medians of seeds a second by mode and contender."""
    medians = {
        mode: {name: round(statistics.median(one["seeds_per_s"] for one in row[mode]), 1) for name, row in rows.items() if row.get(mode)}
        for mode in MODES
    }
    return {"seeds_per_s": medians}


def groups(names: list[str], feature_bytes: int, free_bytes: int) -> list[list[str]]:
    """Contenders that fit memory together; those that gather on the CPU hold batches in it as well."""
    made: list[list[str]] = []
    left = 0.0
    for name in names:
        needed = OTHER_BYTES * (2 if name in ("PyG", "pyg", "mmap") else 1) + (feature_bytes if name in COPY else 0)
        if not made or needed > left:
            made.append([])
            left = 0.85 * free_bytes - feature_bytes  # the file's pages, which all of the others map
        made[-1].append(name)
        left -= needed
    return made


def main(arguments: list[str] | None = None) -> None:
    """Measure what is not in the result yet, as long as there is time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the graphs are, or are made")
    parser.add_argument("--dims", type=int, nargs="+", choices=DIMS, default=list(DIMS))
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--memory", type=int, help="of the machine, in GiB, where the system says less than there will be")
    options, device, deadline, command = set_up("gpu_recipes", parser, arguments)
    result = ResultFile("gpu_recipes", options, device, command, graph={"nodes": 10_000_000, "edges": 200_000_000, "train": 1_000_000})
    with tempfile.TemporaryDirectory() as temporary:
        if options.toy:
            run_toy(result, deadline, Path(temporary), options)
        else:
            run_all(result, deadline, options)


def run_all(result: ResultFile, deadline: Deadline, options: argparse.Namespace) -> None:
    """All configurations, the smaller rows first."""
    for dim in options.dims:
        for batch_size in options.batches:
            comparison = Comparison(result, deadline, dim, batch_size, options.contenders, options.rounds)
            missing = comparison.missing()
            feature_bytes = 10_000_000 * dim * 4
            if not missing:
                continue
            store = graphs.make(f"ten-{dim}", options.folder)
            settings = Settings(batch_size=batch_size, cache=int(KEPT * feature_bytes))
            free_bytes = psutil.virtual_memory().available if options.memory is None else options.memory << 30
            for group in groups(missing, feature_bytes, free_bytes):
                if not comparison.run(group, store, settings):
                    return


def run_toy(result: ResultFile, deadline: Deadline, folder: Path, options: argparse.Namespace) -> None:
    """One tiny configuration."""
    from penstock.store import generate

    generate("zipf", folder / "toy", **TOY)
    settings = Settings(batch_size=8, fanouts=(2, 2), cache=4096, seconds=0.0, least=1, warm_up=0)
    comparison = Comparison(result, deadline, TOY["feature_dim"], settings.batch_size, options.contenders, 1)
    comparison.run(comparison.missing(), folder / "toy", settings)


if __name__ == "__main__":
    main()
