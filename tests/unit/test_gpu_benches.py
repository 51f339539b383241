"""The benchmarks of a GPU run at toy size, in Triton's interpreter; their page says what they wrote, and what they did not."""

import itertools
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import psutil
import pytest
import torch
from bench import (
    common,
    gpu_all,
    gpu_busy,
    gpu_cells,
    gpu_common,
    gpu_contender,
    gpu_link,
    gpu_page,
    gpu_recipes,
    gpu_sampling,
    graphs,
)
from bench.gpu_common import AT_MOST, UNORDERED
from torch_geometric.data import Data

from penstock.kernels import _triton
from penstock.kernels._triton import tensor_device

BENCHES = {"gpu_link": gpu_link, "gpu_sampling": gpu_sampling, "gpu_recipes": gpu_recipes, "gpu_busy": gpu_busy}
pytestmark = pytest.mark.skipif(not _triton.is_interpreted(), reason="at toy size, for machines without a GPU")


class InThisProcess:
    """A contender without a process of its own: it starts slower than it works."""

    def __init__(self, name, store, settings):
        self.name, self.asked = name, []
        self.said = gpu_contender.serve(name, str(store), settings, iter(self.asked.pop, None))

    def ask(self, word):
        self.asked.append(word)

    def read(self):
        return next(self.said)

    def close(self):
        self.said.close()


@pytest.mark.parametrize("name", BENCHES)
def test_the_interpreter_measures_nothing(name, results):
    with pytest.raises(SystemExit, match="figures mean nothing: set TRITON_INTERPRET=0"):
        BENCHES[name].main(["somewhere"] if name != "gpu_link" else [])
    assert not results.exists()


def test_link(results, tmp_path):
    gpu_link.main(["--toy", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "gpu_link.json").read_text())
    pieces = found["pieces"]
    assert list(pieces) == list(gpu_link.PIECES)
    assert found["interpreted"]
    assert found["is_toy"]
    for row_bytes in gpu_link.TOY.rows:
        assert {AT_MOST, UNORDERED} <= pieces["link"]["rows"][str(row_bytes)]["over_copy"].keys()
    assert [round(one["hits"], 1) for one in pieces["cache"]["512"].values()] == [0.0, 0.9, 1.0]
    assert pieces["step"]["over_alone"][AT_MOST]["median"] > 0
    before = (tmp_path / "gpu_link.json").stat().st_mtime_ns
    gpu_link.main(["--toy", "--out", str(tmp_path)])  # all is there
    assert (tmp_path / "gpu_link.json").stat().st_mtime_ns == before
    assert not results.exists()


def test_a_gather_of_wrong_rows_is_told(monkeypatch):
    monkeypatch.setattr(gpu_link, "gather_rows", lambda table, row_bytes, ids, out, **how: out.zero_())
    bench = gpu_link.Bench(tensor_device("cuda"), gpu_link.TOY)
    with pytest.raises(SystemExit, match="rows of 64 bytes: the gather gave wrong ones"):
        bench.gathers(bench.table, 64, 1)


def test_a_piece_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_link.Bench, "link", lambda bench: 1 / 0)
    monkeypatch.setattr(gpu_link.Bench, "registered", lambda bench: sys.exit("wrong rows"))
    with pytest.raises(SystemExit, match=r"^failed: link; registered$"):
        gpu_link.main(["--toy", "--out", str(tmp_path), "--pieces", "link", "registered", "device"])
    assert list(json.loads((tmp_path / "gpu_link.json").read_text())["pieces"]) == ["device"]
    said = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero" in said
    assert "SystemExit: wrong rows" in said
    monkeypatch.setattr(gpu_busy, "measure", lambda *arguments: 1 / 0)
    with pytest.raises(SystemExit, match=r"^failed: gnnlab, sage, batches of 16$"):
        gpu_busy.main(["--toy", "--out", str(tmp_path)])


