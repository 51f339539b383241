"""Tensors that torch takes for CUDA's. Their elements lie in memory of the host; what is done with them is asked of the current stream.

Only what waits for the device on a GPU waits here too. Views are made at once; shapes of results come from torch's meta tensors. New memory
holds nonsense. Memory that is let go stays until its stream has done what was asked of it before.
"""

import bisect
import ctypes
import mmap
import weakref
from functools import partial

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.cuda import guard
from tests.cuda.streams import LOCK, Memory, current, device_of, doing, found_here, generators, index_of, peers, synchronize

NONSENSE, ALIGNED = 0x5A, 64
WAITING = ("_local_scalar_dense", "nonzero", "_unique2", "unique_consecutive", "equal", "bincount", "_to_dense")
"""Operations whose results have a size, or a kind, that torch's meta tensors do not tell."""
FIRST_ONLY = ("_embedding_bag", "_embedding_bag_forward_only", "native_batch_norm")
"""Operations whose other results are scratch memory, of one size on the CPU and of another on a device, as of a norm in evaluation."""
NEW = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")

memories = {}
"""Address -> memory of the device."""
of_graphs = []
"""Memory that CUDA graphs work in, for good."""
pinned = {}
"""Address -> [size] of memory of the host that the device reads."""
registered = {}
"""Address -> size of what of it the driver was told of; it takes whole pages."""


class DeviceTensor(torch.Tensor):
    """See above. Attributes: inner, the elements; owners, of its memory."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner, owners=()):
        is_sparse = inner.layout != torch.strided  # then torch asks `dispatch` for the layout
        places = {"dispatch_layout": True} if is_sparse else {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device=torch.device("cuda", index_of()), **places)

    def __init__(self, inner, owners=()):
        self.inner, self.owners = inner, owners or (_Owner(inner),)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        return dispatch(function, arguments, options or {})

    def data_ptr(self):
        return self.inner.data_ptr()

    def untyped_storage(self):
        return self.inner.untyped_storage()

    def tolist(self):
        return self.to("cpu").tolist()

    def record_stream(self, stream):
        for owner in self.owners:
            owner.memory.told.add(stream)

    def __reduce_ex__(self, protocol):
        return self.detach().cpu().__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        new = self.detach().clone()
        return torch.nn.Parameter(new, self.requires_grad) if isinstance(self, torch.nn.Parameter) else new

    def __repr__(self):
        return f"DeviceTensor({self.cpu()})"


class _Owner:
    """Holds memory of the device."""

    def __init__(self, inner):
        storage = inner.untyped_storage()
        self.memory = memories[storage.data_ptr()] = Memory(storage.data_ptr(), storage.nbytes())
        if self.memory.owner.captured is None:
            weakref.finalize(self, _let_go, self.memory, storage)
        else:
            of_graphs.append(storage)


def _let_go(memory, storage):
    """Its memory goes when all streams that the allocator knows of are done with it."""
    with LOCK:
        memory.let_go()
        users = {memory.owner, *memory.told}

        def forget(user, storage=storage):
            users.remove(user)
            if not users and memories.get(memory.address) is memory:
                del memories[memory.address]

        for user in list(users):
            user.ask(partial(forget, user), "letting go", at_once=True)


def reduce_shared(tensor):
    """What another process makes the same memory of, as by CUDA IPC."""
    with LOCK:
        for index in range(guard.NUM_DEVICES):
            synchronize(index)
        [owner] = tensor.owners
        before = memories.pop(owner.memory.address)
        tensor.inner.share_memory_()  # lies elsewhere then
        before.address = tensor.inner.untyped_storage().data_ptr()
        memories[before.address] = before
    return rebuild_shared, (tensor.inner, tensor.device.index)


def rebuild_shared(inner, index):
    with device_of(index):
        return DeviceTensor(inner)


def allocated(index):
    """Bytes on a device that tensors hold, or work that was asked for."""
    return sum(memory.size for memory in list(memories.values()) if memory.device == index)


def memories_at(addresses):
    """Memories of the device that ascending addresses lie in; an error where one lies in none, nor in pinned memory of the host."""
    begins = sorted(memories)
    found, end = [], -1
    for address in addresses:
        if address < end:
            continue
        at = bisect.bisect_right(begins, address) - 1
        memory = memories[begins[at]] if at >= 0 else None
        if memory and address < memory.address + memory.size:
            found.append(memory)
            end = memory.address + memory.size
        elif not is_pinned(address):
            raise RuntimeError(f"illegal memory access at {address:x} by {doing()}")
    return found


def is_pinned(address):
    """Whether the device reads memory of the host."""
    return any(begin <= address < begin + size for begin, [size] in list(pinned.items()))


def pin(tensor):
    """The same in memory that is pinned as long as there is any: NumPy says so before it lets it go, torch only when it is another's."""
    size = tensor.untyped_storage().nbytes()
    if not size:
        return tensor
    memory = np.empty(size + ALIGNED, np.uint8)
    first = -memory.ctypes.data % ALIGNED
    piece = pinned[memory.ctypes.data + first] = [size]
    weakref.finalize(memory, _unpin, memory.ctypes.data + first, piece)
    storage = torch.from_numpy(memory[first : first + size]).untyped_storage()
    made = torch.empty(0, dtype=tensor.dtype).set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    return made.copy_(tensor)


