"""A process of a training by several, for tests: trains in several ways, one after the other, and says what came of each.

python -m tests.faults.ranked FOLDER WHAT ...    (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment)
"""

import json
import logging
import os
import signal
import sys
from pathlib import Path
from unittest import mock

import torch
from tests.interpreting import hurry

from penstock.errors import PenstockError
from penstock.train import Observer, TrainConfig, started_together, train
from penstock.train.learner import Learner

LINKED = ("author", "writes", "paper")
SETTINGS = dict(num_neighbors=(4, 3), batch_size=32, hidden=16, epochs=2, num_workers=0, lr=0.01, dropout=0.1, torch_threads=1)


class Tell(Observer):
    """Counts steps, and does something at one of them."""

    def __init__(self, at=-1, what=lambda: None):
        self.steps, self.notes, self._at, self._what = 0, [], at, what

    def note(self, message):
        self.notes.append(message)

    def batch_done(self, record, batches_per_epoch):
        self.steps += 1
        if self.steps == self._at:
            self._what()


def run(folder, name, store="store", resume=False, observer=None, predictions=None, **options):
    observer = observer or Tell()
    try:
        config = TrainConfig(store=str(folder / store), **SETTINGS | options)
        result = train(config, folder / name, resume=resume, observer=observer, predictions=predictions)
    except (PenstockError, KeyboardInterrupt) as error:
        return {"error": type(error).__name__, "message": str(error), "steps": observer.steps, "is_said": getattr(error, "is_said", False)}
    return {
        "digest": result.weights_digest, "val": result.val, "test": result.test, "steps": observer.steps, "notes": observer.notes,
        "losses": [record.loss for record in result.history], "seeds": [record.num_seeds for record in result.history],
        "evaluation": result.description["evaluation"], "model": result.description["model"],
        "random": int(torch.get_rng_state().long().sum()),
    }  # fmt: skip


def whole(folder, rank):
    return run(folder, "whole")


def plain(folder, rank):
    return run(folder, "plain", dropout=0.0, epochs=1)


def gcn(folder, rank):
    return run(folder, "gcn", model="gcn", num_workers=2, recipe="gnnlab")


def typed(folder, rank):
    return run(folder, "typed-run", store="typed", dropout=0.0, epochs=1, weight_decay=0.1)


def bare(folder, rank):
    """Nodes that learn rows of their own."""
    return run(folder, "bare-run", store="bare", dropout=0.0, epochs=1, num_neighbors=(2, 2), weight_decay=0.01)


BARE = dict(store="bare", dropout=0.0, num_neighbors=(2, 2), weight_decay=0.01)


def bare_parts(folder, rank):
    """Evaluation reads rows batch by batch, and no tables."""
    with mock.patch("penstock.inference.shelves.MEMORY_BYTES", 0):
        return run(folder, "bare-parts-run", **BARE | {"store": "bare-parts"}, epochs=1, order="random")


def bare_swapped(folder, rank):
    """Each has the part of the other's number, and so the rows of its nodes."""
    owners = set()

    class Seen(Learner):
        def __init__(self, config, data, device, ranks):
            super().__init__(config, data, device, ranks)
            (division,) = data.divide(ranks).values()
            owners.update(division.book.owners(division.nodes_of(ranks.number)).tolist())

    with mock.patch("penstock.train.run.Learner", Seen):
        said = run(folder, "bare-swapped", **BARE | {"store": f"bare-parts/part-{1 - rank}"}, epochs=1, order="random")
    return {**said, "parts": sorted(owners)}


def bare_whole(folder, rank):
    return run(folder, "bare-whole", **BARE)


def bare_interrupted(folder, rank):
    """When shares of the best rows are there, too."""
    return stop(folder, rank, "bare-interrupted", at=6, **BARE)


def bare_resumed(folder, rank):
    return run(folder, "bare-interrupted", resume=True, **BARE)


FULL = {
    "gin": {"store": "parts", "model": "gin", "num_workers": 2},
    "bare": {"store": "bare"},
    "bare_parts": {"store": "bare-parts"},
    "typed": {"store": "typed"},
    "aggregated": {"store": "aggregated-parts", "num_neighbors": (4,)},
    "typed_parts": {"store": "typed-parts", "model": "hgt"},
}


def few(folder, rank):
    """One batch: of two processes one never has any."""
    return run(folder, "few", batch_size=1024)


def short(folder, rank):
    """Epochs of two batches of each, over a store and over its parts."""
    return {store: run(folder, f"short-{store}", store=store, batches_per_epoch=2, epochs=2) for store in ("store", "parts")}


def parts(folder, rank):
    return run(folder, "parts-run", store="parts", order="random")


def rotated(folder, rank):
    """Each of three has the part of the next number."""
    part = f"part-{(rank + 1) % 3}"
    return {
        "store": run(folder, "thirds-run", epochs=1),
        "parts": run(folder, "rotated-run", store=f"thirds/{part}", order="random", epochs=1),
        "bare": run(folder, "bare-thirds-run", **BARE, epochs=1),
        "bare parts": run(folder, "bare-rotated-run", **BARE | {"store": f"bare-thirds/{part}"}, order="random", epochs=1),
    }


def typed_parts(folder, rank):
    more = dict(order="random", num_workers=2, policy="presample", cache="20%")
    return run(folder, "typed_parts", store="typed-parts", dropout=0.0, epochs=1, weight_decay=0.1, **more)


def split(folder, rank):
    """Saves after each step."""
    return run(folder, "split", store="parts", checkpoint_every_s=0)


def stop(folder, rank, name, at=2, **options):
    """Rank 1 is told to end in the middle of an epoch."""
    observer = Tell(at, lambda: rank == 1 and os.kill(os.getpid(), signal.SIGTERM))
    return run(folder, name, observer=observer, **options)


