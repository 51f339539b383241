"""`penstock train STORE`: the main job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.console import AsJson, require_least_room, show
from penstock.cli.grouping import with_groups
from penstock.cli.parsing import parse_fanouts
from penstock.errors import StateError, UsageError, argument

if TYPE_CHECKING:
    from penstock.train import Result

AUTO = "auto"
"""Value of `--recipe`: the plan that `penstock plan` would choose."""


def _the_run(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. (default: the next of runs/STORE-1, runs/STORE-2, ...; with --resume the last)")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the class or number of every node: .csv or .parquet (id, class), or .npy (row i is node i)."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out, with its settings, exactly where it stopped.")
    ] = False,
    checkpoint_every_s: Annotated[float, typer.Option(help="Seconds between checkpoints within an epoch.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Options: what is kept of a run, and where."""


def _the_model(
    model: Annotated[
        str,
        typer.Option(
            help="sage, gcn, gat, gin; for typed graphs rgcn, hgt. auto: sage or rgcn, or the model that fits aggregated features."
        ),
    ] = "auto",
    target: Annotated[
        str | None,
        typer.Option(
            help="Node type whose labels are learnt; or edge type, user,likes,item, whose held-out links are. (default: links, or the one "
            "with labels)"
        ),
    ] = None,
    edge_label: Annotated[
        str | None, typer.Option(help="Field of the edges of such a type, ratings for instance, which is learnt in place of links.")
    ] = None,
    num_neighbors: Annotated[
        str,
        typer.Option(
            help="Fanout per layer, the one next to the seeds first; -1 = all. With aggregated features, one fanout less than layers."
        ),
    ] = "15,10",
    layers: Annotated[
        int | None, typer.Option(help="Number of sampled layers; the last fanout is repeated for the rest. (default: one per fanout)")
    ] = None,
    hidden: Annotated[int, typer.Option(help="Width of the hidden layers.")] = 128,
    heads: Annotated[int, typer.Option(help="Attention heads of gat and hgt.")] = 4,
    dropout: Annotated[float, typer.Option(help="Dropout rate of the hidden layers.")] = 0.5,
    input_dropout: Annotated[float, typer.Option(help="Dropout rate of the features.")] = 0.0,
    normalize: Annotated[str, typer.Option(help="none, or rows: divide each feature row by the sum of its absolute values.")] = "none",
) -> None:
    """Options: the model."""


