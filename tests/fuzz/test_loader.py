"""Random loaders against what their batches must be, and against each other under random plans, threads, ranks, breaks and states.

    PENSTOCK_FUZZ_SEED=17 pytest tests/fuzz                     one case
    PENSTOCK_FUZZ_MINUTES=60 pytest tests/fuzz -m deep -s       fresh ones, for an hour

For each case: (1) three epochs of a plain loader, where each batch is checked by `oracle`, by PyG's own loader over the same sample, and by
asking for it alone. (2) Loaders with anything that must not matter (`Trial`), left and begun at random, where each batch has the digest of
the plain loader's in its place; of stores, half of them over the parts of a partition. Settings that are refused when a loader is made are
counted.
"""

import copy
import json
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
import torch

from penstock import digest
from penstock.errors import BudgetError, NotSupportedError, StateError, UsageError
from penstock.order import LocalOrder, RandomOrder
from penstock.store import Store
from tests.fuzz.cases import NUM_EPOCHS, Dice, of_type, random_case, random_padding, random_plan, random_threads
from tests.fuzz.links import random_link_case
from tests.padding import without_padding
from tests.partitions import cut, join_all, random_owners

SEEDS = [*map(int, os.environ["PENSTOCK_FUZZ_SEED"].split(","))] if "PENSTOCK_FUZZ_SEED" in os.environ else range(45)
MINUTES = float(os.environ.get("PENSTOCK_FUZZ_MINUTES", "10"))
NUM_TRIALS = 4
MAKERS = [random_case, random_link_case]
REFUSALS = (UsageError, BudgetError, NotSupportedError)

pytestmark = pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional graph")


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    """What is for large batches only is done for small ones too."""
    monkeypatch.setattr("penstock.feed.buffers.SMALLEST_BYTES", 64)
    monkeypatch.setattr("penstock.gather.rows.LEAST_BYTES", 256)
    monkeypatch.setattr("penstock.gather.cached._BESIDE_BYTES", 64)


class Made(NamedTuple):
    """A batch of the plain loader."""

    digest: str
    positions: list[int]


def plain_epochs(case):
    """[epoch][batch] of the plain loader, each checked in every way."""
    loader, epochs = case.open(), []
    for epoch in range(NUM_EPOCHS):
        made = []
        for index, batch in enumerate(case.begin(loader, epoch)):
            place = {"epoch": epoch, "batch": index}
            positions = [case.position_of[each] for each in of_type(batch, case.seed_type).input_id.tolist()]
            made.append(Made(digest(batch), positions))
            case.check(loader, batch, positions, place)
            assert digest(loader(positions, **place)) == made[-1].digest, f"another batch where it is asked for alone: {place}"
        check_sequence(case, epoch, [each.positions for each in made])
        assert len(loader) == len(made)
        epochs.append(made)
    return epochs


def check_sequence(case, epoch, batches):
    """Every seed comes once in an epoch, or what a sampler gives."""
    if case.given is not None:
        assert batches == case.given[epoch]
        return
    positions = [position for batch in batches for position in batch]
    assert len(set(positions)) == len(positions)
    if case.options.get("drop_last"):
        assert {len(batch) for batch in batches} == {case.options["batch_size"]}
    else:
        assert len(positions) == case.seeds.numel()


def check_states_of_others_are_refused(case, dice):
    """A state is not taken by a loader whose batches would be others."""
    order, changes = case.options.get("order"), [{"seed": case.options["seed"] ^ 1}, {"input_id": case.input_ids + 5000}]
    if isinstance(order, RandomOrder):
        changes.append({"order": RandomOrder(order.num_seeds, order.seed + 2)})
    if isinstance(order, LocalOrder):
        changes.append({"order": LocalOrder(order.part_sizes, order.seed + 2)})
    if shared_draws := case.options["shared_draws"]:
        changes.append({"shared_draws": dice.choice([False, shared_draws + 1])})
    if (walks := case.options["walks"]) is not None:
        changes.append({"walks": dice.choice([None, replace(walks, num=walks.num + 1)])})
    if case.options["layer_wise"]:
        changes.append({"layer_wise": False})
    state = case.open().state_dict()
    with pytest.raises(StateError, match="belongs to another configuration"):
        case.open(**dice.choice(changes)).load_state_dict(state)


