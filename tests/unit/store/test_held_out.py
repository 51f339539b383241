"""Edges held out of a graph: what stays and what is held out are the graph, and nothing in the graph tells of what is held out."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from tests.stores import build, homogeneous
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import RandomLinkSplit

import penstock
from penstock.cli.hold_out import as_text
from penstock.errors import InputError
from penstock.records import EDGE
from penstock.store import check, sifting

LIKES, REV, BUYS = ("user", "likes", "item"), ("item", "rev_likes", "user"), ("user", "buys", "item")


def random_data(num_nodes=300, num_edges=5000, *, undirected=False):
    random = torch.Generator().manual_seed(3)
    edges = torch.randint(0, num_nodes, (2, num_edges), generator=random)
    times = torch.randint(0, 1000, (num_edges,), generator=random)
    if undirected:
        edges, times = torch.cat([edges, edges.flip(0)], dim=1), torch.cat([times, times])
    count = edges.shape[1]
    attr = torch.stack([edges[0], edges[1], torch.arange(count)], dim=1)  # says whose it is
    return Data(x=torch.randn(num_nodes, 4), edge_index=edges, edge_attr=attr, time=times, y=torch.arange(num_nodes) % 3)


def typed_data():
    random, data = torch.Generator().manual_seed(4), HeteroData()
    data["user"].x, data["item"].num_nodes = torch.randn(90, 3), 120
    likes = torch.stack([torch.randint(0, 90, (3000,), generator=random), torch.randint(0, 120, (3000,), generator=random)])
    data[LIKES].edge_index, data[LIKES].time = likes, torch.arange(3000)
    data[REV].edge_index, data[REV].time = likes.flip(0), torch.arange(3000)
    data[BUYS].edge_index = torch.stack([torch.randint(0, 90, (500,), generator=random), torch.randint(0, 120, (500,), generator=random)])
    return data


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks so small that lists lie in several."""
    monkeypatch.setattr(sifting, "BLOCK_BYTES", 4000)


def columns_of(store, edge_type, part=None):
    """Everything that is known of edges or links, sorted: [n, ...] each with its number."""
    if part is None:
        index, number = store.edge_index(edge_type), store.csc(edge_type).edge_ids
        fields = {name: store.edge_field(name, edge_type) for name in store.edge_fields(edge_type)}
    else:
        index, number = store.links(part, edge_type), store.link_field("edge_id", part, edge_type)
        fields = {name: store.link_field(name, part, edge_type) for name in store.edge_fields(edge_type)}
    return {"src": index[0], "dst": index[1], "number": number, **fields}


def assert_divided(whole, store, edge_type, parts=("val", "test")):
    """The edges of a store are those of another and its links, with all that is known of them, each once, in their order."""
    expected, pieces = columns_of(whole, edge_type), [columns_of(store, edge_type, part) for part in (None, *parts)]
    joined = {name: np.concatenate([piece[name] for piece in pieces]) for name in expected}
    place = {number: at for at, number in enumerate(expected["number"].tolist())}
    order = np.array([place[number] for number in joined["number"].tolist()])
    assert np.array_equal(np.sort(order), np.arange(len(place)))
    for name, values in expected.items():
        assert np.array_equal(joined[name], values[order]), name
    for piece in np.split(order, np.cumsum([len(piece["src"]) for piece in pieces])[:-1]):
        assert (np.diff(piece) > 0).all(), "in another order"


def pairs(index, *, both_ways=False):
    found = set(map(tuple, np.asarray(index).T.tolist()))
    return found | {(v, u) for u, v in found} if both_ways else found


