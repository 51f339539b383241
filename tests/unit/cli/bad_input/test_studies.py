"""What cannot be studied or laid out."""

import torch
from torch_geometric.data import Data, HeteroData

from penstock.cli import run
from penstock.cli.train import with_fastest
from penstock.errors import UsageError
from penstock.store import hold_out, ingest
from penstock.study import layout as study_layout
from tests.refusals import TRAIN, call, refused, said
from tests.train.stores import make_typed_store


def test_layouts_that_cannot_be(tmp_path, store, capfd, monkeypatch):
    assert "at least. Declare more by --memory" in said(capfd, "layout", store, "--memory", "1MiB")
    monkeypatch.setattr(study_layout, "free_bytes", lambda: 64 << 20)  # the reserve
    assert "at least, and 64.0 MiB are free" in said(capfd, "layout", store)
    monkeypatch.setattr(study_layout, "free_bytes", lambda: 81 << 20)
    assert call(capfd, "layout", store, "--train-fraction", "0.5")[0] == 0  # half of it would not do
    assert call(capfd, "layout", store, "--drop")[0] == 0
    said(capfd, "layout", store, "--field", "colour")
    said(capfd, "layout", store, "--by", "alphabet")
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    ingest(tmp_path / "edges.csv", tmp_path / "bare", memory="4GiB")
    said(capfd, "layout", tmp_path / "bare", "--train-fraction", "0.5")
    assert sorted(path.name for path in (store / "nodes" / "node").glob("*packed*")) == []


def test_plans_to_try(tmp_path, store, capfd):
    assert "got 'arc'" in said(capfd, "plan", store, "--recipes", "uva,arc")
    assert "got 'none'" in said(capfd, "plan", store, "--recipes", ",")
    assert "--order must be one of" in said(capfd, "plan", store, "--order", "sorted")
    assert "got 0.0" in said(capfd, "plan", store, "--seconds", "0")
    assert "'lots'" in said(capfd, "plan", store, "--host-memory", "lots")
    assert "'lots'" in said(capfd, "plan", store, "--spool", "lots")
    assert "--recipes" in said(capfd, "plan", store, "--spool", "1GiB", "--recipes", "ginex")
    assert "nowhere" in said(capfd, "plan", store, "--host-memory", "1GiB", "--spool-folder", tmp_path / "nowhere")
    data = HeteroData({kind: {"x": torch.zeros(4, 2), "train_mask": torch.ones(4, dtype=torch.bool)} for kind in ("a", "b")})
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [1, 2]])
    ingest(data, tmp_path / "typed")
    assert "--seed-type: a, b" in said(capfd, "plan", tmp_path / "typed")
    assert "chooses --policy" in said(capfd, "train", store, *TRAIN, "--recipe", "auto", "--policy", "lru", "--cache", "10%")
    assert "--epochs must be" in said(capfd, "train", store, *TRAIN, "--recipe", "auto", "--epochs", "0")
    assert "these are 2" in refused(UsageError, with_fastest, {"store": str(store)}, tmp_path, 2, lambda name: False)
    assert run(["train", str(store), *TRAIN, "--out", str(tmp_path / "run")]) == 0
    assert "for new runs" in said(capfd, "train", store, "--out", tmp_path / "run", "--resume", "--recipe", "auto")
    assert "holds a run already" in said(capfd, "train", store, "--out", tmp_path / "run", "--recipe", "auto")
    small = ("--recipes", "ginex", "--num-workers", "1", "--host-memory", "1MiB")
    assert "--host-memory of 1.0 MiB does not hold one batch" in said(capfd, "plan", store, *small)


def test_plans_to_try_with_edges(tmp_path, store, capfd):
    make_typed_store(tmp_path / "typed")
    hold_out(store, tmp_path / "links")
    hold_out(tmp_path / "typed", tmp_path / "half", edge_type=("author", "writes", "paper"), reverse="none")
    hold_out(tmp_path / "half", tmp_path / "both", edge_type=("paper", "by", "author"), reverse="none")
    unknown = said(capfd, "plan", tmp_path / "typed", "--seed-type", "author,reads,paper")
    assert "which are paper, author, venue, nor an edge type, which are author,writes,paper or paper,by,author or venue,prints" in unknown
    assert "--seed-type person is not a node type" in said(capfd, "plan", tmp_path / "typed", "--seed-type", "person")
    assert "choose one by --seed-type" in said(capfd, "plan", tmp_path / "both")
    assert "which have one split" in said(capfd, "plan", tmp_path / "links", "--split", "0")
    assert "--edge-label what: edges node/to/node have no such field" in said(capfd, "plan", tmp_path / "links", "--edge-label", "what")
    assert "--seed-type node is a node type" in said(capfd, "plan", store, "--seed-type", "node", "--edge-label", "what")
    assert "make such a store of" in said(capfd, "plan", store, "--edge-label", "what")
    assert "--num-negatives must be at least 1" in said(capfd, "plan", tmp_path / "links", "--num-negatives", "0")


def test_studies(tmp_path, capfd):
    ingest(Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3), tmp_path / "bare")
    bare = ("study", "cache", tmp_path / "bare", "--train-fraction", "1")
    assert "has no split" in said(capfd, *bare[:3])
    assert "got 'arc'" in said(capfd, *bare, "--policies", "degree,arc")
    assert "got 'sorted'" in said(capfd, *bare, "--orders", "sorted")
    assert "--capacities a lot" in said(capfd, *bare, "--capacities", "10%,a lot")
    assert "--row-bytes" in said(capfd, *bare, "--capacities", "1KiB")
    assert "'0,4'" in said(capfd, *bare, "--windows", "0,4")
    assert "got 1.5" in said(capfd, *bare[:4], "1.5")
    (tmp_path / "file").touch()
    assert "choose another --out" in said(capfd, *bare, "--out", tmp_path / "file" / "out")
    assert "is a store: choose another --out" in said(capfd, *bare, "--out", tmp_path / "bare")
