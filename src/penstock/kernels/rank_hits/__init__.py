"""Hits of static caches of many capacities at once."""
