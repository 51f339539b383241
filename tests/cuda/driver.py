"""The rest of a GPU, pretended: torch.cuda, the driver's library, and launches of kernels, which `tests.ptx` runs."""

import ctypes
import mmap
import threading
from functools import partial
from itertools import count
from multiprocessing import spawn
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from tests import ptx
from tests.cuda import guard, streams
from tests.cuda.streams import current, device_of, here, index_of
from tests.cuda.tensors import DeviceTensor, Mode, allocated, is_pinned, memories, memories_at, pages_of, pinned, reduce_shared, registered
from tests.ptx.words import TYPES

OK, INVALID, NO_CONTEXT, REGISTERED, NOT_REGISTERED = 0, 1, 201, 712, 713
ADDRESS, BEGIN, SIZE = 3, 11, 12
PROPERTIES = SimpleNamespace(
    name="pretended", multi_processor_count=132, total_memory=8 << 30, L2_cache_size=50 << 20, major=9, minor=0, uuid="pretended"
)


class Driver:
    """The driver's library, as far as it is asked. A thread has a context once it has asked something of the device."""

    def __init__(self):
        self._given, self._kept, self._handle = {}, {}, 1 << 40
        for name in [each for each in dir(self) if each.startswith("cu")]:
            setattr(self, name, partial(self._call, getattr(self, name)))  # can be told types of its arguments, as a function of ctypes

    def _call(self, function, *arguments):
        return function(*(getattr(each, "value", each) for each in arguments)) if has_context() else NO_CONTEXT

    def cuMemHostRegister_v2(self, address, num_bytes, flags):
        first, last = pages_of(address, num_bytes)
        if any(low <= last and first <= high for low, high in (pages_of(begin, size) for begin, [size] in list(pinned.items()))):
            return REGISTERED
        pinned[address], registered[address] = [num_bytes], num_bytes
        return OK

    def cuMemHostUnregister(self, address):
        if registered.pop(address, None) is None:
            return NOT_REGISTERED
        del pinned[address]
        return OK

    def cuMemHostAlloc(self, address, num_bytes, flags):
        space = np.frombuffer(mmap.mmap(-1, num_bytes), np.uint8)
        address._obj.value, pinned[space.ctypes.data] = space.ctypes.data, [num_bytes]
        self._given[space.ctypes.data] = space
        return OK

    def cuMemFreeHost(self, address):
        del pinned[address], self._given[address]
        return OK

    def cuPointerGetAttribute(self, found, attribute, address):
        for begin, [size] in [*pinned.items(), *((each.address, [each.size]) for each in list(memories.values()))]:
            if begin <= address < begin + size:
                place = ctypes.c_uint64.from_address(found) if isinstance(found, int) else found._obj
                place.value = {ADDRESS: address, BEGIN: begin, SIZE: size}[attribute]
                return OK
        return INVALID

    def cuGetErrorString(self, code, text):
        return OK

    def cuFuncGetParamInfo(self, function, number, offset, size):
        parameters = ptx.loaded[function - 1].parameters
        if number >= len(parameters):
            return INVALID
        size._obj.value = TYPES[parameters[number][0]].itemsize
        return OK

    def cuGraphCreate(self, graph, flags):
        graph._obj.value = self._keep([])
        return OK

    def cuGraphAddKernelNode(self, node, graph, before, num_before, launch):
        launch, nodes = launch._obj, self._kept[graph]
        kernel = ptx.loaded[launch.function - 1]
        assert [before._obj.value] == [nodes[-1][0]] if nodes else num_before == 0, "one after the other"
        assert (*launch.grid[1:], *launch.block, launch.shared_bytes) == (1, 1, kernel.num_threads, 1, 1, kernel.shared_bytes)
        sizes = [TYPES[kind].itemsize for kind, _ in kernel.parameters]
        numbers = [int.from_bytes(ctypes.string_at(launch.parameters[i], size), "little") for i, size in enumerate(sizes)]
        node._obj.value = self._keep(None)
        nodes.append((node._obj.value, launch.function, launch.grid[0], numbers))
        return OK

    def cuGraphInstantiateWithFlags(self, made, graph, flags):
        made._obj.value = self._keep(list(self._kept[graph]))
        return OK

    def cuGraphLaunch(self, made, stream):
        for _, function, width, numbers in self._kept[made]:
            streams.streams[stream].ask(partial(ptx.run_kernel, function, width, numbers), "kernel of a graph")
        return OK

    def cuGraphDestroy(self, graph):
        del self._kept[graph]
        return OK

    cuGraphExecDestroy = cuGraphDestroy

    def _keep(self, thing):
        """Returns its handle."""
        self._handle += 1
        self._kept[self._handle] = thing
        return self._handle


