"""Nothing hangs: errors arrive, and every way of stopping ends the threads."""

import gc
import signal
import textwrap
import threading
import time

import psutil
import pytest
import torch

from penstock.errors import PipelineError
from penstock.feed import NeighborLoader, turns
from penstock.feed.maker import BatchMaker
from penstock.plan import Plan
from tests import endings
from tests.endings import END_S
from tests.feed.inputs import check_homogeneous, digests, homogeneous_data

LOOK_S = 0.01


def threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("penstock")}


def threads_that_stay(before):
    """Beyond those of before, which other tests' loaders may have until garbage is collected."""
    for look in range(int(END_S / LOOK_S)):  # looks are counted, not seconds: where others have the machine, both take longer
        if threads() <= before:
            break
        if look % 50 == 49:
            gc.collect()  # what a thread still held when it was collected before
        time.sleep(LOOK_S)
    return threads() - before


def slow(batch):
    time.sleep(0.02)
    return batch


def make(**options):
    return NeighborLoader(homogeneous_data(), [3, 2], batch_size=10, seed=0, **{"num_workers": 3, **options})


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("in_workers", [False, True])
def test_a_bad_transform_arrives_with_stage_and_batch(num_workers, in_workers):
    def transform(batch):
        if batch.input_id[0] == 50:
            raise KeyError("colour")
        return batch

    loader = make(transform=transform, num_workers=num_workers, filter_per_worker=in_workers)
    iterator, expected = iter(loader), digests(make())
    for _ in range(5):
        next(iterator)
    if in_workers:
        with pytest.raises(PipelineError, match="KeyError in stage transform of batch 5: 'colour'") as caught:
            next(iterator)
        assert (caught.value.stage, caught.value.batch) == ("transform", 5)
        assert isinstance(caught.value.__cause__, KeyError)
        assert next(iterator, None) is None
        return
    with pytest.raises(KeyError, match="colour") as caught:  # the user's own, who may go on
        next(iterator)
    assert caught.value.__notes__ == ["in the transform of batch 5"]
    assert loader.state_dict()["batch"] == 5
    assert digests(iterator) == expected[6:]
    assert loader.state_dict()["epoch"] == 1


def test_a_transform_does_not_end_the_loop_in_silence_nor_take_ctrl_c_for_its_own():
    def end(error):
        def transform(batch):
            raise error

        return transform

    for error, arrives in ((StopIteration(), PipelineError), (KeyboardInterrupt(), KeyboardInterrupt)):
        loader = make(transform=end(error))
        iterator = iter(loader)
        with pytest.raises(arrives):
            next(iterator)
        assert loader.state_dict()["batch"] == 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_bad_sampler_output_arrives(num_workers):
    def transform(output):
        raise StopIteration  # would end a careless loop in silence

    with pytest.raises(PipelineError, match="StopIteration in stage sample of batch 0"):
        next(iter(make(transform_sampler_output=transform, num_workers=num_workers)))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_bad_sampler_of_the_user_arrives(num_workers):
    class Broken:
        def __len__(self):
            return 10

        def __iter__(self):
            raise RuntimeError("no more luck")

    loader = NeighborLoader(homogeneous_data(), [2], batch_size=5, sampler=Broken(), num_workers=num_workers)
    with pytest.raises(PipelineError, match="RuntimeError in stage order of batch 0: no more luck"):
        next(iter(loader))


def test_a_feature_that_vanishes_arrives():
    """Rows beyond the end of a file that was cut short while mapped would kill the process; ids out of range must be errors."""
    data = homogeneous_data()
    loader = NeighborLoader(data, [2], batch_size=50, num_workers=2)
    data.x = data.x[:100]
    with pytest.raises(ValueError, match="x has 100 rows for 300 nodes"):
        next(iter(loader))


def test_after_an_error_the_loader_still_works():
    fail = [True]

    def transform(batch):
        if fail[0]:
            raise ValueError("once")
        return batch

    loader = make(transform=transform)
    with pytest.raises(ValueError, match="once"):
        list(loader)
    fail[0] = False
    assert len(list(loader)) == 30


def test_leaving_early_and_dropping():
    before = threads()
    for _ in range(5):
        loader = make(transform=slow, filter_per_worker=True)
        for _ in loader:
            break
        del loader
    gc.collect()
    assert not threads_that_stay(before)


def test_dropping_the_iterator_keeps_the_loader():
    loader = make()
    iterator = iter(loader)
    next(iterator)
    del iterator
    gc.collect()
    assert len(list(loader)) == 30


