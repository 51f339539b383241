"""Samplers and trainers as processes: the same batches, clear errors, and nothing left behind."""

import contextlib
import os
import re
import signal
import textwrap
import threading
import time

import numpy as np
import psutil
import pytest

import penstock
from penstock.errors import CorruptStoreError, NotSupportedError, PipelineError, UsageError
from penstock.feed.factored import FactoredLoader, measure_times, run_factored
from penstock.feed.factored.group import Group
from penstock.feed.factored.schedule import Schedule
from penstock.feed.factored.trainer import SwitchingLoader
from penstock.plan import Plan
from penstock.store import ingest
from tests import endings, factored_seats
from tests.devices import DEVICES, of_rank
from tests.endings import END_S
from tests.feed.inputs import digests, homogeneous_data
from tests.feed.ways import plain_data

OPTIONS = dict(num_neighbors=[4, 3], input_nodes="train", batch_size=10, shuffle=True, seed=3)
PLAN = Plan(policy="fifo", cache="20%")
SEEDS = np.arange(25)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return ingest(homogeneous_data(), tmp_path_factory.mktemp("factored") / "store", memory="4GiB").path


@pytest.fixture(scope="module")
def expected(path):
    """Digests of three epochs, by one process."""
    loader = penstock.NeighborLoader(path, **OPTIONS)
    return [digests(loader) for _ in range(3)]


def files_of_slots():
    return [link for link in psutil.Process().open_files() if "penstock-slot" in link.path] + [
        name for name in os.listdir("/proc/self/fd") if "penstock-slot" in _target(name)
    ]


def _target(name):
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


