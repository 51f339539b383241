"""Blocks of connected nodes: grown, merged, and given to parts."""
