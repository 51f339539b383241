"""Writing generated graphs into stores, also graphs generated from a store."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from penstock.errors import UsageError
from penstock.sources.generate import generate as generate_source
from penstock.store.ingestion.options import IngestOptions
from penstock.store.ingestion.run import ingest
from penstock.store.opened import Store

_STORE_OPTIONS = {"memory", "progress", "overwrite", *(field.name for field in fields(IngestOptions))}


def generate(kind: str, dest: str | os.PathLike[str], *, base: Store | str | os.PathLike[str] | None = None, **options: Any) -> Store:
    """Write a generated graph into a store.

    Args:
        kind: "rmat", "zipf", "communities" or "kronecker".
        dest: path of the store.
        base: for kronecker: the store to expand, or its path. Its features and labels are expanded, too.
        **options: options of `ingest` and of the generator (see `penstock.sources.generate`): num_nodes, num_edges, seed, ...
    Returns:
        The store, open.
    Raises:
        UsageError: the generator has no such option. Also all errors of `ingest`.
    """
    writing = {name: options.pop(name) for name in _STORE_OPTIONS & options.keys()}
    if base is not None:
        options = _base_options(base) | options
    return ingest(generate_source(kind, **options), dest, **writing)


def _base_options(base: Store | str | os.PathLike[str]) -> dict[str, Any]:
    store = base if isinstance(base, Store) else Store.open(base)
    if not store.is_homogeneous:
        raise UsageError(f"{store.path} has several types; only a homogeneous graph can be expanded")
    store.graph().check_lists()
    known = store.node_fields()
    wanted = {name: store.node_field(name) for name in ("x", "y") if name in known and known[name].dtype != "bfloat16"}
    words = known["y"].properties.get("class_names", ()) if "y" in wanted else ()
    return {"base": store.csc(), "class_names": tuple(words), **wanted}