def assert_gone(pids):
    """All processes have ended, and nothing of theirs is here."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(timeout=endings.HANG_S)
    assert not files_of_slots()


def test_a_loader_with_samplers_beside_it(path, expected):
    """Same batches in any epoch, when left early, resumed, and beside; then nothing is left."""
    plain = penstock.NeighborLoader(path, **OPTIONS)
    with FactoredLoader(path, num_samplers=2, num_workers=2, plan=PLAN, queue_depth=3, **OPTIONS) as loader:
        pids = list(loader.pids.values())
        assert digests(loader) == expected[0]
        for number, batch in enumerate(loader):
            assert penstock.digest(batch) == expected[1][number]
            if number == 3:
                break
        state = loader.state_dict()
        assert digests(loader) == expected[2]
        loader.load_state_dict(state)
        assert digests(loader) == expected[1][4:]
        plain.load_state_dict(state)
        assert digests(plain) == expected[1][4:]
        assert digests(loader.beside(SEEDS)) == digests(plain.beside(SEEDS))
        assert digests(loader.beside(SEEDS, rank=1, num_ranks=2)) == digests(plain.beside(SEEDS, rank=1, num_ranks=2))
        assert penstock.digest(loader([5, 6], epoch=1, batch=2)) == penstock.digest(plain([5, 6], epoch=1, batch=2))
        older = iter(loader)
        next(older)
        newer = iter(loader)
        assert len(list(newer)) == len(loader)
        with pytest.raises(PipelineError, match="another pass over this loader has begun"):
            list(older)
        times = loader.times()
        assert min(times.sample_s, times.extract_s, times.train_s) > 0
    assert_gone(pids)
    with pytest.raises(PipelineError, match="the loader was closed"):
        next(iter(loader))


def test_rows_are_spooled_by_the_trainer(path, expected):
    plan = Plan(features="disk", policy="presample", cache="10%", spool="64MiB", window=4)
    with FactoredLoader(path, num_samplers=1, plan=plan, **OPTIONS) as loader:
        assert digests(loader) == expected[0]


def test_a_sampler_that_is_killed(path):
    """Its name, its number and the batch, within two seconds; the other sampler ends, too."""
    loader = FactoredLoader(path, num_samplers=1, **OPTIONS)
    batches = iter(loader)
    next(batches)
    [pid] = loader.pids.values()
    os.kill(pid, signal.SIGSTOP)  # what it is doing, it does not finish
    at = time.monotonic() + 0.3
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    said = rf"sampler 0 \(process {pid}\) was killed by SIGKILL( while it sampled batch \d+ of epoch 0)? \(stage sample, batch \d+\)"
    with pytest.raises(PipelineError, match=said) as caught:
        list(batches)
    assert time.monotonic() - at < END_S
    assert caught.value.batch is not None
    with pytest.raises(PipelineError, match="was killed by SIGKILL"):
        next(iter(loader))
    loader.close()
    assert_gone([pid])


def test_a_sampler_that_fails_and_one_that_cannot_start(path, tmp_path):
    """Damage is told as by a loader without processes, at the batch where it is; a store that is gone, at once."""
    data = homogeneous_data()
    damaged = ingest(data, tmp_path / "damaged", memory="4GiB").path
    indices = damaged / "edges" / "node__to__node" / "indices.npy"
    array = np.load(indices, mmap_mode="r+")
    array[:] = np.where(np.arange(array.size) % 50 == 7, 1 << 20, array)
    array.flush()
    messages = []
    for make in (penstock.NeighborLoader, FactoredLoader):
        options = {**OPTIONS, "seed": 5} | ({"num_samplers": 1} if make is FactoredLoader else {})
        loader = make(damaged, **options)
        with pytest.raises(CorruptStoreError, match=r"are damaged: .* \(stage sample, batch \d+\)") as caught:
            list(loader)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    loader.close()
    moved = FactoredLoader(damaged, num_samplers=1, **OPTIONS)
    damaged.rename(tmp_path / "elsewhere")
    with pytest.raises(PipelineError, match=r"sampler 0 could not start: NotAStoreError: .* does not exist"):
        next(iter(moved))
    moved.close()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (factored_seats.die, r"trainer 0 \(process \d+\) was killed by SIGKILL after it was given batch 0 of epoch 0"),
        (factored_seats.fail, "trainer 0 failed after it was given batch 0 of epoch 0: ValueError: too bad"),
        (factored_seats.never_begin, r"trainer 0 \(process \d+\) ended with exit code 1 before it was ready; does the script"),
    ],
)
def test_a_trainer_that_ends(target, said):
    """Seats of a test stand in for the processes: they need no torch, and are there in a moment."""
    group = Group(Schedule(range(10), num_samplers=1, num_trainers=1, depth=1))
    group.start(0, factored_seats.sample_nothing)
    group.start(1, target)
    pids = list(group.pids.values())
    group.run()
    assert group.over.wait(60)
    with pytest.raises(PipelineError, match=said) as caught:
        group.check()
    assert getattr(caught.value, "__notes__", None) == (["its trace"] if target is factored_seats.fail else None)
    group.close()
    assert_gone(pids)


@pytest.mark.parametrize("device", DEVICES)
def test_both_roles_on_devices(device, tmp_path):
    """The sampler holds the topology, the trainer the hot rows; on one device where there is one."""
    path = ingest(plain_data(), tmp_path / "store", memory="4GiB").path
    options = {**OPTIONS, "num_neighbors": [2, 2], "batch_size": 40}
    for more in ({}, {"time_attr": "time"}):
        plain = digests(penstock.NeighborLoader(path, **options, **more))
        devices = dict(device=device, sampler_devices=of_rank(device, 1))
        with FactoredLoader(path, num_samplers=1, plan="gnnlab", **devices, **options, **more) as loader:
            assert digests(loader) == plain
            assert loader.stats().device_bytes > 0


@pytest.mark.parametrize("device", DEVICES)
def test_processes_on_devices(path, expected, device):
    """A sampler that trains when it is ahead, and a trainer."""
    found = run_factored(
        factored_seats.collect, path, num_processes=2, num_samplers=1, plan="gnnlab", switching=True, sampler_devices=device,
        devices=of_rank(device, 1), args=(1, 0.1), **OPTIONS,
    )  # fmt: skip
    assert sorted(found[0][0] + found[1][0]) == sorted(expected[0])


@pytest.mark.parametrize("device", [None, *DEVICES])
@pytest.mark.parametrize("policy", ["degree", "presample"])
def test_samplers_mark_what_a_trainer_keeps(path, expected, policy, device, monkeypatch):
    """Nothing is looked up where it trains."""
    with FactoredLoader(path, num_samplers=1, plan=Plan(policy=policy, cache="20%"), device=device, **OPTIONS) as loader:
        (cache,) = loader.engine.caches.top.values()
        monkeypatch.setattr(cache.policy, "access", None)
        if device is not None:
            cache._slots = None
        for epoch in range(2):
            assert digests(loader) == expected[epoch]
        assert loader.stats().tiers["cache"]["num_rows"] > 0


def test_marks_of_another_content_are_not_looked_at(path, expected):
    with FactoredLoader(path, num_samplers=1, plan=Plan(policy="degree", cache="20%"), **OPTIONS) as loader:
        loader._publishes = False
        others = {t: np.roll(slots, 1) for t, slots in loader.engine.caches.directories.items()}
        loader._client.publish(others, loader.engine.maker.sampler.graph)
        assert digests(loader) == expected[0]
        loader._is_marked = True
        assert digests(loader) != expected[1], "nothing is marked here"


@pytest.mark.parametrize("drop_last", [pytest.param(False, marks=pytest.mark.deep), True])
def test_trainers_take_what_ranks_take(path, drop_last):
    """Two trainers and a sampler: together exactly the batches of one process; with drop_last, equally many each."""
    options = {**OPTIONS, "input_nodes": np.arange(115), "drop_last": drop_last}
    loader = penstock.NeighborLoader(path, **options)
    expected = [digests(loader) for _ in range(2)]
    found = run_factored(factored_seats.collect, path, num_processes=3, num_samplers=1, plan="gnnlab", num_workers=1, args=(2,), **options)
    for rank in range(2):
        assert found[rank] == [digests[rank::2][:5] if drop_last else digests[rank::2] for digests in expected]


def test_processes_that_do_each_others_work(path, expected):
    """A slow trainer and a sampler that is ahead: each batch once, in its place, and both train."""
    found = run_factored(
        factored_seats.collect, path, num_processes=2, num_samplers=1, queue_depth=4, switching=True, args=(3, 0.05), **OPTIONS
    )  # fmt: skip
    for epoch in range(3):
        assert sorted(found[0][epoch] + found[1][epoch]) == sorted(expected[epoch])
        for seat in range(2):
            places = [expected[epoch].index(one) for one in found[seat][epoch]]
            assert places == sorted(places)
    assert sum(map(len, found[0])) > 0, "the sampler never trained"


@pytest.mark.parametrize("switching", [pytest.param(False, marks=pytest.mark.deep), True])
def test_loaders_beside_those_of_processes(path, expected, switching):
    """They give their own seeds, all of them, and take nothing from the training."""
    found = run_factored(
        factored_seats.collect_beside, path, num_processes=2, num_samplers=1, switching=switching, args=(SEEDS,), **OPTIONS
    )  # fmt: skip
    of_seeds = [penstock.digest(batch) for batch in penstock.NeighborLoader(path, **OPTIONS).beside(SEEDS)]
    assert sorted(one for trained, _ in found for one in trained) == sorted(expected[0])
    assert all(each == of_seeds for _, beside in found for each in beside)


@pytest.mark.parametrize("switching", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_trainer_waits_for_its_device(path, expected, switching):
    """At every batch, so that what it is behind stays small and its time is that of the device, not of the launches."""
    found = run_factored(
        factored_seats.count_asking, path, num_processes=2, num_samplers=1, switching=switching, args=(0.01,), **OPTIONS
    )  # fmt: skip
    for num_batches, num_waits, user_s in found:
        assert num_waits == num_batches + 1
        assert user_s >= 0.01 * num_batches
    assert sum(num_batches for num_batches, _, _ in found) == len(expected[0])


def test_a_process_that_takes_what_comes_has_no_position(path):
    loader = SwitchingLoader(path, [4, 3], "train", batch_size=10)
    for work in (loader.state_dict, lambda: loader.load_state_dict({})):
        with pytest.raises(NotSupportedError, match="no process has a position"):
            work()


WHOLE = """
    import sys, time
    if __name__ == "__main__":
        from penstock.feed.factored import FactoredLoader
        loader = FactoredLoader(sys.argv[1], [4, 3], "train", batch_size=10, num_samplers=1)
        for batch in loader:
            print("ready", *loader.pids.values())
            time.sleep(1000)
