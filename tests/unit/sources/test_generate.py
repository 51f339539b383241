"""What the generators promise about their graphs."""

import numpy as np
import pytest
from scipy import stats
from tests.tables import edges_of, read_all

import penstock
from penstock.errors import InputError, PenstockError, UsageError
from penstock.kernels.build_csc import reference as build
from penstock.records import CSC, NODE
from penstock.sources import open_source
from penstock.sources.generate import generate
from penstock.sources.generate.communities import center_norm
from penstock.sources.generate.kronecker import small_graph
from penstock.sources.generate.rank_law import power_of, raise_to


def degrees(ids, num_nodes):
    return np.bincount(ids, minlength=num_nodes)


def csc_of(edges, num_nodes):
    indptr, indices, _ = build.build_csc(edges[0], edges[1], num_nodes)
    return CSC(indptr, indices)


# Zipf


@pytest.mark.parametrize("skew", [0.0, 0.33, 0.6, 0.75])
def test_zipf_degrees_follow_the_rank_law(skew):
    num_nodes, num_edges = 100_000, 4_000_000
    edges = edges_of(generate("zipf", num_nodes=num_nodes, num_edges=num_edges, skew=skew))
    into, out = (np.sort(degrees(end, num_nodes))[::-1] for end in edges)
    exact = 1 - 16 / power_of(skew)
    ranks = np.unique(np.geomspace(30, 20_000, 30).astype(int))
    for counts in (into, out):
        slope = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1)[0]
        assert slope == pytest.approx(-exact, abs=0.02 if skew else 0.06)
    assert abs(exact - skew) < 0.02


