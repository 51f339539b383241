"""What long work deep within a loader says of itself."""

import logging
import threading

import pytest

from penstock.store import progress
from penstock.store.progress import hearing, told, told_meanwhile


def test_the_first_line_comes_after_ten_seconds_then_one_a_minute(monkeypatch):
    clock = iter([0.0, 5.0, 11.0, 11.5, 70.0, 72.0, 72.5]).__next__
    monkeypatch.setattr(progress.time, "monotonic", clock)
    said = []
    with hearing(said.append):
        assert list(told("abcd", "letters: number", 4_000)) == list("abcd")
    assert said == ["letters: number 2 of 4,000", "letters: number 4 of 4,000"]


def test_nobody_hears_what_goes_on_outside():
    said = []
    with hearing(said.append):
        pass
    logging.getLogger("penstock.progress").info("unheard")
    assert not said
    assert not logging.getLogger("penstock.progress").isEnabledFor(logging.INFO)


def test_a_long_call_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr("penstock.store.progress._FIRST_S", 0.0)
    heard, is_heard = [], threading.Event()

    def hear(message):
        heard.append(message)
        is_heard.set()

    with hearing(hear), told_meanwhile("counting:", lambda: 0.42):
        assert is_heard.wait(10)
    assert heard == ["counting: 42 %"]
    with pytest.raises(ZeroDivisionError), told_meanwhile("counting:", lambda: 0.42):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if "watch" in thread.name]
