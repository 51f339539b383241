"""What is said of a machine, and of what it lacks."""

import importlib.metadata
import json
import os
import subprocess
import sys

import pytest
import torch

import penstock
from penstock.cli import run
from penstock.report import doctor
from penstock.store import huge_pages
from penstock.store.tiers import disk_uring


def find(name):
    return next(part for part in doctor.examine() if part.name == name)


def test_the_command(capfd):
    assert run(["doctor"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == len(doctor.PARTS)
    assert all(line.startswith(("ok       ", "missing  ")) for line in lines)
    assert f"ok       torch: {importlib.metadata.version('torch')}" in lines
    assert run(["doctor", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["penstock"] == penstock.__version__
    assert [part["name"] for part in said["parts"]] == [name for name, _, _ in doctor.PARTS]
    for part in said["parts"]:
        assert part["brings"]
        assert bool(part["found"]) == part["is_there"] != bool(part["why_missing"])


def test_what_is_missing_says_why_and_what_it_would_bring(monkeypatch, tmp_path):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    def refuse(*arguments):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(disk_uring, "UringDevice", refuse)
    monkeypatch.setattr(huge_pages, "are_available", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(find("Triton")).startswith("missing  Triton: not installed: pip install 'penstock[gpu]'. It would bring the kernels")
    assert "the kernel refuses it (Operation not permitted): allow it" in str(find("io_uring"))
    assert "transparent_hugepage/enabled to madvise" in str(find("huge pages"))
    assert "torch finds none: look at its driver (nvidia-smi)" in str(find("GPU"))
    assert "there is no GPU to read them" in str(find("mapped files on the GPU"))
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert "is not built for it: install a torch that is" in str(find("CUDA in torch"))


def test_a_gpu_is_named_with_its_memory(monkeypatch):
    class Properties:
        name, total_memory = "Some GPU", 80 << 30

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    assert str(find("GPU")) == "ok       GPU: Some GPU with 80 GiB, Some GPU with 80 GiB"


def test_the_kernel_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    assert find("kernel cache").found.endswith("made when a kernel is first used")
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert "file cannot be written: set PENSTOCK_CACHE_DIR" in str(find("kernel cache"))
    assert os.listdir(tmp_path) == ["file"]  # looking made nothing


@pytest.mark.parametrize("limit", [-1, 8 << 20, 1 << 16])
def test_the_limit_on_locked_memory(limit, monkeypatch):
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: (limit, -1))
    expected = {-1: "no limit", 8 << 20: "8 MiB (`ulimit -l`)", 1 << 16: "the limit is 64 KiB: raise it by `ulimit -l`"}[limit]
    assert expected in str(find("locked memory"))


def test_looking_never_fails(monkeypatch):
    def broken():
        raise RuntimeError("driver\nis broken")

    monkeypatch.setattr(torch.cuda, "is_available", broken)
    assert find("GPU").why_missing == "looking for it failed: RuntimeError: driver is broken"


HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden, empty = sys.argv.pop(1), sys.argv.pop(1)
sys.meta_path.insert(0, Hidden())
if empty:
    sys.modules[empty] = type(sys)(empty)
from penstock.cli import main
main()
"""


def without(package, *arguments, empty=""):
    """Run a command where a package cannot be imported, and another one, which would take seconds, is empty."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HIDING, package, empty, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("package", ["psutil", "torch", "torch_geometric", "numba", "rich"])
def test_a_part_that_cannot_be_imported_is_missing(package):
    done = without(package, "doctor", empty="" if package == "torch_geometric" else "torch_geometric")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lines := done.stdout.splitlines()) == len(doctor.PARTS)
    start = f"missing  {package}: {importlib.metadata.version(package)} cannot be imported (No module named '{package}"
    assert [line for line in lines if line.startswith(start)], done.stdout


def test_a_command_that_misses_a_part_points_to_the_doctor(tmp_path):
    done = without("torch", "train", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == "penstock: torch cannot be imported: `penstock doctor` says what is missing and how to install it\n"
