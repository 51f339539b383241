"""The page of a GPU's results says what their files say, and what was not run."""

import json
import re

import pytest
from bench import common, gpu_cells, gpu_page, gpu_page_recipes, tables
from bench.gpu_common import ALONE, AT_MOST, RECORDED


def spread(median):
    return {"median": median, "min": median, "max": median}


def made_up():
    """Results as of a device."""
    head = {
        "commit": "abc", "date": "2030-01-01", "command": "python -m bench.made", "interpreted": False, "is_toy": False,
        "foreign_load_percent": 0.1, "machine": {"processor": "P", "cores": 16, "memory_gib": 128.0, "torch": "9"},
        "device": {"name": "G", "multiprocessors": 100, "memory_gib": 80.0, "cuda": "14", "triton": "4", "torch_geometric": "3",
                   "driver": "999", "link_generation": "5", "link_lanes": "16"},
    }  # fmt: skip
    over = {AT_MOST: spread(0.95), "chosen": spread(0.94)}
    row = {"gb_per_s": {"copy": spread(50.0), **over}, "over_copy": over}
    low = {"gb_per_s": {"copy": spread(50.0), **over}, "over_copy": {AT_MOST: spread(0.8), "chosen": spread(0.8)}}
    cached = {
        "hits": 0.9,
        "gb_per_s": dict.fromkeys(gpu_page.KINDS, spread(40.0)),
        "over_uncached": spread(5.0),
    }
    link = {
        "link": {"programs": {AT_MOST: 20, "chosen": 16}, "rows": {"256": low, "512": row, "600": low}},
        "device": {"rows": {"512": {"gb_per_s": dict.fromkeys(("copy", "gather"), spread(900.0)), "over_copy": spread(0.85)}}},
        "cache": {"512": {"90": cached}},
        "step": {
            "programs": {AT_MOST: 20},
            "step_ms": {ALONE: spread(5.0), AT_MOST: spread(6.0), RECORDED + ALONE: spread(4.0), RECORDED + AT_MOST: spread(4.08)},
            "over_alone": {AT_MOST: spread(1.2), RECORDED + AT_MOST: spread(1.02)},
            "gather_gb_per_s_beside": {AT_MOST: spread(40.0), RECORDED + AT_MOST: spread(41.0)},
        },
    }
    over_cpu = {"device memory": 9.0, "device memory, two threads": 12.0, "pinned memory": 12.0}
    contenders = {way: {"m_edges_per_s": spread(100 * over), "over_cpu": spread(over)} for way, over in over_cpu.items()}
    rates = {name: 1000.0 * (number + 1) for number, name in enumerate(("PyG", *gpu_page_recipes.RECIPES))}
    rates["bgl"] = 20_000.0
    about = {"sampler": "pyg-lib", "chosen": "7 workers", "tried_seeds_per_s": {"7 workers": 1000.0}}
    recipes = {
        name: {
            "contenders": {
                "PyG": {"about": about, "load": [{}], "train": [{"device_peak_bytes": 2 << 30}]},
                "mmap": {"failed": "no memory"},
            },
            "seeds_per_s": {"load": rates, "train": rates},
        }
        for _, _, name in gpu_page_recipes.configurations()
    }
    busy = {
        f"{recipe}, {model}, batches of {size}": {
            "busy": share, "busy_by_stream": {"model": 0.5, "samples": 0.1, "rows": 0.2}, "utilization_percent": 97.0, "batch_ms": 1.0,
            "processor": {"caller": 0.5, "others": 0.25}, "batch_ms_profiled": 1.1,
            "seeds_per_s": 1000.0 * share, "longest_ms": {"_draw_tile": [0.25, 3.0]},
        }
        for recipe, share in (("uva", 0.5), ("gnnlab", 0.93)) for model, size in (("sage", 1024), ("sage", 8000), ("gat", 1024))
    }  # fmt: skip
    sampling = {
        f"ten-128, batches of {size}": {"contenders": contenders, "longest_ms": {"device memory": {"_claim": [0.1, 3.0]}}}
        for size in gpu_page_recipes.BATCHES
    }
    pieces = {"gpu_link": link, "gpu_sampling": sampling, "gpu_recipes": recipes, "gpu_busy": busy}
    return {name: {**head, "pieces": each} for name, each in pieces.items()}