def test_where_less_memory_can_be_pinned_the_table_is_smaller(monkeypatch, capsys):
    def refused(num_bytes, device, *, is_pinned):
        if num_bytes > most:
            raise RuntimeError("CUDA error: out of memory\nmore of it")
        return num_bytes

    monkeypatch.setattr(gpu_link, "filled", refused)
    most = 3 * gpu_link.GIB
    assert gpu_link.pinned_table(8 * gpu_link.GIB, is_pinned=True) == 2 * gpu_link.GIB
    assert "4 GiB of pinned memory: CUDA error: out of memory; half of it is tried" in capsys.readouterr().out
    most = 0
    with pytest.raises(RuntimeError):
        gpu_link.pinned_table(8 * gpu_link.GIB, is_pinned=True)


def test_sampling(results, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_sampling, "HOW", ("uniformly", "by time"))
    gpu_sampling.main(["--toy", "--out", str(tmp_path)])
    contenders = json.loads((tmp_path / "gpu_sampling.json").read_text())["pieces"]["toy"]["contenders"]
    ways = [
        f"{where} memory{way}" for where in ("device", "pinned") for way in ("", ", two under way", ", four under way", ", two threads")
    ]
    assert list(contenders) == ["cpu", *ways, "device memory, kernel by kernel", "pinned memory, 20% kept"]
    assert all(one["m_edges_per_s"]["median"] > 0 for one in contenders.values())
    monkeypatch.setattr(gpu_sampling, "HOW", ("uniformly",))
    gpu_sampling.main(["--toy"])
    assert not results.exists()


def test_recipes(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_recipes, "Contender", InThisProcess)
    monkeypatch.setattr(gpu_contender, "settle", lambda contender: contender.rest())
    some = ["PyG", "pyg", "mmap", "pagraph", "ducati", "rows", "lists"]
    gpu_recipes.main(["--toy", "--out", str(tmp_path), "--contenders", *some])
    (piece,) = json.loads((tmp_path / "gpu_recipes.json").read_text())["pieces"].values()
    assert list(piece["contenders"]) == some
    for name, row in piece["contenders"].items():
        if name == "PyG":  # which cannot sample by itself
            assert "failed" in row or row["about"]["sampler"]
            continue
        assert [len(row[mode]) for mode in ("load", "train")] == [1, 1]
        assert row["load"][0]["seeds_per_s"] > 0
        sampling = row["about"]["sampling"]
        who = {"pyg": "", "mmap": "", "pagraph": "by the CPU"}.get(name, "by cpu")  # which is the device, here
        assert sampling.startswith(who)
        assert bool(sampling) == bool(who)
        assert row["about"]["hit_rate"] > 0 or name != "pagraph"
    capsys.readouterr()
    gpu_recipes.main(["--toy", "--out", str(tmp_path), "--contenders", *some])
    assert capsys.readouterr().out == "", "what is there is not measured again"
    assert not results.exists()


@pytest.mark.deep
def test_recipes_in_processes(results, tmp_path):
    gpu_recipes.main(["--toy", "--out", str(tmp_path)])
    (piece,) = json.loads((tmp_path / "gpu_recipes.json").read_text())["pieces"].values()
    assert list(piece["contenders"]) == list(gpu_recipes.CONTENDERS)
    ours = [row for name, row in piece["contenders"].items() if name != "PyG"]
    assert all(row["train"][0]["seeds_per_s"] > 0 for row in ours)


def test_a_contender_that_fails_is_noted(results, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_recipes, "Contender", InThisProcess)
    monkeypatch.setattr(gpu_contender, "measure", lambda *arguments: 1 / 0)
    gpu_recipes.main(["--toy", "--out", str(tmp_path), "--contenders", "mmap"])
    (piece,) = json.loads((tmp_path / "gpu_recipes.json").read_text())["pieces"].values()
    assert piece["contenders"]["mmap"]["failed"] == "ZeroDivisionError: division by zero"


