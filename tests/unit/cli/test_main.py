"""What the process of a command begins with."""

import os

import numpy as np
import pytest

from penstock.cli import main, run
from penstock.cli.console import Bars
from penstock.store import manifest
from tests.stores import build, homogeneous


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_of_torch_sleep_while_they_wait_unless_told_otherwise(given, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == (given or "PASSIVE")
    assert capsys.readouterr().out.startswith("penstock ")


CURSOR, TURNED = "\x1b[2J\x9b1A", "\u202e"


def test_names_that_others_chose_move_no_cursor(tmp_path, capfd):
    source = homogeneous({"src": np.zeros(1, np.int64), "dst": np.ones(1, np.int64)}, num_nodes=2)
    store = build(source, tmp_path / "store")[0].path
    file = store / "manifest.json"
    described = manifest.parse_manifest(file.read_bytes(), store)
    described.provenance["created"] = f"today{CURSOR}{TURNED}"
    file.write_bytes(described.to_bytes())
    assert run(["info", str(store)]) == 0
    assert run(["info", f"{tmp_path}/none{CURSOR}{TURNED}"]) == 2
    file.write_bytes(b"{")
    assert run(["check", str(store.rename(f"{store}{CURSOR}"))]) == 2
    out, error = capfd.readouterr()
    assert "made today\\x1b[2J\\x9b1A\\u202e by" in out
    assert "none\\x1b[2J\\x9b1A\\u202e does not exist" in error
    assert all(each.isprintable() for each in (out + error).replace("\n", ""))


def test_names_that_others_chose_are_no_markup(capfd):
    bars = Bars()
    bars.begin("check [/red]a[bold", 1, "rows")
    bars.advance(1)
    bars.end()
    assert "check [/red]a[bold" in capfd.readouterr().err
