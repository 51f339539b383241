"""How to continue after a read returns: one rule for all devices, and the verdicts that kernels report."""

from __future__ import annotations

from errno import EAGAIN, EINTR

from penstock.kernels._compile import helper

RUNNING, DONE, FAILED, ENDED = 0, 1, 2, 3
"""Verdicts. RUNNING: bytes are still missing. FAILED: there is an errno. ENDED: the file ends before the needed bytes."""

NUM_TRIES = 16
"""How often a read that brings no new bytes is tried again."""


@helper
def judge(result, got, tries, needed, block_bytes):
    """Judge the result of a request for the bytes of a read from `got` on.

    Args:
        result: number of bytes that came, or -errno.
        got: number of bytes that came before; a multiple of block_bytes.
        tries: how many requests in a row brought no new bytes.
        needed: number of bytes that complete the read.
        block_bytes: the next request must begin at a multiple of it, so a partial block is requested again.
    Returns:
        the new (verdict, got, tries).
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
