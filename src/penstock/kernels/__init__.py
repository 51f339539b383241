"""Kernels: one folder each, with `reference.py` (NumPy, the definition), `cpu.py` (Numba) and, of some, `gpu.py` (Triton).

Same argument order and local names in each, so that they diff well. `reference` returns; the others write into what they are given.
Arguments are checked by the caller; a kernel raises nothing, and allocates nothing but scratch where that is simpler.

What several share lies beside the folders. Of Numba: how they are compiled (`_compile`), memory and bits (`_memory`, `_bits`), random
numbers (`_random`), system calls (`_system`), lists of neighbours by type (`_typed_lists`), and what caches are made of (`_lists`,
`_queues`, `_marks`, `cache_lookup`). Of Triton: launches (`_triton`, `_recording`, `_cuda`), rows (`_device_rows`), neighbour lists
(`_device_lists`) and running sums (`_block_sums`).
"""