def test_what_an_earlier_commit_has_stays_until_all_of_it_is_there_again(results, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_recipes, "Contender", InThisProcess)
    monkeypatch.setattr(gpu_contender, "settle", lambda contender: contender.rest())
    some, measure = ["--toy", "--out", str(tmp_path), "--contenders", "mmap", "pagraph"], gpu_contender.measure

    def of_commit(name):
        monkeypatch.setenv("BENCH_COMMIT", name)
        gpu_recipes.main(some)
        result = json.loads((tmp_path / "gpu_recipes.json").read_text())
        (piece,) = gpu_cells.pieces({"gpu_recipes": result}, "gpu_recipes").values()
        return [one["commit"] for one in result["earlier"]], piece["contenders"]["mmap"]

    earlier, first = of_commit("one")
    assert earlier == []
    monkeypatch.setattr(gpu_contender, "measure", lambda *arguments: 1 / 0)
    for name in ("two", "three"):
        assert of_commit(name) == (["one"], first)
    monkeypatch.setattr(gpu_contender, "measure", measure)
    some.remove("pagraph")
    earlier, latest = of_commit("four")
    assert earlier == ["one"], "pagraph stays"
    assert latest != first
    some[-1] = "pagraph"
    assert of_commit("five") == (["one", "four"], latest), "mmap stays"
    some.append("mmap")
    earlier, newest = of_commit("six")
    assert earlier == []
    assert newest not in (first, latest)


def test_a_contender_that_has_ended_is_closed_all_the_same(tmp_path):
    contender = gpu_recipes.Contender("mmap", tmp_path, gpu_contender.Settings(batch_size=8))
    contender._process.kill()
    contender._process.wait()
    contender.ask("load")
    assert contender.read() == {"failed": "the process ended with code -9"}
    contender.close()


def test_a_contender_that_says_nothing_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_recipes, "PATIENCE_S", 0.1)
    contender = gpu_recipes.Contender("mmap", tmp_path, gpu_contender.Settings(batch_size=8))
    assert contender.read() == {"failed": "no answer within 0 s"}
    contender.close()
    assert contender._process.returncode < 0


