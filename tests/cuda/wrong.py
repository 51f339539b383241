"""Tests that must not pass, of what a GPU would forgive most of the time; see `tests/gpu/test_pretended.py`."""

import pytest
import torch

from penstock.kernels.gather_rows.gpu import gather_rows

pytestmark = pytest.mark.gpu
ONES = [1.0] * 8


def ones():
    tensor = torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    return tensor


def test_a_stream_reads_too_early():
    tensor, stream = ones(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor += 1
    tensor.clone()


def test_a_stream_overwrites_too_early():
    tensor, stream = ones(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor.clone()
    tensor += 1


def test_memory_is_let_go_too_early():
    tensor, stream = ones(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        tensor.clone()
    del tensor


def test_the_host_reads_too_early():
    there = torch.empty(8, pin_memory=True)
    there.copy_(ones(), non_blocking=True)
    assert there.tolist() == ONES


def test_the_host_overwrites_too_early():
    there = torch.ones(8).pin_memory()
    tensor = there.to("cuda", non_blocking=True)
    there.zero_()
    assert tensor.tolist() == ONES


def test_pageable_memory_is_copied_while_nobody_waits():
    assert torch.ones(8).to("cuda", non_blocking=True).tolist() == ONES


def test_new_memory_is_taken_for_zeros():
    assert torch.empty(8, device="cuda").tolist() == [0.0] * 8


def test_a_kernel_reads_beyond_a_table():
    table, out = torch.zeros(64, dtype=torch.uint8, device="cuda"), torch.empty(64, dtype=torch.uint8, device="cuda")
    gather_rows(table, 64, torch.ones(1, dtype=torch.int64, device="cuda"), out)
    torch.cuda.synchronize()


def test_a_kernel_reads_memory_of_another_device():
    table, out = torch.zeros(64, dtype=torch.uint8, device="cuda:1"), torch.empty(64, dtype=torch.uint8, device="cuda:0")
    torch.cuda.synchronize(1)
    gather_rows(table, 64, torch.zeros(1, dtype=torch.int64, device="cuda:0"), out)
