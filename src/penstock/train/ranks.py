"""Processes that train one model together, as `torchrun` starts them: each takes batches of its own, and a step is one of all of them.

In: a group of `torch.distributed`, or none. Out: gradients that are means over the seeds of all, and what the others say. Invariant: all
call the same things in the same order, whatever happens to one of them; after each step all have the same weights, bit for bit.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.errors import PenstockError, PipelineError, UsageError, argument, first_line, line_of
from penstock.exchange.aside import Aside, aside_of, gather_objects
from penstock.exchange.meeting import meet
from penstock.exchange.own_address import interface_of, own_address
from penstock.kernels._cuda import identity
from penstock.store.process_memory import processes_here
from penstock.store.tiers.pinned import move_tensor

T = TypeVar("T")

logger = logging.getLogger("penstock")

TIMEOUT = timedelta(minutes=30)
"""How long the others may take to come to the same point; one that has ended is noticed at once."""

_SAY_S = 20.0

STOP, SAVE = 1, 2
"""What a process may wish for in a step: that all stop after it; that a checkpoint is written."""


class Ranks:
    """The processes of a training, and which of them this is; one alone needs no group.

    Args:
        number, num_ranks: of this process, and how many there are. Number 0 writes files and speaks.
        group: of `torch.distributed`; None: the default one.
    Attributes:
        number, num_ranks, group: as given.
        place: which batches are this one's, those i with i mod num_ranks = place: `number`, unless batches are of parts.
        numbers: of the processes, by their ranks in a partition, if they have joined one.
    """

    def __init__(self, number: int = 0, num_ranks: int = 1, group: Any = None) -> None:
        self.number, self.num_ranks, self.group = number, num_ranks, group
        self.place, self.numbers = number, list(range(num_ranks))
        self._flat: Tensor | None = None
        self._is_apart = False

    @classmethod
    def of(cls, group: Any = None) -> Ranks:
        """The ranks of a group; None: of the default one, if there is one."""
        if not dist.is_available() or not dist.is_initialized():
            return cls()
        return cls(dist.get_rank(group), dist.get_world_size(group), group)

    @property
    def is_first(self) -> bool:
        """Whether this one writes files and speaks."""
        return self.number == 0

    def gather(self, value: T) -> list[T]:
        """Return what each says, by their places."""
        return [values for _, values in sorted(self._exchange((self.place, value)), key=lambda each: each[0])]

    def agree(self, work: Callable[[], T]) -> T:
        """Do what all do at this point, each for itself. Where it fails for one, all raise: that one its error, marked `is_said` where one
        of a lower number has the same, and the others that it has failed."""
        if self.num_ranks == 1:
            return work()
        failed, result = None, None
        self._is_apart = True
        try:
            result = work()
        except Exception as error:
            failed = error
        self._is_apart = False
        try:
            said = self._exchange(failed and (type(failed).__name__, str(failed)))
        except PipelineError as error:
            raise failed or error from None
        if failed is not None:
            failed.is_said = said.index(said[self.number]) < self.number  # type: ignore[attr-defined]
            raise failed
        for number, one in enumerate(said):
            if one is not None:
                raise PipelineError(f"process {number} of {self.num_ranks} failed ({one[0]}): see what it says")
        return result  # type: ignore[return-value]

    def together(self, work: Callable[[], None]) -> None:
        """Do what all do at this point with each other. Where it fails, it does so for all; see `agree`."""
        failed = []
        try:
            work()
        except Exception as error:
            failed.append(error)

        def say() -> None:
            for each in failed:
                raise each

        self.agree(say)

    def from_first(self, work: Callable[[], T]) -> T:
        """Return what the first process gets by `work`, which the others do not do."""
        told = [self.agree(lambda: work() if self.is_first else None)]
        if self.num_ranks > 1:
            first = 0 if self.group is None else dist.get_global_rank(self.group, 0)
            self._wait(lambda: dist.broadcast_object_list(told, first, self.group))
        return told[0]  # type: ignore[return-value]

    def any(self, value: bool) -> bool:
        """Whether one of them says yes."""
        return value if self.num_ranks == 1 else any(self._exchange(value))

    @property
    def num_here(self) -> int:
        """How many of them share this machine, as `torchrun` says."""
        return processes_here(self.num_ranks)

    def carrier(self, device: str) -> str | None:
        """By which backend of the group gradients on a device go, "nccl" for instance; None: of one process alone they go nowhere."""
        if self.num_ranks == 1:
            return None
        backends = dict(each.split(":") for each in dist.get_backend_config(self.group).split(","))
        return backends.get(device.partition(":")[0])

    @contextmanager
    def entered(self, context: AbstractContextManager[T]) -> Iterator[T]:
        """Enter a context of this process's; where that fails for one, all raise."""
        with ExitStack() as stack:
            yield self.agree(lambda: stack.enter_context(context))

    def merge(self, parts: list[np.ndarray]) -> np.ndarray:
        """Return what all computed of one list of batches, of which each had every `num_ranks`-th, one after the other."""
        of_all = self.gather(parts)
        return np.concatenate([each for turn in itertools.zip_longest(*of_all) for each in turn if each is not None])

    def in_step(self, batches: Iterable[T], num_steps: int, num_own: int) -> Iterator[T | None]:
        """Yield this process's batches, then None for the steps of the epoch in which only others have one."""
        return itertools.chain(batches, itertools.repeat(None, num_steps - num_own))

    def share_step(self, parameters: list[nn.Parameter], loss: Tensor | None, num_seeds: int, wishes: int) -> Tensor:
        """Make gradients the means over the seeds of all processes' batches. Waits for the others.

        Args:
            parameters: whose gradients are those of this process's mean loss; without any where it has no batch.
            loss: the mean over this process's seeds; None: it has no batch in this step.
            num_seeds: of its batch. wishes: STOP, SAVE, their sum, or 0.
        Returns:
            float32[4]: the mean loss over the seeds of all, how many seeds these are, and how many processes want to stop, to save; where
            they are. Of a process alone float32[1].
        """
        if self.num_ranks == 1:
            assert loss is not None, "one process alone has every batch"
            return loss.detach().view(1)
        flat = self._memory(parameters)
        starts = itertools.accumulate((p.numel() for p in parameters), initial=0)
        views = [flat[start : start + p.numel()].view_as(p) for start, p in zip(starts, parameters, strict=False)]
        own, told = flat[-4 - len(parameters) :], flat[-4:]
        for p, view in zip(parameters, views, strict=True):
            if p.grad is None:
                view.zero_()
            else:
                torch.mul(p.grad, num_seeds, out=view)
        is_learnt = [float(p.grad is not None) for p in parameters]
        said = [*is_learnt, 0.0, float(num_seeds), float(wishes & STOP > 0), float(wishes & SAVE > 0)]
        own.copy_(move_tensor(torch.tensor(said), own.device))
        if loss is not None:
            torch.mul(loss.detach(), num_seeds, out=told[0])
        self._wait(lambda: dist.all_reduce(flat, group=self.group))
        flat[: -own.numel()].div_(told[1])
        told[0].div_(told[1])
        if sum(is_learnt) < len(is_learnt):  # of no batch, or of types that a batch does not reach: others may have gradients there
            is_learnt = own[:-4].tolist()
        for p, view, count in zip(parameters, views, is_learnt, strict=True):
            p.grad = view if count else None
        return told.clone()

    def trade(self, rows: Tensor, counts: list[int], their_counts: list[int]) -> Tensor:
        """Send rows[n, ...] to the processes, `counts` of them to each, one after the other; return what they send to this one, of each
        `their_counts`. By way of the host, where a group can."""
        assert not self._is_apart, "others may have failed by now, and not come here"
        has_host = "cpu" in dist.get_backend_config(self.group)
        carried = rows.to("cpu" if has_host else torch.device("cuda", torch.cuda.current_device()))
        got = carried.new_empty(sum(their_counts), *rows.shape[1:])
        self._wait(lambda: dist.all_to_all_single(got, carried.contiguous(), their_counts, counts, group=self.group))
        return got.to(rows.device)

    def tell(self, values: list[int]) -> list[int]:
        """Tell each process a number; return what each tells this one."""
        ones = [1] * self.num_ranks
        return self.trade(torch.tensor(values), ones, ones).tolist()

    def _memory(self, parameters: list[nn.Parameter]) -> Tensor:
        """float32: gradients, whether there are any, and what is told; the same memory in each step."""
        if self._flat is None:
            self._flat = torch.empty(sum(p.numel() + 1 for p in parameters) + 4, device=parameters[0].device)
        return self._flat

    def _exchange(self, value: Any) -> list[Any]:
        """What each says, by their numbers."""
        if self.num_ranks == 1:
            return [value]
        assert not self._is_apart, "others may have failed by now, and not come here"
        with self._failure_said():
            return gather_objects(value, self.group)

    def _wait(self, work: Callable[[], object]) -> None:
        """Do what waits for the others."""
        with self._failure_said():
            aside_of(self.group).do(work)

    @contextmanager
    def _failure_said(self) -> Iterator[None]:
        """Say what it means that a collective fails."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, PenstockError):
                raise
            raise PipelineError(
                f"another of the {self.num_ranks} processes has ended, or was silent for {TIMEOUT.seconds // 60} minutes: see what it "
                f"says; start all again, and {argument('resume', True)} goes on from the last checkpoint"
            ) from error


def backend_of(devices: list[str]) -> str:
    """Return the backend of a group of processes, by what they tell of their devices, see `_names_of`: NCCL takes gradients where each has
    one of its own, which processes that see one device each (CUDA_VISIBLE_DEVICES, `srun --gpus-per-task`) cannot tell by its number."""
    names = [each.split() for each in devices]
    is_each_its_own = all(names) and all(len(set(kind)) == len(devices) for kind in zip(*names, strict=True))
    return "cpu:gloo,cuda:nccl" if is_each_its_own else "gloo"


def _names_of(device: torch.device) -> str:
    """Names of a device that no other one has: its UUID, and where it is plugged in, which parts of one GPU (MIG) share: NCCL takes
    one process for each GPU."""
    uuid, properties = identity(device), torch.cuda.get_device_properties(device)
    place = [str(getattr(properties, f"pci_{part}_id", uuid)) for part in ("domain", "bus", "device")]
    return f"{uuid} {':'.join([socket.gethostname(), *place])}"


def _meet(device: str, place: str) -> None:
    """Wait for the other processes, and form the group with them. Args: device, names of this one's; "" for none."""
    say_at = _SAY_S

    def form() -> None:
        store, rank, num_ranks = next(dist.rendezvous("env://", timeout=TIMEOUT))  # type: ignore[attr-defined]
        attempt, devices = meet(store, rank, num_ranks, device, TIMEOUT)
        own = dist.PrefixStore(attempt, store)  # type: ignore[attr-defined]
        dist.init_process_group(backend_of(devices), store=own, rank=rank, world_size=num_ranks, timeout=TIMEOUT)

    def look(waited_s: float) -> None:
        nonlocal say_at
        if waited_s > say_at:
            who = os.environ["RANK"], os.environ["WORLD_SIZE"], place
            logger.warning("process %s of %s waits for the others at %s: are all started, and their ports open to each other?", *who)
            say_at += 3 * _SAY_S

    Aside().do(form, look)