@dataclass
class Pass:
    """One pass over a loader, and what it has still to give; None before it has begun."""

    batches: Iterator
    expected: list[Made] | None
    loader: Any = None


class Trial:
    """A loader that is left and begun at random, and goes on elsewhere from its states; and where it should be."""

    def __init__(self, case, epochs, dice, steps):
        self.case, self.epochs, self.dice, self.steps = case, epochs, dice, steps
        self.kept, self.passes, self.latest = [], [], None
        self.epoch, self.delivered, self.is_fresh, self.is_over = 0, 0, True, False
        self.pad = random_padding(dice, case)
        self.open(dice.choice([1, 1, 2, 3]))

    def open(self, num_ranks):
        """Another loader; it may be refused."""
        rank = self.dice.randrange(num_ranks)
        options = {"plan": random_plan(self.dice, self.case), **random_threads(self.dice), "pad": self.pad, "rank": rank}
        options["num_ranks"], options["non_stop"] = num_ranks, self.case.given is None and self.dice.choice([False, False, True, 2])
        self.loader = self.case.open(**options)
        self.rank, self.num_ranks = rank, num_ranks
        self.steps.append(f"open: {options}")

    def walk(self):
        """A few random steps. At the end all batches are as they were."""
        moves = [self.read_all, self.read_some, self.read_some, self.go_on, self.save_and_load, self.save_and_load, self.ask, self.beside]
        for move in self.dice.choices(moves, k=self.dice.randrange(1, 8)):
            self.steps.append(f"{move.__name__} at {self.position()}")
            move()
            state = self.loader.state_dict()
            assert (state["epoch"], state["batch"]) == self.position()
        assert all(self.digest(batch) == made.digest for batch, made in self.kept), "a batch that was kept has changed"

    def digest(self, batch):
        """Of what was sampled."""
        return digest(without_padding(copy.copy(batch)) if self.pad else batch)

    def num_batches(self, epoch):
        """Of all ranks together; only samplers have epochs of several lengths."""
        count = len(self.epochs[min(epoch, NUM_EPOCHS - 1)])
        return count - count % self.num_ranks if self.case.options.get("drop_last") else count

    def position(self):
        """(epoch, batch) that a state should say."""
        batch = self.delivered * self.num_ranks
        is_to_be_read = self.is_fresh and not {"sampler", "batch_sampler"}.isdisjoint(self.case.options)  # a pass finds out how long it is
        is_over = self.is_over or (batch >= self.num_batches(self.epoch) and not is_to_be_read)
        return (self.epoch + 1, 0) if is_over else (self.epoch, batch)

    def begin(self):
        """A pass, that of an epoch when its first batch is taken."""
        self.passes.append(Pass(iter(self.loader), None, self.loader))
        return self.passes[-1]

    def settle(self, one):
        """Which epoch it is of. Returns False where it has none: after the last one that is known, there is nothing to take."""
        epoch = self.epoch if self.is_fresh else self.epoch + 1
        if epoch >= NUM_EPOCHS or one.loader is not self.loader:
            return False
        self.epoch, self.delivered = epoch, self.delivered if self.is_fresh else 0
        self.is_fresh = self.is_over = False
        one.expected = self.epochs[epoch][self.rank : self.num_batches(epoch) : self.num_ranks][self.delivered :]
        self.case.tell_of(epoch)
        self.latest = one
        return True

    def take(self, one):
        """The next batch of a pass, which must be that of its place. Returns False at its end."""
        if one.expected is None and not self.settle(one):
            return False
        batch = next(one.batches, None)
        if batch is None:
            assert not one.expected, f"{len(one.expected)} batches did not come"
            self.is_over |= one is self.latest
            return False
        assert one.expected, "a batch too many"
        made = one.expected.pop(0)
        assert self.digest(batch) == made.digest, f"another batch than the plain loader's of the seeds {made.positions}"
        self.kept.append((batch, made))
        if one is self.latest and self.case.given is None:
            one.loader.verify(batch)
        self.delivered += one is self.latest
        return True

    def read_all(self):
        one = self.begin()
        while self.take(one):
            pass

    def read_some(self):
        one = self.begin()
        for _ in range(self.dice.randrange(6)):
            self.take(one)

    def go_on(self):
        """Passes that overlap, some from before a state."""
        for one in self.dice.choices(self.passes, k=8) if self.passes else ():
            self.take(one)

    def save_and_load(self):
        """Go on from a state, through JSON: elsewhere, or where it was taken."""
        state = json.loads(json.dumps(self.loader.state_dict()))
        if self.dice.chance(0.7):
            try:
                self.open(self.dice.choice([num_ranks for num_ranks in (1, 2, 3) if state["batch"] % num_ranks == 0]))
            except REFUSALS as error:
                self.steps.append(f"refused: {error}")
        self.loader.load_state_dict(state)
        self.epoch, self.delivered, self.is_fresh, self.is_over = state["epoch"], state["batch"] // self.num_ranks, True, False
        self.latest = None
        if self.position() == (state["epoch"], state["batch"]):  # with drop_last, more ranks may have nothing more of the epoch
            assert self.loader.state_dict() == state

    def ask(self):
        """What moves nothing: counts, and a batch that is asked for alone."""
        self.loader.stats().as_dict(), self.loader.timeline()
        epoch = self.dice.randrange(NUM_EPOCHS)
        index = self.dice.randrange(len(self.epochs[epoch]))
        made = self.epochs[epoch][index]
        assert self.digest(self.loader(torch.tensor(made.positions), epoch=epoch, batch=index)) == made.digest

    def beside(self):
        """A loader over other seeds and the same tiers."""
        ours, plain = self.case.beside(self.loader)
        assert list(map(self.digest, ours)) == list(map(digest, plain))


