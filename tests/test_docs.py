"""The docs say what is: what they name exists, and their examples run."""

import ast
import inspect
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.models import GraphSAGE
from typer.main import get_command

import penstock
from penstock.cache.choose import DYNAMIC, LIST_POLICIES, POLICIES
from penstock.cache.packing import LAYOUTS, RANDOM
from penstock.cli import make_app
from penstock.order import ORDERS
from penstock.partition import METHODS
from penstock.plan import RECIPES, Plan
from penstock.plan.plan import DEVICE_TOPOLOGIES, FEATURES, HOLDS, TOPOLOGIES
from penstock.sample.lists import LAYOUTS as LISTS
from penstock.study import ORDERS as STUDIED_ORDERS
from penstock.study import STUDIED
from penstock.train import MODELS
from penstock.train.aggregate import MODEL_OF
from penstock.train.config import EVALUATIONS, METRICS, NORMALIZATIONS
from tests.test_layers import HOUSE

ROOT = Path(__file__).parents[1]
PAGES = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench" / "README.md"))
SOURCES = [path for folder in ("src", "tests", "bench") for path in (ROOT / folder).rglob("*.py")]
PLACES = ("", "src/penstock/", "tests/", "tests/property/", "tests/feed/", "tests/train/", "tests/differential/", "bench/", "docs/")
OF_OTHERS = {"test/loader/test_neighbor_loader.py"}
"""Files of other projects."""
OF_TORCHRUN = {
    "--nproc-per-node",
    "--nnodes",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--max-restarts",
    "--rdzv-backend",
    "--local-addr",
}
OTHER_OPTIONS = {"--help", "--timeout", "--no-build-isolation", "--gpus-per-task", *OF_TORCHRUN}
"""Of every command, of pytest, of pip, of srun and of torchrun."""

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def spans(page):
    """What stands in backquotes, but for messages in double ones."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S))


def code(page, language=""):
    """The blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


def commands(command, words=()):
    """Yield (words, command) for all commands and theirs."""
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*words, name))


@cache
def options():
    """Names of the options of all commands, and of all benchmarks."""
    ours = {
        name for _, command in commands(get_command(make_app())) for each in command.params for name in (*each.opts, *each.secondary_opts)
    }
    return ours | {name for path in (ROOT / "bench").glob("*.py") for name in re.findall(r'"(--[a-z-]+)"', path.read_text())}


def headings(page):
    """Anchors of a page."""
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}


@every_page
def test_links(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@every_page
def test_files(page):
    """Names with a slash and an ending, and names of tests."""
    for span in spans(page):
        for name in re.findall(r"(?<![\w/*.])[\w*.-]+/[\w*/.-]*\w\.(?:py|md|json|png)\b", span):
            assert name in OF_OTHERS or any(any(ROOT.glob(place + name)) for place in PLACES) or "gpu_" in name, name


def test_tests():
    """All but PyG's own."""
    known = {name for path in SOURCES for name in [path.stem, *re.findall(r"def (test_\w+)", path.read_text())]}
    of_pyg = {"compat.md"}
    for page in PAGES:
        named = {name for span in spans(page) for name in re.findall(r"\btest_\w+\b(?!\*)", span)}
        assert page.name in of_pyg or named <= known, (page.name, named - known)


@every_page
def test_options(page):
    text = " ".join([*spans(page), *code(page), *re.findall(r"^    .*$", page.read_text(), re.M)])
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - OTHER_OPTIONS
    assert named <= options(), named - options()


@every_page
def test_lines(page):
    """Paragraphs and lists; what lies in a table or a code block is as wide as it is."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    assert not [line for line in text.splitlines() if len(line) > 140 and not line.startswith("|")]


@every_page
def test_python_is_python(page):
    for block in code(page, "python"):
        ast.parse(block)


def test_rooms():
    """The tour's list is the one by which imports are checked."""
    table = (ROOT / "docs" / "tour.md").read_text().split("| room |")[1].split("\n\n")[0]
    rooms = [name for line in table.splitlines() for name in re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1] if "|" in line else "")]
    assert rooms == HOUSE


CHOICES = {
    "train": {
        "policy": POLICIES, "neighbor_policy": LIST_POLICIES, "order": ORDERS, "model": MODELS, "recipe": RECIPES, "features": FEATURES,
        "topology": TOPOLOGIES, "neighbor_layout": LISTS, "hold": HOLDS, "device_topology": DEVICE_TOPOLOGIES, "metric": METRICS,
        "evaluation": EVALUATIONS, "normalize": NORMALIZATIONS,
    },
    "layout": {"policy": DYNAMIC, "by": (*LAYOUTS, RANDOM), "order": ORDERS},
    "partition": {"method": METHODS},
    "study cache": {"policies": STUDIED, "orders": STUDIED_ORDERS},
    "aggregate": {"by": MODEL_OF},
}  # fmt: skip
"""Command -> option -> names that it takes."""
DOCUMENTED = {
    Plan: (POLICIES, LIST_POLICIES, ORDERS, FEATURES, TOPOLOGIES, LISTS, HOLDS, DEVICE_TOPOLOGIES),
    penstock.NeighborLoader: (ORDERS,),
}
"""Class -> names that its arguments take, which its docstring says in quotation marks."""


