"""Sources of graphs: files and generators, delivered as tables in chunks. Nothing here knows what a store looks like."""

from penstock.sources.open import open_source

__all__ = ["open_source"]