def test_what_is_asked_for_is_asked_of_uniform_draws():
    """The CPU's kernels of other draws are others."""
    results = made_up()
    pieces = results["gpu_sampling"]["pieces"]
    for how in ("by weight", "disjoint", "by time", "shared"):
        pieces[f"ten-128 {how}, batches of 1024"] = pieces["ten-128, batches of 1024"]
    assert [target for _, target, *_ in gpu_page.sampling_rows(results)] == ["10x", "3x"] * 2 + ["-"] * 8


def test_what_requests_of_whole_lines_allow():
    """Four lines of 148 bytes for rows of 512; of rows that begin at multiples of 16, 400 bytes lie on four lines and 13 sectors."""
    assert gpu_page.most_over_copy(512) == gpu_page.most_over_copy(128) == pytest.approx(128 / 148 * 276 / 256)
    assert gpu_page.most_over_copy(400) == pytest.approx(400 / (416 + 80) * 276 / 256)
    assert gpu_page.most_over_copy(258) < 0.81


def test_the_page_of_made_up_results(results):
    results.mkdir()
    for name, result in made_up().items():
        (results / f"{name}.json").write_text(json.dumps(result))
    page = gpu_page.render(tables.gpu_results(), common.table)
    assert f"| {gpu_cells.NOT_RUN}" not in page
    assert "Of 20 figures that are asked for, 20 were measured and 0 were not run." in page
    for line in (
        "| 0.93 | UVA: 0.95 | 0.95 (0.95 to 0.95) | yes |",
        "| 0.90 | UVA: 0.88 to 0.93 | 0.8 (0.8 to 0.8), 600 bytes | **no** |",
        "| at most 1.05 | UVA: 8 to 20 % of the GPU saturate the link | 1.02 (1.02 to 1.02) (recorded) | yes |",
        "| kernel by kernel | 20.0% (20) | 6 (6 to 6) | 1.2 (1.2 to 1.2) | 40 (40 to 40) |",
        "| one launch | alone | 4 (4 to 4) | - | - |",
        "| 3x | - | 5x (5 to 5) | yes |",
        "| 0.80 | - | 0.85 (0.85 to 0.85) | yes |",
        "without the model | 10x | - | 20.00x (bgl) | yes |",
        "| DUCATI over the best single cache (ducati / rows or lists), with the model | 1.32 | 0.80x to 0.80x, of 4 |",
        "| busy share, GraphSAGE, batches of 1024 | 90% | BGL: 65 % | 93.0% (gnnlab) | yes |",
        "| busy share, GAT, batches of 1024 | - | BGL: 99 % | 93.0% (gnnlab) | - |",
        "mmap did not run: no memory",
        "| 97 % | 1.00 | 1.10 | 50%, 25% |",
        "| 128 features, batches of 1024 | 0.00, 2.0 |",
        "PCIe 5 x16 | P, 16 cores, 128 GiB; foreign load 0.1 % | driver 999, CUDA 14, torch 9, triton 4, PyG 3 | abc, 2030-01-01",
    ):
        assert line in page, line


