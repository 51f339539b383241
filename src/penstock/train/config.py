"""The settings of a training run, checked before anything is opened."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from penstock.errors import UsageError, argument
from penstock.plan import Plan, make_plan
from penstock.plan.settings import check_positive, settle, show
from penstock.train.task import METRICS

PLAIN_MODELS = {
    "sage": "GraphSAGE, mean aggregation",
    "gcn": "graph convolution, symmetric normalisation by the degrees of the whole graph",
    "gat": "graph attention",
    "gin": "graph isomorphism network",
}
"""For graphs of one node type and one edge type."""
TYPED_MODELS = {
    "rgcn": "one GraphSAGE layer per relation (typed graphs)",
    "hgt": "heterogeneous graph transformer (typed graphs)",
}
MODELS = {**PLAIN_MODELS, **TYPED_MODELS}
EVALUATIONS = ("auto", "full", "sampled")
NORMALIZATIONS = ("none", "rows")
PLAN_SETTINGS = tuple(each.name for each in fields(Plan) if each.name not in ("recipe", "presample_epochs"))
"""Settings of a run that are fields of its plan; `recipe` is a setting of the run itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run.

    Attributes:
        store: path of the store.
        model: one of MODELS; "auto" takes sage, or rgcn for typed graphs.
        target: node type whose labels are learnt; or "source,name,target", the edge type whose links are, which were held out of the store
            (`penstock.hold_out`). None: the only one with such links, or else with labels.
        edge_label: field of the edges of such a type, which is learnt in place of links: classes, labels or numbers.
        num_neighbors: fanout per layer, element 0 next to the seeds; -1 = all. With aggregated features (see `penstock.aggregate`) the
            model has one layer more.
        weight: edge field in proportion to which neighbours are drawn in training; None draws uniformly. Evaluation takes all neighbours.
        shared_draws: number of batches in a row whose lists share their random numbers, so that they take the same neighbours where they
            can; 0: each list draws for itself (see `penstock.NeighborLoader`).
        layer_wise: in training `num_neighbors` counts the new nodes of a layer, not the neighbours of each node.
        batch_size: seeds per batch.
        epochs: passes over the train nodes.
        batches_per_epoch: an epoch has so many batches of each process, at most, of other seeds every time; None: all seeds.
        lr, weight_decay: of Adam.
        hidden: width of the hidden layers.
        heads: of gat and hgt; a divisor of `hidden`.
        dropout: of the hidden layers.
        input_dropout: of the features; with wide or many rows it costs more than the rest of the step.
        seed: of all randomness: order, samples, initial weights, dropout.
        split: name of the split; None: the only one.
        metric: accuracy or auc of classes, micro-f1 of several labels, rmse, mae or r2 of numbers (which integers from 0 on are then, too);
            mrr, hits@10 or auc of links. "auto" takes mrr for links, rmse for floats that are not whole, micro-f1 for a 0/1 matrix, auc for
            two classes, else accuracy.
        num_negatives: random targets that each link is told from in training; no edge leads to them from its source.
        eval_negatives: the same in evaluations, where each link has the same ones every time.
        normalize: "rows" divides each feature row by the sum of its absolute values (bags of words).
        patience: stop after this many evaluations without a better validation metric; 0 never.
        eval_every: epochs between evaluations.
        evaluation: over "full" neighbourhoods, layer by layer, or over "sampled" ones, as in training, with memory that does not grow with
            the graph; "auto": sampled with host_memory, with several processes, and where memory has no room for the rows of layers.
        recipe, and PLAN_SETTINGS: where rows and neighbour lists live, what is kept of them, and the order of the train nodes, as in
            `penstock.Plan`; None takes what the recipe says. Of these only the order affects the weights.
        device: where the model computes, in training and evaluation, and where batches are delivered: "cpu", "cuda", "cuda:1". A run may be
            resumed on another one; its weights then differ in the last bits.
        non_stop: the batches of an epoch are begun before the last epoch is over, whose counts of tiers then include them. What is read for
            them during an evaluation in between is in no epoch's counts.
        verify: from the first batch on, every `verify`-th one is made again without caches, tiers and devices, and compared bit for bit;
            0 verifies none.
        num_workers: sampling threads.
        torch_threads: threads of the model step; 0: torch's default, or the cores of a container.
        checkpoint_every_s: seconds between checkpoints within an epoch.
    Raises:
        UsageError: a value that cannot work, or values that exclude each other.
    """

    store: str
    model: str = "auto"
    target: str | None = None
    edge_label: str | None = None
    num_neighbors: tuple[int, ...] = (15, 10)
    weight: str | None = None
    shared_draws: int = 0
    layer_wise: bool = False
    batch_size: int = 1024
    epochs: int = 20
    batches_per_epoch: int | None = None
    lr: float = 0.003
    weight_decay: float = 0.0
    dropout: float = 0.5
    input_dropout: float = 0.0
    hidden: int = 128
    heads: int = 4
    seed: int = 0
    split: str | None = None
    metric: str = "auto"
    num_negatives: int = 1
    eval_negatives: int = 100
    normalize: str = "none"
    patience: int = 0
    eval_every: int = 1
    recipe: str | None = None
    order: str | None = None
    features: str | None = None
    policy: str | None = None
    cache: str | None = None
    window: int | None = None
    slow: str | None = None
    topology: str | None = None
    neighbor_policy: str | None = None
    neighbor_cache: str | None = None
    neighbor_layout: str | None = None
    slow_topology: str | None = None
    hold: str | None = None
    host_memory: str | int | None = None
    map_threads: int | None = None
    spool: str | int | None = None
    spool_folder: str | None = None
    presample_batches: int | None = None
    huge_pages: bool | None = None
    device_policy: str | None = None
    device_cache: str | None = None
    device_topology: str | None = None
    device: str = "cpu"
    evaluation: str = "auto"
    num_workers: int = 2
    non_stop: bool = False
    verify: int = 0
    torch_threads: int = 0
    checkpoint_every_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if isinstance(self.device, torch.device):
            object.__setattr__(self, "device", str(self.device))
        settle(self)
        _one_of("model", self.model, ("auto", *MODELS))
        _one_of("metric", self.metric, METRICS)
        _one_of("evaluation", self.evaluation, EVALUATIONS)
        _one_of("normalize", self.normalize, NORMALIZATIONS)
        at_least = {
            "batch_size": 1,
            "epochs": 1,
            "hidden": 1,
            "heads": 1,
            "eval_every": 1,
            "patience": 0,
            "verify": 0,
            "torch_threads": 0,
            "shared_draws": 0,
            "num_negatives": 1,
            "eval_negatives": 1,
        }
        for name, least in at_least.items():
            if getattr(self, name) < least:
                raise UsageError(f"{argument(name)} must be at least {least}, got {getattr(self, name)}")
        check_positive(self, "batches_per_epoch")
        if not self.num_neighbors:
            raise UsageError(f"{argument('num_neighbors')} needs one fanout per layer, for instance 15,10")
        if not 0 < self.lr < math.inf:
            raise UsageError(f"{argument('lr')} must be positive, got {self.lr}")
        if not 0 <= self.seed < 1 << 64:
            raise UsageError(f"{argument('seed')} must lie in [0, 2**64), got {self.seed}")
        if self.model in ("gat", "hgt") and self.hidden % self.heads:
            raise UsageError(
                f"{argument('hidden', self.hidden)} must be a multiple of {argument('heads', self.heads)}: each head has a part"
            )
        for name in ("dropout", "input_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{argument(name)} must lie in [0, 1), got {getattr(self, name)}")
        for name in ("weight_decay", "checkpoint_every_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{argument(name)} must be 0 or more, got {getattr(self, name)}")
        if self.host_memory is not None and (self.cache is not None or self.neighbor_cache is not None or self.window is not None):
            given = next(name for name in ("cache", "neighbor_cache", "window") if getattr(self, name) is not None)
            raise UsageError(f"{argument('host_memory')} decides {argument(given)}: give one of the two")
        if self.host_memory is not None and self.non_stop:
            no_room = f"where {argument('host_memory')} has no room"
            raise UsageError(f"{argument('non_stop', True)} keeps batches beside an evaluation, {no_room}: leave out one")
        self.plan()

    __repr__ = show

    @property
    def is_sampled_evaluation(self) -> bool:
        """Whether val and test are computed over sampled neighbourhoods."""
        return self.evaluation == "sampled" or (self.evaluation == "auto" and self.host_memory is not None)

    def plan(self) -> Plan:
        """Return the recipe with the settings given."""
        return make_plan(self.recipe, **{name: getattr(self, name) for name in PLAN_SETTINGS})

    @property
    def num_layers(self) -> int:
        """Layers of the model that sample: one per fanout."""
        return len(self.num_neighbors)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as saved beside the results."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """Read what `as_dict` wrote; unknown keys are errors."""
        unknown = sorted(values.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise UsageError(f"unknown setting {unknown[0]!r} in the saved configuration")
        if "store" not in values:
            raise UsageError("the saved configuration names no store")
        return cls(**values)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{argument(name)} must be one of {', '.join(allowed)}; got {value!r}")