def test_an_iterator_outlives_its_loader():
    loader = make()
    iterator = iter(loader)
    next(iterator)
    del loader
    gc.collect()
    assert len(list(iterator)) == 29


def test_two_iterators_at_once():
    loader = make()
    left, right = iter(loader), iter(loader)
    for _ in range(30):
        next(left), next(right)
    assert next(left, None) is None
    assert next(right, None) is None


def test_a_batch_that_takes_too_long():
    loader = make(transform=lambda batch: time.sleep(1) or batch, filter_per_worker=True, timeout=0.2)
    with pytest.raises(PipelineError, match="batch 0 was not ready after"):
        next(iter(loader))


def run(code, **options):
    """Run code in a process of its own, see `tests.endings.run`."""
    prelude = "import time, os\nfrom tests.feed.inputs import digests\nfrom tests.feed.test_endings import make, slow\n"
    return endings.run("-c", prelude + textwrap.dedent(code), **options)


def test_interpreter_exit_in_the_middle():
    def end():
        ending = run(
            """
            loader = make(transform=slow, filter_per_worker=True)
            iterator = iter(loader)
            next(iterator)
            print("ready")
            """
        )
        assert ending.code == 0, ending.output
        return ending

    endings.assert_soon(end)


def test_control_c():
    def end():
        ending = run(
            """
            for batch in make(transform=slow):
                print("ready")
                time.sleep(1000)
            """,
            signal=signal.SIGINT,
        )
        assert ending.code != 0
        assert "KeyboardInterrupt" in ending.output
        return ending

    endings.assert_soon(end, signal=signal.SIGINT)


def test_fork_after_use_and_under_a_plan():
    ending = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        from penstock import Plan, digest
        first = digests(make())

        def goes_on_in_both(loader):
            iterator = iter(loader)
            next(iterator)
            child = os.fork()
            if child == 0:
                assert digests(make()) == first
                assert len(list(loader)) == 30
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert len(list(iterator)) == 29

        goes_on_in_both(make())
        for policy in ("fifo", "belady", "degree"):
            loader = make(plan=Plan(policy=policy, cache="20%", window=4, slow="1GB/s,1ms,1000 rows"))
            assert digests(loader) == first, policy
            goes_on_in_both(loader)
        print("done")
        """
    )
    assert ending.code == 0, ending.output
    assert "done" in ending.output


def resources():
    process = psutil.Process()
    return process.memory_info().rss, process.num_threads(), process.num_fds()


def soak(num_batches):
    """Feed so many batches, in epochs, with some left early; returns resources after a tenth and at the end."""
    data = homogeneous_data()
    loader = NeighborLoader(data, [5, 5], batch_size=30, shuffle=True, num_workers=2, seed=0)
    fed, early = 0, None
    while fed < num_batches:
        for batch in loader:
            fed += 1
            if fed % 997 == 0:
                check_homogeneous(batch, data)
                break
        if early is None and fed >= num_batches // 10:
            early = resources()
    return early, resources()


def assert_flat(early, late):
    assert late[0] - early[0] < 24 << 20
    assert late[1] <= early[1]
    assert late[2] <= early[2]


def test_short_soak():
    assert_flat(*soak(2000))


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_soak():
    assert_flat(*soak(10_000))


def test_torch_threads_are_left_alone():
    before = torch.get_num_threads()
    list(make())
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("in_threads", [False, True])
@pytest.mark.parametrize("num_workers", [0, 3])
def test_a_pass_is_over_after_an_error(num_workers, in_threads):
    """What came after it would be counted as what it is not, and a resumed run would begin at another batch."""
    fails = {"at": 2}

    def transform(batch):
        fails["at"] -= 1
        if fails["at"] == 0:
            raise KeyboardInterrupt
        return batch

    loader = make(num_workers=num_workers, transform=transform, filter_per_worker=in_threads)
    batches = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        list(batches)
    assert list(batches) == []


@pytest.mark.parametrize("plan", [Plan(policy="belady", cache="20%", window=6), Plan()], ids=str)
def test_whoever_waits_for_its_turn_waits_on(plan, monkeypatch, caplog):
    """The first batch has its turn until the window is full."""
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.02)
    sample = BatchMaker.sample

    def slowly(*arguments):
        time.sleep(0.05)
        return sample(*arguments)

    monkeypatch.setattr(BatchMaker, "sample", slowly)
    loader = make(num_workers=2, plan=plan)
    assert len(list(loader)) == len(loader)
    assert ("still waits for batch 0" in caplog.text) == bool(plan.policy)
