"""`penstock plan STORE`: which plan feeds a model fastest on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, as_typed, make_progress, require_least_room, show
from penstock.cli.parsing import names, parse_fanouts

OF_SAMPLES = ("num_neighbors", "weight", "shared_draws", "layer_wise")
"""Settings of a run that say what is sampled."""
OF_A_STUDY = ("order", "host_memory", "spool", "spool_folder")
"""Settings of its plan that the trials are told; they decide all others."""


def plan(
    store: Annotated[Path, typer.Argument(help="Folder of the store.")],
    num_neighbors: Annotated[str, typer.Option(help="Fanout per layer, next to the seeds first; -1 = all.")] = "15,10",
    batch_size: Annotated[int, typer.Option(help="Seeds per batch.")] = 1024,
    num_workers: Annotated[int | None, typer.Option(help="Sampling threads. (default: the fewest that are as fast as all cores)")] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(
            help="A budget for the whole process, 2GiB: only plans that keep it. (default: half of what is free, if the store is larger)"
        ),
    ] = None,
    spool: Annotated[
        str | None,
        typer.Option(
            help="8GiB of the disk, for plans that spool rows there. (default: as much as the store, at most a quarter of what is free)"
        ),
    ] = None,
    spool_folder: Annotated[str | None, typer.Option(help="Where. (default: beside the features)")] = None,
    device: Annotated[str | None, typer.Option(help="cuda: batches are wanted there. (default: on the CPU)")] = None,
    recipes: Annotated[
        str | None,
        typer.Option(help="Those that are tried, with commas: pyg, mmap, uva, gnnlab, ... (default: those that can be the fastest)"),
    ] = None,
    order: Annotated[str | None, typer.Option(help="Of the train nodes, as in training. (default: random, or the recipe's)")] = None,
    weight: Annotated[str | None, typer.Option(help="Edge field to draw neighbours by. (default: uniformly)")] = None,
    shared_draws: Annotated[int, typer.Option(help="As in training: so many batches draw by numbers that all lists share. 0: none.")] = 0,
    layer_wise: Annotated[bool, typer.Option(help="As in training: --num-neighbors counts the new nodes of a layer.")] = False,
    split: Annotated[str | None, typer.Option(help="Name of the split. (default: the only one)")] = None,
    seed_type: Annotated[str | None, typer.Option(help="Node type of the seeds. (default: the one with splits)")] = None,
    seconds: Annotated[float, typer.Option(help="That each plan is measured for, after as many that do not count.")] = 3.0,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Try plans on this machine, each for some seconds, and say which feeds a model fastest. Nothing is trained."""
    fanouts = parse_fanouts(num_neighbors, None)
    require_least_room()
    from penstock.store import Store
    from penstock.study import PlanStudy, study_plans

    settings = PlanStudy(
        num_neighbors=fanouts, batch_size=batch_size, num_workers=num_workers, host_memory=host_memory, spool=spool,
        spool_folder=spool_folder, device=device, recipes=None if recipes is None else names(recipes), order=order, weight=weight,
        shared_draws=shared_draws, layer_wise=layer_wise, split=split, seed_type=seed_type, seconds=seconds, seed=seed,
    )  # fmt: skip
    result = study_plans(Store.open(store), settings, progress=make_progress(), spell=as_typed)
    show(result, lambda: as_text(result), as_json)


def as_text(result: dict[str, Any]) -> str:
    """Return what was found, and what to type."""
    from penstock.report import words
    from penstock.study.text import plan_lines

    chosen = result["trials"][result["chosen"]]
    typed, python = typed_options(options(result["settings"], chosen)), plan_in_python(chosen["changes"])
    lines = [
        *plan_lines(result, typed_options),
        "",
        f"penstock train {words.printable(shlex.quote(result['store']))} {typed}",
        f"NeighborLoader(..., plan={python}, num_workers={chosen['num_workers']})",
    ]
    return "\n".join(lines)


def chosen_for(settings: dict[str, Any], num_workers: int | None) -> dict[str, Any]:
    """Try plans for a run of `penstock train`, and say what was found; returns the settings of the fastest, its threads too.

    Args:
        settings: of the run, all of them.
        num_workers: None: to be chosen.
    """
    from penstock.report import words
    from penstock.study import PlanStudy, study_plans
    from penstock.study.text import plan_lines

    study = PlanStudy(
        **{name: settings[name] for name in (*OF_SAMPLES, "batch_size", "split", "seed", *OF_A_STUDY)},
        num_workers=num_workers, device=None if settings["device"] == "cpu" else settings["device"], seed_type=settings["target"],
    )  # fmt: skip
    result = study_plans(settings["store"], study, progress=make_progress(), spell=as_typed)
    for line in plan_lines(result, typed_options):
        words.say(line)
    chosen = result["trials"][result["chosen"]]
    return {**chosen["changes"], "num_workers": chosen["num_workers"]}


def options(settings: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """Options of `penstock train` that stand for a plan that was tried."""
    given = {name: settings[name] for name in ("num_neighbors", "batch_size", "order", "weight", "split", "device")}
    given |= {name: settings[name] or None for name in ("seed", "shared_draws", "layer_wise")}
    given["target"] = settings["seed_type"]
    given = {name: value for name, value in given.items() if value is not None}
    return {**given, **chosen["changes"], "num_workers": chosen["num_workers"]}


def typed_options(values: dict[str, Any]) -> str:
    """Spell options with their values, as they are typed in a shell."""
    return " ".join(as_typed(name, None) + _typed(value) for name, value in values.items())


def _typed(value: Any) -> str:
    if value is True:
        return ""
    return " " + shlex.quote(",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value))


def plan_in_python(changes: dict[str, Any]) -> str:
    """Spell a plan as an argument of a loader."""
    if list(changes) == ["recipe"]:
        return repr(changes["recipe"])
    made = ", ".join(f"{name}={value!r}" for name, value in changes.items() if name != "recipe")
    return f"penstock.plan.make_plan({changes['recipe']!r}, {made})" if "recipe" in changes else f"penstock.Plan({made})"
