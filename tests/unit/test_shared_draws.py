"""Proof that lists which share their draws are each sampled uniformly, given the hops before; and that they share: fewer nodes come.

`tests/unit/test_p_values.py` runs CASES.
"""

import numpy as np
from scipy import stats

from penstock import rng
from penstock.kernels.sample_shared import cpu
from penstock.records import CSC, EDGE, NODE, Graph
from penstock.sample import NeighborSampler
from tests.graphs import star, typed_graph
from tests.unit.p_values import SMALLEST_P, graph_of, p_of_slots, p_of_subsets, p_of_table, positions_of_hub, subsets_of


def choose(lists, fanout, *, seed=0, epoch=0, batch=0, hop=0, source=0):
    """Slots that each of int[count, degree] lists takes: int64[count, fanout]."""
    count, degree = lists.shape
    indptr, indices = np.arange(count + 1) * degree, np.ascontiguousarray(lists.reshape(-1), dtype=np.int64)
    ids, repeats, numbers = (np.empty(degree + cpu.VECTOR, dtype) for dtype in (np.uint64, np.uint32, np.uint64))
    scratch = np.zeros(count, np.uint64), ids, repeats, np.zeros(cpu.table_size(degree), np.int32), numbers
    out = np.zeros(count + 1, np.int64), np.empty(count * fanout, np.int64), np.empty(count * fanout, np.int64)
    place = rng.derive_key(seed, epoch, rng.SHARED), batch, hop, source
    assert cpu.sample_neighbors(indptr, indices, None, 1 << 40, np.arange(count), fanout, *place, *scratch, *out) == -1
    return out[1].reshape(count, fanout) - indptr[:-1, None]


def apart(count, degree, num_names=None):
    """Lists that have no neighbour in common; of `num_names` neighbours each, some of them there more than once."""
    names = np.arange(degree) % (num_names or degree)
    return np.arange(count)[:, None] * degree + np.random.default_rng(0).permutation(names)


