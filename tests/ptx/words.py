"""Arithmetic of PTX, on vectors of lanes: what each instruction makes of its operands, which have the type that it names."""

import numpy as np

TYPES = {
    f"{kind}{bits}": np.dtype(f"{name}{bits}") for kind, name in (("u", "uint"), ("s", "int"), ("b", "uint")) for bits in (8, 16, 32, 64)
}
"""Of a suffix. Registers and memory are bits: unsigned."""

COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
FOLDS = {"min": np.minimum, "max": np.maximum, "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def bits_of(kind):
    """The unsigned type as wide as a suffix."""
    return np.dtype(f"u{TYPES[kind].itemsize}")


def _wide(values):
    """Twice the bits; for products."""
    return values.astype(f"{values.dtype.kind}{2 * values.itemsize}")


def _high(a, b):
    assert a.itemsize == 4, "mul.hi of other words"
    return (_wide(a) * _wide(b) >> 32).astype(a.dtype)


def _shift(how, a, by):
    """A shift by all bits and more leaves nothing, or the sign."""
    bits = 8 * a.itemsize
    shifted = how(a, np.minimum(by, bits - 1).astype(a.dtype))
    return shifted if a.dtype.kind == "i" else np.where(by < bits, shifted, 0).astype(a.dtype)


def _field(a, first, length):
    """bfe: some bits, below the sign of the highest of them where they have one."""
    bits = 8 * a.itemsize
    assert (length > 0).all()
    assert (first + length <= bits).all()
    return a << (bits - first - length).astype(a.dtype) >> (bits - length).astype(a.dtype)


def _permute(a, b, selector):
    """prmt: four of the eight bytes of two words."""
    both = np.stack([a, b], axis=1).view(np.uint8)
    nibbles = np.stack([selector >> 4 * i & 15 for i in range(4)], axis=1).astype(np.int64)
    picked = np.take_along_axis(both, nibbles & 7, axis=1)
    signs = np.where(picked >> 7 != 0, 255, 0).astype(np.uint8)  # what bit 3 asks for
    return np.where(nibbles & 8, signs, picked).astype(np.uint8).view(np.uint32).reshape(-1)


OPERATIONS = {
    **FOLDS,
    "mov": lambda a: a,
    "not": np.invert,
    "neg": np.negative,
    "abs": np.abs,
    "sub": np.subtract,
    "rem": np.fmod,
    "div": lambda a, b: (a - np.fmod(a, b)) // b,  # of integers, towards zero
    "mul.lo": np.multiply,
    "mul.hi": _high,
    "mul.wide": lambda a, b: _wide(a) * _wide(b),
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: _wide(a) * _wide(b) + c.view(_wide(a).dtype),
    "shl": lambda a, by: _shift(np.left_shift, a, by),
    "shr": lambda a, by: _shift(np.right_shift, a, by),
    "bfe": _field,
    "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
    "prmt": _permute,
    "selp": lambda a, b, which: np.where(which, a, b),
}
"""By name, without the type."""

_OTHER_TYPES = {("shl", 1): "u32", ("shr", 1): "u32", ("bfe", 1): "u32", ("bfe", 2): "u32", ("selp", 2): "pred"}


def type_of_operand(name, number, kind):
    """Of the operand of an operation that names `kind`."""
    if (name, number) == ("mad.wide", 2):
        return {"16": "u32", "32": "u64"}[kind[1:]]
    return _OTHER_TYPES.get((name, number), kind)
