"""Options are arguments of the library, by name and default. One message, two spellings: as typed in what a command says, as in Python in
what an exception says."""

import dataclasses
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import penstock
from penstock.cli import make_app, run
from penstock.cli.console import as_typed
from penstock.cli.parsing import parse_fanouts, parse_windows
from penstock.errors import UsageError, argument
from penstock.plan import Plan
from penstock.sources.generate import KINDS
from penstock.store import parse_bytes
from penstock.study import CacheStudy, LayoutSettings, PlanStudy
from penstock.train import TrainConfig, train
from tests.train.stores import make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(make_store(tmp_path_factory.mktemp("spelling") / "store").path)


@pytest.fixture
def edges(tmp_path):
    np.savetxt(tmp_path / "edges.csv", [[0, 1], [1, 2]], fmt="%d", delimiter=",", header="src,dst", comments="")
    return str(tmp_path / "edges.csv")


def options(command):
    """All options of a command and those below it."""
    below = [option for each in getattr(command, "commands", {}).values() for option in options(each)]
    return {*below, *(option for parameter in command.params for option in parameter.opts)}


def test_every_argument_that_a_message_names_is_an_option():
    texts = [path.read_text() for path in Path(penstock.__file__).parent.rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"argument\([\'\"](\w+)[\'\"]", text)}
    assert len(named) > 30
    assert {as_typed(name, None) for name in named} <= options(get_command(make_app()))


@pytest.mark.parametrize(
    ("command", "settings", "of_commands"),
    [
        ("train", TrainConfig, {"out", "predictions", "resume", "layers"}),
        ("layout", LayoutSettings, {"drop"}),
        ("study cache", CacheStudy, {"out"}),
        ("plan", PlanStudy, set()),
        ("ingest", penstock.ingest, None),
        *((f"generate {kind}", penstock.ingest, None) for kind in KINDS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_are_the_arguments_of_the_library(command, settings, of_commands):
    """By name and default; a command of a source or a generator has those too."""
    group = get_command(make_app())
    for word in command.split():
        group = group.commands[word]
    read = {"num_neighbors": lambda text: parse_fanouts(text, None), "windows": parse_windows, "page_bytes": parse_bytes}
    typed = {"fields" if each.name == "field" else each.name: each.default for each in group.params}
    given = {each.name: each.default for each in inspect.signature(settings).parameters.values() if each.kind == each.KEYWORD_ONLY}
    given = {name: default for name, default in given.items() if name not in ("store", "progress")}
    assert given.keys() <= typed.keys()
    assert of_commands is None or typed.keys() - given.keys() == of_commands | {"store", "as_json"}
    for name, default in given.items():
        split = (lambda text: tuple(text.split(","))) if isinstance(default, tuple) else lambda value: value
        assert read.get(name, split)(typed[name]) == default, name


def test_help_tells_the_defaults_of_plans():
    """They stand in the help as words, since a recipe has its own."""
    said = {each.name: each.help for each in get_command(make_app()).commands["train"].params}
    for each in dataclasses.fields(Plan):
        if each.name in said and each.name != "recipe" and each.default not in (None, "0"):
            assert f"(default: {'huge-pages' if each.default is True else each.default}" in said[each.name], each.name


def test_what_is_studied_is_what_is_trained():
    trained = TrainConfig(store="")
    for settings in (CacheStudy(), LayoutSettings()):
        assert (settings.num_neighbors, settings.batch_size, settings.seed) == (trained.num_neighbors, trained.batch_size, trained.seed)


@pytest.mark.parametrize(
    ("arguments", "typed", "in_python"),
    [
        (("num_nodes",), "--num-nodes", "num_nodes"),
        (("ids", "int"), "--ids int", "ids='int'"),
        (("id", ...), "--id ...", "id=..."),
        (("header", True), "--header", "header=True"),
        (("header", False), "--no-header", "header=False"),
        (("allow_nan", True), "--allow-nan", "allow_nan=True"),
        (("num_neighbors", [15, 10]), "--num-neighbors 15,10", "num_neighbors=[15, 10]"),
        (("num_neighbors", (15,)), "--num-neighbors 15", "num_neighbors=(15,)"),
        (("target", None), "no --target", "target=None"),
        (("target", "it's"), "--target it's", 'target="it\'s"'),
        (("node_fields",), "--node-field", "node_fields"),
    ],
    ids=str,
)
def test_spellings(arguments, typed, in_python):
    error = UsageError(f"do not give {argument(*arguments)} here")
    assert error.spelled(as_typed) == f"do not give {typed} here"
    assert str(error) == f"do not give {in_python} here"


def test_commands_and_library_say_the_same_otherwise(store, edges, tmp_path, capfd):
    new = str(tmp_path / "new")
    kronecker = ["generate", "kronecker", new, "--base", store, "--num-copies", "0"]
    cases = [
        (["generate", "rmat", new], lambda: penstock.generate("rmat", new), "give either --num-nodes or --scale"),
        (
            kronecker,
            lambda: penstock.generate("kronecker", new, base=store, num_copies=0),
            "--num-copies must be a whole number of at least 1",
        ),
        (["ingest", edges, new, "--num-nodes", "-1"], lambda: penstock.ingest(edges, new, num_nodes=-1), "--num-nodes must be 0 or more"),
        (["ingest", edges, new, "--ids", "x"], lambda: penstock.ingest(edges, new, ids="x"), "--ids must be 'number', 'int' or 'string'"),
        (
            ["train", store, "--batch-size", "0"],
            lambda: train(TrainConfig(store=store, batch_size=0), new),
            "--batch-size must be at least 1",
        ),
    ]
    for typed, call, message in cases:
        assert run(typed) == 2
        assert capfd.readouterr().err.startswith(f"penstock: {message}")
        with pytest.raises(UsageError) as caught:
            call()
        assert str(caught.value).startswith(re.sub(r"--([\w-]+)", lambda match: match[1].replace("-", "_"), message))


def test_keys_of_a_description_are_not_options(tmp_path, capfd):
    (tmp_path / "graph.json").write_text('{"nodes": {"a": {"ids": "x"}}, "edges": {"a__to__a": "edges.csv"}}')
    assert run(["ingest", str(tmp_path / "graph.json"), str(tmp_path / "new")]) == 2
    assert "graph.json: nodes 'a': ids must be 'number', 'int' or 'string', got 'x'" in capfd.readouterr().err
