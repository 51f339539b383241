"""`penstock plan STORE`: which plan feeds a model fastest on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.console import AsJson, as_typed, make_progress, require_least_room, show
from penstock.cli.parsing import names, parse_fanouts

OF_BATCHES = ("num_neighbors", "batch_size", "weight", "shared_draws", "layer_wise", "split", "edge_label", "num_negatives", "seed")
"""Settings of a run that determine its batches, whatever its plan."""
OF_A_STUDY = ("order", "host_memory", "spool", "spool_folder")
"""Settings of its plan that are passed to the trials, which choose all others."""


def plan(
    store: Annotated[Path, typer.Argument(help="Folder of the store.")],
    num_neighbors: Annotated[str, typer.Option(help="Fanout per layer, the one next to the seeds first; -1 = all.")] = "15,10",
    batch_size: Annotated[int, typer.Option(help="Seeds per batch.")] = 1024,
    num_workers: Annotated[
        int | None, typer.Option(help="Sampling threads. (default: the smallest number that is as fast as all cores)")
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(
            help="Memory budget for the whole process, e.g. 2GiB, for all plans. (default: half of the free memory if the store is larger)"
        ),
    ] = None,
    spool: Annotated[
        str | None,
        typer.Option(
            help="Disk space for plans that spool rows, e.g. 8GiB. (default: the size of the store, at most a quarter of the free space)"
        ),
    ] = None,
    spool_folder: Annotated[str | None, typer.Option(help="Folder of the spool. (default: beside the features)")] = None,
    device: Annotated[str | None, typer.Option(help="cuda: deliver batches on the GPU. (default: on the CPU)")] = None,
    recipes: Annotated[
        str | None,
        typer.Option(help="Recipes to try, separated by commas: pyg, mmap, uva, gnnlab, ... (default: those that may be the fastest)"),
    ] = None,
    order: Annotated[str | None, typer.Option(help="Order of the seeds, as in penstock train. (default: random, or the recipe's)")] = None,
    weight: Annotated[str | None, typer.Option(help="Edge field to draw neighbours by. (default: uniformly)")] = None,
    shared_draws: Annotated[
        int, typer.Option(help="As in penstock train: this many consecutive batches draw by the same random numbers. 0: independent draws.")
    ] = 0,
    layer_wise: Annotated[bool, typer.Option(help="As in penstock train: --num-neighbors counts the new nodes per layer.")] = False,
    split: Annotated[str | None, typer.Option(help="Name of the split. (default: the only one)")] = None,
    seed_type: Annotated[
        str | None,
        typer.Option(
            help="Node type whose train nodes are the seeds; or edge type, user,likes,item, whose edges are. (default: held-out links, or "
            "the type with splits)"
        ),
    ] = None,
    edge_label: Annotated[
        str | None, typer.Option(help="As in penstock train: field of these edges that is learnt in place of links.")
    ] = None,
    num_negatives: Annotated[int, typer.Option(help="Links: random targets that each one is told from, as in penstock train.")] = 1,
    seconds: Annotated[float, typer.Option(help="Seconds for which each plan is measured, after a warm-up of the same length.")] = 3.0,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
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
        shared_draws=shared_draws, layer_wise=layer_wise, split=split, seed_type=seed_type, edge_label=edge_label,
        num_negatives=num_negatives, seconds=seconds, seed=seed,
    )  # fmt: skip
    result = study_plans(Store.open(store), settings, progress=make_progress(), spell=as_typed)
    show(result, lambda: as_text(result), as_json)


def as_text(result: dict[str, Any]) -> str:
    """Return the findings as lines for people, with the command to type."""
    from penstock.report import words
    from penstock.study.text import plan_lines

    chosen = result["trials"][result["chosen"]]
    typed, python = typed_options(options(result["settings"], chosen)), plan_in_python(chosen["changes"])
    loader = "NeighborLoader" if result["seeds"] == "nodes" else "LinkNeighborLoader"
    store, seed_type = (words.printable(shlex.quote(result[name])) for name in ("store", "seed_type"))
    hold_out = f"To learn these, hold some out first: penstock hold-out {store} DEST --edge-type {seed_type}"
    lines = [
        *plan_lines(result, typed_options),
        "",
        f"penstock train {store} {typed}" if result["is_learnt"] else hold_out,
        f"{loader}(..., plan={python}, num_workers={chosen['num_workers']})",
    ]
    return "\n".join(lines)


def chosen_for(settings: dict[str, Any], num_workers: int | None) -> dict[str, Any]:
    """Try plans for a run of `penstock train` and print the findings. Returns the settings of the fastest plan, `num_workers` included.

    Args:
        settings: all settings of the run.
        num_workers: None: it is chosen too.
    """
    from penstock.report import words
    from penstock.study import PlanStudy, study_plans
    from penstock.study.text import plan_lines

    study = PlanStudy(
        **{name: settings[name] for name in (*OF_BATCHES, *OF_A_STUDY)},
        num_workers=num_workers, device=None if settings["device"] == "cpu" else settings["device"], seed_type=settings["target"],
    )  # fmt: skip
    result = study_plans(settings["store"], study, progress=make_progress(), spell=as_typed)
    for line in plan_lines(result, typed_options):
        words.say(line)
    chosen = result["trials"][result["chosen"]]
    return {**chosen["changes"], "num_workers": chosen["num_workers"]}


def options(settings: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `penstock train` for a plan that was tried."""
    given = {name: settings[name] for name in ("num_neighbors", "batch_size", "order", "weight", "split", "edge_label", "device")}
    given |= {name: settings[name] or None for name in ("seed", "shared_draws", "layer_wise")}
    given |= {"target": settings["seed_type"], "num_negatives": settings["num_negatives"] if settings["num_negatives"] > 1 else None}
    given = {name: value for name, value in given.items() if value is not None}
    return {**given, **chosen["changes"], "num_workers": chosen["num_workers"]}


def typed_options(values: dict[str, Any]) -> str:
    """Return options with their values as they are typed in a shell."""
    return " ".join(as_typed(name, None) + _typed(value) for name, value in values.items())


def _typed(value: Any) -> str:
    if value is True:
        return ""
    return " " + shlex.quote(",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value))


def plan_in_python(changes: dict[str, Any]) -> str:
    """Return a plan as Python code for a loader's argument."""
    if list(changes) == ["recipe"]:
        return repr(changes["recipe"])
    made = ", ".join(f"{name}={value!r}" for name, value in changes.items() if name != "recipe")
    return f"penstock.plan.make_plan({changes['recipe']!r}, {made})" if "recipe" in changes else f"penstock.Plan({made})"
