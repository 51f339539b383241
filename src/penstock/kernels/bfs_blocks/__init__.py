"""Grow blocks of connected nodes, merge them, and assign them to parts."""
