"""The scripts of examples/ run, and come to what they say."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch.autograd.grad_mode import set_multithreading_enabled

import penstock
from tests.devices import DEVICES

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def last_number(said):
    return float(re.findall(r"\d+\.\d+", said)[-1])


@pytest.fixture
def store(tmp_path):
    penstock.generate("communities", tmp_path / "graph", num_nodes=3000, feature_dim=16)
    return str(tmp_path / "graph")


def test_all_are_tried():
    tried = set(re.findall(r'load\("(\w+)"\)|"(\w+)\.py"', Path(__file__).read_text()))
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= {name for names in tried for name in names}


def test_nodes(store, capsys):
    load("nodes").main(store)
    assert last_number(capsys.readouterr().out) > 0.8


def test_links(capsys):
    load("links").main()
    assert last_number(capsys.readouterr().out) > 0.8


def test_typed(capsys):
    load("typed").main()
    assert last_number(capsys.readouterr().out) > 0.45  # 0.125 by chance


def test_relational(capsys):
    example = load("relational")
    assert example.make_tables()[1][2].max() == example.LAST_DAY  # so that all days that answer the last question are known
    example.main()
    assert last_number(capsys.readouterr().out) > 0.7  # 0.5 by chance


def test_resume(capsys):
    load("resume").main()
    assert "the same weights, bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize("device", DEVICES)
def test_device(device, tmp_path, capsys, monkeypatch):
    penstock.generate("communities", tmp_path / "small", num_nodes=150, feature_dim=16)
    module = load("device")
    monkeypatch.setattr(module, "BATCH_SIZE", 32)
    with set_multithreading_enabled(False):  # on a pretended device other threads know nothing of this one's stream
        module.main(str(tmp_path / "small"), device=device)
    losses = re.findall(r"mean loss (\S+)", capsys.readouterr().out)
    assert len(losses) == 3
    assert float(losses[2]) < float(losses[0])


def run(*words, folder):
    ended = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=200)
    assert not ended.returncode, ended.stderr
    return ended.stdout


def test_budget(tmp_path):
    """In a process of its own, whose memory it is about."""
    assert last_number(run(EXAMPLES / "budget.py", folder=tmp_path)) < 1.2
    assert not list(tmp_path.iterdir())


def test_processes(store, tmp_path):
    said = run("-m", "torch.distributed.run", "--nproc-per-node", "2", EXAMPLES / "processes.py", store, folder=tmp_path)
    assert sorted(re.findall(r"rank (\d) of 2, epoch (\d): (\d+) batches", said)) == [(r, e, "2") for r in "01" for e in "01"]