def _unpin(address, piece):
    if pinned.get(address) is piece:
        del pinned[address]


def empty(like):
    """New memory of the host with nonsense in it, in the shape of a tensor."""
    made = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype)
    storage = made.untyped_storage()
    if storage.nbytes():
        ctypes.memset(storage.data_ptr(), NONSENSE, storage.nbytes())
    return made


class Mode(TorchDispatchMode):
    """Sees what is made on the device, or pinned."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        return dispatch(function, arguments, options or {})


def dispatch(function, arguments, options):
    """An operation of torch."""
    name, device = function._schema.name.split("::")[1], options.get("device")
    ours = [each for each in tree_leaves((arguments, options)) if isinstance(each, DeviceTensor)]
    if name == "is_pinned":
        return not ours and is_pinned(arguments[0].data_ptr())
    if name in ("_pin_memory", "pin_memory"):
        return pin(arguments[0].clone())
    if not ours and (device is None or torch.device(device).type != "cuda"):
        made = function(*arguments, **{**options, "pin_memory": False} if "pin_memory" in options else options)
        return pin(made) if options.get("pin_memory") else made
    if name == "layout":
        return arguments[0].inner.layout
    if torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd"):  # in inference mode
        with Mode():
            return function.decompose(*arguments, **options)
    where = ours[0].device if ours else device
    if torch.Tag.nondeterministic_seeded in function.tags and index_of(where) in generators and current(where).captured is None:
        raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
    with LOCK, torch.inference_mode(False), torch.no_grad(), device_of(where):
        if name == "copy_":
            is_late = arguments[2] if len(arguments) > 2 else options.get("non_blocking", False)
            return _copy(*arguments[:2], is_late)
        if name == "_to_copy" and device is not None:
            return _copy_to(function, arguments[0], dict(options))
        return _compute(function, name, arguments, dict(options), ours)


def pages_of(first, num_bytes):
    """The first page of a range of addresses, and the last."""
    return first // mmap.PAGESIZE, (first + num_bytes - 1) // mmap.PAGESIZE


def _check_pages(tensor):
    """A driver copies no memory of which some is registered and some is not."""
    if not tensor.numel():
        return
    span = (sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)) + 1) * tensor.element_size()
    low, high = pages_of(tensor.data_ptr(), span)
    for first, last in (pages_of(address, size) for address, size in list(registered.items())):
        if low <= last and first <= high and not (first <= low and high <= last):
            raise RuntimeError(f"CUDA error: invalid argument: a copy of memory of which some is registered, by {doing()}")


def _copy(target, source, is_late):
    is_from_host, is_to_host = not isinstance(source, DeviceTensor), not isinstance(target, DeviceTensor)
    for host in (source,) * is_from_host + (target,) * is_to_host:
        _check_pages(host)
    begin = _inner(source)
    if is_from_host and source.numel() and not is_pinned(source.data_ptr()):
        begin = source.clone()
        if is_late:
            found_here("a copy out of pageable memory that nobody waits for: a device that reads such memory by itself may read it later")
    end, read, written = _inner(target), _memories([source]), _memories([target])
    if not is_from_host and not is_to_host and source.device != target.device:
        ours, theirs = current(source.device), current(target.device)
        peers.update({(ours.device.index, theirs.device.index)})
        ours.wait_stream(theirs)
        ours.ask(lambda: _use(read, written) or end.copy_(begin), "copy")
        theirs.wait_stream(ours)
        return target
    current().ask(lambda: _use(read, written) or end.copy_(begin), "copy")
    if (is_from_host and not is_late) or (is_to_host and not (is_late and is_pinned(target.data_ptr()))):
        current().synchronize()
    return target


def _copy_to(function, source, options):
    """To a device, or from there."""
    is_late, device = options.pop("non_blocking", False), torch.device(options.pop("device"))
    options.pop("pin_memory", None)
    target = empty(function(_meta(source), **options))
    if device.type == "cpu":
        return _copy(pin(target) if is_late else target, source, is_late)
    with device_of(device):
        target = DeviceTensor(target)
    return _copy(target, source, is_late)


def _compute(function, name, arguments, options, ours):
    """On a device alone."""
    if len({each.device for each in ours}) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
    if options.get("device") is not None:
        options["device"] = torch.device("cpu")
    arguments, options = tree_map(lambda each: _inner(each) if isinstance(each, DeviceTensor) else _taken(each, name), (arguments, options))
    schema = function._schema
    alias = schema.returns[0].alias_info if schema.returns else None
    if alias is not None and not alias.is_write:
        [of] = ours
        return tree_map(lambda view: DeviceTensor(view, of.owners), function(*arguments, **options))
    given = {each.name: value for each, value in zip(schema.arguments, arguments, strict=False)} | options
    ends = tree_leaves([given[each.name] for each in schema.arguments if each.alias_info and each.name in given])
    changed = [each for each in ours if any(each.inner is end for end in ends)]
    read, written = _memories(each for each in ours if not any(each is other for other in changed)), _memories(changed)
    if changed:
        current().ask(lambda: _use(read, written) or function(*arguments, **options), name)
        return None if not schema.returns else changed[0] if len(schema.returns) == 1 else tuple(changed)
    if name == "sparse_compressed_tensor":
        return DeviceTensor(function(*arguments, **options), tuple(owner for each in ours for owner in each.owners))
    likes = _shapes(function, name, arguments, options)
    if likes is None:
        made = []
        current().ask(lambda: _use(read) or made.append(function(*arguments, **options)), name)
        current().synchronize()
        return tree_map(lambda each: DeviceTensor(each) if isinstance(each, torch.Tensor) else each, made[0])
    results = tree_map(lambda like: DeviceTensor(empty(like)), likes)
    if name not in NEW:
        outs, new = [each.inner for each in tree_leaves(results)], _memories(tree_leaves(results))

        def do():
            _use(read, new)
            found = tree_leaves(function(*arguments, **options))
            for out, each in zip(outs, found[:1] if name in FIRST_ONLY else found, strict=name not in FIRST_ONLY):
                out.copy_(each)

        current().ask(do, name)
    return results


def _shapes(function, name, arguments, options):
    """Meta tensors in the shape of the results; None where the values have to be known."""
    indices = [each for each in tree_leaves(arguments[1:]) if isinstance(each, torch.Tensor)]
    if name == "repeat_interleave" and options.get("output_size") is None:
        return None
    if name in WAITING or (name == "index" and any(each.dtype in (torch.bool, torch.uint8) for each in indices)):
        return None
    if "device" in options:
        options = {**options, "device": torch.device("meta")}
    arguments, options = tree_map(_meta, (arguments, options))
    return function(*arguments, **{key: None if key == "generator" else value for key, value in options.items()})


def _taken(argument, name):
    """What a kernel takes from the host."""
    if isinstance(argument, torch.Tensor):
        if argument.dim() and not name.startswith("index"):
            raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
        return argument.clone()
    return argument


def _inner(tensor):
    return tensor.inner if isinstance(tensor, DeviceTensor) else tensor


def _meta(argument):
    if isinstance(argument, torch.Tensor) and argument.layout != torch.strided:
        return torch.empty(argument.size(), dtype=argument.dtype, device="meta")
    if isinstance(argument, torch.Tensor):
        return torch.empty_strided(argument.size(), argument.stride(), dtype=argument.dtype, device="meta")
    return argument


def _memories(tensors):
    owners = [owner for each in tensors if isinstance(each, DeviceTensor) for owner in each.owners]
    return [owner.memory for owner in owners if owner.memory.size]


def _use(read, written=()):
    for memory in read:
        memory.use(is_write=False)
    for memory in written:
        memory.use(is_write=True)