@pytest.mark.parametrize("by", [None, "time"])
@pytest.mark.parametrize("undirected", [False, True])
def test_what_is_held_out_and_what_stays_are_the_graph(tmp_path, by, undirected):
    whole = penstock.ingest(random_data(undirected=undirected), tmp_path / "whole")
    made = penstock.hold_out(whole, tmp_path / "store", val=0.1, test=0.2, by=by)
    store = penstock.open(tmp_path / "store")
    assert_divided(whole, store, EDGE)
    assert made["num_edges"] == store.num_edges[EDGE]
    assert made["num_links"] == {part: store.links(part).shape[1] for part in ("val", "test")}
    for part, share in (("val", 0.1), ("test", 0.2)):
        assert abs(made["num_links"][part] / whole.num_edges[EDGE] - share) < 0.03
    report = check(store.path, deep=True)
    assert report.is_ok, report
    assert store.digest != whole.digest
    assert np.array_equal(store.node_field("x"), whole.node_field("x"))
    assert store.link_parts() == ["val", "test"]
    if by is None:  # in no direction is a pair in two parts
        in_graph, val, test = (pairs(each, both_ways=True) for each in (store.edge_index(), store.links("val"), store.links("test")))
        assert not in_graph & val
        assert not in_graph & test
        assert not val & test
    else:
        times = [store.edge_field("time"), store.link_field("time", "val"), store.link_field("time", "test")]
        assert times[0].max() < times[1].min() <= times[1].max() < times[2].min()


@pytest.mark.parametrize("by", [None, "time"])
def test_reverses_go_too(tmp_path, by):
    whole = penstock.ingest(typed_data(), tmp_path / "whole")
    made = penstock.hold_out(whole, tmp_path / "store", edge_type=LIKES, val=0, test=0.3, by=by)
    store = penstock.open(tmp_path / "store")
    assert_divided(whole, store, LIKES, ("test",))
    assert store.link_parts() == ["test"]
    assert store.link_parts(REV) == []
    held_out = pairs(store.links("test"))
    assert sorted(pairs(store.edge_index(REV)) | {(v, u) for u, v in held_out}) == sorted(pairs(whole.edge_index(REV)))
    assert store.num_edges[REV] == store.num_edges[LIKES]
    assert made["num_reverses"] == {"item-rev_likes-user": whole.num_edges[REV] - store.num_edges[REV]}
    if by is None:
        assert not pairs(store.edge_index(REV)) & {(v, u) for u, v in held_out}
    for name in ("indptr", "indices"):
        files = [(each.path / f"edges/user__buys__item/{name}.npy").stat().st_ino for each in (whole, store)]
        assert files[0] == files[1], "a second name"


def test_reverses_that_have_another_name_or_none(tmp_path):
    data = typed_data()
    data["item", "liked_by", "user"].edge_index = data[REV].edge_index
    del data[REV]
    whole = penstock.ingest(data, tmp_path / "whole")
    assert penstock.hold_out(whole, tmp_path / "none", edge_type=LIKES, reverse="none")["reverse"] == []
    for number, name in enumerate(("item,liked_by,user", ("item", "liked_by", "user"))):
        made = penstock.hold_out(whole, tmp_path / str(number), edge_type=LIKES, reverse=name)
        assert sum(made["num_links"].values()) == made["num_reverses"]["item-liked_by-user"]


