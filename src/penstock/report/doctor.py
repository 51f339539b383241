"""Which of the parts that Penstock can use this machine has: what each part brings, and why a missing one is missing.

In: nothing. Out: parts, by importance. Invariant: the examination changes nothing and never fails; a part that cannot be examined counts as
missing, with the error as the reason. A library is only imported when it is examined.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import reason_of
from penstock.report import words


@dataclass(frozen=True, slots=True)
class Part:
    """A part that a machine may have.

    Attributes:
        name: of the part.
        is_there: whether it can be used.
        found: what was found, in a few words.
        brings: what it is for.
        why_missing: the reason, and what to do; empty if it is there.
    """

    name: str
    is_there: bool
    found: str
    brings: str
    why_missing: str = ""

    def __str__(self) -> str:
        if self.is_there:
            return f"ok       {self.name}: {self.found}"
        return f"missing  {self.name}: {self.why_missing}. It would bring {self.brings}"


class Missing(Exception):
    """Raised if a part is missing; the message says why, and what to do."""


def examine() -> list[Part]:
    """Examine all parts."""
    return [_look(name, brings, look) for name, brings, look in PARTS]


def _look(name: str, brings: str, look: Callable[[], str]) -> Part:
    try:
        return Part(name, True, look(), brings)
    except Missing as missing:
        return Part(name, False, "", brings, str(missing))
    except ModuleNotFoundError as error:
        return Part(name, False, "", brings, f"{error.name} cannot be imported, which it takes")
    except Exception as error:
        return Part(name, False, "", brings, f"looking for it failed: {type(error).__name__}: {' '.join(str(error).split())}")


def _version(package: str, extra: str = "") -> str:
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise Missing(f"not installed: pip install {extra or package}") from None
    try:
        importlib.import_module(package)
    except Exception as error:
        why = " ".join(str(error).split())
        raise Missing(f"{version} cannot be imported ({why}): pip install --force-reinstall {extra or package}") from None
    return version


def _machine() -> str:
    from penstock.store.process_memory import free_bytes, usable_cores

    memory, usable, cores = words.num_bytes(free_bytes()), usable_cores(), os.cpu_count() or 1
    usable_of = f"{usable} of " if usable < cores else ""
    return f"{usable_of}{cores} cores, {memory} of memory free, Python {sys.version.split()[0]} on {sys.platform}"


def _locked_memory() -> str:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY:
        return "no limit"
    if limit < 1 << 20:
        raise Missing(f"the limit is {words.num_bytes(limit)}: raise it by `ulimit -l`")
    return f"{words.num_bytes(limit)} (`ulimit -l`)"


def _kernel_cache() -> str:
    from penstock.kernels._compile import chosen_folder

    try:
        made = chosen_folder()
    except OSError as error:
        raise Missing(f"{error.strerror}: set PENSTOCK_CACHE_DIR to a folder that can be written") from None
    nearest = next(path for path in (made, *made.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise Missing(f"{nearest} cannot be written: set PENSTOCK_CACHE_DIR to a folder that can")
    return f"{made}{'' if made.exists() else ', made when a kernel is first used'}"


def _io_uring() -> str:
    from penstock.store.tiers.disk_uring import UringDevice

    try:
        UringDevice(1, 4096).close()
    except OSError as error:
        raise Missing(
            f"the kernel refuses it ({reason_of(error)}): allow it, or disks are read by pread on threads, at three times the CPU"
        ) from None
    return "many requests at once"


def _huge_pages() -> str:
    from penstock.store.huge_pages import are_available

    if not are_available():
        raise Missing("the system gives none: set /sys/kernel/mm/transparent_hugepage/enabled to madvise")
    return "given to who asks"


def _triton() -> str:
    from penstock.kernels import _triton as loading

    version = _version("triton", "'penstock[gpu]'")
    return f"{version}, in its interpreter on the CPU (TRITON_INTERPRET is set)" if loading.is_interpreted() else version


def _cuda() -> str:
    import torch

    if not torch.backends.cuda.is_built():
        raise Missing(f"torch {torch.__version__} is not built for it: install a torch that is")
    return f"torch {torch.__version__} for CUDA {torch.version.cuda}"


def _gpus() -> str:
    import torch

    if not torch.cuda.is_available():
        built = "torch finds none: look at its driver (nvidia-smi)"
        raise Missing(built if torch.backends.cuda.is_built() else "this torch cannot see one")
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{one.name} with {words.num_bytes(one.total_memory)}" for one in found)


def _mapped_files() -> str:
    import numpy as np
    import torch

    if not torch.cuda.is_available():
        raise Missing("there is no GPU to read them")
    from penstock.store.tiers.pin import pin

    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "rows.npy", np.arange(4096))
        how = pin(np.load(Path(folder) / "rows.npy", mmap_mode="r"), torch.device("cuda", 0), "a file").how
    if not how.startswith("registered"):
        raise Missing(f"{how}: features must fit into memory a second time")
    return how


PARTS: list[tuple[str, str, Callable[[], Any]]] = [
    ("machine", "everything", _machine),
    ("numpy", "everything", lambda: _version("numpy")),
    ("psutil", "everything: it tells how much memory is free", lambda: _version("psutil")),
    ("xxhash", "everything: stores have checksums", lambda: _version("xxhash")),
    ("torch", "batches and training", lambda: _version("torch")),
    ("torch_geometric", "batches and layers", lambda: _version("torch_geometric")),
    ("numba", "sampling and gathering on the CPU", lambda: _version("numba")),
    ("kernel cache", "kernels that are compiled once and not in every process, which saves some seconds each", _kernel_cache),
    ("pyarrow", "reading CSV and Parquet", lambda: _version("pyarrow")),
    ("rich", "progress in a terminal, and training", lambda: _version("rich")),
    ("matplotlib", "the plots of reports", lambda: _version("matplotlib")),
    ("scipy", "nothing to a training: tests compare with it", lambda: _version("scipy")),
    ("pymetis", "parts of a graph by METIS (penstock partition --method metis)", lambda: _version("pymetis", "'penstock[metis]'")),
    ("huge pages", "faster sampling over mapped stores that fit in memory", _huge_pages),
    ("io_uring", "many reads of a disk at once at a third of the CPU (features or topology on disk)", _io_uring),
    ("locked memory", "buffers of disks that the kernel need not look up at every read", _locked_memory),
    ("CUDA in torch", "tensors and models on a GPU", _cuda),
    ("GPU", "batches gathered and models trained on it (device='cuda')", _gpus),
    ("Triton", "the kernels that a GPU runs", _triton),
    ("mapped files on the GPU", "features that the GPU reads out of mapped files, without a copy in memory", _mapped_files),
]