def test_zipf_hubs_are_hubs_both_ways_and_anywhere():
    edges = edges_of(generate("zipf", num_nodes=10_000, num_edges=200_000))
    into, out = degrees(edges[1], 10_000), degrees(edges[0], 10_000)
    assert set(np.argsort(into)[-5:]) == set(np.argsort(out)[-5:])
    assert abs(stats.spearmanr(np.arange(10_000), into).statistic) < 0.03
    ends = np.zeros((10, 10))
    np.add.at(ends, (edges[0] // 1000, edges[1] // 1000), 1)
    assert stats.chi2_contingency(ends).pvalue > 1e-3


def test_uniform_ends_are_uniform():
    edges = edges_of(generate("zipf", num_nodes=100, num_edges=500_000, skew=0))
    for end in edges:
        assert stats.chisquare(degrees(end, 100)).pvalue > 1e-3


@pytest.mark.parametrize("power", [16, 21, 24, 40, 320])
def test_powers_by_square_roots(power):
    values = np.linspace(0, 1, 1000, endpoint=False)
    np.testing.assert_allclose(raise_to(values, power), values ** (power / 16), rtol=1e-13)


# R-MAT


def quadrants_at(edges, bit):
    return np.bincount(2 * (edges[0] >> bit & 1) + (edges[1] >> bit & 1), minlength=4)


def test_rmat_quadrants_at_every_level():
    quadrants = np.array([0.45, 0.25, 0.2, 0.1])
    edges = edges_of(generate("rmat", scale=11, num_edges=400_000, a=0.45, b=0.25, c=0.2, permute=False))
    pvalues = [stats.chisquare(quadrants_at(edges, bit), quadrants * 400_000).pvalue for bit in range(11)]
    assert min(pvalues) > 1e-3
    joint = np.zeros((4, 4))
    np.add.at(joint, (2 * (edges[0] >> 3 & 1) + (edges[1] >> 3 & 1), 2 * (edges[0] >> 4 & 1) + (edges[1] >> 4 & 1)), 1)
    assert stats.chi2_contingency(joint).pvalue > 1e-3


def test_rmat_with_any_number_of_nodes_is_the_larger_one_without_the_rest():
    small = edges_of(generate("rmat", num_nodes=40, num_edges=200_000, permute=False))
    large = edges_of(generate("rmat", num_nodes=64, num_edges=600_000, permute=False, seed=1))
    large = large[:, (large < 40).all(0)]
    counts = [np.bincount(edges[0] * 40 + edges[1], minlength=1600) for edges in (small, large)]
    often = counts[1] > 20
    assert stats.chi2_contingency(np.stack(counts)[:, often]).pvalue > 1e-3
    assert small.max() == 39


def test_rmat_permuted_is_the_same_graph_under_other_ids():
    plain, permuted = (edges_of(generate("rmat", num_nodes=3000, num_edges=20_000, permute=permute)) for permute in (False, True))
    new_id = np.full(3000, -1)
    new_id[plain[0]], new_id[plain[1]] = permuted[0], permuted[1]
    np.testing.assert_array_equal(new_id[plain], permuted)
    used = new_id[new_id >= 0]
    assert np.unique(used).size == used.size
    assert abs(stats.spearmanr(np.arange(3000), degrees(permuted[1], 3000)).statistic) < 0.06


# Planted communities


@pytest.mark.parametrize("kind", ["rmat", "zipf", "communities"])
def test_numbers_of_numpy(tmp_path, kind):
    options = {"num_nodes": 50, "num_edges": 99, "seed": 3, "feature_dim": 2}
    plain = penstock.generate(kind, tmp_path / "plain", **options)
    made = penstock.generate(kind, tmp_path / "numpy", **{name: np.int64(value) for name, value in options.items()})
    assert made.digest == plain.digest


def test_communities_are_there():
    source = generate("communities", num_nodes=5000, num_edges=100_000, num_classes=5, num_communities=20, mixing=0.2)
    edges, y = edges_of(source), read_all(source.nodes[NODE].table, names=("y",))["y"]
    inside = np.mean(y[edges[0]] == y[edges[1]])
    assert inside == pytest.approx(0.8 + 0.2 / 5, abs=0.01)
    assert np.ptp(np.bincount(y)) <= 4
    assert abs(stats.spearmanr(np.arange(5000), y).statistic) < 0.05


def test_features_lie_around_their_centres():
    source = generate("communities", num_nodes=20_000, num_classes=4, feature_dim=32, feature_accuracy=0.6)
    columns = read_all(source.nodes[NODE].table)
    centers = np.stack([columns["x"][columns["y"] == label].mean(0) for label in range(4)])
    assert np.linalg.norm(centers, axis=1) == pytest.approx(center_norm(0.6, 4), rel=0.05)
    noise = columns["x"] - centers[columns["y"]]
    assert noise.std() == pytest.approx(1, abs=0.01)
    assert stats.kurtosis(noise.ravel()) == pytest.approx(-0.3, abs=0.03)
    assert np.abs(np.corrcoef(noise.T) - np.eye(32)).max() < 0.04
    guess = (columns["x"] @ centers.T).argmax(1)
    assert np.mean(guess == columns["y"]) == pytest.approx(0.6, abs=0.03)


# Kronecker expansion


def symmetric_base(num_nodes):
    edges = edges_of(generate("zipf", num_nodes=num_nodes, num_edges=16 * num_nodes, skew=0.6, seed=3))
    edges = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    return csc_of(edges, num_nodes), edges


def ccdf_distance(base_degrees, expanded_degrees):
    """Largest distance of the two shapes in log10 P(degree >= d): degrees relative to their mean, log-spaced down to the top 20 nodes."""
    base, expanded = base_degrees / base_degrees.mean(), expanded_degrees / expanded_degrees.mean()
    places = np.geomspace(1, np.quantile(base, 1 - 20 / base.size), 12)
    tails = [np.array([np.mean(each >= place) for place in places]) for each in (base, expanded)]
    return float(np.abs(np.log10(tails[0]) - np.log10(tails[1])).max())


@pytest.mark.parametrize(("num_copies", "edge_factor", "size"), [(4, None, 4000), (5, 9.56, 4000), (16, 60, 1000)])
def test_kronecker_keeps_degrees_and_symmetry(num_copies, edge_factor, size):
    base, edges = symmetric_base(size)
    expanded = edges_of(generate("kronecker", base=base, num_copies=num_copies, edge_factor=edge_factor))
    num_nodes = size * num_copies
    assert expanded.shape[1] == pytest.approx((edge_factor or 2.2 * num_copies) * edges.shape[1], rel=0.02)
    assert expanded.max() < num_nodes
    assert ccdf_distance(degrees(edges[1], size), degrees(expanded[1], num_nodes)) < 0.05
    pairs = np.unique(expanded[0] * num_nodes + expanded[1])
    assert pairs.size == expanded.shape[1]
    np.testing.assert_array_equal(pairs, np.unique(expanded[1] * num_nodes + expanded[0]))


def test_kronecker_holds_the_whole_graph_in_every_copy():
    base, edges = symmetric_base(500)
    expanded = edges_of(generate("kronecker", base=base, num_copies=4))
    np.testing.assert_array_equal(np.unique(expanded % 500, axis=1), edges)
    for copy in range(4):
        inside = expanded[:, (expanded // 500 == copy).all(0)] - copy * 500
        np.testing.assert_array_equal(np.unique(inside, axis=1), edges)
    blocks = np.zeros((4, 4))
    np.add.at(blocks, (expanded[0] // 500, expanded[1] // 500), 1)
    np.testing.assert_allclose(blocks / edges.shape[1], small_graph(4, 8.8) / 2**32, atol=0.03)


def test_kronecker_of_a_real_graph(real_graphs):
    edges = edges_of(open_source(real_graphs / "soc_slashdot0902.npz"))
    base = csc_of(edges, 82_168)
    expanded = edges_of(generate("kronecker", base=base, num_copies=4))
    assert ccdf_distance(degrees(edges[1], 82_168), degrees(expanded[1], 4 * 82_168)) < 0.05


@pytest.mark.parametrize(("num_copies", "edge_factor"), [(1, 1), (2, 2), (2, 4), (3, 5.0), (90, 327), (64, 64)])
def test_small_graph(num_copies, edge_factor):
    thresholds = small_graph(num_copies, edge_factor)
    assert (thresholds == thresholds.T).all()
    assert (np.diag(thresholds) == 2**32).all()
    assert thresholds.sum() / 2**32 == pytest.approx(edge_factor, rel=1e-6)
    assert thresholds.astype(float).sum(0).std() / thresholds.astype(float).sum(0).mean() < 0.15


def test_kronecker_fields_are_those_of_the_base_nodes():
    base, _ = symmetric_base(50)
    x, y = np.random.default_rng(0).random((50, 3)).astype(np.float16), np.arange(50)
    columns = read_all(generate("kronecker", base=base, x=x, y=y).nodes[NODE].table, 7)
    np.testing.assert_array_equal(columns["x"], np.tile(x, (4, 1)))
    np.testing.assert_array_equal(columns["y"], np.tile(y, 4))
    noisy = read_all(generate("kronecker", base=base, x=x, feature_noise=0.5).nodes[NODE].table)["x"]
    assert noisy.dtype == np.float32
    assert (noisy - np.tile(x, (4, 1))).std() == pytest.approx(0.5, rel=0.1)


# All of them


def test_splits_are_shares_and_disjoint():
    split = generate("zipf", num_nodes=100_000, train=0.1, val=0.05, test=0.5).splits[NODE]["default"]
    assert {part: len(ids) / 100_000 for part, ids in split.items()} == pytest.approx({"train": 0.1, "val": 0.05, "test": 0.5}, abs=0.005)
    together = np.concatenate(list(split.values()))
    assert np.unique(together).size == together.size
    assert all((np.diff(ids) > 0).all() for ids in split.values())


def test_everything_falls_into_some_part_if_the_shares_are_all():
    split = generate("communities", num_nodes=70_000).splits[NODE]["default"]
    assert sum(len(ids) for ids in split.values()) == 70_000


def test_random_features_and_labels():
    source = generate("rmat", num_nodes=10_000, feature_dim=16, num_classes=7)
    columns = read_all(source.nodes[NODE].table)
    assert columns["x"].std() == pytest.approx(1, abs=0.01)
    assert stats.chisquare(np.bincount(columns["y"], minlength=7)).pvalue > 1e-3
    assert source.nodes[NODE].num_classes == 7
    assert generate("rmat", num_nodes=10).nodes[NODE].table is None


def test_changing_the_seed_changes_everything_and_changing_one_part_nothing_else():
    options = {"num_nodes": 500, "feature_dim": 4, "num_classes": 3, "train": 0.5}
    one, wider, other = (generate("zipf", **options | more) for more in ({}, {"num_classes": 5, "val": 0.2}, {"seed": 1}))
    np.testing.assert_array_equal(edges_of(one), edges_of(wider))
    np.testing.assert_array_equal(read_all(one.nodes[NODE].table)["x"], read_all(wider.nodes[NODE].table)["x"])
    np.testing.assert_array_equal(one.splits[NODE]["default"]["train"], wider.splits[NODE]["default"]["train"])
    assert not np.array_equal(edges_of(one), edges_of(other))
    assert not np.array_equal(read_all(one.nodes[NODE].table)["x"], read_all(other.nodes[NODE].table)["x"])


def test_provenance_repeats_the_options():
    provenance = generate("rmat", scale=4, seed=5).provenance
    assert provenance["generator"] == "rmat"
    assert provenance["options"]["scale"] == 4
    assert provenance["options"]["seed"] == 5


BASE = CSC(np.array([0, 1, 2]), np.array([1, 0]))


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("ring", {}, "no generator 'ring'; there are rmat, zipf, communities, kronecker"),
        ("zipf", {"nodes": 5}, "generator 'zipf' has no option 'nodes'; its options are seed, feature_dim"),
        ("zipf", {}, "num_nodes is needed: how many nodes"),
        ("zipf", {"num_nodes": -1}, "num_nodes must be a whole number of at least 1, got -1"),
        ("zipf", {"num_nodes": 2.5}, "num_nodes must be a whole number of at least 1, got 2.5"),
        ("zipf", {"num_nodes": 1 << 41}, r"num_nodes must be at most 2\*\*40"),
        ("zipf", {"num_nodes": 5, "num_edges": -1}, "num_edges must be a whole number of at least 0"),
        ("zipf", {"num_nodes": 5, "skew": 1.0}, r"skew must lie in \[0, 0.95\], got 1.0"),
        ("zipf", {"num_nodes": 5, "seed": -1}, "seed must lie in"),
        ("zipf", {"num_nodes": 5, "train": 1.5}, r"train must lie in \[0, 1\], got 1.5"),
        ("zipf", {"num_nodes": 5, "train": 0.7, "test": 0.7}, "train \\+ val \\+ test must be at most 1, got 1.4"),
        ("zipf", {"num_nodes": 5, "feature_dim": -1}, "feature_dim must be a whole number of at least 0"),
        ("rmat", {}, "give either num_nodes or scale"),
        ("rmat", {"num_nodes": 5, "scale": 3}, "give either num_nodes or scale"),
        ("rmat", {"scale": -1}, "scale must be a whole number of at least 0"),
        ("rmat", {"scale": 50}, r"scale must be at most 40"),
        ("rmat", {"scale": 3, "a": 0.5, "b": 0.5, "c": 0.5}, "a \\+ b \\+ c at most 1, got 0.5 \\+ 0.5 \\+ 0.5"),
        ("rmat", {"scale": 3, "a": 0}, "a must be at least 0.01"),
        ("communities", {"num_classes": 1}, "num_classes must be a whole number of at least 2"),
        ("communities", {"num_communities": 3}, r"num_communities must lie in \[num_classes, num_nodes\] = \[16, 100000\], got 3"),
        ("communities", {"feature_accuracy": 0.01}, r"feature_accuracy must lie in \[1 / num_classes, 0.999\]"),
        ("communities", {"mixing": 2}, r"mixing must lie in \[0, 1\], got 2"),
        ("kronecker", {}, "kronecker needs a graph to expand: name it by base"),
        ("kronecker", {"base": BASE, "num_copies": 0}, "num_copies must be a whole number of at least 1"),
        ("kronecker", {"base": BASE, "num_copies": 2000}, "num_copies must be at most 1024"),
        ("kronecker", {"base": BASE, "edge_factor": 3}, r"edge_factor must lie in .* = \[4, 16\], got 3"),
        ("kronecker", {"base": BASE, "x": np.zeros((3, 1))}, "x has 3 rows for 2 base nodes"),
        ("kronecker", {"base": BASE, "x": np.zeros((2, 1)), "feature_dim": 3}, "the base graph has x already: leave feature_dim out"),
        ("kronecker", {"base": BASE, "feature_noise": 1.0}, "feature_noise must be at least 0, and 0 without x"),
    ],
)
def test_options_are_checked(kind, options, message):
    with pytest.raises((UsageError, InputError), match=message) as caught:
        generate(kind, **options)
    assert isinstance(caught.value, PenstockError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("num_edges", [0, 1])
@pytest.mark.parametrize("kind", ["rmat", "zipf"])
def test_smallest_graphs(kind, num_edges):
    edges = edges_of(generate(kind, num_nodes=1, num_edges=num_edges))
    assert edges.tolist() == [[0] * num_edges] * 2
