"""Sources of graphs: files and generators, delivered as tables in chunks. Sources do not depend on the format of stores."""

from penstock.sources.open import open_source

__all__ = ["open_source"]
