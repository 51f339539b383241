"""Kernels: one folder each, with `reference.py` (NumPy, the definition), `cpu.py` (Numba) and, of some, `gpu.py` (Triton).

Same argument order and local names in each, so that they diff well. `reference` returns; the others write into what they are given.
Arguments are checked by the caller; a kernel allocates nothing and raises nothing.
"""
