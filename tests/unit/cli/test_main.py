"""What the process of a command begins with."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from penstock import __version__
from penstock.cli import main, run
from penstock.cli.console import Bars, Lines
from penstock.store import manifest
from tests.stores import build, homogeneous


def command(line, cwd, **environment):
    """Run a line of the shell; returns (exit code, standard output, standard error)."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PENSTOCK": f"{sys.executable} -m penstock", **environment}
    done = subprocess.run(line, shell=True, cwd=cwd, env=environment, capture_output=True, text=True, errors="surrogateescape", timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_of_torch_sleep_while_they_wait_unless_told_otherwise(given, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == (given or "PASSIVE")
    assert capsys.readouterr().out.startswith("penstock ")


def test_what_torch_says_of_pyg_is_not_said_to_users():
    code = "from penstock.cli import main\ntry: main(['--version'])\nexcept SystemExit: import torch_geometric.nn"
    assert command(f'{sys.executable} -c "{code}"', None)[1:] == (f"penstock {__version__}\n", "")


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


@pytest.mark.parametrize(
    ("count", "unit", "done"),
    [
        (1, "rows", "1 row"),
        (2000, "bytes", "2,000 bytes"),
        (1, "batches", "1 batch"),
        (0, "batches", "0 batches"),
        (1, "accesses", "1 access"),
        (5, "MiB", "5 MiB"),
    ],
)
def test_a_stage_that_ends_says_how_much_was_done(count, unit, done, capfd):
    lines = Lines()
    lines.begin("sample", None, unit)
    lines.advance(count)
    lines.end()
    assert capfd.readouterr().err.startswith(f"sample: {done} in 0.")


GENERATE = "$PENSTOCK generate communities store --num-nodes 100"


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", ">&-", "2>&-", "2>/dev/full"])
def test_streams_that_are_closed_or_full_end_nothing(streams, tmp_path, capfd):
    assert command(f"{GENERATE} {streams}", tmp_path)[0] == 0
    assert run(["check", "--deep", str(tmp_path / "store")]) == 0
    assert "every checksum" in capfd.readouterr().out


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path):
    code = (
        "import os, sys; from penstock import cli; cli.run = lambda arguments: os.open('found', os.O_CREAT | os.O_WRONLY) < 3; cli.main([])"
    )
    assert command(f'{sys.executable} -c "{code}" <&- >&- 2>&-', tmp_path)[0] == 0
    assert (tmp_path / "found").exists()


@pytest.mark.parametrize("options", ["", " --json"])
def test_a_result_that_cannot_be_written_is_a_failure_in_one_line(options, tmp_path):
    assert run(["generate", "communities", str(tmp_path / "store"), "--num-nodes", "100"]) == 0
    code, _, error = command(f"$PENSTOCK info store{options} >/dev/full", tmp_path)
    assert (code, error) == (1, "penstock: cannot write to standard output: No space left on device\n")


@pytest.mark.parametrize("streams", ["2>/dev/full", ">/dev/full"])
def test_a_refusal_that_cannot_be_written_has_its_exit_code(streams, tmp_path):
    code, out, error = command(f"$PENSTOCK info nowhere --json {streams}", tmp_path)
    assert code == 2
    assert "Traceback" not in error
    assert not out or json.loads(out)["error"]["exit_code"] == 2


def test_a_path_that_standard_output_has_no_letters_for(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/b\xffd")
    code, out, error = command("cd b*d && " + GENERATE, tmp_path, PYTHONIOENCODING="latin-1:strict")
    assert code == 0, error
    assert "b\\udcffd/store: homogeneous" in out
