"""Work that waits, done by a thread: on the device that it is about, and on none where it is about none."""

import torch

from penstock.exchange.aside import Aside


def test_no_device_is_asked_where_none_was(monkeypatch):
    """Who trains on the CPU of a machine with devices takes none of their memory, and may be a fork of a process that has used them."""

    def ask():
        raise AssertionError("a device is asked")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", ask)
    assert Aside().do(lambda: 7) == 7
