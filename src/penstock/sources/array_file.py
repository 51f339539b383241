"""Arrays in `.npy` files and in members of `.npz` archives, read from front to back, never as a whole.

In: a path. Out: for each array its dtype and shape, and streams that deliver the next elements. Invariant: a stream takes the memory of one
`take`, also if the member is deflated (which is why a stream only goes forwards) or 100 GB long (it is read, not mapped: mapped pages count
as memory of the process, and a budget is for the whole process).
Source: the NPY format, numpy.lib.format; APPNOTE.TXT 4.3.7 for where a stored member's bytes start.
"""

from __future__ import annotations

import math
import os
import struct
import sys
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from penstock.errors import InputError, first_line

_SKIP_BYTES = 1 << 20
_MAX_DIMENSIONS = 32
_LOCAL_HEADER_BYTES, _LENGTHS_AT = 30, 26


class Stream(Protocol):
    """Consecutive elements of an array, each taken once."""

    def take(self, count: int) -> np.ndarray:
        """Return the next `count` elements."""
        ...


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """One array on disk.

    Attributes:
        path: the `.npy` file or `.npz` archive.
        member: name within the archive, without `.npy`; empty for a `.npy` file.
        dtype, shape: of the array, in native byte order.
        is_fortran: whether the first axis runs fastest.
        data_offset: byte of the file where the elements start; None if they are compressed.
        stored_dtype: dtype of the bytes in the file.
        is_bfloat16: the dtype is uint16, holding the bits of bfloat16 numbers.
    """

    path: Path
    member: str
    dtype: np.dtype
    shape: tuple[int, ...]
    is_fortran: bool
    data_offset: int | None
    stored_dtype: np.dtype
    is_bfloat16: bool = False

    @property
    def name(self) -> str:
        """Its name for messages."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    @contextmanager
    def stream(self, start: int = 0) -> Iterator[Stream]:
        """Read elements from number `start` on, in the order of the file."""
        if self.data_offset is not None:
            with open(self.path, "rb") as file:
                file.seek(self.data_offset + start * self.stored_dtype.itemsize)
                yield _PlainStream(file, self)
        else:
            with zipfile.ZipFile(self.path) as archive, archive.open(f"{self.member}.npy") as file:
                _read_header(file, self.name)
                stream = _InflatingStream(file, self)
                stream.skip(start)
                yield stream

    def load(self) -> np.ndarray:
        """Read the whole array; for small ones. What is bfloat16 becomes float32."""
        with self.stream() as stream:
            array = stream.take(math.prod(self.shape))
        if self.dtype.kind == "U" and array.size and array.view(np.uint32).max() > sys.maxunicode:
            raise InputError(f"{self.name}: damaged, it holds text of what are no letters; fetch or write the file again")
        if self.is_bfloat16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array.reshape(self.shape, order="F" if self.is_fortran else "C")


AnyArray = ArrayFile | np.ndarray


def stream_of(array: AnyArray) -> AbstractContextManager[Stream]:
    """Read the elements of a file, or of a one-dimensional array in memory."""
    return nullcontext(_MemoryStream(array)) if isinstance(array, np.ndarray) else array.stream()


class _MemoryStream:
    def __init__(self, array: np.ndarray) -> None:
        self._array, self._position = array, 0

    def take(self, count: int) -> np.ndarray:
        self._position += count
        return self._array[self._position - count : self._position]


class _PlainStream:
    def __init__(self, file: BinaryIO, source: ArrayFile) -> None:
        self._file, self._source = file, source

    def take(self, count: int) -> np.ndarray:
        array = np.fromfile(self._file, dtype=self._source.stored_dtype, count=count)
        return _checked(array, count, self._source)


class _InflatingStream:
    def __init__(self, file, source: ArrayFile) -> None:
        self._file, self._source = file, source

    def _read(self, num_bytes: int) -> bytes:
        try:
            return self._file.read(num_bytes)
        except Exception as error:  # of a damaged one zipfile and zlib raise nearly anything
            raise InputError(f"{self._source.name}: damaged archive ({error}); fetch or write the file again") from error

    def skip(self, count: int) -> None:
        left = count * self._source.stored_dtype.itemsize
        while left > 0:
            got = len(self._read(min(left, _SKIP_BYTES)))
            if got == 0:
                raise InputError(f"{self._source.name}: truncated; fetch or write the file again")
            left -= got

    def take(self, count: int) -> np.ndarray:
        data = self._read(count * self._source.stored_dtype.itemsize)
        itemsize = self._source.stored_dtype.itemsize
        return _checked(np.frombuffer(data[: len(data) // itemsize * itemsize], dtype=self._source.stored_dtype), count, self._source)


def _checked(array: np.ndarray, count: int, source: ArrayFile) -> np.ndarray:
    if array.size != count:
        raise truncated(source)
    return array.astype(source.dtype, copy=False)


def truncated(source: ArrayFile) -> InputError:
    """Return the error for a file with fewer elements than its header says."""
    return InputError(f"{source.name}: truncated, it should hold {math.prod(source.shape)} elements; fetch or write the file again")


def _read_header(file, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = read(file)
    except Exception as error:  # for a damaged file NumPy raises nearly anything
        raise InputError(f"{name}: not a .npy array that can be read ({first_line(error)})") from error
    shape = tuple(map(int, shape))  # NumPy accepts True as a length
    if min(shape, default=0) < 0 or len(shape) > _MAX_DIMENSIONS or dtype.itemsize == 0:
        raise InputError(f"{name}: not a .npy array that can be read (it would have shape {list(shape)} and dtype {dtype})")
    if dtype.hasobject:
        raise InputError(f"{name}: holds Python objects (a pickle), which are never loaded; save it as numbers, or strings of dtype '<U'")
    return shape, is_fortran, dtype


def _describe(file, path: Path, member: str, data_offset: int | None, num_bytes: int) -> ArrayFile:
    """Read the header at the file's position. `data_offset`: position of the header in the file, or None; `num_bytes`: of header and
    elements."""
    start = file.tell()
    name = f"{path}:{member}" if member else str(path)
    shape, is_fortran, dtype = _read_header(file, name)
    array = ArrayFile(
        path=path,
        member=member,
        dtype=dtype.newbyteorder("="),
        shape=shape,
        is_fortran=is_fortran and len(shape) > 1,
        data_offset=None if data_offset is None else data_offset + file.tell() - start,
        stored_dtype=dtype,
    )
    if file.tell() - start + math.prod(shape) * dtype.itemsize > num_bytes:  # a false header: do not allocate what it claims
        raise truncated(array)
    return array


def open_npy(path: Path) -> ArrayFile:
    """Describe the array in a `.npy` file."""
    with open(path, "rb") as file:
        return _describe(file, path, "", 0, os.fstat(file.fileno()).st_size)


def open_npz(path: Path) -> dict[str, ArrayFile]:
    """Describe every array in a `.npz` archive, by its key."""
    with open(path, "rb") as raw:
        try:
            with zipfile.ZipFile(raw) as archive:
                return {
                    info.filename.removesuffix(".npy"): _describe_member(raw, archive, info, path)
                    for info in archive.infolist()
                    if info.filename.endswith(".npy")
                }
        except InputError:
            raise
        except Exception as error:  # of a damaged one zipfile raises nearly anything
            raise InputError(f"{path}: not a .npz archive, or a damaged one ({error}); fetch or write the file again") from error


def data_offset(raw: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return where a member's bytes start: behind a header of their own, a name and what else there is."""
    raw.seek(info.header_offset + _LENGTHS_AT)
    return info.header_offset + _LOCAL_HEADER_BYTES + sum(struct.unpack("<HH", raw.read(4)))


def _describe_member(raw: BinaryIO, archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> ArrayFile:
    offset = data_offset(raw, info) if info.compress_type == zipfile.ZIP_STORED else None
    with archive.open(info) as file:
        return _describe(file, path, info.filename.removesuffix(".npy"), offset, info.file_size)
