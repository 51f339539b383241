"""Two GPUs, pretended: tests marked `gpu` run as on one, where none is.

Tensors say that they are on `cuda:0` or `cuda:1` and lie in memory of the host; kernels are what Triton compiles for an H200, run by
`tests.ptx`. So the branches that only a GPU takes are run: streams, events, pinned and registered memory, copies that nobody waits for,
memory of other devices and processes. It is harder than a GPU is: work is done as late as it may be, new memory holds nonsense, every read
and write of a kernel is looked up, and what uses memory without having waited for who wrote it, or lets it go while another stream uses
it, fails the test, though nothing came of it.

    TRITON_INTERPRET=0 python -m pytest -p tests.cuda -m gpu tests/feed/test_device_drawing.py

PENSTOCK_TEST_DEVICE=cuda:1 runs them on the one that is not current. Times are not pretended. A compiler (`g++`) is needed.
"""

import os
import tempfile

import pytest

FOLDER = "PENSTOCK_PRETENDED"
"""Where compiled files are kept from one run to the next."""


def install(folder):
    """From now on, this process has GPUs. Before torch is imported.

    Args:
        folder: where what is compiled for it is kept.
    """
    from tests.cuda import guard

    guard.load(folder)
    from tests.cuda import driver

    driver.install(folder)


def pytest_load_initial_conftests():
    """As a plugin."""
    install(os.environ.get(FOLDER) or tempfile.mkdtemp())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Races, and errors of work that nobody waited for, fail the test that has them."""
    from tests.cuda import streams

    try:
        return (yield)
    finally:
        errors = streams.settle()
        assert not errors, f"{len(errors)} mistakes: " + "\n".join(errors[:5])
