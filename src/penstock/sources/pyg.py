"""Graphs in memory as PyG's `Data` and `HeteroData`, recognised by their class names: neither torch nor PyG is imported here.

In: the object. Out: a Source over NumPy views of its tensors (tensors in host memory are not copied). Names stay, except that per-edge
`edge_weight` and `edge_attr` become `weight` and `x`; masks become splits. Attributes that are neither per node nor per edge are left out,
and named in a warning and in the provenance under "left_out".
"""

from __future__ import annotations

import logging
import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.errors import InputError, NotSupportedError
from penstock.records import EDGE, NODE
from penstock.sources.array_table import SparseRowsTable
from penstock.sources.source import DST, ID, SRC, ArrayTable, EdgeTable, NodeTable, Source, Table
from penstock.sources.splits import PARTS, Split, mask_splits
from penstock.sources.tables import join

logger = logging.getLogger("penstock")

EDGE_FIELD_OF = {"edge_weight": "weight", "edge_attr": "x"}
"""PyG's name of a per-edge tensor -> the store's name of the field."""


def is_pyg(source: Any) -> bool:
    """Tell whether an object is PyG's Data or HeteroData, or of a class derived from them."""
    return any(
        cls.__module__.startswith("torch_geometric.data.") and cls.__name__ in ("Data", "HeteroData") for cls in type(source).__mro__
    )


