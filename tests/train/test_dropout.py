"""Dropout by 16 bits an element."""

import numpy as np
import pytest
import torch

from penstock.train.dropout import LEVELS, dropout


@pytest.mark.parametrize("rate", [1e-3, 0.3, 0.5, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_share_is_dropped(rate, dtype):
    torch.manual_seed(int(1e6 * rate))
    x = torch.ones(401, 1001, dtype=dtype, requires_grad=True)
    out = dropout(x, rate, True)
    expected = min(round(rate * LEVELS), LEVELS - 1) / LEVELS
    num_dropped, num = int((out == 0).sum()), x.numel()
    assert abs(num_dropped - expected * num) < 5 * np.sqrt(expected * (1 - expected) * num) + 1
    kept = out[out != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - expected)))
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_elements_are_dropped_independently_of_each_other():
    torch.manual_seed(1)
    is_dropped = (dropout(torch.ones(1 << 20), 0.5, True) == 0).float()
    for distance in (1, 2, 3, 4, 5, 128):
        share = float((is_dropped[distance:] * is_dropped[:-distance]).mean())
        assert abs(share - 0.25) < 5 * 0.43 / np.sqrt(1 << 20)


def test_what_is_dropped_follows_from_the_random_state():
    x, found = torch.randn(37, 3), []
    for num_threads in (1, 2):
        torch.manual_seed(3)
        before, _ = torch.get_num_threads(), torch.set_num_threads(num_threads)
        found.append([dropout(x, 0.5, True) for _ in range(2)])
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert not torch.equal(*found[0])


def test_nothing_is_dropped():
    x = torch.randn(5, 3)
    assert torch.equal(dropout(x, 0.5, False), x)
    assert torch.equal(dropout(x, 0.0, True), x)
    assert dropout(x[:0], 0.5, True).shape == (0, 3)
