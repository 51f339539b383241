"""A random permutation of [0, n) as a pure function of one id, and its inverse: the definition.

An id is a pair (left, right) with `half` bits in right and left in [0, ceil(n / 2**half)). So there are fewer than 2**half values outside
[0, n), and such a result, which must go through the rounds again, is rare. Four Feistel rounds; the keys come from Philox, and the round
function is a keyed pair of 32-bit multiplications: renumbering needs a fast scramble, not 160 random bits per id.
Source: Black and Rogaway: Ciphers with arbitrary finite domains (2002): generalised Feistel, cycle walking.
"""

from __future__ import annotations

_MULTIPLIER_0, _MULTIPLIER_1, _LOW = 0xD2511F53, 0xCD9E8D57, 0xFFFFFFFF


def half_bits(num_ids):
    """Return the number of bits of the right half."""
    return max(num_ids - 1, 1).bit_length() // 2


def _mix(value, key):
    """Return 32 bits that depend on all of `value` and `key`, both below 2**32."""
    product = (value ^ key) * _MULTIPLIER_0
    value = (product >> 32) ^ (product & _LOW)
    product = (value ^ (key >> 7)) * _MULTIPLIER_1
    return (product >> 32) ^ (product & _LOW)


def _rounds(value, num_left, half, keys):
    left, right, mask = value >> half, value & ((1 << half) - 1), (1 << half) - 1
    left = (left + ((_mix(right, keys[0]) * num_left) >> 32)) % num_left
    right ^= _mix(left, keys[1]) & mask
    left = (left + ((_mix(right, keys[2]) * num_left) >> 32)) % num_left
    right ^= _mix(left, keys[3]) & mask
    return left << half | right


def _rounds_back(value, num_left, half, keys):
    left, right, mask = value >> half, value & ((1 << half) - 1), (1 << half) - 1
    right ^= _mix(left, keys[3]) & mask
    left = (left - ((_mix(right, keys[2]) * num_left) >> 32)) % num_left
    right ^= _mix(left, keys[1]) & mask
    left = (left - ((_mix(right, keys[0]) * num_left) >> 32)) % num_left
    return left << half | right


def shuffle_id(value, num_ids, keys):
    """Return the place of id `value` in the permutation.

    Args:
        value: in [0, num_ids).
        num_ids: at most 2**40.
        keys: four words below 2**32.
    Returns:
        in [0, num_ids).
    """
    half, keys = half_bits(num_ids), [int(key) for key in keys]
    num_left = -(-num_ids >> half)
    value = _rounds(value, num_left, half, keys)
    while value >= num_ids:
        value = _rounds(value, num_left, half, keys)
    return value


def unshuffle_id(value, num_ids, keys):
    """Return the id whose place is `value`; the inverse of `shuffle_id`."""
    half, keys = half_bits(num_ids), [int(key) for key in keys]
    num_left = -(-num_ids >> half)
    value = _rounds_back(value, num_left, half, keys)
    while value >= num_ids:
        value = _rounds_back(value, num_left, half, keys)
    return value
