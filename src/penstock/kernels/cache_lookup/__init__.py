"""The directory of a cache: node -> slot, looked up for a batch of ids."""
