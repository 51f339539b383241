"""Benchmarks. `python -m bench` runs those that need nothing but Penstock; see README.md."""
