"""From sources to stores and back: the real graphs, the generators, the command line."""

import inspect
import json
from dataclasses import fields

import numpy as np
import pytest
from tests.tables import edges_of, read_all

from penstock import store as stores
from penstock.cli import generate as command
from penstock.cli import run
from penstock.kernels.build_csc import reference as build
from penstock.records import EDGE, NODE
from penstock.sources import open_source
from penstock.sources.generate import KINDS, generate

SMALL = [
    *("cora", "citeseer", "amazon_computers", "tolokers", "blogcatalog_multilabel", "ogbn_arxiv_nofeat", "cit_hepph", "web_cnr2000"),
    *("soc_slashdot0902", "coauth_dblp2010", "hetero_dblp", "hetero_aminer", "hetero_freebase_movie", "kg_fb15k237", "kg_codex_m"),
    *("interact_gowalla", "graphs_nci1"),
]
WIDE = ["nell", "coauthor_cs", "facebook_pages", "ego_twitter", "citation_dblp"]
"""Dense, their features take 0.1 to 1.4 GB."""


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.deep) for name in WIDE)])
def test_real_graph(real_graphs, tmp_path, name):
    source = open_source(real_graphs / f"{name}.npz")
    store = stores.ingest(source, tmp_path / "store")
    assert store.is_homogeneous == source.is_homogeneous
    assert dict(store.num_nodes) == {name: nodes.num_nodes for name, nodes in source.nodes.items()}
    assert store.edge_types == list(source.edges)
    for edge_type, edges in source.edges.items():
        columns = read_all(edges.table)
        indptr, indices, order = build.build_csc(columns["src"], columns["dst"], store.num_nodes[edge_type[2]])
        np.testing.assert_array_equal(store.csc(edge_type).indptr, indptr)
        np.testing.assert_array_equal(store.csc(edge_type).indices, indices)
        for field in set(columns) - {"src", "dst"}:
            np.testing.assert_array_equal(store.edge_field(field, edge_type), columns[field][order])
    for node_type, nodes in source.nodes.items():
        assert set(store.node_fields(node_type)) == set(nodes.table.columns if nodes.table else ())
        for chunk in nodes.table.chunks(1000) if nodes.table else ():
            for field, values in chunk.columns.items():
                np.testing.assert_array_equal(store.node_field(field, node_type)[chunk.first_row :][: chunk.num_rows], values)
        for split, parts in source.splits.get(node_type, {}).items():
            for part, ids in parts.items():
                np.testing.assert_array_equal(store.split(part, split, node_type), ids)
    assert stores.check(store.path, deep=True).is_ok


OPTIONS = {
    "rmat": {"num_nodes": 3000, "num_edges": 50_000, "feature_dim": 8, "num_classes": 4, "train": 0.3},
    "zipf": {"num_nodes": 3000, "num_edges": 50_000},
    "communities": {"num_nodes": 3000},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_generated(tmp_path, kind):
    source, store = generate(kind, **OPTIONS[kind]), stores.generate(kind, tmp_path / "store", **OPTIONS[kind])
    edges = edges_of(source)
    indptr, indices, _ = build.build_csc(edges[0], edges[1], 3000)
    np.testing.assert_array_equal(store.csc().indptr, indptr)
    np.testing.assert_array_equal(store.csc().indices, indices)
    for field, values in read_all(source.nodes[NODE].table).items() if source.nodes[NODE].table else ():
        np.testing.assert_array_equal(store.node_field(field), values)
    assert stores.check(store.path, deep=True).is_ok


def test_expanding_a_store(tmp_path):
    base = stores.generate("communities", tmp_path / "base", num_nodes=500, num_edges=3000, undirected=True)
    store = stores.generate("kronecker", tmp_path / "large", base=base, num_copies=3, test=1.0)
    assert store.num_nodes[NODE] == 1500
    np.testing.assert_array_equal(store.node_field("x"), np.tile(base.node_field("x"), (3, 1)))
    np.testing.assert_array_equal(store.node_field("y"), np.tile(base.node_field("y"), 3))
    edges = edges_of(generate("kronecker", base=base.csc(), num_copies=3))
    np.testing.assert_array_equal(store.csc().indices, build.build_csc(edges[0], edges[1], 1500)[1])
    assert store.manifest.provenance["source"]["base"] == {"num_nodes": 500, "num_edges": base.num_edges[EDGE]}


# The command line


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_has_all_options_of_the_generator(kind):
    functions = (command.KINDS[kind], command._of_all_kinds)
    offered = {name for function in functions for name in inspect.signature(function).parameters}
    assert offered == {field.name for field in fields(KINDS[kind])} - {"x", "y", "class_names"}


def generated(capfd, *arguments):
    assert run(["generate", *map(str, arguments), "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_commands(tmp_path, capfd):
    rmat = generated(capfd, "rmat", tmp_path / "r", "--scale", 8, "--no-permute", "--seed", 3, "--num-classes", 4, "--train", 0.5)
    assert rmat["digest"] == stores.generate("rmat", tmp_path / "r2", scale=8, permute=False, seed=3, num_classes=4, train=0.5).digest
    zipf = generated(capfd, "zipf", tmp_path / "z", "--num-nodes", 100, "--skew", 0.5, "--feature-dim", 3, "--feature-dtype", "float16")
    assert zipf["nodes"]["node"]["fields"]["x"]["dtype"] == "float16"
    made = generated(capfd, "communities", tmp_path / "c", "--num-nodes", 200, "--num-edges", 900, "--undirected", "--self-loops", "drop")
    assert 900 < made["edges"][0]["num_edges"] <= 1800
    large = generated(capfd, "kronecker", tmp_path / "k", "--base", tmp_path / "c", "--num-copies", 2, "--edge-factor", 2)
    assert large["edges"][0]["num_edges"] == 2 * made["edges"][0]["num_edges"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing command"),
        (["ring", "d"], "No such command 'ring'"),
        (["zipf"], "Missing argument"),
        (["zipf", "d", "--num-nodes", "many"], "Invalid value for '--num-nodes'"),
        (["zipf", "d", "--scale", "3"], "No such option: --scale"),
        (["zipf", "d"], "Missing option '--num-nodes'"),
        (["rmat", "d", "--scale", "3", "--a", "2"], "a must lie in [0, 1], got 2"),
        (["kronecker", "d"], "Missing option '--base'"),
        (["kronecker", "d", "--base", "absent"], "absent does not exist: give the folder of a store"),
    ],
)
def test_refusals_are_one_line(tmp_path, monkeypatch, capfd, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert run(["generate", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
