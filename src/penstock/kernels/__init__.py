"""Kernels: one folder each, with `reference.py` (NumPy, the definition), `cpu.py` (Numba) and for some kernels `gpu.py` (Triton).

All files of a kernel use the same argument order and local names, so that they diff well. `reference` returns its result; the others write
into arrays that the caller gives. The caller checks the arguments. A kernel raises nothing, and allocates nothing but scratch where that is
simpler.

Shared modules are beside the folders. For Numba: compilation (`_compile`), memory and bits (`_memory`, `_bits`), random numbers
(`_random`), system calls (`_system`), neighbour lists by type (`_typed_lists`), and the parts of caches (`_lists`, `_queues`, `_marks`,
`cache_lookup`). For Triton: launches (`_triton`, `_recording`, `_cuda`), rows (`_device_rows`), neighbour lists (`_device_lists`) and
running sums (`_block_sums`).
"""
