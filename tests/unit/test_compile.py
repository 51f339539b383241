"""What kernels are compiled to."""

import numba
import numpy as np

from penstock.kernels._compile import helper


def push(queue, ends, many):
    """Branches that Numba does not see through: in a plain function it counts references at every call."""
    place = ends[0]
    queue[place] = place
    if (place + 1) % many == 0:
        free = ends[1] - 1
        ends[1] = free
        place = queue[free] * (queue.size // many)
    ends[0] = place + 1
    return place


def num_counted(called):
    """How often references are counted in what is compiled of a loop that calls a function."""

    def fill(queue, ends, many, count):
        for _ in range(count):
            called(queue, ends, many)
        return ends[0]

    compiled = numba.njit(nogil=True)(fill)
    assert compiled(np.zeros(64, np.int64), np.array([0, 64]), 100, 9) == 9
    (assembly,) = compiled.inspect_asm().values()
    kernel, _, wrapper = assembly.partition(".Lfunc_end0")
    assert wrapper
    return kernel.count("NRT_")


def test_helpers_count_no_references():
    begin_and_end = 2
    assert num_counted(helper(push)) <= begin_and_end
    if numba.version_info.short >= (0, 66):  # before, it counts none here; if it learns that again, helpers may be plain
        assert num_counted(numba.njit(forceinline=True)(push)) > begin_and_end