def _training(
    epochs: Annotated[int, typer.Option(help="Passes over the train nodes.")] = 20,
    batches_per_epoch: Annotated[
        int | None,
        typer.Option(help="An epoch has only so many batches, of each process; of other seeds every time. (default: all seeds)"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Seeds per batch.")] = 1024,
    lr: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 0.003,
    weight_decay: Annotated[float, typer.Option(help="L2 penalty.")] = 0.0,
    weight: Annotated[str | None, typer.Option(help="Edge field to draw neighbours by. (default: uniformly)")] = None,
    shared_draws: Annotated[
        int,
        typer.Option(
            help="This many consecutive batches draw by the same random numbers, so that they read fewer rows. 0: independent draws."
        ),
    ] = 0,
    layer_wise: Annotated[
        bool, typer.Option(help="--num-neighbors counts the new nodes per layer, for instance 2400,2400, rather than neighbours per node.")
    ] = False,
    order: Annotated[
        str | None,
        typer.Option(
            help="Order of the train nodes: random, proximity, community, sequential. Over a partition also split, the default there: each "
            "process takes seeds of its own part. (default: random)"
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Name of the split. (default: the only one)")] = None,
    metric: Annotated[
        str, typer.Option(help="accuracy, auc, micro-f1; of numbers rmse, mae or r2; of links mrr, hits@10 or auc. auto: what suits them.")
    ] = "auto",
    num_negatives: Annotated[int, typer.Option(help="Links: random targets that each one is told from in training.")] = 1,
    eval_negatives: Annotated[int, typer.Option(help="Links: random targets that each one is ranked among in evaluations.")] = 100,
    patience: Annotated[int, typer.Option(help="Stop after this many evaluations without a better val score; 0: never.")] = 0,
    eval_every: Annotated[int, typer.Option(help="Epochs between evaluations.")] = 1,
    evaluation: Annotated[
        str,
        typer.Option(
            help="full: over all neighbours, not counted in --host-memory; sampled: as in training. auto: full, but sampled with "
            "--host-memory, under torchrun, or if memory is short."
        ),
    ] = "auto",
) -> None:
    """Options: how the model is trained."""


def _rows(
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A named set of the options below, which override it: pyg, mmap, uva, pagraph, gnnlab, bgl, ali+pg, ducati, ginex. "
            "auto: tries plans first, as penstock plan does, and takes the fastest."
        ),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(
            help="Memory budget for the whole process, e.g. 2GiB; it decides cache sizes and look-ahead. Features and lists come from disk."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="given: mapped files; memory: loaded at the start; disk: bypassing the page cache. (default: given)"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Rows to keep in memory: degree, ratio, presample, inclusion, random; fifo, lru, lfu, clock, sieve, s3-fifo; belady."
        ),
    ] = None,
    cache: Annotated[str | None, typer.Option(help="How many rows are kept: 10%, 2GiB or '5000 rows'.")] = None,
    window: Annotated[int | None, typer.Option(help="Batches sampled ahead for belady and --spool. (default: 16)")] = None,
    hold: Annotated[
        str | None,
        typer.Option(
            help="What is kept of batches sampled ahead: samples, or only ids, which means sampling them again. (default: samples)"
        ),
    ] = None,
    spool: Annotated[
        str | None,
        typer.Option(
            help="Disk space, e.g. 8GiB: rows that are not cached are read for many batches at once and wait there for their batch."
        ),
    ] = None,
    spool_folder: Annotated[str | None, typer.Option(help="Folder of the spool. (default: beside the features)")] = None,
    presample_batches: Annotated[
        int | None, typer.Option(help="How many batches of an epoch are sampled to find hot rows. (default: all of them)")
    ] = None,
) -> None:
    """Options: where features live, and which rows are kept in memory."""


def _lists(
    topology: Annotated[
        str | None,
        typer.Option(help="given: mapped files; memory: loaded at the start; disk: bypassing the page cache. (default: given)"),
    ] = None,
    neighbor_policy: Annotated[
        str | None, typer.Option(help="Which neighbour lists are kept in memory: ratio (out/in), presample, degree, random.")
    ] = None,
    neighbor_cache: Annotated[
        str | None,
        typer.Option(
            help="How many lists are kept: 10% (of the edges), 2GiB, or '5000 lists'; shared: --cache is divided between rows and lists."
        ),
    ] = None,
    neighbor_layout: Annotated[str | None, typer.Option(help="Index of the kept lists: direct or prefix. (default: direct)")] = None,
) -> None:
    """Options: where neighbour lists live, and which are kept in memory."""


def _machine(
    num_workers: Annotated[int, typer.Option(help="Sampling threads.")] = 2,
    non_stop: Annotated[
        bool, typer.Option("--non-stop", help="For short epochs: begin the next epoch's batches while this epoch ends.")
    ] = False,
    verify: Annotated[
        int,
        typer.Option(help="Every this many batches, make one again without caches, disks and devices, and compare bit for bit; 0: never."),
    ] = 0,
    torch_threads: Annotated[int, typer.Option(help="Threads of the model; 0: one per available core.")] = 0,
    map_threads: Annotated[
        int | None,
        typer.Option(
            help="For stores larger than memory: threads that read mapped files, without read-ahead. (default: 0, leave it to the system)"
        ),
    ] = None,
    huge_pages: Annotated[
        bool | None,
        typer.Option(
            help="Copy mapped files into huge pages if much memory is free, or leave them to the page cache. (default: huge-pages)"
        ),
    ] = None,
    slow: Annotated[str | None, typer.Option(help="Simulate a slower device below the row cache: 1GB/s,100us.")] = None,
    slow_topology: Annotated[
        str | None,
        typer.Option(help="Simulate a slower device below the neighbour lists: '1GB/s,100us,4KiB blocks'; same: that of --slow."),
    ] = None,
) -> None:
    """Options: threads, memory and simulated devices."""


def _device(
    device: Annotated[
        str, typer.Option(help="Where the model computes: cpu, cuda, cuda:1. A GPU also samples and gathers its batches.")
    ] = "cpu",
    device_policy: Annotated[
        str | None,
        typer.Option(
            help="Which rows are kept on the GPU: as --policy, or same. Together with --policy: a cache above that in memory, over a disk."
        ),
    ] = None,
    device_cache: Annotated[str | None, typer.Option(help="How many rows are kept on the GPU: 10%, 2GiB or '5000 rows'.")] = None,
    device_topology: Annotated[
        str | None,
        typer.Option(
            help="Where neighbour lists are: device (on the GPU), pinned (in memory, read by the GPU), host (in memory, read by the CPU)."
        ),
    ] = None,
) -> None:
    """Options: how a GPU is used."""


def _train(
    context: typer.Context,
    store: Annotated[Path, typer.Argument(help="Folder of the store; penstock ingest or penstock generate makes one.")],
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Train a standard model on a store, and write a report. If it is killed, --resume continues to the very same weights.

    Several processes train together under torchrun: torchrun --nproc-per-node 2 -m penstock train STORE.
    STORE may then be a partition.
    """
    out, predictions, resume = (given.pop(name) for name in ("out", "predictions", "resume"))
    settings = {**given, "store": str(store), "num_neighbors": parse_fanouts(given["num_neighbors"], given["layers"])}
    require_least_room()
    from penstock.kernels.bus_error import explain_bus_errors
    from penstock.report.live import choose_observer
    from penstock.report.page import write_report
    from penstock.train import Observer, TrainConfig, started_together
    from penstock.train import train as run

    explain_bus_errors()
    with started_together() as ranks:
        folder = ranks.from_first(lambda: out or default_folder(store.resolve().name, resume))
        saved = ranks.from_first(lambda: saved_settings(folder) if resume else {})
        if saved:
            settings = {**saved, **{name: settings[name] for name in settings if is_given(context, name)}}
        settings.pop("layers", None)
        if settings.get("recipe") == AUTO:
            if saved:
                raise UsageError(f"{argument('recipe', AUTO)} is for new runs: {folder} goes on by its own plan, or by one that is given")
            settings = ranks.agree(lambda: with_fastest(settings, folder, ranks.num_ranks, partial(is_given, context)))
        config = ranks.agree(lambda: TrainConfig.from_dict(settings))
        with ranks.entered(claimed(folder) if ranks.is_first and not out and not resume else nullcontext(folder)) as folder:
            with choose_observer() if ranks.is_first else Observer() as observer:
                result = run(config, folder, resume=resume, observer=observer, predictions=predictions)
            if not ranks.is_first:
                return
            page = write_report(result, folder)
        written = {"report": page} if predictions is None else {"report": page, "predictions": predictions}
        show(summary(result, written), lambda: as_text(result, written), as_json)


train = with_groups(
    _train,
    {
        _the_run: "The run",
        _the_model: "The model",
        _training: "Training",
        _rows: "Features: where they live, what is kept in memory",
        _lists: "Neighbour lists",
        _machine: "This machine",
        _device: "GPU",
    },
)


def with_fastest(settings: dict[str, Any], out: Path, num_ranks: int, is_given: Callable[[str], bool]) -> dict[str, Any]:
    """Return the settings of a new run with the plan that feeds it fastest. What the run would refuse is refused before any trial.

    Args:
        settings: of the run. out: its folder. num_ranks: processes that train.
        is_given: whether a setting was typed.
    """
    from penstock.cli.plan import OF_A_STUDY, chosen_for
    from penstock.train import TrainConfig
    from penstock.train.config import PLAN_SETTINGS
    from penstock.train.run import refuse_new

    for name in PLAN_SETTINGS:
        if name not in OF_A_STUDY and is_given(name):
            raise UsageError(f"{argument('recipe', AUTO)} chooses {argument(name)}: give one of the two")
    if num_ranks > 1:
        raise UsageError(
            f"{argument('recipe', AUTO)} is for one process, and these are {num_ranks}: give the plan that `penstock plan` chooses"
        )
    told = {**settings, "recipe": None}
    without = {**told, **dict.fromkeys(name for name in OF_A_STUDY if name != "order")}
    target = refuse_new(TrainConfig.from_dict(without), out)
    return {**without, **chosen_for({**told, "target": target}, settings["num_workers"] if is_given("num_workers") else None)}


def saved_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the run in a folder; empty if there is no run."""
    try:
        saved = json.loads((folder / "config.json").read_text())
        if not isinstance(saved, dict):
            raise ValueError(f"settings have names, got {saved!r:.60}")
        return saved
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(
            f"{folder / 'config.json'} cannot be read ({error}): give all settings again, in a new {argument('out')}"
        ) from error


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a setting is on the command line."""
    sources = [context.get_parameter_source(option) for option in (name, *(["layers"] if name == "num_neighbors" else []))]
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def default_folder(store: str, resume: bool) -> Path:
    """Choose the folder of a run: the next number that is free, or with `resume` the last that was taken."""
    names = [path.name.rpartition("-") for path in Path("runs").glob("*-*") if not resume or (path / "config.json").exists()]
    last = max((int(number) for name, _, number in names if name == store and number.isdecimal()), default=0)
    return Path("runs") / f"{store}-{last if resume and last else last + 1}"


@contextmanager
def claimed(first: Path) -> Iterator[Path]:
    """Make the folder of a new run, so that no other run takes it: `first`, or the next free number. Removed again if it stays empty."""
    from penstock.store.results import refuse_in_store

    refuse_in_store(first)
    name, _, number = first.name.rpartition("-")
    for free in count(int(number)):
        folder = first.with_name(f"{name}-{free}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:  # reported by the code that locks the folder
            pass
        break
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()


def summary(result: Result, written: dict[str, Path]) -> dict[str, Any]:
    """Return what `--json` prints."""
    names = ("metric", "val", "test", "best_epoch", "epochs", "seeds_per_s", "peak_memory_bytes", "weights_digest")
    return {**{name: getattr(result, name) for name in names}, **{name: str(path) for name, path in written.items()}}


def as_text(result: Result, written: dict[str, Path]) -> str:
    """Return the end of a run for people."""
    from penstock.report import words

    parts, epochs = result.description["parts"], f"{result.epochs} epoch{'s' * (result.epochs > 1)}"
    what = {"nodes": "nodes with a label"}.get(seeds := result.description["seeds"], seeds)
    test = f"test {result.metric} {words.score(result.test, result.metric)}" if parts["test"] else f"no test {what}"
    best = f"{epochs}, no val {what}"
    if parts["val"] and result.best_epoch is not None:
        best = f"val {words.score(result.val, result.metric)} at epoch {result.best_epoch + 1} of {result.epochs}"
    speed = f"{words.count(result.seeds_per_s)} {words.unit(seeds)}/s, peak memory {words.num_bytes(result.peak_memory_bytes)}"
    lines = [f"{test} ({best})", speed, *(f"{name}: {path}" for name, path in written.items())]
    return "\n".join(lines)
