"""The only randomness in Penstock: Philox-4x32-10, a pure function from a counter and a key to 128 random bits.

In: who asks (node, hop, edge type, batch, copy) and which draw. Out: the same words on every backend, thread count and machine.
Invariant: two different questions never share a counter, so no order of execution can change an answer.
Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC'11); vectors in `tests/unit/test_rng.py`.

Counter of a neighbour draw, 4 words of 32 bits:

    word 0   node, low 32 bits
    word 1   edge type (12 bits) | hop (4) | copy, high 8 of 20 | node, high 8 of 40
    word 2   batch index within the epoch
    word 3   copy, low 12 of 20 | block (20)

`block` numbers the groups of four words that one node consumes. `copy` is 0 except where one node is expanded more than once in a
batch: the position of the tree in disjoint sampling, or how often the same seed came before in the batch.

Numbers that lists share (domain SHARED, `kernels/sample_shared`) have the neighbour for the node, its node type for the edge type, and for
the batch the number of the group that shares them; word 3 is how often the neighbour came before in the list.

Steps of random walks (domain WALK, `kernels/random_walks`) have the node where the walk began, and a block for each step of each walk.
Numbers of edges, that layers are chosen by (domain LAYER, `kernels/sample_layer`), are two in a block: word 3 is half the edge's place in
the list of its node.
Draws of nodes for all lists together (domain BUDGET, `sample/budget.py`) have 0 for the node, and a node type for the edge type.

Words are held in uint64: a product of two 32-bit words is exact there, and the one definition below serves NumPy arrays and Numba
scalars alike.
"""

from __future__ import annotations

import operator
from functools import lru_cache

import numpy as np

from penstock.errors import UsageError, argument

MAX_NODES = 1 << 40
MAX_EDGE_TYPES = 1 << 12
MAX_HOPS = 1 << 4
MAX_BATCHES = 1 << 32
MAX_COPIES = 1 << 20
MAX_DRAWS = 1 << 21
"""Draws per node and hop: 2**20 blocks of at least two draws."""

MAX_DEGREE = 1 << 32
"""Of a list that draws are made of."""

WIDE_BOUND = 4096
"""From this bound on a draw takes 64 random bits: the relative bias of a bounded draw stays at or below 2**-20."""

SAMPLE, ORDER, GENERATE, PRESAMPLE, NEGATIVE, PARTITION, SHARED, WALK, LAYER, HOLD_OUT, BUDGET = range(11)
"""Domains: independent families of keys under one seed."""

_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds of Philox-4x32.

    Args:
        c0, c1, c2, c3: counter words, uint64 below 2**32; NumPy arrays (broadcast) or scalars.
        k0, k1: key words, likewise.
    Returns:
        Four random words, uint64 below 2**32, of the broadcast shape.
    """
    for _ in range(10):
        p0 = _MULTIPLIER_0 * c0
        p1 = _MULTIPLIER_1 * c2
        c0 = (p1 >> _32) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _32) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


def below_narrow(word, bound):
    """Map one random word to [0, bound), bound at most 2**32: floor(word * bound / 2**32). Source: Lemire 2019."""
    return (word * bound) >> _32


def below_wide(high, low, bound):
    """Map two random words to [0, bound), bound at most 2**32: floor((high * 2**32 + low) * bound / 2**64)."""
    return (high * bound + ((low * bound) >> _32)) >> _32


def below_sum(w0, w1, w2, bound):
    """Map three random words, the highest first, to [0, bound), bound at most 2**62: floor(words * bound / 2**96).

    So many bits that a number whose share of the bound is 2**-62 still comes as often as it should, but for 2**-34 of that.
    """
    low, high = bound & _LOW, bound >> _32
    p1 = w1 * low + ((w2 * low) >> _32)
    p0 = w0 * low + (p1 >> _32)
    carry = (w2 * high + (p1 & _LOW)) >> _32
    carry = (w1 * high + (p0 & _LOW) + carry) >> _32
    return w0 * high + (p0 >> _32) + carry


def sample_counter(node, edge_type, hop, batch, copy):
    """Return the four counter words of block 0 of one node's draws, as uint64; add the block number to the last one."""
    node, copy = np.uint64(node), np.uint64(copy)
    word_1 = (
        (node >> _32)
        | ((copy >> np.uint64(12)) << np.uint64(8))
        | (np.uint64(hop) << np.uint64(16))
        | (np.uint64(edge_type) << np.uint64(20))
    )
    return node & _LOW, word_1, np.uint64(batch), (copy & np.uint64(0xFFF)) << np.uint64(20)


def derive_key(seed: int, epoch: int, domain: int) -> np.ndarray:
    """Derive the Philox key of one epoch: uint64[2], each below 2**32. Never `seed + epoch`: neighbouring seeds share nothing."""
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"{argument('seed')} must lie in [0, 2**64), got {seed}")
    if not 0 <= epoch < 1 << 64:
        raise UsageError(f"epoch must lie in [0, 2**64), got {epoch}")
    return np.array(_key_of(operator.index(seed), operator.index(epoch), domain), dtype=np.uint64)


@lru_cache(maxsize=64)  # every batch of an epoch asks for the same
def _key_of(seed: int, epoch: int, domain: int) -> tuple[np.uint64, np.uint64]:
    counter = (np.uint64(epoch & 0xFFFFFFFF), np.uint64(epoch >> 32), np.uint64(domain), np.uint64(0))
    return philox(*counter, np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32))[:2]


def random_words(key: np.ndarray, first: int, count: int, stream: int = 0) -> np.ndarray:
    """Draw blocks `first` to `first + count` of a plain stream.

    Args:
        key: uint64[2], from `derive_key`.
        first, count: block numbers; 64 bits.
        stream: separates streams under one key; 32 bits.
    Returns:
        uint64[count, 4], each below 2**32.
    """
    block = np.arange(first, first + count, dtype=np.uint64)
    zero = np.zeros(count, dtype=np.uint64)
    return np.stack(philox(block & _LOW, block >> _32, zero + np.uint64(stream), zero, key[0], key[1]), axis=1)