def p_of_neighbors(degree, fanout, num_names, seed):
    """Single slots, or bands of a long list."""
    slots = choose(apart(max(2000, 100_000 // fanout) if degree < 2000 else 200_000 // degree, degree, num_names), fanout, seed=seed)
    return p_of_slots(slots, degree, fanout=fanout)


def p_of_choice(degree, fanout, num_names, seed):
    """Every subset of a small list is equally likely."""
    return p_of_subsets(choose(apart(400 * len(subsets_of(degree, fanout)), degree, num_names), fanout, seed=seed), degree)


def p_between(seed, what):
    """What a list takes at two places that differ in one part of the counter or key is independent."""
    lists, other = (
        apart(6400, 8),
        {"hops": {"hop": 1}, "types": {"source": 1}, "epochs": {"epoch": 1}, "batches": {"batch": 1}, "seeds": {}},
    )
    one = choose(lists, 1, seed=seed)[:, 0]
    two = one[1:] if what == "lists" else choose(lists, 1, seed=seed + (1 << 20 if what == "seeds" else 0), **other[what])[:, 0]
    return p_of_table(one[: two.size], two, 8)


def p_of_second_hop(seed):
    """A node's list is sampled uniformly whichever node it is that the first hop took: all lists are the same here."""
    sampler, pairs = NeighborSampler(graph_of([np.arange(10)] * 10), [1, 1], shared_draws=1, seed=seed), []
    workspace = sampler.workspace()
    for batch in range(10_000):
        sample = sampler.sample({NODE: np.array([3])}, epoch=0, batch=batch, workspace=workspace)
        positions = sample.edges[EDGE].positions
        pairs += [positions % 10] if positions.size == 2 else []  # the seed itself may come, and is not expanded again
    first, second = np.array(pairs).T
    return stats.chisquare(np.bincount((first - (first > 3)) * 10 + second, minlength=90)).pvalue


CASES = (
    [
        (f"slots of {d}, {k} taken, {n or d} neighbours", lambda s, d=d, k=k, n=n: p_of_neighbors(d, k, n, s))
        for d in (3, 10, 64, 1000, 10_007)
        for k in (2, 15, 100)
        for n in (None, d // 3)
        if k < d
    ]
    + [
        (f"all {k}-subsets of {d}, {n or d} neighbours", lambda s, d=d, k=k, n=n: p_of_choice(d, k, n, s))
        for d in (2, 3, 4, 5, 6)
        for k in range(1, d)
        for n in (None, 1, 2)
    ]
    + [
        (f"independent {what}", lambda s, what=what: p_between(s, what))
        for what in ("lists", "hops", "types", "epochs", "batches", "seeds")
    ]
    + [("second hop, given the first", p_of_second_hop)]
)


def wrong():
    """Lists of repeated neighbours, sampled by one number for each neighbour: the first of them comes more often than the others."""
    taken = [np.flatnonzero(numbers <= np.sort(numbers)[1])[:2] for numbers in np.random.default_rng(0).random((20_000, 2))[:, [0, 0, 1]]]
    return (p_of_slots(np.concatenate(taken), 3, fanout=2),)


def test_a_list_within_another_shares_its_numbers():
    """The neighbours that one list takes, another takes too where it has them and has room."""
    random = np.random.default_rng(0)
    for _ in range(50):
        long = random.permutation(1000)[:100]
        short = random.permutation(long)[:40]
        of_long, of_short = (set(each[choose(each[None], 10)[0]].tolist()) for each in (long, short))
        assert of_long & set(short.tolist()) <= of_short
    same = np.tile(random.permutation(1000)[:100], (50, 1))
    assert (choose(same, 10) == choose(same, 10)[0]).all()


def test_a_hub_through_the_sampler():
    """Over batches and epochs, through the public sampler."""
    positions = positions_of_hub(NeighborSampler(star(10_007), [15], shared_draws=1, seed=4), 2, 1000)
    assert p_of_slots(positions, 10_007) > SMALLEST_P


def test_a_batch_has_fewer_nodes():
    """On a power-law graph, with as many edges of the first hop; batches that share have fewer together."""
    random = np.random.default_rng(0)
    num_nodes = 20_000
    ends = (num_nodes * random.random((2, 20 * num_nodes)) ** 3).astype(np.int64)
    order = np.argsort(ends[1], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(ends[1], minlength=num_nodes))])
    graph = Graph({NODE: num_nodes}, {EDGE: CSC(indptr, ends[0][order].astype(np.int32))}, True)

    def sample(shared_draws, batch):
        sampler = NeighborSampler(graph, [10, 5], shared_draws=shared_draws, seed=1)
        seeds = np.random.default_rng(batch).permutation(num_nodes)[:500]
        return sampler.sample({NODE: seeds}, epoch=0, batch=batch, workspace=sampler.workspace())

    samples = {k: [sample(k, batch) for batch in range(8)] for k in (0, 1, 8)}
    for one, alone in zip(samples[1], samples[0], strict=True):
        assert one.edges[EDGE].num_per_hop[0] == alone.edges[EDGE].num_per_hop[0]
        assert one.nodes[NODE].size < 0.9 * alone.nodes[NODE].size
    together = {k: np.unique(np.concatenate([each.nodes[NODE] for each in many])).size for k, many in samples.items()}
    assert together[8] < 0.95 * together[1]
    assert together[8] < 0.95 * together[0]


def test_types_of_sources_share_over_edge_types():
    """The same lists under two relations take the same neighbours; under another source type, others."""
    graph = typed_graph(np.random.default_rng(3))
    cites = graph.adjacency["paper", "cites", "paper"]
    adjacency = {("paper", "cites", "paper"): cites, ("paper", "likes", "paper"): cites, ("author", "reads", "paper"): cites}
    sampler = NeighborSampler(Graph({"paper": 900, "author": 900}, adjacency, False), [2], shared_draws=1, seed=1)
    edges = sampler.sample({"paper": np.arange(900)}, epoch=0, batch=0, workspace=sampler.workspace()).edges
    cited, liked, read = (edges[e].positions.tobytes() for e in adjacency)
    assert cited == liked
    assert cited != read
