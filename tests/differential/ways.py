"""The ways to sample, as a sampler has them, for `tests/differential/test_ways.py`: a way joins by an entry in WAYS."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock import Walks
from penstock.records import NODE
from penstock.sample import NeighborSampler
from penstock.sample.reference import sample_hops
from penstock.sample.times import Timestamps, with_times
from penstock.sample.weights import Weights, with_weights

WIDE = np.iinfo(np.int64)
OVER_PAPERS = [("paper", "by", "author"), ("author", "writes", "paper")]


def random_weights(random, num_edges):
    """Numbers of any size, equal ones, and zeros; sometimes nothing but zeros."""
    kind = random.integers(0, 5)
    values = [
        lambda: random.random(num_edges),
        lambda: 10.0 ** random.uniform(-300, 300, num_edges),
        lambda: random.integers(0, 3, num_edges).astype(np.float64),
        lambda: random.pareto(0.5, num_edges),
        lambda: np.zeros(num_edges),
    ][kind]()
    return np.where(random.random(num_edges) < random.choice([0, 0.3, 0.95]), 0.0, values)


def weighted_graph(random, graph):
    """The graph with weights for all edge types but one of several."""
    chosen = list(graph.adjacency)[: max(1, len(graph.adjacency) - 1)]
    return with_weights(graph, {e: Weights(random_weights(random, graph.adjacency[e].num_edges)) for e in chosen})


def random_times(random, count):
    """Few moments, many, those that 32 bits hold and others, negative ones; sometimes in order, as where edges come one by one."""
    low, high = [(0, 1), (-3, 3), (0, 1000), (-(1 << 31), 1 << 31), (WIDE.min, WIDE.max)][random.integers(0, 5)]
    values = random.integers(low, high, count)
    return np.sort(values) if random.random() < 0.3 else values


def random_moments(random, graph, count):
    """When seeds look: at the moments of edges, for the most part, and before and after all of them."""
    given = next(csc.times for csc in graph.adjacency.values() if csc.times is not None)
    return random.choice(np.concatenate([given, [WIDE.min, WIDE.max]]), count).astype(np.int64)


def timed_graph(random, graph):
    """Timestamps for nodes or for edges, of all types but one of several."""
    if random.random() < 0.5:
        chosen = list(graph.num_nodes)[: max(1, len(graph.num_nodes) - 1)]
        return with_times(graph, Timestamps({t: random_times(random, graph.num_nodes[t]) for t in chosen}))
    edge_types = list(graph.adjacency)[: max(1, len(graph.adjacency) - 1)]
    return with_times(graph, Timestamps({}, {e: random_times(random, graph.adjacency[e].num_edges) for e in edge_types}))


def random_walks(random, seed_type=NODE):
    """Walks of any kind; of papers or authors, along a path."""
    paths = {"paper": [OVER_PAPERS[::-1], [("paper", "cites", "paper")]], "author": [OVER_PAPERS]}.get(seed_type, [None])
    how = dict(num=int(random.integers(1, 8)), length=int(random.integers(1, 5)), end=float(random.choice([0, 0.3, 0.9])))
    return Walks(**how, path=paths[random.integers(0, len(paths))])


def assert_in_time(graph, sample, fanouts, moments):
    """No edge is later than the seed of its tree: by the graph's times, which are those of positions in the order of time."""
    for edge_type, csc in graph.adjacency.items():
        edges = sample.edges[edge_type]
        if csc.times is None or not edges.positions.size:
            continue
        place = np.arange(csc.num_edges) if csc.by_time is None else np.argsort(csc.by_time)
        trees = sample.trees[edge_type[2]][edges.edge_index[1]]
        assert (csc.times[place[edges.positions]] <= moments[trees]).all()


def assert_no_more(graph, sample, fanouts, moments):
    """Of one node type, no hop has more new nodes than its fanout."""
    if graph.is_homogeneous:
        for fanout, count in zip(fanouts, sample.num_nodes_per_hop[NODE][1:], strict=True):
            assert fanout < 0 or count <= fanout


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to sample.

    Attributes:
        options: random -> options of the sampler; of seeds of a type.
        fixed: options of the sampler for tests of one graph.
        over: random, graph -> the graph with what the way needs.
        moments: random, graph, count -> when seeds look, where that matters.
        fanouts: what those of a hop are chosen from; `many` for lists of thousands.
        modes: other options that go with it, each True or False.
        seed_types: of typed graphs.
        has_edges_of_its_own: in place of edges of the graph.
        has_induced: all edges among the nodes may be asked for.
        check: graph, sample, fanouts, moments -> what else holds for a sample of one node type, or of several.
    """

    options: Callable = lambda random, seed_type=NODE: {}
    fixed: dict = None
    over: Callable = lambda random, graph: graph
    moments: Callable | None = None
    fanouts: tuple = (-1, 1, 2, 5, 80)
    many: tuple = (5, 70, 3)
    modes: tuple = ("replace", "disjoint")
    seed_types: tuple = ("author", "paper", "venue")
    has_edges_of_its_own: bool = False
    has_induced: bool = True
    check: Callable = lambda graph, sample, fanouts, moments: None


WAYS = {
    "uniform": Way(),
    "by weight": Way(over=weighted_graph, fanouts=(-1, 1, 4, 70)),
    "by time": Way(
        options=lambda random, seed_type=NODE: {"reach": int(random.choice([-1, -1, 0, 2, 300, 1 << 33, WIDE.max]))},
        over=timed_graph,
        moments=random_moments,
        fanouts=(-1, 1, 4, 70),
        modes=("replace", "takes_last"),
        has_induced=False,
        check=assert_in_time,
    ),
    "shared": Way(
        options=lambda random, seed_type=NODE: {"shared_draws": int(random.choice([1, 3]))},
        fixed={"shared_draws": 3},
        modes=(),
    ),
    "walks": Way(
        options=lambda random, seed_type=NODE: {"walks": random_walks(random, seed_type)},
        fixed={"walks": Walks(num=50, length=2, end=0)},
        fanouts=(-1, 1, 2, 5),
        many=(5, 3),
        modes=("disjoint",),
        seed_types=("author", "paper"),
        has_edges_of_its_own=True,
        has_induced=False,
    ),
    "layers": Way(
        options=lambda random, seed_type=NODE: {"layer_wise": True},
        fixed={"layer_wise": True},
        fanouts=(-1, 1, 2, 7, 30, 200),
        many=(90, 70, 3),
        modes=(),
        check=assert_no_more,
    ),
}


def sample(sampler, seeds, workspace=None, *, epoch=0, batch=0, moments=None):
    """What a sampler makes of `seeds`, which are of one type."""
    times = None if moments is None else dict.fromkeys(seeds, moments)
    return sampler.sample(seeds, epoch=epoch, batch=batch, workspace=workspace or sampler.workspace(), times=times)


def both(graph, fanouts, seeds, *, seed=0, epoch=0, batch=0, moments=None, **options):
    """A sample, and what it is by definition."""
    sampler = NeighborSampler(graph, fanouts, seed=seed, **options)
    ours = sample(sampler, seeds, epoch=epoch, batch=batch, moments=moments)
    how = {"replace": sampler.replace, "disjoint": sampler.disjoint} | options
    times = None if moments is None else dict.fromkeys(seeds, moments)
    return ours, sample_hops(graph, sampler.fanouts, seeds, **how, seed=seed, epoch=epoch, batch=batch, times=times)
