"""Partitions for tests: stores cut at random, and processes that share them, played by threads."""

import socket
import threading

import numpy as np

from penstock.exchange import join
from penstock.partition import write_parts


def random_owners(store, num_parts, seed=0):
    """A part for each node, some parts without any of a small type."""
    rng = np.random.default_rng(seed)
    return {t: rng.integers(0, num_parts, count).astype(np.int16) for t, count in store.num_nodes.items()}


def cut(store, path, num_parts, owners=None):
    """Write a partition of a store."""
    write_parts(store, random_owners(store, num_parts) if owners is None else owners, num_parts, path)
    return path


def free_addresses(count):
    """Addresses that nobody uses now."""
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{door.getsockname()[1]}" for door in doors]
    for door in doors:
        door.close()
    return found


def together(count, work, *, timeout_s=60.0):
    """Run work(rank) on as many threads; returns what each returned, or raises what the first of them raised."""
    results, errors = [None] * count, [None] * count

    def run(rank):
        try:
            results[rank] = work(rank)
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    assert not any(thread.is_alive() for thread in threads), "some did not end"
    for error in errors:
        if error is not None:
            raise error
    return results


def join_all(path, count):
    """Join as many processes of a partition, played by threads; of each its graph. Whoever asks closes them, without waiting."""
    addresses = free_addresses(count)
    return together(count, lambda rank: join(path, addresses=addresses, rank=rank))


def on_all(path, count, work, **options):
    """Run work(graph) in as many processes of a partition, played by threads."""
    addresses = free_addresses(count)

    def run(rank):
        with join(path, addresses=addresses, rank=rank, **options) as graph:
            return work(graph)

    return together(count, run)