@contextmanager
def partitioned(case, dice, folder):
    """The same case over the parts of its store, as one of the processes that have them sees it; itself, where it is of no store."""
    if not case.graph.is_for_store:
        yield case
        return
    num_parts = dice.choice([1, 2, 3])
    store = case.source if isinstance(case.source, Store) else Store.open(case.source)
    cut(store, folder, num_parts, random_owners(store, num_parts, dice.randrange(1 << 32)))
    graphs = join_all(folder, num_parts)
    try:
        yield replace(case, source=dice.choice(graphs))
    finally:
        for graph in graphs:
            graph.close(wait=False)
        shutil.rmtree(folder)


def run(seed, folder, make_case):
    """One case. Returns how much there was in it."""
    dice, counts, store = Dice(seed), Counter(cases=1), folder / f"store-{seed}"
    steps, case = [], None
    try:
        case = make_case(dice, store)
        epochs = plain_epochs(case)
        counts["batches"] += sum(map(len, epochs))
        check_states_of_others_are_refused(case, dice)
        with partitioned(case, dice, folder / f"parts-{seed}") as apart:
            for number in range(NUM_TRIALS):
                steps.clear()
                try:
                    trial = Trial(apart if number >= NUM_TRIALS // 2 else case, epochs, dice, steps)
                except REFUSALS:
                    counts["refused"] += 1
                    continue
                trial.walk()
                counts["trials"] += 1
    except BaseException as error:
        alone = f"seed {seed}; this case alone: PENSTOCK_FUZZ_SEED={seed} python -m pytest tests/fuzz"
        error.add_note("\n".join([*steps, str(case), alone]))
        raise
    shutil.rmtree(store, ignore_errors=True)
    return counts


@pytest.mark.parametrize("make_case", MAKERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_case(seed, make_case, tmp_path):
    run(seed, tmp_path, make_case)


@pytest.mark.deep
@pytest.mark.timeout(MINUTES * 60 + 600)
def test_fresh_cases(tmp_path):
    seed, ends, counts = secrets.randbelow(1 << 48), time.monotonic() + 60 * MINUTES, Counter()
    print(f"\ncases from seed {seed} on", flush=True)
    while time.monotonic() < ends:
        counts += run(seed, tmp_path, MAKERS[seed % 2])
        seed += 1
    print(dict(counts))
    assert counts["trials"] > counts["refused"], f"most settings are refused: {counts}"