def open_pyg(data: Any) -> Source:
    """Open a `Data` or `HeteroData`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Unable to accurately infer 'num_nodes'")
        source = _open_hetero(data) if hasattr(data, "node_types") else _open_data(data)
    left_out = source.provenance["left_out"]
    if left_out:
        logger.warning(
            "%s: left out, for these are no tensors with a row for each node or edge: %s",
            type(data).__name__,
            ", ".join(repr(name)[1:-1] for name in left_out),
        )
    return source


def _open_data(data: Any) -> Source:
    nodes, splits, left_out = _nodes(data, NODE, "Data")
    edges, more = _edges(data, "Data")
    return Source(
        nodes={NODE: nodes},
        edges={EDGE: EdgeTable(edge_type=EDGE, table=edges)},
        is_homogeneous=True,
        splits={NODE: splits} if splits else {},
        provenance={"kind": "pyg", "class": type(data).__name__, "left_out": [key for key in left_out if key in more]},
    )


def _open_hetero(data: Any) -> Source:
    nodes, edges, splits = {}, {}, {}
    left_out = [key for store in data.stores if store._key is None for key, _ in store.items()]
    for node_type in data.node_types:
        nodes[node_type], found, more = _nodes(data[node_type], node_type, f"HeteroData[{node_type!r}]")
        splits |= {node_type: found} if found else {}
        left_out += [f"{node_type}.{key}" for key in more]
    for edge_type in data.edge_types:
        table, more = _edges(data[edge_type], f"HeteroData[{edge_type!r}]")
        edges[edge_type] = EdgeTable(edge_type=edge_type, table=table)
        left_out += [f"{'__'.join(edge_type)}.{key}" for key in more]
    for source_type, _, target_type in edges:
        for node_type in (source_type, target_type):
            nodes.setdefault(node_type, NodeTable(node_type=node_type))
    provenance = {"kind": "pyg", "class": type(data).__name__, "left_out": left_out}
    return Source(nodes=nodes, edges=edges, is_homogeneous=False, splits=splits, provenance=provenance)


def to_numpy(tensor: Any) -> tuple[np.ndarray, bool]:
    """Return (array, is_bfloat16); the array is a view if the tensor is in host memory."""
    if isinstance(tensor, np.ndarray):
        return tensor, False
    torch = sys.modules["torch"]
    tensor = tensor.detach().cpu().resolve_neg()
    is_bfloat16 = tensor.dtype == torch.bfloat16
    return (tensor.view(torch.uint16) if is_bfloat16 else tensor).numpy(), is_bfloat16


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray) or type(value).__module__.partition(".")[0] == "torch"


def _has_rows(store: Any, key: str, is_counted: Callable[[str], bool]) -> bool:
    """Whether an attribute is a tensor with as many rows as `is_counted` wants. Of `face` and of names with "index" PyG counts the columns,
    as of the `edge_label_index` that `RandomLinkSplit` gives."""
    value = store[key]
    if not _is_tensor(value) or not value.ndim:
        return False
    dim = store._parent().__cat_dim__(key, value, store)
    return isinstance(dim, int) and dim % value.ndim == 0 and is_counted(key)


def _array_table(tensors: dict[str, Any], name: str) -> ArrayTable:
    arrays, bfloat16 = {}, set()
    for key, tensor in tensors.items():
        try:
            arrays[key], is_bfloat16 = to_numpy(tensor)
        except TypeError as error:  # of dtypes and layouts that NumPy lacks
            raise _no_numbers(f"{name}.{key}", tensor.dtype if str(tensor.layout) == "torch.strided" else tensor.layout) from error
        if arrays[key].dtype.kind not in "biuf":
            raise _no_numbers(f"{name}.{key}", arrays[key].dtype)
        bfloat16 |= {key} if is_bfloat16 else set()
    lengths = {key: len(array) for key, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{name}: lengths differ: {', '.join(f'{key} {length}' for key, length in lengths.items())}")
    return ArrayTable(arrays, name, frozenset(bfloat16))


def _no_numbers(name: str, kind: Any) -> NotSupportedError:
    kind = str(kind).removeprefix("torch.")
    return NotSupportedError(f"{name} holds {kind}; fields are numbers. Remove it or convert it first")


def _nodes(store: Any, node_type: str, name: str) -> tuple[NodeTable, dict[str, Split], list[str]]:
    """Return (nodes with their fields, splits, names of attributes that are not per node). Nodes are counted as in PyG."""
    num_nodes, has_edges = _num_nodes(store, name), "edge_index" in store or "adj_t" in store
    tensors = {}
    sparse = []
    masks = {}
    left_out = []
    for key, value in store.items():
        part = key.removesuffix("_mask")
        if key in ("num_nodes", "edge_index", "adj_t") or (key in EDGE_FIELD_OF and has_edges):
            continue
        if not _has_rows(store, key, store.is_node_attr):
            if key in ("x", "y") or part != key:
                raise _no_rows_of_nodes(store, key, name)
            left_out.append(key)
        elif key == ID:
            raise InputError(f"{name}.{ID}: a store has your own ids under that name; rename it, as by data.my_id = data.id; del data.id")
        elif part != key and part in PARTS:
            masks[part] = to_numpy(value)[0]
        elif str(getattr(value, "layout", "")).startswith("torch.sparse"):
            if value.ndim == 2 and not value.dense_dim():
                sparse.append(_sparse_rows(key, value, name))
            else:
                tensors[key] = value.to_dense()
        else:
            tensors[key] = value
    parts: list[Table] = [*([_array_table(tensors, name)] if tensors else []), *sparse]
    splits = {} if num_nodes is None or not masks else mask_splits(masks, num_nodes, name)
    return NodeTable(node_type=node_type, num_nodes=num_nodes, table=join(parts, name)), splits, left_out


def _num_nodes(store: Any, name: str) -> int | None:
    """The number of nodes as PyG counts them, or None; `edge_index.max() + 1` is a tensor."""
    given = store.num_nodes
    try:
        count = None if given is None else operator.index(given)
    except TypeError:
        count = -1
    if count is not None and count < 0:
        raise InputError(f"{name}.num_nodes is {given!r:.60}; expected a whole number, 0 or more")
    return count


def _no_rows_of_nodes(store: Any, key: str, name: str) -> InputError:
    """Return the error for features, labels or a mask that are not a tensor with a row per node."""
    value, num_nodes = store[key], store.num_nodes
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if _is_tensor(value) and key.endswith("_mask") and dtype != "bool":
        return InputError(
            f"{name}.{key} has shape {list(value.shape)} and dtype {dtype}; expected a boolean mask, one entry for each node: of ids, "
            "mask = torch.zeros(num_nodes, dtype=torch.bool); mask[ids] = True"
        )
    if _is_tensor(value) and not _is_counted(store):
        count = "an unknown number of" if num_nodes is None else num_nodes
        return InputError(f"{name}.{key} has shape {list(value.shape)} for {count} nodes; set num_nodes, or remove it")
    return _no_rows(value, f"{name}.{key}", num_nodes, "nodes (num_nodes)" if "num_nodes" in store else "nodes")


def _is_counted(store: Any) -> bool:
    """Whether the number of nodes is given, rather than derived from the largest end of an edge."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return store.num_nodes is not None and not said


