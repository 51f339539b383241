"""The commands about stores, as a user would meet them."""

import ast
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from typer.main import get_command

from penstock.cli import make_app, run
from penstock.sources.generate import KINDS
from penstock.store import Store
from tests.train.stores import make_store


@pytest.fixture
def edges(tmp_path):
    """A CSV of edges between names."""
    path = tmp_path / "edges.csv"
    path.write_text("src,dst,weight\namy,bob,1\nbob,eve,2\neve,amy,3\n")
    return path


def call(capfd, *arguments):
    """Returns (exit code, standard output, standard error)."""
    code = run([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_ingest_info_check(tmp_path, edges, capfd):
    code, out, err = call(capfd, "ingest", edges, tmp_path / "store", "--edge-field", "weight=weight")
    assert code == 0
    assert "nodes node: 3  ids: string" in out
    assert re.search(r"^memory  at most .*, the bound of the whole process: .* held at the start", err, re.MULTILINE)
    code, out, _ = call(capfd, "info", tmp_path / "store")
    assert code == 0
    assert "edges node-to->node: 3, 1.0 into a node  weight float32" in out
    code, out, _ = call(capfd, "check", tmp_path / "store", "--deep")
    assert code == 0
    assert "every checksum and invariant holds" in out


def leaves(command, words=()):
    """(words, command) of each that does something."""
    below = getattr(command, "commands", None)
    return [(" ".join(words), command)] if below is None else [one for name in below for one in leaves(below[name], (*words, name))]


def test_every_command_has_json_and_says_what_its_options_are():
    for words, command in leaves(get_command(make_app())):
        options = {name for each in command.params for name in each.opts}
        assert "--json" in options, f"penstock {words} has no --json"
        assert command.help, f"penstock {words} does not say what it is"
        silent = [each.name for each in command.params if not getattr(each, "help", None)]
        assert not silent, f"penstock {words} does not say what {silent} are"
        swallowed = [each.name for each in command.params if "[" in each.help]
        assert not swallowed, f"penstock {words}: brackets in the help of {swallowed} are taken for markup"


def test_json_is_one_object(tmp_path, edges, capfd):
    store = tmp_path / "store"
    for arguments in (("ingest", edges, store), ("info", store), ("check", store), ("check", store, "--deep")):
        code, out, _ = call(capfd, *arguments, "--json")
        assert code == 0
        assert isinstance(json.loads(out), dict)
    code, out, err = call(capfd, "ingest", edges, store, "--json")
    assert code == 2
    assert json.loads(out)["error"]["type"] == "UsageError"
    assert err.count("\n") == 1


def test_a_store_is_described_the_same_by_all(tmp_path, edges, capfd):
    written = json.loads(call(capfd, "ingest", edges, tmp_path / "store", "--json")[1])
    assert written.pop("seconds") >= 0
    assert written == json.loads(call(capfd, "info", tmp_path / "store", "--json")[1])


def test_options_reach_the_store(tmp_path, edges, capfd):
    code, out, _ = call(
        capfd, "ingest", edges, tmp_path / "store", "--undirected", "--duplicates", "drop", "--edge-ids", "--memory", "4GiB", "--json"
    )
    assert code == 0
    assert json.loads(out)["edges"][0]["num_edges"] == 6
    assert Store(tmp_path / "store").csc().edge_ids.tolist() == [0, 2, 0, 1, 1, 2]
    code, _, _ = call(capfd, "ingest", edges, tmp_path / "store", "--overwrite", "--no-edge-ids", "--json")
    assert code == 0
    assert Store(tmp_path / "store").csc().edge_ids is None


BAD = [
    (["ingest"], "Missing argument 'source'"),
    (["ingest", "{edges}"], "Missing argument 'dest'"),
    (["ingest", "nowhere.csv", "{out}"], "nowhere.csv: no such file or folder"),
    (["ingest", "{edges}", "{out}", "--memory", "lots"], "cannot read 'lots' as a number of bytes"),
    (["ingest", "{edges}", "{out}", "--memory", "1MiB"], "of memory is too little"),
    (["ingest", "{edges}", "{out}", "--duplicates", "maybe"], "'maybe' is not one of"),
    (["ingest", "{edges}", "{out}", "--edge-field", "weight"], "--edge-field takes NAME=VALUE, got 'weight'"),
    (["ingest", "{edges}", "{out}", "--feature-dtype", "int3"], "--feature-dtype must be one of"),
    (["ingest", "{edges}", "{out}/deep/down"], "does not exist"),
    (["ingest", "{edges}", "{out}", "--edge-field", "x=src:zzz"], "range 'src:zzz' for 'x' ends at 'zzz', which is no column"),
    (["generate", "zipf", "{out}"], "Missing option '--num-nodes'. See 'penstock generate zipf --help'"),
    (["generate", "kronecker", "{out}"], "Missing option '--base'. See 'penstock generate kronecker --help'"),
    (["ingest", "{edges}", "{edges}"], "exists and is not a Penstock store"),
    (["ingest", "{edges}", "{out}", "--colour", "red"], "No such option: --colour"),
    (["info"], "Missing argument 'store'"),
    (["info", "nowhere"], "nowhere does not exist: give the folder of a store"),
    (["info", "{edges}"], "is a file: a store is a folder"),
    (["check", "nowhere", "--deep"], "nowhere does not exist"),
    (["ingset"], "No such command 'ingset'. Did you mean 'ingest'? See 'penstock --help'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")
def test_bad_usage_is_one_line_and_exit_code_2(tmp_path, edges, capfd, arguments, message):
    arguments = [text.format(edges=edges, out=tmp_path / "out") for text in arguments]
    code, out, err = call(capfd, *arguments)
    assert (code, out) == (2, "")
    assert message.lower() in err.lower()  # typer's older versions write arguments in capitals
    assert err.startswith("penstock: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_damage_is_reported_with_exit_code_2(tmp_path, edges, capfd):
    call(capfd, "ingest", edges, tmp_path / "store", "--json")
    indices = tmp_path / "store/edges/node__to__node/indices.npy"
    data = bytearray(indices.read_bytes())
    data[4100] ^= 1
    indices.write_bytes(data)
    assert call(capfd, "check", tmp_path / "store")[0] == 0
    code, out, err = call(capfd, "check", tmp_path / "store", "--deep", "--json")
    assert code == 2
    report = json.loads(out)
    assert report["is_ok"] is False
    assert report["findings"][0]["file"] == "edges/node__to__node/indices.npy"
    assert "is damaged: make it again, or restore it from a copy" in err
    indices.write_bytes(data[:4100])
    assert (
        f"\n  {report['findings'][0]['file']}: is truncated: 4100 bytes, the manifest says " in call(capfd, "check", tmp_path / "store")[1]
    )
    indices.unlink()
    code, _, err = call(capfd, "info", tmp_path / "store")
    assert code == 2
    assert "indices.npy is missing" in err


def test_unexpected_errors_are_one_line_too(tmp_path, edges, capfd, monkeypatch):
    monkeypatch.setattr("penstock.store.Store.open", lambda path: 1 / 0)
    code, _, err = call(capfd, "info", tmp_path)
    assert code == 1
    assert "ZeroDivisionError: division by zero (unexpected; PENSTOCK_TRACEBACK=1 shows where" in err


def python(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_no_arguments_print_the_help_alone(capfd):
    code, out, err = call(capfd)
    assert (code, err) == (2, "")
    assert "ingest" in out


@pytest.mark.parametrize(
    ("command", "defaults"),
    [
        ("ingest", ["half of the free memory", "if edges have fields", "detected"]),
        ("train", ["links, or the one with labels", "one per fanout", "the only one"]),
        ("generate rmat", ["permute"]),
    ],
)
def test_help_tells_defaults_that_are_words(capfd, monkeypatch, command, defaults):
    """Brackets would be swallowed as markup."""
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = call(capfd, *command.split(), "--help")
    assert code == 0
    assert all(f"(default: {default})" in out for default in defaults)


@pytest.mark.parametrize("kind", KINDS)
def test_help_tells_the_defaults_of_the_generators(kind):
    """They stand in the help as words, since generators are not imported for it: compared with the generators here."""
    options = {option.name: option for option in get_command(make_app()).commands["generate"].commands[kind].params}
    for field in dataclasses.fields(KINDS[kind]):
        option, is_number = options.get(field.name), isinstance(field.default, int | float) and not isinstance(field.default, bool)
        if option is not None and is_number and not option.required:
            assert f"(default: {field.default:g})" in option.help, field.name
    required = {option.name for option in options.values() if option.required}
    assert required == {"dest", *{"zipf": ["num_nodes"], "kronecker": ["base"]}.get(kind, [])}


def test_help_is_instant():
    """It loads nothing that takes long to load: what the commands need comes with them. A time would be the machine's."""
    code = """
import sys
from penstock.cli import main
sys.argv = ["penstock", "--help"]
try:
    main()
finally:
    print(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ingest" in done.stdout
    loaded = set(ast.literal_eval(done.stderr))
    assert {"penstock", "typer"} <= loaded
    assert not loaded & {
        "matplotlib",
        "numba",
        "numpy",
        "pandas",
        "psutil",
        "pyarrow",
        "scipy",
        "torch",
        "torch_geometric",
        "triton",
        "xxhash",
    }


def test_version():
    version = python("--version").communicate()[0]
    assert re.fullmatch(r"penstock \d+\.\d+\.\d+\n", version)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_is_one_line_and_leaves_nothing(number, tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "edges.csv"
    np.savetxt(path, rng.integers(0, 10**6, (1_000_000, 2)), fmt="%d", delimiter=",", header="src,dst", comments="")
    as_usual = partial(signal.signal, number, signal.SIG_DFL)  # if these tests were started by nohup
    process = python("ingest", path, tmp_path / "store", env={**os.environ, "PYTHONUNBUFFERED": "1"}, preexec_fn=as_usual)
    while not any(name.name.startswith(".store.partial") for name in tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.rstrip("\n").splitlines()[-1] == "penstock: interrupted: nothing was left half done"
    assert "Traceback" not in err
    assert [name.name for name in tmp_path.iterdir()] == ["edges.csv"]


def test_a_training_that_is_to_end_saves_where_it_stands(tmp_path):
    make_store(tmp_path / "store")
    options = ("--num-neighbors", "3,2", "--batch-size", "32", "--num-workers", "0", "--hidden", "8", "--epochs", "100000")
    process = python("train", tmp_path / "store", "--out", tmp_path / "run", *options, "--eval-every", "100000")
    while not (tmp_path / "run" / "checkpoint.pt").exists():  # after the first epoch
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.fullmatch(r"saved at epoch \d+, batch \d+: --resume goes on from there", err.splitlines()[-2])
    assert "Traceback" not in err
