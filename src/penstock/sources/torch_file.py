"""Files that `torch.save` wrote, read without running code in them.

In: a path. Out: the array of a tensor, as `ArrayFile`, of which only the header was read; or the plain numbers and arrays of a small file.
A tensor's elements lie in its archive as they are in memory, so they are streamed from there like those of a `.npy` file.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InputError, first_line
from penstock.sources.array_file import ArrayFile, data_offset, truncated

_DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")


def open_pt(path: Path) -> ArrayFile:
    """Describe the tensor in a `.pt` file."""
    import torch

    try:
        tensor = torch.load(path, map_location="meta", weights_only=True)
    except Exception as error:  # torch raises nearly anything, and advises to run the code in it
        raise InputError(f"{path}: not a tensor that is loaded without running code in the file; save it as .npy") from error
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        raise InputError(f"{path}: holds a {type(tensor).__name__}, expected a dense tensor; save each by itself")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: in the format of torch before 1.6; load and save it again, or save it as .npy")
    dtype, is_bfloat16 = str(tensor.dtype).removeprefix("torch."), tensor.dtype == torch.bfloat16
    is_fortran = tensor.ndim == 2 and not tensor.is_contiguous() and tensor.T.is_contiguous()
    if (dtype not in _DTYPES and not is_bfloat16) or not (tensor.is_contiguous() or is_fortran):
        raise InputError(f"{path}: a tensor of {dtype} with strides {list(tensor.stride())}; save it contiguous, and as numbers")
    stored = np.dtype(np.uint16 if is_bfloat16 else dtype)
    with open(path, "rb") as raw, zipfile.ZipFile(raw) as archive:
        [info] = [each for each in archive.infolist() if each.filename.endswith("/data/0")]
        array = ArrayFile(
            path=path,
            member="",
            dtype=stored,
            shape=tuple(tensor.shape),
            is_fortran=is_fortran,
            data_offset=data_offset(raw, info) + int(tensor.storage_offset()) * stored.itemsize,
            stored_dtype=stored,
            is_bfloat16=is_bfloat16,
        )
        if (tensor.storage_offset() + tensor.numel()) * stored.itemsize > info.file_size:
            raise truncated(array)
    return array


def load_numbers(path: Path, instead: str) -> Any:
    """Load plain numbers and arrays; `instead`: what to give in place of a file that cannot be loaded."""
    import torch

    make_array: Any = np.empty(0).__reduce__()[0]
    numpy_parts = [
        make_array,
        (make_array, "numpy.core.multiarray._reconstruct"),  # the name before NumPy 2
        np.ndarray,
        np.dtype,
        np.dtypes.Int64DType,
        np.dtypes.Int32DType,
    ]
    with torch.serialization.safe_globals(numpy_parts):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise InputError(f"{path}: cannot be loaded without running code in it ({first_line(error)}); see {instead}") from error
