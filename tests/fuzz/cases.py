"""Random cases for a loader: a graph, seeds in any form, options; and plans, threads and ranks, which must change nothing.

In: a `Dice`, and a folder for a store. Out: a `Case`, which knows its graph as plain tensors, so that batches can be checked without
Penstock. Invariant: everything follows from the seed of the dice.
"""

import random
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch_geometric.data import HeteroData

from penstock import NeighborLoader, Plan, Walks, ingest
from penstock.cache.choose import LIST_POLICIES, POLICIES, STATIC
from penstock.feed import Padding
from penstock.order import ORDERS, LocalOrder, RandomOrder
from penstock.plan.recipes import RECIPES
from tests.pyg import Data

NUM_EPOCHS = 3
HOMOGENEOUS = ("node", "to", "node")
SHAPES = [(1,), (3,), (2, 3), (33,), (128,), ()]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.bool, torch.int64, torch.int32, torch.float64]


class Dice(random.Random):
    """Random choices, and random tensors."""

    def __init__(self, seed):
        super().__init__(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def chance(self, probability):
        return self.random() < probability

    def below(self, most, num):
        """int64[num], each below `most`; evenly, or mostly small ones."""
        return (torch.rand(num, generator=self.generator) ** self.choice([1, 4]) * most).long().clamp(max=most - 1)

    def some_of(self, num):
        """Some of `num` ids, one at least, in any order."""
        return torch.randperm(num, generator=self.generator)[: self.randrange(1, num + 1)]

    def moments(self, num, first=-30):
        """int64[num], some of them the same."""
        return torch.randint(first, 30, (num,), generator=self.generator)

    def rows(self, count, shape, dtype):
        """A tensor [count, *shape]; its rows may lie apart."""
        most = 2 if dtype == torch.bool else 1000 if dtype.is_floating_point else min(torch.iinfo(dtype).max, 1_000_000)
        values = torch.randint(0, most, (count, *shape), generator=self.generator).to(dtype)
        values = values / 7 if dtype.is_floating_point else values
        return values.repeat_interleave(2, dim=0)[::2] if self.chance(0.2) else values


@dataclass(frozen=True, kw_only=True)
class GraphCase:
    """A graph, in PyG's form and as plain tensors by node and edge type; those of `Data` are "node" and ("node", "to", "node")."""

    data: Data | HeteroData
    num_nodes: dict[str, int]
    edge_index: dict[tuple, torch.Tensor]
    rows: dict[object, dict[str, torch.Tensor]]
    is_for_store: bool

    @property
    def time_name(self):
        """What says when nodes or edges came, if anything does."""
        return next((name for name in ("time", "edge_time") if any(name in of_type for of_type in self.rows.values())), None)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A loader, and what is known of its batches.

    Attributes:
        graph: what is loaded.
        source: as the loader gets it: the data, a store, or the path of one.
        edge_numbers: edge type -> the edge of the graph for each `e_id`, where it is not the same.
        seed_type, seeds, input_ids: the set of seeds, and what a batch says of each: no two are the same.
        fanouts: edge type -> one per hop.
        options: of the loader.
        moments: when each seed looks at the graph, where samples are by time.
        given: epoch -> batch -> positions in the set of seeds; None: every seed comes once, in an order of the loader's.
    """

    graph: GraphCase
    source: object
    edge_numbers: dict[tuple, torch.Tensor]
    seed_type: str
    seeds: torch.Tensor
    input_ids: torch.Tensor
    fanouts: dict[tuple, list[int]]
    options: dict
    given: list | None
    moments: torch.Tensor | None

    def __str__(self):
        return f"{self.graph.data}\nfrom {self.source if self.graph.is_for_store else 'memory'}\n{self.options}"

    def open(self, **changes):
        """A loader, as in a process that has just begun: a sampler is told of the epoch when its pass begins."""
        self.tell_of(0)
        return NeighborLoader(self.source, **{**self.options, **changes})

    def begin(self, loader, epoch):
        """Begin the pass of an epoch over a loader that stands there."""
        self.tell_of(epoch)
        return iter(loader)

    def tell_of(self, epoch):
        """Let a sampler know which epoch is about to be read."""
        sampler = self.options.get("sampler", self.options.get("batch_sampler"))
        if isinstance(sampler, ToldSampler):
            sampler.set_epoch(epoch)

    def check(self, loader, batch, positions, place):
        """A batch of a loader is what it must be, and what PyG's own loader makes of the same sample."""
        from tests.fuzz.oracle import check_against_pyg, check_batch, check_nodes, check_walked  # which knows of cases

        if self.options["walks"] is not None:
            check_nodes(self, batch, positions)
            check_walked(self, loader.engine.maker, batch, positions, place)
            return
        drawn_only, draw = self.drawn_only
        drawn = batch if draw is None else draw(positions, **place)
        check_batch(self, batch, positions)
        check_batch(drawn_only, drawn, positions)
        check_against_pyg(self, batch, drawn, positions)

    @cached_property
    def drawn_only(self):
        """The same with the edges that are drawn and no others, and a loader of it; None: it is so itself."""
        if self.options["subgraph_type"] != "bidirectional":
            return self, None
        only = replace(self, options={**self.options, "subgraph_type": "directional", "transform": None})
        return only, only.open()

    def beside(self, loader):
        """A loader beside one, and one of its own, over a few of the seeds."""
        nodes = self.seeds[:20] if self.seed_type == "node" else (self.seed_type, self.seeds[:20])
        in_order = dict.fromkeys(("order", "sampler", "batch_sampler", "input_id")) | {"shuffle": False, "drop_last": False}
        times = None if (given := self.options["input_time"]) is None else given[:20]
        return loader.beside(nodes, times), self.open(**in_order, input_nodes=nodes, input_time=times)

    @cached_property
    def position_of(self):
        """Position in the set of seeds, by `input_id`."""
        return {each: position for position, each in enumerate(self.input_ids.tolist())}

    @property
    def is_disjoint(self):
        """Whether each seed has a tree of its own."""
        return self.options["disjoint"] or self.moments is not None

    def times_of(self, edge_type):
        """int64[num_edges]: when they came; None where they were there always."""
        name = self.options["time_attr"]
        if name is None:
            return None
        if name in self.graph.rows[edge_type[0]]:
            return self.graph.rows[edge_type[0]][name][self.graph.edge_index[edge_type][0]].long()
        times = self.graph.rows[edge_type].get(name)
        return None if times is None else times.long()

    def can_be_drawn(self, edge_type):
        """bool[num_edges]: all but those of weight 0."""
        weights = self.graph.rows[edge_type].get(self.options["weight_attr"])
        return torch.ones(self.graph.edge_index[edge_type].shape[1], dtype=torch.bool) if weights is None else weights > 0


class ToldSampler(list):
    """A sampler that gives something else in each epoch, and another number of it; it is told which (`set_epoch`)."""

    def __init__(self, epochs):
        super().__init__(epochs[0])
        self.epochs = epochs

    def set_epoch(self, epoch):
        self[:] = self.epochs[epoch]


def of_type(batch, key):
    """Where data or a batch has what belongs to nodes or edges of a type."""
    return batch[key] if isinstance(batch, HeteroData) else batch


def mark(batch):
    """A transform."""
    batch.stores[0].mark = 7
    return batch


def random_case(dice, folder):
    graph = random_graph(dice, is_for_store=dice.chance(0.5))
    source, edge_numbers = as_store(dice, graph, folder) if graph.is_for_store else (graph.data, {})
    seed_type = dice.choice([*graph.num_nodes, *(target for _, _, target in graph.edge_index)])
    node_store, count = of_type(graph.data, seed_type), graph.num_nodes[seed_type]
    nodes, seeds, input_ids = random_seeds(dice, count, node_store.get("train_mask"))
    if not graph.is_for_store and dice.chance(0.1):
        node_store.input_id = torch.arange(count) + 7  # PyG's name: it sets this itself
    if isinstance(graph.data, HeteroData):
        nodes = seed_type if nodes is None else dice.choice([list, tuple])((seed_type, nodes))
    options = {"input_nodes": nodes, "seed": dice.randrange(1 << 64), "replace": dice.chance(0.25)}
    if dice.chance(0.2):
        options["input_id"] = input_ids = torch.randperm(seeds.numel(), generator=dice.generator) + 1000
    options["subgraph_type"] = dice.choice(["directional"] * 4 + ["induced", "bidirectional"])
    options["disjoint"] = dice.chance(0.25)
    are_weighted = any("edge_weight" in graph.rows[e] for e in graph.edge_index)
    options["weight_attr"] = "edge_weight" if are_weighted and dice.chance(0.7) else None
    options["time_attr"], options["temporal_strategy"], options["input_time"], moments = None, dice.choice(["uniform", "last"]), None, None
    options["temporal_rule"], options["time_window"] = dice.choice(["<=", "<"]), None
    if options["subgraph_type"] != "induced" and options["weight_attr"] is None and (name := graph.time_name) and dice.chance(0.8):
        options["time_attr"], of_type_there = name, graph.rows[seed_type].get(name)
        if of_type_there is None or dice.chance(0.5):
            options["input_time"] = moments = dice.choice([dice.moments(seeds.numel()), dice.moments(seeds.numel()).int()])
        options["time_window"] = dice.choice([None, 1, 10, 40])
        moments = of_type_there[seeds].long() if moments is None else moments.long()
    is_plain = not options["replace"] and not options["disjoint"] and options["weight_attr"] is None and options["time_attr"] is None
    options["shared_draws"] = is_plain and dice.chance(0.5) and dice.choice([True, 2, 3, 100])
    options["layer_wise"] = is_plain and not options["shared_draws"] and dice.chance(0.5)
    can_be_walked = not any(options[name] for name in ("replace", "weight_attr", "time_attr", "shared_draws", "layer_wise"))
    can_be_walked &= options["subgraph_type"] == "directional"
    options["walks"] = random_walks(dice, list(graph.edge_index), seed_type) if can_be_walked and dice.chance(0.5) else None
    options["transform"] = mark if dice.chance(0.2) else None
    of_edges = list(graph.edge_index) if options["walks"] is None else [HOMOGENEOUS]  # those that walks make
    options["num_neighbors"], fanouts = random_fanouts(dice, of_edges)
    if options["walks"] is not None:
        options["num_neighbors"] = fanouts[HOMOGENEOUS]
    sequence, given = random_sequence(dice, seeds.numel(), options["seed"])
    return Case(
        graph=graph, source=source, edge_numbers=edge_numbers, seed_type=seed_type, seeds=seeds, input_ids=input_ids, fanouts=fanouts,
        options={**options, **sequence}, given=given, moments=moments,
    )  # fmt: skip


def random_graph(dice, *, is_for_store):
    is_homogeneous, dtypes = dice.chance(0.5), DTYPES[:-1] if is_for_store else DTYPES  # a store has float32 for float64
    data, rows, edge_index = Data() if is_homogeneous else HeteroData(), {}, {}
    types = ["node"] if is_homogeneous else ["a", "b", "c"][: dice.randrange(1, 4)]
    num_nodes = {t: dice.choice([1, 12, 40, 90, 150]) for t in types}
    timed, first = dice.choice(["nodes", "edges", None, None]), 0 if is_for_store else -30  # a store has no negative times
    edge_types = {(dice.choice(types), dice.choice(["r", "rev_r", "to"]), dice.choice(types)) for _ in range(dice.randrange(1, 6))}
    for edge_type in [HOMOGENEOUS] if is_homogeneous else sorted(edge_types):
        ends = random_edges(dice, num_nodes[edge_type[0]], num_nodes[edge_type[2]])
        edge_index[edge_type], count = ends, ends.shape[1]
        rows[edge_type] = random_rows(dice, count, {"edge_attr": SHAPES[:3], "edge_field": SHAPES[:3]}, dtypes)
        if dice.chance(0.4):
            rows[edge_type]["edge_weight"] = random_weights(dice, count)
        if timed == "edges" and dice.chance(0.8):
            moments = dice.moments(count, first)
            rows[edge_type]["edge_time"] = dice.choice([moments, moments.int(), moments * (1 << 40)])
        of_type(data, edge_type).update({"edge_index": ends.int() if dice.chance(0.2) else ends, **rows[edge_type]})
    for node_type, count in num_nodes.items():
        store = of_type(data, node_type)
        rows[node_type] = random_rows(dice, count, {"x": SHAPES[:-1], "field": SHAPES, "other": SHAPES}, dtypes)
        if timed == "nodes" and dice.chance(0.8):
            rows[node_type]["time"] = dice.moments(count, first)
        rows[node_type]["y"] = dice.below(min(count, 5), count)
        store.update({"num_nodes": count, **rows[node_type]})
        if dice.chance(0.6):
            store.train_mask = torch.isin(torch.arange(count), dice.some_of(count))
        if not is_for_store and dice.chance(0.2):
            store.title = f"of {node_type}"  # of no single node
    if not is_for_store and dice.chance(0.3):
        data.scale = torch.tensor(0.5)  # of the graph
    return GraphCase(data=data, num_nodes=num_nodes, edge_index=edge_index, rows=rows, is_for_store=is_for_store)


def random_edges(dice, num_src, num_dst):
    """int64[2, num_edges], among them pairs that come twice, and loops; they may be sorted."""
    num_edges = num_dst * dice.choice([0, 1, 3, 10, 10])
    ends = torch.stack([dice.below(num_src, num_edges), dice.below(num_dst, num_edges)])
    if dice.chance(0.5):
        ends[:, : num_edges // 4] = ends[:, num_edges - num_edges // 4 :]
    if num_src == num_dst and dice.chance(0.5):
        ends[0, : num_edges // 6] = ends[1, : num_edges // 6]
    return ends[:, ends[1].argsort(stable=True)] if dice.chance(0.3) else ends


def random_rows(dice, count, shapes, dtypes):
    """name -> rows, for some of the names in `shapes`."""
    chosen = {name: of_row for name, of_row in shapes.items() if dice.chance(0.6)}
    return {name: dice.rows(count, dice.choice(of_row), dice.choice(dtypes)) for name, of_row in chosen.items()}


def random_weights(dice, count):
    weights = 4 * torch.rand(count, generator=dice.generator) ** dice.choice([1, 8])
    weights[torch.rand(count, generator=dice.generator) < dice.choice([0, 0.4, 0.4])] = 0
    return weights.to(dice.choice([torch.float32, torch.float16, torch.bfloat16, torch.int64]))


def as_store(dice, graph, folder):
    """(a store or its path, edge type -> the edge of the graph for each `e_id`, where it is not the same)."""
    store = ingest(graph.data, folder, edge_ids=dice.choice([None, True, False]), memory="4GiB")
    by_position = [e for e in store.edge_types if store.csc(e).edge_ids is None]
    return dice.choice([store, folder]), {e: graph.edge_index[e][1].argsort(stable=True) for e in by_position}


def random_seeds(dice, num_nodes, train_mask):
    """(as a user gives them, their ids, what a batch says of each)."""
    ids, form = dice.some_of(num_nodes), dice.choice(["all", "ids", "int32", "list", "array", "repeated", "mask", "bools", "part", "part"])
    if form in ("mask", "bools"):
        mask = torch.isin(torch.arange(num_nodes), ids)
        return mask if form == "mask" else mask.tolist(), ids.sort().values, ids.sort().values
    if form == "all":
        ids = torch.arange(num_nodes)
    if form == "repeated":
        ids = dice.below(num_nodes, dice.randrange(1, 2 * num_nodes + 1))
    if form == "part" and train_mask is not None:
        ids = train_mask.nonzero().view(-1)
    forms = {"all": None, "int32": ids.int(), "list": ids.tolist(), "array": ids.numpy(), "part": ids if train_mask is None else "train"}
    return forms.get(form, ids), ids, torch.arange(ids.numel())


def random_fanouts(dice, edge_types):
    """(as a user gives them, by edge type); no hop takes nothing at all."""
    num_hops = dice.choice([1, 2, 2, 3])
    by_type = {e: [dice.choice([-1, 0, 1, 2, 3, 5, 40]) for _ in range(num_hops)] for e in edge_types}
    first = by_type[edge_types[0]] = [fanout or 4 for fanout in by_type[edge_types[0]]]
    return (first, dict.fromkeys(edge_types, first)) if dice.chance(0.5) else (by_type, by_type)


def random_walks(dice, edge_types, node_type):
    """Walks from a type of nodes back to it, over one edge type or two; None where no path leads back."""
    loops = [[one] for one in edge_types if one[0] == one[2] == node_type]
    paths = loops + [
        [one, other] for one in edge_types for other in edge_types if (one[2], other[2], other[0]) == (node_type, one[0], node_type)
    ]
    if not paths:
        return None
    path = None if edge_types == [HOMOGENEOUS] and dice.chance(0.5) else dice.choice(paths)
    return Walks(num=dice.choice([1, 2, 5, 20]), length=dice.choice([1, 2, 4]), end=dice.choice([0, 0.5, 0.9]), path=path)


def random_sequence(dice, num_seeds, seed):
    """(options that say which seeds come when, the positions of each batch of each epoch: see `Case.given`)."""
    batch_size = -(-num_seeds // dice.randrange(1, 11))
    options = {"batch_size": batch_size, "drop_last": dice.chance(0.3)}
    kind = dice.choice(["in order", "shuffled", "shuffled", "by name", "own order", "sampler", "batch_sampler"])
    if kind == "shuffled":
        return {**options, "shuffle": True}, None
    if kind == "by name":
        return {**options, "order": dice.choice(ORDERS)}, None
    if kind == "own order":
        first, other = dice.randrange(num_seeds + 1), seed ^ dice.randrange(2)
        order = dice.choice([LocalOrder([first, num_seeds - first], other), RandomOrder(num_seeds, other)])
        options["drop_last"] &= order.num_batches(batch_size, True) > 0
        return {**options, "order": order}, None
    is_told = kind != "in order" and dice.chance(0.5)
    if kind == "batch_sampler":
        epochs = [[dice.below(num_seeds, dice.randrange(1, 6)).tolist() for _ in range(dice.randrange(1, 10))] for _ in range(NUM_EPOCHS)]
        return {kind: ToldSampler(epochs) if is_told else epochs[0]}, epochs if is_told else epochs[:1] * NUM_EPOCHS
    epochs = [torch.arange(num_seeds)] * NUM_EPOCHS
    if kind == "sampler":
        epochs = [dice.below(num_seeds, dice.randrange(batch_size, num_seeds + 3 * batch_size)) for _ in range(NUM_EPOCHS)]
        as_given = dice.choice([torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.int])
        options[kind] = ToldSampler([epoch.tolist() for epoch in epochs]) if is_told else as_given(epochs[0])
        epochs = epochs if is_told else epochs[:1] * NUM_EPOCHS
    least = batch_size if options["drop_last"] else 1
    return options, [[part.tolist() for part in epoch.split(batch_size) if part.numel() >= least] for epoch in epochs]


def random_threads(dice):
    num_workers = dice.choice([0, 0, 1, 2, 3])
    return {"num_workers": num_workers, "prefetch_factor": dice.choice([None, 1, 5]), "filter_per_worker": dice.choice([None, True, False])}


def random_padding(dice, case):
    """What batches are padded to: nothing, measured sizes, or some that few of them have room in."""
    options = case.options
    if dice.chance(0.5) or options["subgraph_type"] != "directional" or options["transform"] is not None or options["walks"] is not None:
        return False
    if dice.chance(0.5) and {"sampler", "batch_sampler"}.isdisjoint(options):
        return True
    num_hops = len(next(iter(case.fanouts.values())))
    nodes = {t: tuple(dice.randrange(1, 40) for _ in range(num_hops + 1)) for t in case.graph.num_nodes}
    return Padding(nodes, {e: tuple(dice.randrange(1, 40) for _ in range(num_hops)) for e in case.graph.edge_index})


def random_plan(dice, case):
    """A plan, or the name of one; UsageError where the settings do not go together."""
    is_store = case.graph.is_for_store
    if dice.chance(0.15):
        not_here = {"bgl"} if case.options.get("shuffle") else set()  # it has an order of its own
        return dice.choice([name for name in RECIPES if name not in (not_here if is_store else not_here | {"ginex"})])
    places = ["given", "memory", "disk"] if is_store else ["given", "memory"]
    sizes = ["1%", "10%", "35%", "100%", f"{dice.randrange(1, 40)}KiB", "1MiB"]
    settings = {
        "features": (0.7, places), "topology": (0.7, places),
        "policy": (0.75, [*POLICIES, "belady", "belady"]), "cache": (1, [*sizes, f"{dice.randrange(1, 80)} rows"]),
        "neighbor_policy": (0.5, list(LIST_POLICIES)), "neighbor_cache": (1, [*sizes, "shared", f"{dice.randrange(1, 80)} lists"]),
        "window": (0.8, [1, 2, 3, 5]), "hold": (0.5, ["ids"]), "neighbor_layout": (0.5, ["prefix"]), "huge_pages": (0.3, [False]),
        "presample_epochs": (0.2, [2, 3]), "presample_batches": (0.2, [1, 50]), "map_threads": (0.1 * is_store, [1, 3, 8]),
        "slow": (0.15, ["1GB/s,1us", "10GB/s,1us,4 rows", "1GB/s,1us,4KiB blocks", "5GB/s,1us,depth 2"]),
        "slow_topology": (0.1, ["same", "1GB/s,1us,4KiB blocks"]),
    }  # fmt: skip
    plan = {name: dice.choice(values) for name, (likely, values) in settings.items() if dice.chance(likely)}
    for policy, size in (("policy", "cache"), ("neighbor_policy", "neighbor_cache")):
        if policy not in plan:
            del plan[size]
    if plan.get("features") == "disk" and plan.get("policy") in STATIC and dice.chance(0.5):
        plan["spool"] = dice.choice(["64KiB", "1MiB", "20MiB"])
    return Plan(**plan) if dice.chance(0.95) else Plan(host_memory="100GiB")
