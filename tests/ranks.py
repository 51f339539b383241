"""Processes that train together, played by threads, which meet where a group would have them meet."""

import threading

import torch

from penstock.train.ranks import Ranks


class Meeting:
    """What all threads say at one point."""

    def __init__(self, count):
        self.said, self.barrier = [None] * count, threading.Barrier(count, timeout=20)

    def exchange(self, number, value):
        self.said[number] = value
        self.barrier.wait()
        found = list(self.said)
        self.barrier.wait()
        return found


class Threads(Ranks):
    """One of the processes."""

    def __init__(self, number, num_ranks, meeting):
        super().__init__(number, num_ranks)
        self._meeting = meeting

    def trade(self, rows, counts, their_counts):
        assert len(rows) == sum(counts)
        sent = self._meeting.exchange(self.number, rows.split(counts))
        got = [each[self.number] for each in sent]
        assert [len(each) for each in got] == their_counts
        return torch.cat(got)

    def _exchange(self, value):
        return self._meeting.exchange(self.number, value)
