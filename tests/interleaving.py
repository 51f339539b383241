"""Programs of a kernel at the same time, as a device runs them: Triton's interpreter runs one after the other, which hides every race.

Within `interleaved(random)`, each program is a thread, and one of them is at work. At every access to memory, which is made in two halves,
lanes at random, any of them may go on.
"""

import inspect
import threading
from contextlib import contextmanager
from unittest import mock

import numpy as np
from triton.runtime import interpreter

MOST_AT_ONCE = 64
"""Programs, as on a device that has room for so many."""


class Interleaving:
    """Attributes: num_switches, from one program to another, in the middle of both."""

    def __init__(self, random):
        self.num_switches, self._random = 0, random
        self._turns, self._alive, self._errors, self._over, self._here = {}, [], [], threading.Event(), threading.local()

    def run(self, fn, programs):
        """Run all programs; `programs`: (place in the grid, arguments)."""
        for first in range(0, len(programs), MOST_AT_ONCE):
            some = programs[first : first + MOST_AT_ONCE]
            self._turns = {place: threading.Semaphore(0) for place, _ in some}
            self._alive, self._errors = list(self._turns), []
            self._over.clear()
            for place, arguments in some:
                threading.Thread(target=self._work, args=(fn, place, arguments), daemon=True).start()
            self._go_on()
            self._over.wait()
            if self._errors:
                raise self._errors[0]

    def _work(self, fn, place, arguments):
        self._here.place = place
        self._take_turn(place)
        try:
            fn(**arguments)
        except BaseException as error:
            self._errors.append(error)
        self._alive.remove(place)
        self._go_on()

    def _go_on(self):
        if self._alive:
            self._turns[self._alive[self._random.integers(len(self._alive))]].release()
        else:
            self._over.set()

    def _take_turn(self, place):
        self._turns[place].acquire()
        interpreter.interpreter_builder.set_grid_idx(*place)

    def switch(self):
        """Let any program go on, this one among them."""
        place = getattr(self._here, "place", None)
        if place is not None and len(self._alive) > 1:
            self._go_on()
            self._take_turn(place)
            self.num_switches += 1

    def half(self, mask):
        """Some of the lanes: masks of them, and of the others."""
        taken = self._random.random(mask.data.shape) < 0.5
        return taken, *(interpreter.TensorHandle(mask.data & part, mask.dtype) for part in (taken, ~taken))


class _Collected:
    """Stands in for the function of a kernel: the last of its calls runs all of them."""

    def __init__(self, fn, interleaving):
        self._fn, self._interleaving, self._programs = fn, interleaving, []
        self.__globals__, self.__name__, self.__signature__ = fn.__globals__, fn.__name__, inspect.signature(fn)
        self.__annotations__ = fn.__annotations__

    def __call__(self, **arguments):
        builder = interpreter.interpreter_builder
        self._programs.append((tuple(builder.grid_idx), arguments))
        if len(self._programs) == np.prod(builder.grid_dim):
            self._interleaving.run(self._fn, self._programs)


@contextmanager
def interleaved(random):
    """Yields an `Interleaving` by which kernels run in Triton's interpreter within."""
    interleaving, kind = Interleaving(random), interpreter.InterpreterBuilder
    make, load, store, add = interpreter.GridExecutor.__init__, kind.create_masked_load, kind.create_masked_store, kind.create_atomic_rmw

    def make_executor(self, fn, *arguments, **options):
        make(self, fn, *arguments, **options)
        self.fn = _Collected(fn, interleaving)

    def in_halves(access, mask):
        taken, *halves = interleaving.half(mask)
        interleaving.switch()
        first = access(halves[0])
        interleaving.switch()
        second = access(halves[1])
        return None if second is None else interpreter.TensorHandle(np.where(taken, first.data, second.data), second.dtype)

    def load_in_halves(self, at, mask, *rest):
        return in_halves(lambda some: load(self, at, some, *rest), mask)

    def store_in_halves(self, at, value, mask, *rest):
        return in_halves(lambda some: store(self, at, value, some, *rest), mask)

    def add_in_halves(self, how, at, value, mask, *rest):
        return in_halves(lambda some: add(self, how, at, value, some, *rest), mask)

    with (
        mock.patch.object(interpreter.GridExecutor, "__init__", make_executor),
        mock.patch.object(kind, "create_masked_load", load_in_halves),
        mock.patch.object(kind, "create_masked_store", store_in_halves),
        mock.patch.object(kind, "create_atomic_rmw", add_in_halves),
    ):
        yield interleaving
