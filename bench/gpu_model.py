"""The models of the benchmarks of a GPU and a step of training, over batches of Penstock or of PyG. Imports neither bench nor Penstock.

GraphSAGE: 3 layers of width 128, mean. GAT: 3 layers of 2 heads of width 64. Adam, cross entropy over the seeds, float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.grad_mode import set_multithreading_enabled
from torch_geometric.nn import GATConv, SAGEConv

HIDDEN, HEADS, CLASSES = 128, 2, 50


def make_model(
    kind: str, width: int, num_layers: int, device: torch.device, sage: type[SAGEConv] = SAGEConv, *, capturable: bool = False
) -> tuple[torch.nn.ModuleList, torch.optim.Optimizer]:
    """Layers and their optimizer; the same weights for everybody. `sage`: PyG's layer, or one of its kind; `capturable`: as torch's."""
    torch.manual_seed(0)
    widths = [width, *[HIDDEN] * (num_layers - 1)]
    if kind == "sage":
        convs = [sage(a, b) for a, b in zip(widths, [*widths[1:], CLASSES], strict=True)]
    else:
        inner = [GATConv(a, HIDDEN // HEADS, heads=HEADS, add_self_loops=False) for a in widths[:-1]]
        convs = [*inner, GATConv(widths[-1], CLASSES, heads=1, add_self_loops=False)]
    model = torch.nn.ModuleList(convs).to(device)
    return model, torch.optim.Adam(model.parameters(), lr=3e-3, fused=device.type == "cuda", capturable=capturable)


def penstock_step(
    kind: str, width: int, num_layers: int, device: torch.device, *, is_recorded: bool = False
) -> Callable[[Any], torch.Tensor]:
    """A step over batches of Penstock, layer by layer with what each needs. Nobody waits for the loss that it returns. `is_recorded`: it is
    launched as a CUDA graph, for batches that are padded."""
    from penstock import layers
    from penstock.feed import RecordedStep
    from penstock.train.convs import Sage

    model, optimizer = make_model(kind, width, num_layers, device, Sage, capturable=is_recorded and device.type == "cuda")

    def step(batch: Any) -> torch.Tensor:
        x = batch.x
        for number, (conv, layer) in enumerate(zip(model, layers(batch), strict=True)):
            ends = (x, x[: layer.num_dst])
            x = conv(ends, layer.adj_t()) if kind == "sage" else conv(ends, layer.edge_index, size=(layer.num_src, layer.num_dst))
            x = x.relu() if number < num_layers - 1 else x
        return _learn(x[: batch.batch_size], batch, optimizer)

    return RecordedStep(step) if is_recorded else step


def pyg_step(kind: str, width: int, num_layers: int, device: torch.device) -> Callable[[Any], torch.Tensor]:
    """A step over batches of PyG, trimmed layer by layer where its sampler says how many nodes each hop has."""
    from torch_geometric.utils import trim_to_layer

    model, optimizer = make_model(kind, width, num_layers, device)

    def step(batch: Any) -> torch.Tensor:
        x, edges = batch.x, batch.edge_index
        for number, conv in enumerate(model):
            if getattr(batch, "num_sampled_nodes", None) is not None:  # of torch-sparse, a batch does not say
                x, edges, _ = trim_to_layer(number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
            x = conv(x, edges)
            x = x.relu() if number < num_layers - 1 else x
        return _learn(x[: batch.batch_size], batch, optimizer)

    return step


def _learn(logits: torch.Tensor, batch: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    loss = torch.nn.functional.cross_entropy(logits, batch.y[: batch.batch_size])
    optimizer.zero_grad()
    with set_multithreading_enabled(False):  # a thread of its own for one device would wake up and be waited for
        loss.backward()
    optimizer.step()
    return loss.detach()