def has_context():
    return getattr(here, "has_context", False)


class Launcher(ptx.Launcher):
    """Asks the current stream for what the base runs at once."""

    def __init__(self, source, metadata):
        super().__init__(source, metadata)
        self._name = source.fn.__name__

    def __call__(self, *arguments):
        passed = []
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
                if not isinstance(argument, DeviceTensor) and argument.numel() and not is_pinned(argument.data_ptr()):
                    raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
                argument = argument.data_ptr()
            passed.append(argument)
        run = super().__call__
        current().ask(lambda: run(*passed), self._name)


class Watch:
    """Where kernels read and write."""

    def count(self, kind, address, num_bytes, warp):
        for memory in memories_at(np.unique(address).tolist()):
            memory.use(is_write=kind != "ld")


def install(folder):
    """From now on, this process, its threads and the processes that it begins have a GPU."""
    streams.races = Path(folder) / "races"
    _install_torch()
    _install_penstock()
    run, command_of = threading.Thread.run, spawn.get_command_line

    def run_in_mode(thread):
        with Mode():
            run(thread)

    def get_command_line(**options):
        command = command_of(**options)
        at = command.index("-c") + 1
        return [*command[:at], f"import tests.cuda; tests.cuda.install({str(folder)!r}); {command[at]}", *command[at + 1 :]]

    ForkingPickler.register(DeviceTensor, reduce_shared)
    threading.Thread.run, spawn.get_command_line = run_in_mode, get_command_line
    Mode().__enter__()


def _install_torch():
    cuda = torch.cuda
    cuda.is_available, torch.backends.cuda.is_built = lambda: True, lambda: True
    cuda._lazy_init, cuda.empty_cache = lambda: None, streams.empty_cache
    cuda.device_count, cuda.current_device = lambda: guard.NUM_DEVICES, index_of
    cuda.get_device_name = lambda device=None: PROPERTIES.name
    cuda.get_device_properties = lambda device=None: PROPERTIES
    cuda.get_device_capability = lambda device=None: (PROPERTIES.major, PROPERTIES.minor)
    cuda.Stream, cuda.Event, cuda.current_stream, cuda.stream = streams.Stream, streams.Event, current, streams.stream_of
    cuda.CUDAGraph, cuda.graph, cuda.graph_pool_handle = streams.Graph, streams.capture, count(1).__next__
    torch._C._cuda_endAllocateToPool = lambda device, pool: streams.end_allocation(pool)
    torch._C._cuda_releasePool = lambda device, pool: None
    cuda.synchronize, cuda.device = streams.synchronize, device_of
    cuda.mem_get_info = lambda device=None: (6 << 30, PROPERTIES.total_memory)
    cuda.memory_reserved = cuda.max_memory_allocated = lambda device=None: 0
    cuda.memory_allocated = lambda device=None: allocated(index_of(device))
    cuda.reset_peak_memory_stats = cuda._sleep = lambda *_: None
    cuda.get_rng_state, cuda.set_rng_state = lambda device=None: torch.get_rng_state(), lambda state, device=None: None
    cuda.can_device_access_peer = lambda device, other: True
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    make_generator, make_tensor = torch.Generator, torch.tensor

    class Generator(make_generator):
        def __new__(cls, device=None):
            return make_generator.__new__(cls)

        def __init__(self, device=None):
            pass

    def tensor(data, *, device=None, **options):
        made = make_tensor(data, **options)
        return made if device is None else made.to(device)

    torch.Generator, torch.tensor = Generator, tensor


def _install_penstock():
    from penstock.kernels import _triton
    from penstock.store.tiers import grid

    is_interpreted, driver, load = _triton.is_interpreted, Driver(), ctypes.CDLL
    ctypes.CDLL = lambda name, *arguments, **options: driver if name == "libcuda.so.1" else load(name, *arguments, **options)
    ptx.install(Launcher)
    ptx.options["watches"].append(Watch())
    _triton.is_interpreted = is_interpreted
    grid.measure_rates.__kwdefaults__.update(table_bytes=1 << 18, read_bytes=1 << 15)
