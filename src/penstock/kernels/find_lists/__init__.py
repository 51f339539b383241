"""Whose neighbour list a position lies in."""