def interrupted(folder, rank):
    return stop(folder, rank, "interrupted")


def resumed(folder, rank):
    return run(folder, "interrupted", resume=True)


def interrupted_late(folder, rank):
    """After the last step of an epoch, for which rank 1 has no batch."""
    return stop(folder, rank, "interrupted_late", at=4)


def resumed_late(folder, rank):
    return run(folder, "interrupted_late", resume=True)


def interrupted_ahead(folder, rank):
    """The same where steps are looked at late."""
    return stop(folder, rank, "interrupted_ahead", device="cuda", epochs=1)


def resumed_ahead(folder, rank):
    return run(folder, "interrupted_ahead", resume=True, device="cuda", epochs=1)


def ahead(folder, rank):
    return run(folder, "ahead", device="cuda", epochs=1)


def ahead_bare(folder, rank):
    return run(folder, "ahead-bare", device="cuda", epochs=1, evaluation="full", **BARE)


def killed(folder, rank):
    observer = Tell(6, lambda: rank == 1 and os.kill(os.getpid(), signal.SIGKILL))
    return run(folder, "killed", observer=observer, checkpoint_every_s=0)


def after_the_kill(folder, rank):
    return run(folder, "killed", resume=True)


def predicted(folder, rank):
    """What the first says counts."""
    return run(folder, "whole", resume=True, predictions=folder / "together.npy" if rank == 0 else None)


def fewer(folder, rank):
    """Is left in the middle; for others to try to go on with."""
    return stop(folder, rank, "stopped")


def full(folder, rank):
    return run(folder, "full", evaluation="full", predictions=folder / "full.npy")


def full_again(folder, rank):
    """Parts, and every kind of layer."""
    return {
        name: run(folder, f"full-{name}", evaluation="full", predictions=folder / f"full-{name}.npy", epochs=1, order="random", **options)
        for name, options in FULL.items()
    }


def links(folder, rank):
    """Between nodes that learn rows of their own, of which each process has a share; scored over all neighbours in two ways."""
    how = dict(store="links", dropout=0.0, num_neighbors=(-1, -1), batch_size=256)
    return {name: run(folder, f"links-{name}", evaluation=name, **how) for name in ("sampled", "full")}


def links_in_parts(folder, rank):
    """The same, and those of two node types."""
    how = dict(dropout=0.0, order="random", evaluation="full", epochs=1)
    typed = dict(num_neighbors=(3, 3), metric="auc", **how)
    return {
        "bare": run(folder, "bare-links", store="links-parts", **how | dict(num_neighbors=(-1, -1), batch_size=256, epochs=2)),
        "typed": run(folder, "links-typed", store="typed-links-parts", **typed),
        "sampled": run(folder, "sampled-links", store="typed-links-parts", **typed | dict(evaluation="sampled")),
        "whole": run(folder, "whole-links", store="typed-links", **typed),
        "split": run(folder, "split-links", store="typed-links-parts", **typed | dict(order=None)),
        "named": run(folder, "named-links", store="typed-links-parts", target=",".join(LINKED), **typed),
        "nodes": run(folder, "nodes-links", store="typed-links-parts", target=LINKED[2], **typed | dict(metric="auto")),
        "unknown": run(folder, "unknown-links", store="typed-links-parts", target="a,b,c", **typed),
    }


def edge_labels(folder, rank):
    """Scored over all neighbours in two ways; over the store and over its parts."""
    how = dict(dropout=0.0, num_neighbors=(-1, -1), batch_size=256, order="random")
    runs = {name: dict(store="labelled-links", edge_label="weight", evaluation=name) for name in ("sampled", "full")}
    for field in ("kind", "tags", "late"):
        runs[field] = dict(store="labelled-links", edge_label=field, epochs=1)
    for name, options in list(runs.items()):
        runs[f"{name} parts"] = options | dict(store="labelled-links-parts")
    for name, field, metric in (("some", "some", "auto"), ("none", "nothing", "auto"), ("halves", "late", "accuracy")):
        runs[name] = dict(store="labelled-links-parts", edge_label=field, metric=metric)
    return {name: run(folder, f"labels-{name}", **how | options) for name, options in runs.items()}


def lost(folder, rank):
    """Rank 1 finds no store."""
    return run(folder, "lost", store="store" if rank == 0 else "nowhere")


def unlike(folder, rank):
    """Rank 1 is told something else; of what each has for itself, nothing is said."""
    return run(folder, "unlike", num_workers=rank, lr=0.01 if rank == 0 else 0.02)


def other_order(folder, rank):
    return run(folder, "other_order", recipe=None if rank == 0 else "bgl")


def apart(folder, rank):
    """Rank 1 has settings that do not go with a partition."""
    return run(folder, "apart", store="parts", recipe=None if rank == 0 else "pyg")


def elsewhere(folder, rank):
    return run(folder, "elsewhere", store="store" if rank == 0 else "typed")


def another_has_it(folder, rank):
    """Machines without a folder in common, and another one is the first now."""
    return run(folder, "nothing" if rank == 0 else "whole", resume=True)


def weighted(folder, rank):
    return run(folder, "weighted-run", store="weighted", weight="w", epochs=1)


def weighted_parts(folder, rank):
    return run(folder, "weighted-parts-run", store="weighted-parts", order="random", weight="w", epochs=1)


def weightless(folder, rank):
    return run(folder, "weightless", store="parts", weight="w")


def main():
    folder, *whats = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING)
    with started_together() as ranks:
        for what in whats:
            hurry()
            print(json.dumps(globals()[what](Path(folder), ranks.number)), flush=True)
        if "killed" in whats:
            os._exit(0)


if __name__ == "__main__":
    main()
