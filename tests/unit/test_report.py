"""What a person sees of a run: lines or a panel while it goes on, a page at the end."""

import json
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tests.train.stores import make_store

TRAIN = ["--num-neighbors", "3,2", "--batch-size", "32", "--epochs", "3", "--num-workers", "1", "--torch-threads", "1"]


def train(folder, *more, **streams):
    command = [sys.executable, "-m", "penstock", "train", str(folder / "store"), "--out", str(folder / "run"), *TRAIN, *more]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=200, check=True, **streams)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(folder, what was printed, progress) of a run whose streams are pipes."""
    folder = tmp_path_factory.mktemp("report")
    make_store(folder / "store")
    done = train(folder, "--json", capture_output=True, text=True)
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
        [sys.executable, "-m", "penstock", "train", str(tmp_path / "store"), "--out", str(tmp_path / "run"), *TRAIN],
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
