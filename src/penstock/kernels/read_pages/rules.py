"""What is done about what a read brought: one rule for all devices, and the words in which the kernels report."""

from __future__ import annotations

from errno import EAGAIN, EINTR

from penstock.kernels._compile import helper

RUNNING, DONE, FAILED, ENDED = 0, 1, 2, 3
"""Verdicts. RUNNING: the rest is still to come. FAILED: with an errno. ENDED: the file ends before the bytes that must be there."""

NUM_TRIES = 16
"""How often a read that brings nothing new is tried."""


@helper
def judge(result, got, tries, needed, block_bytes):
    """Judge what came of asking for the bytes from `got` on of a read.

    Args:
        result: bytes that came, or minus an errno.
        got: bytes that were there before; a multiple of block_bytes.
        tries: how often nothing new had come before.
        needed: bytes without which the read is not done.
        block_bytes: what comes next must begin at a multiple of it, so the part of a block is asked for again.
    Returns:
        (verdict, got, tries) after it.
    """
    if result < 0:
        if (-result == EINTR or -result == EAGAIN) and tries < NUM_TRIES:
            return RUNNING, got, tries + 1
        return FAILED, got, tries
    if got + result >= needed:
        return DONE, got + result, tries
    whole = (got + result) // block_bytes * block_bytes
    if whole > got:
        return RUNNING, whole, 0
    if result == 0 or tries >= NUM_TRIES:
        return ENDED, got + result, tries
    return RUNNING, got, tries + 1
