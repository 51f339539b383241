"""Padded batches without what was added to them."""

import torch

OF_SEEDS = ("input_id", "seed_time", "src_index", "dst_pos_index", "dst_neg_index", "edge_label_index", "edge_label", "edge_label_time")


def without_padding(batch):
    """Take out what was added, in place: it is the batch of a loader without `pad` then, bit for bit. What was added must be zeros, or the
    first row of floating-point numbers, ids of -1 and one tree of its own, and have edges among itself only."""
    trees = [store.batch[masks] for store in batch.node_stores if "batch" in store for masks in [store.pad_node_mask]]
    num_trees = max((int(each.max()) + 1 for each in trees if each.numel()), default=0)
    masks = {store._key: store.pop("pad_node_mask") for store in batch.node_stores}
    for store in batch.edge_stores:
        if "pad_edge_mask" not in store:  # links of a type of which the graph has no edges
            continue
        source, target = (None, None) if store._key is None else (store._key[0], store._key[2])
        mask, (begins, ends) = store.pop("pad_edge_mask"), store.edge_index
        num_rows = store.row_ptr.numel() - 1
        assert torch.equal(store.row_ptr.diff(), torch.bincount(ends, minlength=num_rows))
        assert not masks[source][begins[~mask]].any()
        assert not masks[target][ends[~mask]].any()
        places = [torch.cumsum(masks[node_type].long(), 0) - 1 for node_type in (source, target)]
        store.edge_index = torch.stack([place[half[mask]] for place, half in zip(places, (begins, ends), strict=True)])
        counts = torch.bincount(store.edge_index[1], minlength=int(masks[target][:num_rows].sum()))
        store.row_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        _cut(store, mask, [name for name in store.to_dict() if name == "e_id" or "edge" in name or store._key is not None])
        store.num_sampled_edges = [int(part.sum()) for part in mask.split(store.num_sampled_edges)]
    for store in batch.node_stores:
        mask = masks[store._key]
        _cut(store, mask, [name for name in store.to_dict() if name != "e_id" and "edge" not in name], num_trees)
        if "input_id" in store and store.input_id.numel() == mask.numel():  # a field of that name: seeds are fewer
            store.input_id = store.input_id[mask]
        if "num_nodes" in store:
            store.num_nodes = int(mask.sum())
        store.num_sampled_nodes = [int(part.sum()) for part in mask.split(store.num_sampled_nodes)]
    return batch


def _cut(store, mask, names, num_trees=0):
    for name in names:
        value = store[name]
        if name in (*OF_SEEDS, "edge_index", "row_ptr") or not isinstance(value, torch.Tensor) or value.shape[:1] != mask.shape:
            continue
        added, kept = value[~mask], value[mask]
        if name == "batch":
            assert (added == num_trees).all()
        elif name in ("n_id", "e_id"):
            assert (added == -1).all()
        elif kept.numel() and (kept.is_floating_point() or kept.is_complex()):
            bits = [
                each.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for each in (added, kept[:1].expand_as(added))
            ]
            assert torch.equal(*bits)
        else:
            assert not added.to(torch.complex128).any()
        store[name] = kept