"""

SAMPLER_ONLY = """
    import multiprocessing, sys, time
    import numpy as np
    from penstock.order import SequentialOrder
    from penstock.sample.factored.process import SamplerSpec, run_sampler
    from penstock.sample.factored.slots import Slots
    from penstock.sample.seeds import NodeSeeds
    if __name__ == "__main__":
        context, settings = multiprocessing.get_context("spawn"), {"num_neighbors": [4, 3]}
        spec = SamplerSpec(path=sys.argv[1], weight=None, settings=settings, seeds=NodeSeeds("node", np.arange(9)),
                           order=SequentialOrder(9), batch_size=3)
        ours, theirs = context.Pipe()
        process = context.Process(target=run_sampler, args=(spec, None, theirs, Slots(1)))
        process.start()
        theirs.close()
        assert type(ours.recv()).__name__ == "Ready"
        print("ready", process.pid)
        time.sleep(1000)
"""


@pytest.mark.parametrize(("script", "number"), [(WHOLE, signal.SIGINT), (SAMPLER_ONLY, signal.SIGKILL)])
def test_control_c_and_kill(path, tmp_path, script, number):
    """However the program ends, its samplers end with it; nobody says that anything was left behind."""
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(script))

    def end():
        ending = endings.run(file, path, signal=number)
        ready = re.search(r"^ready (\d+)$", ending.output, re.MULTILINE)
        assert ready, ending.output
        assert ("KeyboardInterrupt" in ending.output) == (number == signal.SIGINT), ending.output
        assert "leaked" not in ending.output
        assert_gone([int(ready[1])])
        return ending

    endings.assert_soon(end, signal=number)


def test_a_script_without_a_guard_is_told_so(monkeypatch):
    monkeypatch.setattr("multiprocessing.current_process", lambda: type("Process", (), {"_inheriting": True}))
    with pytest.raises(UsageError, match='under `if __name__ == "__main__":`'):
        Group(Schedule(range(1), num_samplers=1, num_trainers=1, depth=1))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({}, UsageError, "give num_samplers, or step"),
        ({"num_samplers": 0}, UsageError, "there must be a sampler and a trainer at least; got 0 and 1"),
        ({"num_samplers": 1, "queue_depth": 0}, UsageError, "queue_depth must be at least 1, got 0"),
        ({"num_samplers": 1, "plan": "ducati"}, NotSupportedError, "divides one budget between lists and rows"),
        ({"num_samplers": 1, "plan": Plan(host_memory="4GiB")}, NotSupportedError, "is a budget of one process"),
        (
            {"num_samplers": 1, "plan": Plan(slow="1GB/s,1ms", slow_topology="same")},
            NotSupportedError,
            "rows and lists are read by different",
        ),
        ({"num_samplers": 1, "sampler": range(3), "shuffle": False}, NotSupportedError, "sampler is read in one process only"),
    ],
)
def test_what_is_refused(path, options, error, said):
    with pytest.raises(error, match=said):
        FactoredLoader(path, **{**OPTIONS, **options})
    assert not files_of_slots()


def test_data_in_memory_is_refused():
    with pytest.raises(UsageError, match="give a penstock Store or the path of one, got Data"):
        FactoredLoader(homogeneous_data(), num_samplers=1, **OPTIONS)


def test_numbers_of_processes_are_given_or_follow(path):
    with pytest.raises(UsageError, match="give num_samplers, or measured times"):
        run_factored(factored_seats.collect, path, num_processes=2, **OPTIONS)


def test_times_are_measured(path):
    times = measure_times(penstock.NeighborLoader(path, **OPTIONS), lambda batch: time.sleep(0.02), num_batches=3)
    assert times.sample_s > 0
    assert times.extract_s > 0
    assert times.trainer_s == times.train_s >= 0.02