@contextmanager
def started_together() -> Iterator[Ranks]:
    """Join the processes that `torchrun` started beside this one, if it did, by what it left in the environment: WORLD_SIZE and RANK,
    MASTER_ADDR and MASTER_PORT; LOCAL_WORLD_SIZE, how many share a machine; and for GPUs LOCAL_RANK. Each has the GPU of its local rank,
    among those that it sees."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield Ranks()
        return
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise UsageError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, and {missing[0]} is not set: start by torchrun, or unset WORLD_SIZE")
    for name in ("WORLD_SIZE", "RANK", "MASTER_PORT"):
        if not os.environ[name].isdecimal():
            raise UsageError(f"{name} is {os.environ[name]!r}, and must be a whole number: start by torchrun, or unset WORLD_SIZE")
    device = ""
    if num_devices := torch.cuda.device_count() if torch.cuda.is_available() else 0:
        own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", os.environ["RANK"])) % num_devices)
        torch.cuda.set_device(own)
        if dist.is_nccl_available():
            device = _names_of(own)
    if interface := interface_of(own_address()):  # else gloo takes what this machine's name means to itself, on many 127.0.1.1
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        _meet(device, place)
    except (RuntimeError, ValueError) as error:
        reason = line_of(error) if isinstance(error, OSError) else first_line(error)
        hint = "; GLOO_SOCKET_IFNAME names the network interface by which others reach a machine" * ("Gloo connect" in reason)
        raise UsageError(f"the other processes are not reached at {place}: {reason}{hint}") from error
    ranks = Ranks.of()
    try:
        yield ranks
    except KeyboardInterrupt as error:
        error.is_said = not ranks.is_first  # type: ignore[attr-defined]
        raise
    finally:
        if not aside_of(None).is_given_up:  # a group that is at work would not end
            dist.destroy_process_group()  # or threads of torch's may end a failed process before it says why; others are told by it
