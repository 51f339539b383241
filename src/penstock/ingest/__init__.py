"""Sources of graphs: files and generators, delivered as tables in chunks. Nothing here knows what a store looks like.

`penstock.ingest` is this package and, as a user writes it, a function: calling it calls `penstock.store.ingest`. Whichever part of
Penstock is imported first, the name means both.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from penstock.ingest.open import open_source

__all__ = ["open_source"]


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return importlib.import_module("penstock.store").ingest(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