def _no_rows(value: Any, name: str, count: int | None, of: str) -> InputError:
    """Return the error for a value that is not a tensor with `count` rows."""
    if not _is_tensor(value):
        return InputError(f"{name} is of type {type(value).__name__}; expected a tensor, one row for each of the {of}")
    shape = list(value.shape)
    return InputError(f"{name} has shape {shape} for {count} {of}; expected {[count, *shape[1:]]}, one row for each: correct or remove it")


def _sparse_rows(key: str, value: Any, name: str) -> SparseRowsTable:
    num_rows, num_columns = value.shape
    value = value.float() if value.dtype == sys.modules["torch"].bfloat16 else value  # whose bits would be added up
    if not value.is_sparse_csr:
        coo = value.to_sparse_coo().coalesce()
        (rows, indices), values = to_numpy(coo.indices())[0], to_numpy(coo.values())[0]
        indptr = np.zeros(num_rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=num_rows), out=indptr[1:])
    else:
        indptr, indices, values = (to_numpy(part)[0] for part in (value.crow_indices(), value.col_indices(), value.values()))
    return SparseRowsTable(key, indptr, indices, values, num_columns, f"{name}.{key}")


def _edges(store: Any, name: str) -> tuple[ArrayTable, list[str]]:
    """Return (edges with their fields, names of attributes that are not per edge)."""
    fields: dict[str, Any] = {}
    left_out: list[str] = []
    if "edge_index" in store:
        edge_index, _ = to_numpy(store.edge_index)
        if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype.kind not in "iu":
            raise InputError(
                f"{name}.edge_index has shape {list(edge_index.shape)} and dtype {edge_index.dtype}; expected integers [2, edges]"
            )
        ends = {SRC: edge_index[0], DST: edge_index[1]}
    elif "adj_t" in store:
        ends, fields = _transposed_adjacency(store.adj_t)
    else:
        raise InputError(f"{name} has neither edge_index nor adj_t: a graph needs edges (an empty edge_index will do)")
    num_edges = len(ends[SRC])
    given = {**dict.fromkeys(ends, "the ends of the edges"), **dict.fromkeys(fields, "the value of adj_t")}
    for key, value in store.items():
        is_of_edges = key in EDGE_FIELD_OF
        if key in ("edge_index", "adj_t") or (not is_of_edges and _has_rows(store, key, store.is_node_attr)):
            continue
        if is_of_edges and not (_is_tensor(value) and value.ndim and value.shape[0] == num_edges):
            raise _no_rows(value, f"{name}.{key}", num_edges, "edges")
        if is_of_edges or _has_rows(store, key, store.is_edge_attr):
            field = str(EDGE_FIELD_OF.get(key, key))
            if field in given:
                raise InputError(f"{name}: {given[field]} and {key} would both be the field '{field}' of the edges: remove or rename one")
            fields[field], given[field] = value, key
        elif key != "num_nodes":
            left_out.append(key)
    return _array_table({**ends, **fields}, name), left_out


def _transposed_adjacency(adjacency: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read `adj_t`: rows are destinations. A torch sparse tensor, or a torch_sparse.SparseTensor."""
    if hasattr(adjacency, "coo"):
        destinations, sources, values = adjacency.coo()
    else:
        coo = adjacency.to_sparse_coo().coalesce()
        (destinations, sources), values = coo.indices(), coo.values()
    ends = {SRC: to_numpy(sources)[0], DST: to_numpy(destinations)[0]}
    return ends, {} if values is None else {"weight": values}
