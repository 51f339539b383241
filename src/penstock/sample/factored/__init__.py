"""Sampling in separate processes: what a sampler process does, and how its samples travel. On the CPU it needs neither torch nor PyG, so a
process starts within a second and stays small."""
