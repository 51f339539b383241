"""`penstock info STORE`: the contents of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.console import AsJson, show

if TYPE_CHECKING:
    from penstock.store import ArraySpec, Store


def info(
    store: Annotated[Path, typer.Argument(help="Folder of the store, of a partition, or of a part.")], as_json: AsJson = False
) -> None:
    """Show what a store holds: types, counts, fields, splits, where it came from."""
    from penstock.partition import describe_partition, is_partition
    from penstock.store import Store

    if is_partition(store):
        from penstock.cli.partition import as_text as as_lines

        made = describe_partition(store)
        show(made, lambda: as_lines(made), as_json)
        return
    opened = Store.open(store)
    show(describe(opened), lambda: as_text(opened), as_json)


def describe(store: Store) -> dict[str, Any]:
    """Return what a store holds as plain data."""
    from penstock.store.format import ENDS

    manifest = store.manifest
    return {
        "path": str(store.path),
        "is_homogeneous": store.is_homogeneous,
        "num_bytes": store.num_bytes,
        "digest": store.digest,
        "nodes": {
            name: {
                "num_nodes": entry.num_nodes,
                "fields": {key: _field(spec) for key, spec in entry.fields.items()},
                "splits": {split: {part: spec.shape[0] for part, spec in parts.items()} for split, parts in entry.splits.items()},
                "ids": entry.ids.kind if entry.ids else None,
                "packed": {"fields": list(entry.packed.fields), **entry.packed.made} if entry.packed else None,
            }
            for name, entry in manifest.nodes.items()
        },
        "edges": [
            {
                "type": list(name),
                "num_edges": entry.num_edges,
                "index_dtype": entry.indices.dtype,
                "has_edge_ids": entry.edge_id is not None,
                "fields": {key: _field(spec) for key, spec in entry.fields.items()},
                "links": {part: columns[ENDS[0]].shape[0] for part, columns in entry.links.items()},
            }
            for name, entry in manifest.edges.items()
        ],
        "provenance": manifest.provenance,
    }


def _field(spec: ArraySpec) -> dict[str, Any]:
    return {"dtype": spec.dtype, "row_shape": list(spec.shape[1:]), **spec.properties}


def as_text(store: Store) -> str:
    """Return what a store holds as lines for people."""
    from penstock.sources.splits import PARTS
    from penstock.store import format_bytes
    from penstock.store.format import ENDS

    kind = "homogeneous" if store.is_homogeneous else f"{len(store.node_types)} node types, {len(store.edge_types)} edge types"
    lines = [f"{store.path}: {kind}, {format_bytes(store.num_bytes)}, digest {store.digest}"]
    for name, entry in store.manifest.nodes.items():
        ids = f"  ids: {entry.ids.kind}" if entry.ids else ""
        lines.append(f"nodes {name}: {entry.num_nodes:,}{ids}{_fields(entry.fields)}")
        if entry.packed:
            size = format_bytes(sum(spec.data_bytes for spec in entry.packed.arrays()))
            lines.append(f"    packed by {entry.packed.made.get('by', '?')}: {', '.join(entry.packed.fields)}, {size} more")
        for split, parts in entry.splits.items():
            in_order = sorted(parts.items(), key=lambda each: (*PARTS, each[0]).index(each[0]))
            lines.append(f"    split {split}: " + ", ".join(f"{part} {spec.shape[0]:,}" for part, spec in in_order))
    for name, entry in store.manifest.edges.items():
        mean = entry.num_edges / max(1, store.num_nodes[name[2]])
        lines.append(f"edges {name[0]}-{name[1]}->{name[2]}: {entry.num_edges:,}, {mean:.1f} into a node{_fields(entry.fields)}")
        if entry.links:
            lines.append("    held out: " + ", ".join(f"{part} {columns[ENDS[0]].shape[0]:,}" for part, columns in entry.links.items()))
    provenance = store.manifest.provenance
    source = provenance.get("source")
    if isinstance(source, dict) and source.get("left_out"):
        lines.append(f"left out of the source: {', '.join(repr(name)[1:-1] for name in source['left_out'])}")
    dangling = provenance.get("dangling")
    for name, count in dangling.items() if isinstance(dangling, dict) else ():
        lines.append(f"left out of edges {name}: {count} that end at no node")
    lines.append(f"made {provenance.get('created', 'some time')} by penstock {provenance.get('penstock', '?')}")
    return "\n".join(lines)


def _fields(fields: dict[str, ArraySpec]) -> str:
    texts = []
    for name, spec in fields.items():
        shape = list(spec.shape[1:]) or ""
        classes = f" ({spec.properties['num_classes']} classes{_names(spec)})" if "num_classes" in spec.properties else ""
        aggregated = f" (aggregated by {spec.properties['aggregated']})" if "aggregated" in spec.properties else ""
        unit = f" ({spec.properties['unit']})" if "unit" in spec.properties else ""
        texts.append(f"{name} {spec.dtype}{shape}{classes}{aggregated}{unit}")
    return f"  {', '.join(texts)}" if texts else ""


def _names(spec: ArraySpec) -> str:
    """Return the first names of the classes, if they have any."""
    names = spec.properties.get("class_names", [])
    return f": {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" if names else ""
