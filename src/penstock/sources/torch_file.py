"""Files that `torch.save` wrote, read without running code in them.

In: a path. Out: the array of a tensor, as `ArrayFile`, of which only the header was read; or the plain numbers and arrays of a small file.
A tensor's elements lie in its archive as they are in memory, so they are streamed from there like those of a `.npy` file.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from penstock.errors import InputError, first_line
from penstock.sources.array_file import ArrayFile, data_offset, truncated

_DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")


def open_pt(path: Path) -> ArrayFile:
    """Describe the tensor in a `.pt` file."""
    import torch

    try:
        tensor = torch.load(path, map_location="meta", weights_only=True)
        with open(path, "rb") as raw:
            place = _place_of_elements(raw) if zipfile.is_zipfile(raw) else None
    except Exception as error:  # torch and zipfile raise nearly anything, and torch advises to run the code in it
        raise InputError(
            f"{path}: damaged, or not a dense tensor that loads without running code in the file; write it again, or save it as .npy"
        ) from error
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        raise InputError(f"{path}: holds a {type(tensor).__name__}, expected a dense tensor; save each by itself")
    if place is None:
        raise InputError(f"{path}: in the format of torch before 1.6; load and save it again, or save it as .npy")
    dtype, is_bfloat16 = str(tensor.dtype).removeprefix("torch."), tensor.dtype == torch.bfloat16
    is_fortran = tensor.ndim == 2 and not tensor.is_contiguous() and tensor.T.is_contiguous()
    if (dtype not in _DTYPES and not is_bfloat16) or not (tensor.is_contiguous() or is_fortran):
        raise InputError(f"{path}: a tensor of {dtype} with strides {list(tensor.stride())}; save it contiguous, and as numbers")
    stored = np.dtype(np.uint16 if is_bfloat16 else dtype)
    data_offset, num_bytes = place
    first = int(tensor.storage_offset()) * stored.itemsize
    array = ArrayFile(
        path=path,
        member="",
        dtype=stored,
        shape=tuple(tensor.shape),
        is_fortran=is_fortran,
        data_offset=data_offset + first,
        stored_dtype=stored,
        is_bfloat16=is_bfloat16,
    )
    if first + tensor.numel() * stored.itemsize > num_bytes:
        raise truncated(array)
    return array


def _place_of_elements(raw: BinaryIO) -> tuple[int, int]:
    """Return where the only storage in an archive starts, and its bytes; (0, 0) if it holds something else."""
    with zipfile.ZipFile(raw) as archive:
        found = [each for each in archive.infolist() if "/data/" in each.filename]
    return (data_offset(raw, found[0]), found[0].file_size) if len(found) == 1 else (0, 0)


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
