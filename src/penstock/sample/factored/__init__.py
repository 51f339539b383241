"""Sampling in processes of its own: what such a process does, and how its samples travel. Needs neither torch nor PyG on the CPU, so that
a process is there in a second and small."""