def test_contenders_of_a_run_that_is_not_whole_stand_beside_those_of_an_earlier_one():
    """And are compared with PyG of the same run."""
    made = made_up()
    recipes, name = made["gpu_recipes"], "128 features, batches of 1024"
    about = recipes["pieces"][name]["contenders"]["PyG"]
    rates = {"gnnlab": 9000.0, "PyG": 3000.0}
    now = {name: {"contenders": dict.fromkeys([*rates, "uva"], about), "seeds_per_s": {"load": {**rates, "uva": 1.0}, "train": rates}}}
    recipes["pieces"][name]["contenders"] |= {name: about for name in gpu_page_recipes.RECIPES if name != "mmap"}
    made["gpu_recipes"] = {**recipes, "pieces": now, "earlier": [{"commit": "old", "date": "x", "machine": recipes["machine"],
                                                                 "pieces": recipes["pieces"]}]}  # fmt: skip
    page = gpu_page.render(made, common.table)
    assert "128 features, batches of 1024, without the model | 10x | - | 3.00x (gnnlab) | **no** |" in page
    cells = "3,000 | 2,000 | 3,000 (1.50x) | 4,000 (1.33x) | 5,000 (1.25x) | 9,000 | 7,000 | 8,000 | 9,000 (1.12x) | 10,000 (1.11x)"
    assert f"| 128 features, batches of 1024, without the model | {cells}" in page
    assert "- 128 features, batches of 1024: of another run, at old: mmap, pyg, pagraph, uva, recorded, ducati, rows, lists, bgl." in page
    assert "GNNLab over DGL (gnnlab / pyg), without the model | 2.4 to 9.1 | 3.00x to 3.00x, of 4 |" in page, "both of the earlier run"


def test_of_several_runs_that_are_not_whole_the_latest_counts():
    """Who has failed in all of them is there, too."""
    made, name = made_up(), "128 features, batches of 1024"
    recipes = made["gpu_recipes"]

    def run(commit, rates, *failed):
        rows = {one: {} for one in rates} | {one: {"failed": f"at {commit}"} for one in failed}
        pieces = {name: {"contenders": rows, "seeds_per_s": {"load": rates, "train": rates}}}
        return {"commit": commit, "date": "x", "machine": recipes["machine"], "pieces": pieces}

    earlier = [run("a", {"pyg": 1.0, "mmap": 2.0, "uva": 3.0, "bgl": 4.0}, "PyG"), run("b", {"mmap": 20.0, "bgl": 40.0}, "PyG")]
    made["gpu_recipes"] = {**recipes, "earlier": earlier, **run("c", {"bgl": 400.0}, "ducati")}
    page = gpu_page.render(made, common.table)
    assert f"| {name}, with the model | not run | 1 | 20 | not run | 3 | not run | not run | not run | not run | not run | 400 |" in page
    assert f"- {name}: of another run, at b: mmap." in page
    assert f"- {name}: of another run, at a: pyg, uva." in page
    assert f"- {name}: PyG did not run: at b" in page
    assert f"- {name}: ducati did not run: at c" in page
    found, _ = gpu_page_recipes.of_one_run(made, name, "load", "mmap", "bgl")
    assert (found["mmap"], found["bgl"]) == (20.0, 40.0)


def test_pyg_counts_as_tried_until_it_goes_a_round():
    """Without the model: what it would do with it is not known."""
    made, name = made_up(), "128 features, batches of 1024"
    piece = made["gpu_recipes"]["pieces"][name]
    piece["seeds_per_s"] = {
        mode: {name: rate for name, rate in rates.items() if name != "PyG"} for mode, rates in piece["seeds_per_s"].items()
    }
    piece["contenders"]["PyG"] = {"about": {"tried_seeds_per_s": {"7 workers": 1000.0, "15 workers": 500.0}, "sampler": "s", "chosen": "c"}}
    page = gpu_page.render(made, common.table)
    assert f"{name}, without the model | 10x | - | 20.00x (bgl), PyG as tried | yes |" in page
    assert f"{name}, with the model | 10x | - | not run | - |" in page
    piece["contenders"]["PyG"]["failed"] = "no handles"
    assert f"{name}, without the model | 10x | - | not run: no handles | - |" in gpu_page.render(made, common.table)


def test_what_was_not_run_says_so(results):
    page = gpu_page.render(tables.gpu_results(), common.table)
    assert "Of 20 figures that are asked for, 0 were measured and 20 were not run." in page
    asked = [line for line in page.splitlines() if re.match(r"\| .* \| .* \| .* \| .* \| .* \|$", line) and "---" not in line]
    assert all("not run" in line for line in asked if not line.startswith(("| figure", "| file", "|  | PyG")))
    toys = {name: {**one, "is_toy": True} for name, one in made_up().items()}
    assert gpu_page.render(toys, common.table) == page, "what was tried at toy size is no result"
