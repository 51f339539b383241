"""A cached tier with its content on the devices of several ranks: each rank keeps one shard, and reads all shards.

In: row numbers. Out: the same rows as from any `CachedTier`. Of R ranks, rank r keeps rows v with v mod R = r; its policy knows row v as id
v div R. A read asks the owner of each shard for a decision, and reads all misses from this rank's slower tier at once. Then it takes its
turn at each shard, in ascending order, to copy hits out of the shard and kept misses into it.

There is no deadlock: no turn is held while waiting for another one, and every wait (at a shard, behind a batch of the same rank, or for
rows) is for an older decision. No wrong row is used: rows read from a rank's memory count only if its owner answers after the read;
otherwise they are read again from below. A rank that is gone is treated as one that keeps no rows. Source: BGL 3.2.3.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cache.belady import Belady
from penstock.cache.policy import Change, Policy
from penstock.cache.shard import Shard, needs_turn
from penstock.errors import NotSupportedError, UsageError
from penstock.gather.cached import CachedTier, timed
from penstock.gather.shard_owner import Export
from penstock.gather.shard_peers import Gone, ShardGroup, Talk
from penstock.gather.stack import around
from penstock.records import Span
from penstock.store.tiers import DeviceTier, Read, Tier, TierStats
from penstock.store.tiers.pinned import places_on, rows_on, to_device
from penstock.store.tiers.tier import check_rows

if TYPE_CHECKING:
    import torch


class ShardedCache(CachedTier):
    """Rows of a slower tier, some of them kept on the devices of this rank and of others. Usable after `open_shards`.

    Args:
        make_policy: makes an empty policy over this rank's ids (see `penstock.cache.shard`); it must not look ahead.
        slow: has all rows; it reads into device memory.
        content: int64 rows, the initial content of all shards together, best first; this rank's share is read at construction.
        name: of the fast tier.
        reader: this rank's device.
        group: the ranks that share.
    Attributes:
        shard: the decisions of this rank's owner.
        peers: name -> counts of this rank's hits in the memory of other ranks.
    Raises:
        UsageError: the policy looks ahead.
    """

    def __init__(
        self,
        make_policy: Callable[[], Policy],
        slow: Tier,
        content: np.ndarray | None = None,
        name: str = "cache",
        *,
        reader: torch.device,
        group: ShardGroup,
    ) -> None:
        super().__init__(make_policy, slow, None, name, reader=reader)
        if isinstance(self.policy, Belady):
            raise UsageError(f"{name}: policy {self.policy.name} looks ahead, but ranks do not know the coming batches of each other")
        self._group, self._num_ranks, self._rank = group, group.seat.num_ranks, group.seat.rank
        self.shard = Shard(make_policy, self.policy)
        self._of_peers = TierStats()
        self._tiers = dict[int, DeviceTier]()
        self._slots = None
        self._key = None
        self.peers = {} if self._num_ranks == 1 else {f"peers' {name}": self._of_peers}
        if content is not None:
            mine = content[content % self._num_ranks == self._rank][: self._fast.num_rows]
            self.policy.fill(mine // self._num_ranks)
            self._bring(mine)

    @property
    def resident_bytes(self) -> int:
        """Host memory of the policy's state; for a static policy also of the table of slots of all ranks."""
        return self.shard.policy.state_bytes + (0 if self._slots is None else self._slots.nbytes)

    def export(self) -> Export:
        """Return the description of this shard for other ranks."""
        if self.reader.type == "cpu":
            for buffer in self._fast.buffers:
                buffer.share_memory_()
        return Export(
            self.num_rows, tuple(self.row_bytes), self.policy.name, self._fast.buffers, self.policy.slots if self.is_static else None
        )

    def join(self, key: Any, exports: Sequence[Export]) -> None:
        """Make the cache ready to read. `key`: the node type; `exports`: of all ranks."""
        self._key = key
        for rank, one in enumerate(exports):
            if rank != self._rank:
                for buffer in one.buffers:
                    _enable_access(buffer.device, self.reader)
                self._tiers[rank] = DeviceTier.over(one.buffers, self.row_bytes, self.reader, f"{self.name} of rank {rank}")
                self._tiers[rank].stats = self._of_peers
            else:
                self._tiers[rank] = self._fast
        if self.is_static:
            self._slots = np.empty(self.num_rows, np.int32)
            for rank, one in enumerate(exports):
                assert one.slots is not None
                self._slots[rank :: self._num_ranks] = one.slots

    def announce(self, rows: np.ndarray) -> None:
        """Announce the misses of a coming batch to the cache or spool below. Raises UsageError without one, or if this cache is dynamic."""
        cache = self.beneath
        if self._slots is None or cache is None:
            raise UsageError(f"{self.name}: policy {self.policy.name} does not look ahead, there is nothing to announce to it")
        cache.announce(rows[self._slots[rows] < 0])

    def restart(self) -> None:
        """Begin a new pass of this rank; other ranks are not affected."""
        if (cache := self.beneath) is not None:
            cache.restart()

    def submit(self, rows: np.ndarray, outs: Sequence[Any], places: np.ndarray) -> Read:
        """Ask the owners for decisions, and begin to read the misses. Submit batches in order; wait for each read, in any order."""
        check_rows(self, rows)
        if self._pid != os.getpid():  # the connections belong to the parent
            return around(self.slow).submit(rows, outs, places)
        started, parts, is_miss = time.perf_counter(), list[_Part](), np.ones(rows.size, bool)
        try:
            for rank in range(self._num_ranks):
                at = np.flatnonzero(rows % self._num_ranks == rank)
                part = self._decide(rank, rows, at)
                if part is not None:
                    is_miss[part.hits] = False
                    parts.append(part)
            decided = time.perf_counter()
            self.stats.add_deciding(decided - started)
            misses = np.flatnonzero(is_miss)
            beneath = self.slow.submit(rows[misses], outs, places[misses])
        except BaseException:
            for part in parts:
                part.lose()
            raise
        read = _ShardedRead(self, parts, rows, outs, places, beneath, [("decide", started, decided, threading.get_ident())])
        read.since = beneath.since if misses.size else None
        return read

    def _decide(self, rank: int, rows: np.ndarray, at: np.ndarray) -> _Part | None:
        """Ask the owner of a shard about the rows of a batch at positions `at`. None: the shard has none of them, and will keep none."""
        if self._slots is not None:
            slots = self._slots[rows[at]]
            return _Part(rank, at, Change(slots, at[:0], slots[:0]), None) if (slots >= 0).any() else None
        if not at.size:
            return None
        peer = self._group.peers[rank]
        try:
            talk = peer.talk()
            change = talk.call("decide", self._key, rows[at] // self._num_ranks)
        except Gone:
            return None
        if change is None:
            peer.lose("has let its loader go")
        elif needs_turn(change):
            return _Part(rank, at, change, talk)
        talk.end()
        return None

    def take_turn(self, part: _Part, outs: Sequence[Any], places: np.ndarray, spans: list[Span]) -> None:
        """At this read's turn, copy hits out of a shard and kept misses into it. Does nothing if the content that the decision assumed is
        gone."""
        tier, (into, inserted) = self._tiers[part.rank], part.kept
        # before the turn, in which only kernels are launched: to send numbers may take new memory, and the driver may give it only when the
        # device is idle. Then a collective of the training would be waited for, and by it the ranks that wait for this turn.
        slots: Any = rows_on(tier, part.slots)
        hit_places: Any = places_on(self.reader, places[part.hits])
        kept = [to_device(each, self.reader) for each in (into, places[inserted])] if into.size else []
        if self.is_static and part.rank != self._rank:  # no turn; but the owner must still be there after the read
            try:
                part.talk = self._group.peers[part.rank].talk()
            except Gone:
                return
        elif not part.may_go():
            return
        timed(tier.submit(slots, outs, hit_places).wait, "gather", spans)
        if kept:
            timed(lambda: tier.write(kept[0], outs, kept[1]), "update", spans)
            self.stats.add_updating(spans[-1][2] - spans[-1][1])
        self.synchronize()
        part.done()

    def synchronize(self) -> None:
        """Wait until the device has finished the work of this thread's stream."""
        if self.reader.type == "cuda":
            import torch

            torch.cuda.current_stream(self.reader).synchronize()


def open_shards(group: ShardGroup, caches: Mapping[Any, ShardedCache]) -> None:
    """Export the caches of this rank, by node type, and open those of the other ranks. All ranks must call it, and it waits for all.

    Raises:
        TierError: a rank is missing, or its memory cannot be opened here. InputError: ranks have different caches.
        NotSupportedError: a device cannot read the memory of another.
    """
    found = group.open({key: cache.shard for key, cache in caches.items()}, {key: cache.export() for key, cache in caches.items()})
    for key, cache in caches.items():
        cache.join(key, [exports[key] for exports in found])


def _enable_access(owner: torch.device, reader: torch.device) -> None:
    """Let kernels of one device access the memory of another. Torch enables this, in one direction, when it copies between the two."""
    if owner == reader:
        return
    import torch

    if not torch.cuda.can_device_access_peer(reader, owner):
        raise NotSupportedError(f"{reader} cannot read the memory of {owner}: leave shards out, each device then has a cache of its own")
    for source, target in ((reader, owner), (owner, reader)):  # currently the source gets access to the target
        torch.zeros(1, device=target).copy_(torch.zeros(1, device=source))
    torch.cuda.synchronize(owner)
    torch.cuda.synchronize(reader)


class _Part:
    """The part of a read that concerns one shard: its hits, and the misses to keep there.

    Attributes:
        rank: the rank that keeps the shard. talk: conversation with its owner.
        hits: positions of the hits in the batch. slots: slots of the hits.
        kept: (slots, positions in the batch) of misses to keep.
        is_read: the hits were copied, and the owner was present when copying began.
    """

    def __init__(self, rank: int, at: np.ndarray, change: Change, talk: Talk | None) -> None:
        self.rank, self.talk, self.is_read = rank, talk, False
        are_hits = change.hit_slots >= 0
        self.hits, self.slots = at[are_hits], change.hit_slots[are_hits].astype(np.int64)
        self.kept = change.into, at[change.inserted]

    def may_go(self) -> bool:
        """Wait for the turn. False: there is no turn, since the content that the decision assumed is gone."""
        talk, self.talk = self.talk, None
        try:
            if talk is None or talk.call("ready"):
                self.talk = talk
                return True
            talk.end()
        except Gone:
            pass
        return False

    def done(self) -> None:
        """End the turn."""
        try:
            if self.talk is not None:
                self.talk.say("done")
            self.is_read = True
        except Gone:
            pass

    def is_sure(self) -> bool:
        """Whether the owner was present until the end of the turn; only its answer shows this."""
        try:
            if self.is_read and self.talk is not None:
                self.talk.hear()
                self.talk.end()
        except Gone:
            return False
        return self.is_read

    def lose(self) -> None:
        """Tell the owner that the misses will never arrive."""
        try:
            if self.talk is not None:
                self.talk.say("lost")
                self.talk.end()
        except Gone:
            pass


class _ShardedRead:
    """A read of a sharded cache under way.

    Attributes:
        since, spans: as for every read of a cache.
    """

    def __init__(
        self, tier: ShardedCache, parts: list[_Part], rows: np.ndarray, outs: Any, places: np.ndarray, beneath: Read, spans: list[Span]
    ) -> None:
        self._tier = tier
        self._parts = parts
        self._rows = rows
        self._outs = outs
        self._places = places
        self._beneath, self.spans = beneath, spans
        self.since: float | None = None

    def wait(self) -> int:
        """Complete the read."""
        to_come = list(self._parts)
        try:
            timed(self._beneath.wait, "read", self.spans, self.since)
            self.spans += getattr(self._beneath, "spans", ())
            self._tier.synchronize()  # before any turn, since others wait during a turn
            while to_come:
                self._take_turn(to_come.pop(0))
        except BaseException:
            for part in to_come:
                part.lose()
            raise
        lost = [part.hits for part in self._parts if not part.is_sure()]
        if lost:
            again = np.concatenate(lost)
            read = around(self._tier.slow).submit(self._rows[again], self._outs, self._places[again])
            timed(read.wait, "read", self.spans, read.since)
        return self._rows.size * sum(self._tier.row_bytes)

    def _take_turn(self, part: _Part) -> None:
        try:
            self._tier.take_turn(part, self._outs, self._places, self.spans)
        except BaseException:
            if part.talk is not None:
                part.talk.hang_up()  # the device may still be writing there, so the owner must stop keeping rows
            raise