@pytest.mark.parametrize("words", CHOICES)
def test_choices_are_in_the_help(words):
    [command] = [command for names, command in commands(get_command(make_app())) if " ".join(names) == words]
    help_of = {each.name: each.help or "" for each in command.params}
    missing = [
        f"--{option.replace('_', '-')} {name}"
        for option, known in CHOICES[words].items()
        for name in known
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", help_of[option])
    ]
    assert not missing, f"the help of penstock {words} does not name {missing}"


@pytest.mark.parametrize("documented", DOCUMENTED)
def test_choices_are_in_the_docstrings(documented):
    missing = [name for known in DOCUMENTED[documented] for name in known if f'"{name}"' not in inspect.getdoc(documented)]
    assert not missing, f"the docstring of {documented.__name__} does not name {missing}"


def test_policies_and_recipes_are_explained():
    """The tables of docs/tuning.md: every policy, and of every recipe the options that make it."""
    rows = dict(re.findall(r"^\| ((?:`[^`|]+`,? ?)+) \| (.*) \|$", (ROOT / "docs" / "tuning.md").read_text(), re.M))
    named = {name for key in rows for name in re.findall(r"`(\w[^`]*)`", key)}
    there = {*POLICIES, *RECIPES}
    assert named == there, f"docs/tuning.md does not explain {there - named}, or explains what is not there: {named - there}"
    fields = {"no_huge_pages": lambda words: ("huge_pages", False)}
    for name, plan in RECIPES.items():
        said = re.findall(r"--([a-z-]+)(?: ([\w%.]+))?", rows[f"`{name}`"])
        made = Plan(recipe=name, **dict(fields.get(k.replace("-", "_"), lambda v, k=k: (k.replace("-", "_"), v))(v) for k, v in said))
        assert made == plan, name


def test_arguments_are_explained():
    """docs/compat.md has every argument of the loader, and of torch's that it takes."""
    page = " ".join(spans(ROOT / "docs" / "compat.md"))
    taken = {*inspect.signature(penstock.NeighborLoader).parameters, *inspect.signature(torch.utils.data.DataLoader).parameters} - {
        "kwargs"
    }
    assert not {name for name in taken if not re.search(rf"\b{name}\b", page)}


def test_python_of_the_tour():
    """What its table names is there, after a plain import."""
    [table] = re.findall(r"## The commands in Python\n(.*?)\n## ", (ROOT / "docs" / "tour.md").read_text(), re.S)
    named = sorted(set(re.findall(r"penstock(?:\.\w+)+", table)))
    assert len(named) > 10
    code = f"import penstock, sys\npenstock.errors.PipelineError\nassert 'torch' not in sys.modules\n{chr(10).join(named)}"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {*get_command(make_app()).commands} - {"doctor"} == {*re.findall("`penstock ([\\w-]+)", table)}


@pytest.fixture
def around(tmp_path, monkeypatch):
    """What examples take for granted: a store papers/ in the current folder, and a model."""
    monkeypatch.chdir(tmp_path)
    penstock.generate("communities", "papers", num_nodes=300, num_edges=3000, feature_dim=8, num_classes=4)
    torch.manual_seed(0)
    model = GraphSAGE(8, 8, 3, 4)
    return {"penstock": penstock, "torch": torch, "F": F, "model": model, "optimizer": torch.optim.Adam(model.parameters())}


def test_example_of_the_readme(around):
    exec(code(ROOT / "README.md", "python")[0], around)
    assert around["batch"].batch_size
    assert around["loss"].isfinite()


def test_examples_of_tuning(around, tmp_path):
    """A model that is trimmed, layers, and a loop that is stopped within an epoch and goes on."""
    trim, layers, resume = code(ROOT / "docs" / "tuning.md", "python")
    around["loader"] = penstock.NeighborLoader("papers/", [3, 3], "train", batch_size=32, seed=0)
    trimmed = {**around, "model": GraphSAGE(8, 8, 2, 4)}
    exec(trim, trimmed)
    batch = next(iter(around["loader"]))
    assert len(trimmed["model"](batch.x, batch.edge_index)) == batch.batch_size
    exec(layers, {**around, "convs": [SAGEConv((8, 8), 8), SAGEConv((8, 8), 4)]})

    def run(stop, resumed):
        given, seen = SimpleNamespace(**{k: v for k, v in around.items() if k != "loader"}, resume=resumed, num_epochs=2), []
        given.loader = penstock.NeighborLoader("papers/", [3, 3], "train", batch_size=32, shuffle=True, seed=0)
        given.step = lambda batch: seen.append(penstock.digest(batch))
        given.time_to_save = lambda: len(seen) == stop

        def save_aside(loader, **others):
            state = {"model": around["model"].state_dict(), "optimizer": around["optimizer"].state_dict(), "random": others["random"]}
            torch.save({"loader": loader, **state}, "state.pt")
            raise KeyboardInterrupt

        given.save_aside = save_aside
        with suppress(KeyboardInterrupt):
            exec(resume, vars(given))
        return seen

    whole = run(None, False)
    assert run(7, False) + run(None, True) == whole
