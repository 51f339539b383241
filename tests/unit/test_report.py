"""What a person sees of a run: lines or a panel while it goes on, a page at the end."""

import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from rich.console import Console

from penstock.cli import run
from penstock.report import plots
from penstock.report.live import Panel
from penstock.report.timeline import LANES, describe, stack
from penstock.report.words import count, kept, num_bytes
from penstock.store import ingest
from penstock.train import EpochRecord
from tests.train.stores import make_data, make_store

TRAIN = ["--num-neighbors", "3,2", "--batch-size", "32", "--epochs", "3", "--num-workers", "1", "--torch-threads", "1"]


def command(folder, *more):
    return ["train", str(folder / "store"), "--out", str(folder / "run"), *TRAIN, *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(folder, what was printed, progress) of a run whose streams are pipes."""
    folder = tmp_path_factory.mktemp("report")
    make_store(folder / "store")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *command(folder, "--json")], env=environment, timeout=200, check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    return folder / "run", json.loads(done.stdout), done.stderr


class Page(HTMLParser):
    """Collects the tags of a page, and whether every one is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_numbers_in_words():
    """Three digits, of which 999,700 once made 1e+03k."""
    numbers = 0, 999, 1000, 123_456, 999_700, 1_234_567, 999_499_999, 5_414_118_795, 1.8e12
    assert [count(number) for number in numbers] == ["0", "999", "1k", "123k", "1M", "1.23M", "999M", "5.41G", "1.8T"]
    assert [num_bytes(number) for number in (0, 1023, 1536, 3 << 40)] == ["0 B", "1023 B", "1.5 KiB", "3 TiB"]


def test_the_page_needs_no_network_and_fits_a_phone(finished):
    text = (finished[0] / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert ("name", "viewport") in page.attributes
    assert not {"script", "img", "link", "iframe"} & set(page.seen)
    addresses = [value for name, value in page.attributes if name in ("src", "href", "xlink:href") and not value.startswith("#")]
    assert addresses == []
    assert "url(http" not in text


def test_curves_and_stages_are_pictures(finished):
    pictures = re.findall(r"<svg.*?</svg>", (finished[0] / "report.html").read_text(), flags=re.DOTALL)
    assert len(pictures) >= 4
    for picture in pictures:
        ElementTree.fromstring(picture)


def test_what_overlapped_is_a_picture_and_words(tmp_path):
    make_store(tmp_path / "store")
    assert run(command(tmp_path, "--features", "disk", "--policy", "belady", "--cache", "20%", "--window", "3")) == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    timeline, page = report["timeline"], (tmp_path / "run" / "report.html").read_text()
    assert {stage for stage, *_ in timeline["spans"]} == set(LANES)
    assert timeline["epoch"] == 2
    picture = page[page.index("<svg", page.index("at the same time")) :].partition("</svg>")[0] + "</svg>"
    ElementTree.fromstring(picture)
    assert picture.count('id="xtick_') <= 6, "labels of times that overlap"
    assert "<th>plan</th><td>custom: random order, belady keeps 20% of the rows: " in page
    text = " ".join(page[page.index("at the same time") :].split())
    for said in (
        r"of epoch 3, in [\d.]+ m?s: ",
        r"Rows were being read in [\d.]+ m?s of this time; \d+ % of that was hidden",
        r"The stall that is left: [\d.]+ m?s, \d+ %",
        r"per batch: sampling [\d.]+ ms, deciding what to keep \([^)]*inspect\) [\d.]+ ms, ",
        r", updating the cache \([^)]*\) [\d.e-]+ ms, waiting",
    ):
        assert re.search(said, text), said
    traced = json.loads((tmp_path / "run" / "report.trace.json").read_text())["traceEvents"]
    spans = [(e["cat"], e["args"]["batch"], e["ts"], e["dur"], e["tid"]) for e in traced if e["ph"] == "X"]
    assert spans == [
        (stage, batch, round(1e6 * begin), round(1e6 * (end - begin)), thread) for stage, batch, begin, end, thread in timeline["spans"]
    ]
    names = {e["tid"]: e["args"]["name"] for e in traced if e["ph"] == "M"}
    assert sorted(names.values())[-1] == "training"
    assert {names[thread] for stage, *_, thread in spans if stage in ("train", "stall")} == {"training"}
    assert len(names) == len({thread for *_, thread in spans}) >= 2
    inspect = sum(counts["decide_s"] for record in report["history"] for counts in record["tiers"].values())
    assert 0 < inspect < sum(record["train_s"] for record in report["history"]) * 3
    assert run(command(tmp_path, "--resume")) == 0  # it is done, and nothing overlapped this time
    assert json.loads((tmp_path / "run" / "report.json").read_text())["timeline"] is None
    assert not (tmp_path / "run" / "report.trace.json").exists()


def test_only_parts_that_are_there_are_told_of(tmp_path, capfd):
    data = make_data()
    for left_out, words in (("test_mask", "val by sampled neighbourhoods"), ("val_mask", None)):
        del data[left_out]
        ingest(data, tmp_path / "store", overwrite=True, memory="4GiB")
        assert run(command(tmp_path, "--evaluation", "sampled")) == 0
        progress = capfd.readouterr().err
        page = (tmp_path / "run" / "report.html").read_text()
        shutil.rmtree(tmp_path / "run")
        if words:
            assert words in progress
            assert "<th>val</th><td>by sampled neighbourhoods" in page
        else:
            assert "by sampled neighbourhoods" not in progress + page


def test_bars_that_overlap_lie_side_by_side():
    assert stack([(0, 2), (1, 3), (2, 4), (2.5, 5)]) == ([0, 1, 0, 2], 3)
    assert stack([(0, 1), (1, 2)]) == ([0, 0], 1)
    rows, num_rows = stack([(0, 10)] * 20)
    assert num_rows == max(rows) + 1 <= 6
    assert stack([]) == ([], 1)


def test_json_has_what_scripts_read(finished):
    folder, printed, _ = finished
    wanted = {"metric", "val", "test", "epochs", "seeds_per_s", "peak_memory_bytes", "weights_digest", "report"}
    assert wanted <= set(printed)
    report = json.loads((folder / "report.json").read_text())
    assert report["weights_digest"] == printed["weights_digest"]
    assert [record["epoch"] for record in report["history"]] == [0, 1, 2]
    assert printed["report"] == str(folder / "report.html")
    assert json.loads((folder / "config.json").read_text())["epochs"] == 3


def test_lines_where_there_is_no_terminal(finished):
    progress = finished[2]
    assert "\x1b" not in progress
    assert [line.split()[:2] for line in progress.splitlines() if line.startswith("epoch")] == [["epoch", str(i)] for i in (1, 2, 3)]


def test_a_panel_in_a_terminal(tmp_path):
    make_store(tmp_path / "store")
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *command(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE, stderr=writer,
    )  # fmt: skip
    os.close(writer)
    shown = b""
    try:
        while piece := os.read(reader, 65536):
            shown += piece
    except OSError:  # the other end is closed
        pass
    os.close(reader)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    text = shown.decode()
    for part in ("epochs", "batches", "seeds/s", "loss", "model", "wait"):
        assert part in text
    assert out.decode().splitlines()[-1].startswith("report: ")


def test_a_panel_shows_paths_as_they_are():
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    Panel(console).note("out/g [/x] [v2]")
    assert "out/g [/x] [v2]" in console.file.getvalue()


def test_a_note_leaves_the_panel_beneath_it_as_it_is():
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    panel = Panel(console)
    panel._live.start()
    panel.batch_done(EpochRecord(epoch=0, loss=1.5, num_batches=1), 1)
    panel.note("predicting [/x]")
    panel.close()
    assert "predicting [/x]" in console.file.getvalue()
    assert "[bold]" not in console.file.getvalue()


def test_a_run_without_any_score_is_drawn_without_a_word():
    assert "svg" in plots.draw_scores([EpochRecord(epoch=0)], "auc")
    assert "svg" in plots.draw_scores([EpochRecord(epoch=0, val=12.5)], "rmse")


def test_a_policy_without_features_keeps_nothing_and_says_so():
    plan = {"order": "random", "policy": "presample", "cache": "10%", "neighbor_cache": None, "device_policy": None}
    description = {"plan": {**plan, "neighbor_policy": None}, "list_bytes": 0, "loaded_bytes": 0, "cache_bytes": 99, "memory": ""}
    assert kept({**description, "features": {}}) == "random order, presample keeps no rows, for nodes have no features"
    assert kept({**description, "features": {"node": [2, 3]}}).startswith("random order, presample keeps 10% of the rows: 99 B with")


@pytest.mark.parametrize(("num_batches", "said"), [(1, "Batch 4 of epoch 2, "), (3, "Batches 4 to 6 of epoch 2, ")])
def test_which_batches_are_drawn(num_batches, said):
    timeline = {"first_batch": 3, "num_batches": num_batches, "epoch": 1, "seconds": 1.0, "covered_s": {}}
    assert describe(timeline, [EpochRecord(0, num_batches=9)]).startswith(said)


def test_names_that_others_chose_are_no_formulas():
    counts = {"num_rows": 1, "num_reads": 1, "num_bytes": 8, "seconds": 0.0}
    assert "<svg" in plots.draw_tiers([EpochRecord(0, tiers={"$\\frac$: host": counts})])
