"""What processes do in tests of factored loaders. Imports nothing heavy, so that those who need none of it start at once."""

import os
import signal
import time

from penstock.sample.factored.messages import Ask, Begin, Done, Failed, Ready, Taken


def collect(loader, num_epochs, seconds=0.0):
    """A trainer: the digests of its epochs; `seconds` of training per batch where the seat is a trainer."""
    import penstock

    is_slow = not getattr(loader, "_is_sampler", False)
    found = []
    for _ in range(num_epochs):
        found.append([])
        for batch in loader:
            found[-1].append(penstock.digest(batch))
            time.sleep(seconds if is_slow else 0.0)
    return found


def collect_beside(loader, seeds):
    """A trainer that looks at other seeds before its epoch and in it: (digests of the epoch, those of the others each time)."""
    import penstock

    found, beside = [], [[penstock.digest(batch) for batch in loader.beside(seeds)]]
    for batch in loader:
        found.append(penstock.digest(batch))
        beside.append([penstock.digest(batch) for batch in loader.beside(seeds)])
    return found, beside


def count_asking(loader, lag_s):
    """A trainer whose device is behind by `lag_s` at every batch: (batches, times it waited for the device, what its user took)."""
    waits = []
    loader.engine.maker.delivery.keep_up = lambda: waits.append(time.sleep(lag_s))
    return len(list(loader)), len(waits), loader.stats().user_s


def sample_nothing(connection, slots):
    """A sampler of empty batches."""
    connection.send(Ready())
    while True:
        connection.send(Ask(-1, -1))
        job = connection.recv()
        slots.writable(job.slot, 8)[:] = 0
        connection.send(Done(job, 8, 0.001))


def _take_one(connection):
    connection.send(Ready())
    connection.send(Begin(1, 0, 0))
    connection.send(Ask(1, 0))
    assert isinstance(connection.recv(), Taken)


def die(connection, slots):
    """A trainer that is killed."""
    _take_one(connection)
    os.kill(os.getpid(), signal.SIGKILL)


def fail(connection, slots):
    """A trainer that fails."""
    _take_one(connection)
    connection.send(Failed(("ValueError", "too bad"), "its trace"))
    time.sleep(60)


def never_begin(connection, slots):
    """A trainer that ends before it has begun."""
    os._exit(1)