def test_the_same_pairs_of_any_graph(tmp_path):
    """By chance: whatever else is in the graph, in whatever order; another seed holds out others."""
    data, stores = random_data(), {}
    order = torch.randperm(data.num_edges)
    shuffled = Data(x=data.x, edge_index=data.edge_index[:, order], edge_attr=data.edge_attr[order], time=data.time[order])
    for name, each, seed in (("one", data, 5), ("other", shuffled, 5), ("third", data, 6)):
        penstock.hold_out(penstock.ingest(each, tmp_path / f"whole-{name}"), tmp_path / name, seed=seed)
        stores[name] = penstock.open(tmp_path / name)
    one, other, third = (pairs(store.links("val")) for store in stores.values())
    assert one == other
    assert len(one & third) < len(one) / 4


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int64"])
def test_the_largest_values(tmp_path, dtype):
    """Of all dtypes and signs; equal values stay together."""
    random, count = np.random.default_rng(0), 4000
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    when = random.integers(low, high, count, dtype=dtype, endpoint=True)
    sources, targets = random.integers(0, 50, (2, count))
    whole, _ = build(homogeneous({"src": sources, "dst": targets, "when": when}, num_nodes=50), tmp_path / "whole")
    penstock.hold_out(whole, tmp_path / "store", val=0.25, test=0.25, by="when")
    store, ordered = penstock.open(tmp_path / "store"), np.sort(when)
    first, last = ordered[count // 2], ordered[3 * count // 4]
    for part, expected in ((None, when < first), ("val", (when >= first) & (when < last)), ("test", when >= last)):
        found = store.edge_field("when") if part is None else store.link_field("when", part)
        assert np.array_equal(np.sort(found), np.sort(when[expected]))


def test_many_nodes_and_few_edges(tmp_path):
    """Memory does not grow with the lists, most of which are empty."""
    num_nodes, random = 200_000, torch.Generator().manual_seed(5)
    edges = torch.randint(0, num_nodes, (2, 300), generator=random)
    edges[1, ::3] %= 9
    whole = penstock.ingest(Data(edge_index=edges, num_nodes=num_nodes), tmp_path / "whole")
    tracemalloc.start()
    try:
        penstock.hold_out(whole, tmp_path / "store")
        assert tracemalloc.get_traced_memory()[1] < num_nodes * 8 / 2
    finally:
        tracemalloc.stop()
    store = penstock.open(tmp_path / "store")
    divided = np.concatenate([store.edge_index(), store.links("val"), store.links("test")], axis=1)
    assert sorted(divided.T.tolist()) == sorted(whole.edge_index().T.tolist())
    assert check(store.path, deep=True).is_ok


def test_parts_that_would_be_empty(tmp_path):
    data = random_data()
    data.time = torch.zeros(data.num_edges, dtype=torch.int64)
    whole = penstock.ingest(data, tmp_path / "whole")
    with pytest.raises(InputError, match="edges of equal 'time' stay together"):
        penstock.hold_out(whole, tmp_path / "store", by="time")
    assert not (tmp_path / "store").exists()


def test_a_store_whose_links_were_held_out_can_be_aggregated_and_packed(tmp_path):
    whole = penstock.ingest(random_data(), tmp_path / "whole")
    penstock.hold_out(whole, tmp_path / "store")
    penstock.aggregate(tmp_path / "store", tmp_path / "aggregated")
    one, other = penstock.open(tmp_path / "store"), penstock.open(tmp_path / "aggregated")
    assert np.array_equal(one.links("val"), other.links("val"))
    assert check(other.path, deep=True).is_ok


def test_as_many_as_pyg_holds_out(tmp_path):
    """Of an undirected graph PyG's transform holds out pairs, and counts both directions of those that stay, as is done here."""
    data = random_data(num_nodes=2000, undirected=True)
    train, val, _ = RandomLinkSplit(num_val=0.1, num_test=0.1, is_undirected=True, add_negative_train_samples=False)(data)
    whole = penstock.ingest(data, tmp_path / "whole")
    made = penstock.hold_out(whole, tmp_path / "store", val=0.1, test=0.1)
    assert abs(made["num_edges"] - train.edge_index.shape[1]) < 300
    assert abs(made["num_links"]["val"] / 2 - (val.edge_label == 1).sum()) < 150


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_links_that_are_given(kind, tmp_path, caplog):
    """Some of them edges, with what is like them and runs the other way; others are none. The rest is divided as ever."""
    whole = penstock.ingest(random_data(undirected=True) if kind == "plain" else typed_data(), tmp_path / "whole")
    edge_type = EDGE if kind == "plain" else LIKES
    given = np.concatenate([whole.edge_index(edge_type)[:, ::50], [[1, 2, 3], [4, 5, 6]]], axis=1)
    both_ways = pairs(given, both_ways=kind == "plain")
    made = penstock.hold_out(whole, tmp_path / "store", edge_type=edge_type, val=0.1, test=given.T)
    store = penstock.open(tmp_path / "store")
    assert np.array_equal(store.links("test"), given)
    assert list(store.link_fields("test")) == ["src", "dst"]
    assert "time" in store.link_fields("val")
    assert not pairs(store.edge_index(edge_type)) & both_ways
    assert not pairs(store.links("val")) & both_ways
    left = np.array([pair not in both_ways for pair in map(tuple, whole.edge_index(edge_type).T.tolist())])
    kept = np.concatenate([store.csc(edge_type).edge_ids, store.link_field("edge_id", "val")])
    assert np.array_equal(np.sort(kept), np.sort(whole.csc(edge_type).edge_ids[left]))
    assert made["num_like_given"] == np.count_nonzero(~left)
    assert f"and {np.count_nonzero(~left)} like given links left out" in as_text(made)
    if kind == "typed":
        assert not pairs(store.edge_index(REV)) & {(v, u) for u, v in both_ways}
        assert store.num_edges[REV] == store.num_edges[LIKES]
    assert made["num_links"]["test"] == given.shape[1]
    assert check(store.path, deep=True).is_ok
    penstock.hold_out(whole, tmp_path / "both", edge_type=edge_type, val=given[:, :9], test=given[:, 9:])
    assert penstock.open(tmp_path / "both").links("val").shape == (2, 9)
    caplog.clear()
    others = np.concatenate([[[1], [4]], [[4], [1]]], axis=1)
    penstock.hold_out(whole, tmp_path / "shared", edge_type=edge_type, val=others, test=given[:, -3:])
    assert [record.getMessage() for record in caplog.records] == [
        "1 of the 3 pairs of nodes in test are in val too, by which models are chosen"
    ]
    penstock.hold_out(whole, tmp_path / "apart", edge_type=edge_type, val=given[:, -3:-2], test=given[:, -2:])
    assert len(caplog.records) == 1


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_keep_fields_of_every_kind(ending, tmp_path):
    """As they were ingested: times of a unit, which both kinds of file write in another one; floats of two bytes; lists, of Parquet."""
    days = np.arange(60) % 9
    table = pa.table(
        {
            "src": [f"{i % 9:03d}" for i in range(60)],
            "dst": 1000 + np.arange(60) % 7,
            "when": pa.array(days * 86_400_000).cast(pa.timestamp("ms")),
            "half": pa.array(days.astype(np.float16)),
            "flag": days % 2 == 0,
            "both": pa.array(np.stack([days, -days], axis=1).tolist(), pa.list_(pa.float32())),
        }
    )
    pq.write_table(table, tmp_path / "rates.parquet")
    graph = {
        "nodes": {"user": {}, "film": {"ids": "int"}},
        "edges": {"user__rates__film": {"files": "rates.parquet", "fields": {name: name for name in ("when", "half", "flag", "both")}}},
    }
    (tmp_path / "graph.json").write_text(json.dumps(graph))
    whole = penstock.ingest(tmp_path / "graph.json", tmp_path / "whole")
    some = table.slice(3, 4)
    days, file = some["when"].cast(pa.date32()), tmp_path / f"test.{ending}"
    if ending == "csv":
        some = some.drop_columns(["both", "half"]).append_column("half", some["half"].cast(pa.float32()))
        pacsv.write_csv(some.set_column(2, "when", days), file)
    else:
        pq.write_table(some.set_column(2, "when", days), file)
    penstock.hold_out(whole, tmp_path / "store", val=0, test=file)
    store, edge_type = penstock.open(tmp_path / "store"), whole.edge_types[0]
    known, fields = store.link_fields("test"), whole.edge_fields()
    assert [name for name in fields if name in known] == [name for name in fields if name in some.column_names]
    for name in known.keys() - {"src", "dst"}:
        assert (known[name].dtype, known[name].properties) == (fields[name].dtype, fields[name].properties)
        wanted = whole.edge_field(name, edge_type)[np.argsort(whole.csc(edge_type).edge_ids)][3:7]
        assert np.array_equal(store.link_field(name, "test"), wanted), name
    assert check(store.path, deep=True).is_ok


def test_links_of_two_types(tmp_path):
    """One after the other; the first ones, and what goes with them, stay known. Reverses of links have no links of their own."""
    whole = penstock.ingest(typed_data(), tmp_path / "whole")
    penstock.hold_out(whole, tmp_path / "one", edge_type=LIKES)
    one = penstock.open(tmp_path / "one")
    penstock.hold_out(one, tmp_path / "two", edge_type=BUYS, reverse="none")
    two = penstock.open(tmp_path / "two")
    assert np.array_equal(two.links("val", LIKES), one.links("val"))
    assert two.reverses_left_out(LIKES) == [REV]
    assert two.reverses_left_out(BUYS) == []
    assert pairs(two.links("test", BUYS)) <= pairs(whole.edge_index(BUYS))
    with pytest.raises(penstock.errors.UsageError, match="has links held out of user/likes/item already"):
        penstock.hold_out(one, tmp_path / "three", edge_type=REV)