def test_whoever_tries_settings_or_presamples_is_waited_for_longer(tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr(gpu_recipes.subprocess, "Popen", mock.MagicMock())
    monkeypatch.setattr(gpu_recipes.select, "select", lambda *streams_and_patience: waited.append(streams_and_patience[3]) or [[]])
    for name, word in (("PyG", "prepare"), ("PyG", "train"), ("gnnlab", "build"), ("gnnlab", "prepare")):
        contender = gpu_recipes.Contender(name, tmp_path, gpu_contender.Settings(batch_size=8))
        contender.ask(word)
        assert "no answer" in contender.read()["failed"]
    assert waited == [240, 120, 240, 120]


def test_what_libraries_print_is_no_answer():
    """Compiled ones too, which know no `sys.stdout`."""
    script = (
        "import os, sys\nfrom bench import gpu_contender\nsys.argv[1:] = ['mmap', 'nowhere', '{\"batch_size\": 8, \"fanouts\": []}']\n"
        "gpu_contender.serve = lambda *_: (os.write(1, b'loaded\\n') and {'a': 1} for _ in range(2))\ngpu_contender.main()"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=common.ROOT, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == '{"a": 1}\n' * 2
    assert "loaded" in done.stderr


def test_a_round_of_a_slow_contender_ends_after_few_batches(monkeypatch):
    monkeypatch.setattr(gpu_contender, "settle", lambda contender: None)
    clock = itertools.count(step=5.0)  # each look at it is five seconds later
    monkeypatch.setattr(gpu_contender.time, "perf_counter", lambda: next(clock))
    batch = Data(x=torch.zeros(3, 1), edge_index=torch.zeros(2, 4, dtype=torch.int64), batch_size=2)

    class Slow:
        device, workers, num_made = torch.device("cpu"), 14, 0

        def epoch(self):
            for _ in range(100):
                Slow.num_made += 1
                yield batch

    found = gpu_contender.measure(Slow(), "load", gpu_contender.Settings(batch_size=2))
    assert found["batches"] == gpu_contender.FEW
    assert Slow.num_made <= 2 * gpu_contender.FEW + 1


def test_all_benchmarks_in_the_order_of_what_they_tell(tmp_path, monkeypatch, capsys):
    ran, codes = [], iter([0, 3, *[0] * 10])
    monkeypatch.setattr(gpu_all, "run", lambda command, patience_s: ran.append(command[2:]) or next(codes))
    with pytest.raises(SystemExit, match=f"^failed: gpu_busy {tmp_path} --recipes gnnlab recorded$"):
        gpu_all.main([str(tmp_path), "--minutes", "20", "--out", str(tmp_path / "out"), "--memory", "120"])
    assert [command[0] for command in ran[:4]] == ["bench.gpu_recipes", "bench.gpu_busy", "bench.gpu_recipes", "bench.gpu_recipes"]
    assert all(command[-2:] == ["--out", str(tmp_path / "out")] for command in ran)
    for name, *words in gpu_all.steps(str(tmp_path), 120):  # each takes what it is given
        with pytest.raises(SystemExit, match="Triton's interpreter is on"):
            BENCHES[name].main(words)
    ran.clear()
    gpu_all.main([str(tmp_path), "--minutes", "0.5"])
    assert not ran
    assert re.search("^gpu_recipes .*: not begun", capsys.readouterr().out)


def test_a_benchmark_that_takes_too_long_is_ended_with_all_that_it_has_begun(tmp_path):
    script = "import os, time; os.fork(); print(os.getpid(), file=open(f'pid{os.getpid()}', 'w'), flush=True); time.sleep(60)"
    command = [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {script}"]
    assert gpu_all.run(command, 3) == 1
    begun = [int(path.name.removeprefix("pid")) for path in tmp_path.iterdir()]
    assert len(begun) == 2
    for _ in range(100):
        left = [pid for pid in begun if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
        if not left:
            break
        time.sleep(0.05)
    assert not left
    assert gpu_all.run([sys.executable, "-c", "raise SystemExit(3)"], 20) == 3


def test_contenders_share_memory():
    names = list(gpu_recipes.CONTENDERS)
    assert gpu_recipes.groups(names, 5 << 30, 125 << 30) == [names]
    split = gpu_recipes.groups(names, 10 << 30, 100 << 30)
    assert len(split) == 2
    assert list(itertools.chain(*split)) == names
    assert gpu_recipes.groups(names, 10 << 30, 1 << 30) == [[name] for name in names]


def test_nothing_begins_that_would_end_too_late(results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_recipes, "Contender", None)
    gpu_recipes.main(["--toy", "--out", str(tmp_path), "--minutes", "0.1"])
    assert re.search(r"not begun, 90 s expected and \d s left; run the command again for it", capsys.readouterr().out)
    assert not (tmp_path / "gpu_recipes.json").exists()


def test_busy(results, tmp_path):
    gpu_busy.main(["--toy", "--out", str(tmp_path), "--models", "gat"])
    result = json.loads((tmp_path / "gpu_busy.json").read_text())
    (one,) = result["pieces"].values()
    assert 0 < one["busy"] <= 1  # of the CPU, here
    assert one["picture"]["spans"]
    assert one["processor"].keys() == {"caller", "others"}
    gpu_page.draw({"gpu_busy": result}, tmp_path)
    (picture,) = tmp_path.glob("*.png")
    assert picture.name == "gpu-busy-gnnlab-gat-16.png"
    assert picture.stat().st_size > 5000


def event(name, stream, begin, length, kind="kernel"):
    return {"ph": "X", "cat": kind, "name": name, "tid": stream, "ts": begin, "dur": length}


def test_what_threads_take_of_a_processor():
    before, until = gpu_busy.processor_s_by_thread(), time.perf_counter() + 0.3
    while time.perf_counter() < until:
        pass
    after, me = gpu_busy.processor_s_by_thread(), threading.get_native_id()
    assert 0.05 < after[me] - before[me] < 0.5


def test_what_ran_on_a_device():
    trace = {
        "traceEvents": [
            event("_draw_tile", 13, 0, 10), event("cumsum", 13, 10, 5), event("_gather_rows", 17, 5, 20), event("gemm", 7, 20, 10),
            event("Memcpy HtoD", 17, 30, 10, "gpu_memcpy"), event("gemm", 7, 50, 10), event("cudaLaunchKernel", 99, 0, 100, "cuda_runtime"),
            {"ph": "M", "name": "process_name"},
        ]
    }  # fmt: skip
    events = gpu_busy.events_of(trace, gpu_common.KINDS)
    kernels = [one for one in events if one[1] == "kernel"]
    assert [lane for lane, *_ in events] == ["samples", "samples", "rows", "model", "rows", "model"]
    assert gpu_busy.covered_us(kernels) == 40
    assert gpu_busy.covered_us(events) == 50
    assert gpu_common.longest_of(trace, 2) == {
        "_gather_rows": [0.01, 0.5], "gemm": [0.01, 1.0], "_draw_tile": [0.005, 0.5], "Memcpy HtoD": [0.005, 0.5], "cumsum": [0.0025, 0.5],
    }  # fmt: skip
    shown = gpu_busy.picture(events, 4)
    assert shown["ms"] == 0.06
    assert shown["spans"][0] == ["samples", "kernel", 0.0, 0.015]


def test_a_result_of_another_setting_is_begun_anew_and_one_of_another_commit_stays(results, capsys, monkeypatch):
    parser = gpu_common.argparse.ArgumentParser()
    options, device, _, command = gpu_common.set_up("made", parser, ["--toy", "--out", str(results)])
    assert command == "python -m bench.made --toy"
    gpu_common.ResultFile("made", options, device, "a command", sizes=(1, 2)).put("one", {"a": 1})
    assert "one" in gpu_common.ResultFile("made", options, device, "a command", sizes=(1, 2))
    assert "one" not in gpu_common.ResultFile("made", options, device, "a command", sizes=(1, 3))
    assert "begun anew" in capsys.readouterr().out
    monkeypatch.setenv("BENCH_COMMIT", "another")
    later = gpu_common.ResultFile("made", options, device, "a command", sizes=(1, 2))
    assert "one" not in later
    later.put("two", {"a": 2})
    assert "one of commit" in capsys.readouterr().out
    monkeypatch.setenv("BENCH_COMMIT", "a third one")
    latest = gpu_common.ResultFile("made", options, device, "a command", sizes=(1, 2))
    latest.put("two", {"a": 3})
    result = json.loads((results / "made.json").read_text())
    assert [list(one["pieces"]) for one in result["earlier"]] == [["one"]]
    assert gpu_cells.pieces({"made": result}, "made") == {"one": {"a": 1}, "two": {"a": 3}}
    assert gpu_common.placeholder("bench.made", ["here", "--out", "there", "--toy"], ["here"]) == "python -m bench.made FOLDER --toy"


def test_whoever_is_killed_while_a_result_is_written_leaves_the_one_before(tmp_path, monkeypatch):
    common.write_result("made", {"a": 1}, tmp_path)
    write = Path.write_text

    def cut(path, text):
        write(path, text[:20])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", cut)
    with pytest.raises(KeyboardInterrupt):
        common.write_result("made", {"a": 2}, tmp_path)
    assert json.loads((tmp_path / "made.json").read_text())["a"] == 1


def test_graphs_of_a_device_are_as_large_as_they_have_to_be():
    for dim in gpu_recipes.DIMS:
        graph = graphs.GRAPHS[f"ten-{dim}"]
        assert graph["num_nodes"] >= 10_000_000
        assert graph["num_edges"] >= 200_000_000
        assert graph["feature_dim"] == dim
