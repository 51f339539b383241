"""The plain orders: as given, random, and random within parts.

In: an epoch and the index of a batch. Out: positions in the set of seeds. Invariant: over the batches of one epoch every position
occurs exactly once (`drop_last` leaves out incomplete batches, and `FirstBatches` all but the first), for any batch size and number of
ranks.

With R ranks, the i-th batch of rank r is batch i * R + r of the one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import xxhash

from penstock import rng
from penstock.errors import UsageError
from penstock.kernels.permute import cpu as permute_kernels
from penstock.kernels.permute.reference import choose_network
from penstock.threads import Guard


class Order(Protocol):
    """The protocol of orders; a loader takes any object that keeps to it (`order=mine`). A batch does not depend on which ones were asked
    for before: a run that is resumed and other processes ask for any.

    Attributes:
        name: identifies the order and everything that determines it. A state fits a loader if their orders have the same name. (A `seed`
            attribute that differs from the loader's seed is compared, too.)
        num_seeds: number of seeds in the set.
    """

    name: str
    num_seeds: int

    def num_batches(self, batch_size: int, drop_last: bool) -> int:
        """Number of batches in an epoch."""
        return count_batches(self.num_seeds, batch_size, drop_last)

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Return int64[<= batch_size]: positions in the set of seeds of batch `index`, at least one. The batches of an epoch have every
        position once."""
        ...


def count_batches(num_seeds: int, batch_size: int, drop_last: bool) -> int:
    """Return the number of batches of `num_seeds` seeds."""
    return num_seeds // batch_size if drop_last else -(-num_seeds // batch_size)


def permutation(num: int, start: int, stop: int, key: np.ndarray) -> np.ndarray:
    """Return int64[stop - start]: elements `start` to `stop` of the permutation of [0, num) under `key`."""
    elements = np.empty(stop - start, dtype=np.int64)
    permute_kernels.permute(np.arange(start, stop), num, *choose_network(num), key, elements)
    return elements


class SequentialOrder(Order):
    """Seeds as given, the same in every epoch."""

    name = "sequential"

    def __init__(self, num_seeds: int) -> None:
        self.num_seeds = num_seeds

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        return np.arange(index * batch_size, min((index + 1) * batch_size, self.num_seeds))


class RandomOrder(Order):
    """A new random permutation per epoch, computed batch by batch, without memory."""

    name = "random"

    def __init__(self, num_seeds: int, seed: int) -> None:
        self.num_seeds, self.seed = num_seeds, seed

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        stop = min((index + 1) * batch_size, self.num_seeds)
        return permutation(self.num_seeds, index * batch_size, stop, rng.derive_key(self.seed, epoch, rng.ORDER))


class FirstBatches(Order):
    """The first batches of each epoch of another order. Of a random one these are other seeds in every epoch.

    Args:
        order: the other one.
        most: batches of an epoch, at most.
    """

    def __init__(self, order: Order, most: int) -> None:
        self._order, self._most = order, most
        self.name, self.num_seeds = f"{order.name}, the first {most} batches", order.num_seeds
        if (seed := getattr(order, "seed", None)) is not None:
            self.seed = seed

    def num_batches(self, batch_size: int, drop_last: bool) -> int:
        """Number of batches in an epoch."""
        return min(self._most, self._order.num_batches(batch_size, drop_last))

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        return self._order.batch(epoch, index, batch_size)


class LocalOrder(Order):
    """Each part of the seeds is shuffled within itself and feeds one rank (PaGraph 4): batch i * R + r is from part r, as long as all parts
    have full batches left.

    Args:
        part_sizes: seeds per part; positions are numbered part after part.
        seed: of the shuffling.
    Parts of different sizes give different numbers of batches: once a part is used up, the others continue in turn. Incomplete batches are
    last, where `drop_last` leaves them out.
    """

    def __init__(self, part_sizes: Sequence[int], seed: int) -> None:
        self.part_sizes, self.seed = tuple(map(int, part_sizes)), seed
        sizes = xxhash.xxh3_64_hexdigest(repr(self.part_sizes).encode())
        self.name = f"local, full batches first, {len(self.part_sizes)} parts {sizes}, seed {seed}"
        self.num_seeds = sum(self.part_sizes)
        self._offsets = np.concatenate([[0], np.cumsum(self.part_sizes)])
        self._turns: dict[int, np.ndarray] = {}

    def num_batches(self, batch_size: int, drop_last: bool) -> int:
        """Number of batches in an epoch."""
        return sum(count_batches(size, batch_size, drop_last) for size in self.part_sizes)

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        turn, part = self._turn_table(batch_size)[index]
        size, stop = self.part_sizes[part], min((turn + 1) * batch_size, self.part_sizes[part])
        key = rng.derive_key(self.seed, epoch, rng.ORDER)
        key = np.stack(rng.philox(np.uint64(part), *np.zeros(3, np.uint64), *key))[:2]
        return self._offsets[part] + permutation(size, int(turn) * batch_size, stop, key)

    def _turn_table(self, batch_size: int) -> np.ndarray:
        """Return int64[num_batches, 2]: (batch within the part, part) of each batch; complete turns over the parts come first."""
        if batch_size not in self._turns:
            full = sorted((turn, part) for part, size in enumerate(self.part_sizes) for turn in range(size // batch_size))
            incomplete = [(size // batch_size, part) for part, size in enumerate(self.part_sizes) if size % batch_size]
            self._turns[batch_size] = np.array(full + incomplete, dtype=np.int64).reshape(-1, 2)
        return self._turns[batch_size]


class GivenOrder:
    """The user's own batches: a torch `sampler` (positions, cut into batches) or `batch_sampler` (batches).

    Each pass reads the sampler once, when it begins, and keeps the result: see `begin`. `batch` of this order itself, which presampling
    uses, gives the batches of the first pass; if the sampler has `set_epoch`, these may be those of another epoch.
    """

    name = "given"

    def __init__(self, num_seeds: int, *, sampler: Iterable[int] | None = None, batch_sampler: Iterable[list[int]] | None = None) -> None:
        self.num_seeds, self._sampler, self._batch_sampler = num_seeds, sampler, batch_sampler
        inner = getattr(batch_sampler, "sampler", None)  # torch's BatchSampler has one
        self._is_told = any(hasattr(each, "set_epoch") for each in (sampler, batch_sampler, inner))
        self._foreseen: GivenPass | None = None
        self._is_taken = False
        self._guard = Guard()

    def num_batches(self, batch_size: int, drop_last: bool) -> int:
        """Return the number of batches in an epoch, by the current length of the sampler. A sampler without a length is read."""
        promised = self.promised(batch_size, drop_last)
        return self._foresee().num_batches(batch_size, drop_last) if promised is None else promised

    def promised(self, batch_size: int, drop_last: bool) -> int | None:
        """Return the number of batches by the sampler's length; None if it has no length."""
        sampler: Any = self._sampler if self._batch_sampler is None else self._batch_sampler
        try:
            length = len(sampler)
        except TypeError:
            return None
        return count_batches(length, batch_size, drop_last) if self._batch_sampler is None else length

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index` of the first pass, the same for every `epoch`."""
        return self._foresee().batch(epoch, index, batch_size)

    def _foresee(self) -> GivenPass:
        with self._guard.lock:
            if self._foreseen is None:
                self._foreseen = self._read()
            return self._foreseen

    def begin(self) -> GivenPass:
        """Return the order of a new pass. It reads the sampler, unless it has been read for the first pass already."""
        with self._guard.lock:
            foreseen = None if self._is_told or self._is_taken else self._foreseen
            self._is_taken = True
        return self._read() if foreseen is None else foreseen

    def _read(self) -> GivenPass:
        if self._batch_sampler is None:
            return GivenPass(self, _positions(self._sampler))
        batches = [_positions(batch) for batch in _begin(self._batch_sampler)]
        return GivenPass(self, np.concatenate([np.empty(0, np.int64), *batches]), np.cumsum([0, *map(len, batches)]))


class GivenPass:
    """One pass of a user's sampler.

    Args:
        given: the order to which the pass belongs.
        positions: int64[n], of all batches, one after the other.
        ends: int64[num_batches + 1], where batches begin and end in `positions`; None: they are cut into batches of equal size.
    """

    name = GivenOrder.name

    def __init__(self, given: GivenOrder, positions: np.ndarray, ends: np.ndarray | None = None) -> None:
        self.num_seeds, self._given = given.num_seeds, given
        self._positions, self._ends = positions, ends

    def num_batches(self, batch_size: int, drop_last: bool) -> int:
        """Return the number of batches that the sampler yielded, or of its stated length, if that is more."""
        count = count_batches(len(self._positions), batch_size, drop_last) if self._ends is None else len(self._ends) - 1
        return max(count, self._given.promised(batch_size, drop_last) or 0)

    def batch(self, epoch: int, index: int, batch_size: int) -> np.ndarray:
        """Positions of batch `index`."""
        ends = self._ends
        count, size = (len(self._positions), batch_size) if ends is None else (len(ends) - 1, 1)
        if index * size >= count:
            raise UsageError(f"the sampler ended after {count}, fewer than its length: batch {index} is empty")
        start, end = (index * size, (index + 1) * size) if ends is None else ends[index : index + 2]
        return self._positions[start:end]

    def digest(self) -> str:
        """16 hex digits computed from the whole sequence."""
        state = xxhash.xxh3_64(self._positions.data)
        if self._ends is not None:
            state.update(self._ends.data)
        return state.hexdigest()


def _begin(given: Any) -> Iterator[Any]:
    if not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        what = "a sampler gives positions in the set of seeds, and a batch_sampler a list of them for each batch"
        raise UsageError(f"{what}; got {given!r:.60}")
    return iter(given)  # called once, as a sampler may draw here


def _positions(given: Any) -> np.ndarray:
    """Return what a sampler yielded as int64[n]."""
    positions = np.asarray(given if hasattr(given, "__array__") else list(_begin(given))).reshape(-1)
    if positions.size and positions.dtype.kind not in "iu":
        raise UsageError(f"a sampler gives positions in the set of seeds, whole numbers; got {positions[0].item()!r}")
    return positions.astype(np.int64, copy=False)
