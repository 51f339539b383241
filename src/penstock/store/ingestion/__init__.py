"""From a source to a store, within a memory bound: `run.py` has the order of the work. Nothing here is needed to open a store."""
