"""The training run: epochs over the loader, evaluation over full or sampled neighbourhoods, checkpoints, early stopping, exact resume.

In: a configuration and a folder. Out: a result, and in the folder `config.json` and `checkpoint.pt`. Invariant: a run killed at any
moment and resumed ends with the same weights, bit for bit, as one that was never stopped (on the CPU, same torch, same torch threads and
as many processes); the number of sampling threads does not matter. Several processes go through the same steps, see `ranks.py`.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.errors import (
    MAKE_AGAIN,
    CorruptStoreError,
    MissingFieldError,
    PipelineError,
    StateError,
    StoreError,
    UsageError,
    argument,
)
from penstock.feed import LinkNeighborLoader, NeighborLoader
from penstock.kernels._triton import tensor_device
from penstock.order import Order, order_by_name
from penstock.order.by_name import SPLIT
from penstock.plan import Plan
from penstock.store import Store
from penstock.store.process_memory import free_in_container, give_back_freed_memory, keep_freed_memory, peak_resident_bytes, usable_cores
from penstock.store.progress import hearing
from penstock.store.results import ResultFile, refuse_in_store
from penstock.store.watch import check_bytes, check_place
from penstock.train import checkpoint
from penstock.train.config import TrainConfig
from penstock.train.data import TrainingData, read_training_data, what_is_learnt
from penstock.train.description import describe_data, describe_run
from penstock.train.evaluation import Evaluation
from penstock.train.folder import interrupts_wait, lock_folder, write_json
from penstock.train.history import Best, History
from penstock.train.learner import Learner
from penstock.train.observer import Observer, Result
from penstock.train.parts import PartsStore, joined
from penstock.train.predictions import predictions_file, write_predictions
from penstock.train.ranks import SAVE, STOP, Ranks
from penstock.train.steps import Steps
from penstock.train.task import Numbers

CHECKPOINT = "checkpoint.pt"


def train(
    config: TrainConfig,
    out: str | os.PathLike[str],
    *,
    resume: bool = False,
    observer: Observer | None = None,
    predictions: str | os.PathLike[str] | None = None,
    group: Any = None,
) -> Result:
    """Train a standard model on a store, or, with several processes, on a partition of one; where `torch.distributed` has been initialised,
    all processes of a group train together.

    Args:
        config: of the run; with `resume` it must agree with the saved one in everything that decides the batches and the model; threads,
            epochs, patience, device, plan and the path of the store may differ.
        out: folder of the run, made if need be. With several processes, the first one's counts.
        resume: go on from the folder's checkpoint, if there is one.
        observer: is called as the run proceeds.
        predictions: file for the class or number of every node by the best weights (see `penstock.train.predictions`). With several
            processes, the first one's counts.
        group: of `torch.distributed`; None: the default one, if there is one. Each step is over a batch of each process, with the mean of
            the gradients over all their seeds; val and test are computed together, over sampled neighbourhoods by default.
    Returns:
        Scores and history; the checkpoint is in the folder. Times and tiers are those of this process.
    Raises:
        UsageError, InputError: settings that cannot work, or a store without what they need.
        StoreError: the store or the folder cannot be read or written; the store changed meanwhile. StoreBusyError: another process trains
            in this folder.
        StateError: the folder's checkpoint belongs to another configuration.
        DivergedError: the loss became NaN or infinite.
        PipelineError: another process failed, or ended.
    """
    folder, ranks = Path(out), Ranks.of(group)
    file = ranks.from_first(lambda: predictions_file(predictions))
    ranks.agree(lambda: refuse_in_store(folder))
    with joined(config.store, ranks) as graph, ExitStack() as stack:
        store = ranks.agree(lambda: Store.open(config.store)) if graph is None else PartsStore(config.store, graph, ranks, config.split)
        digest = store.digest
        own = digest, config, ranks.carrier(config.device)
        ranks.agree(partial(_check_alike, own, ranks.from_first(lambda: own)))
        if isinstance(store, PartsStore):
            target, edge_type = ranks.agree(lambda: what_is_learnt(store, config))
            ranks.together(lambda: store.read_labels(config, target, edge_type))
        # refuses most of what cannot work before the folder is made
        run = ranks.agree(lambda: _Run(config, store, folder, observer or Observer(), ranks))
        ranks.agree(lambda: _check_predictions(file, run.data))
        stack.enter_context(ranks.entered(lock_folder(folder) if ranks.is_first else nullcontext()))
        result = run.go(resume)
        if file is not None:
            run.observer.note(f"predicting the label of every node, into {file.path}")
            predicted = run.predict()
            ranks.from_first(lambda: write_predictions(file, predicted, run.data.task, run.store, run.data.target))
            if file.ending != ".npy" and isinstance(store, PartsStore):
                run.observer.note(
                    f"{file.path} has numbers of nodes: your ids, if there are others, stay with the store that {config.store} was cut "
                    "from (store.original_ids)"
                )
        return result


def refuse_new(config: TrainConfig, out: str | os.PathLike[str]) -> str:
    """Raise what `train` would raise for a new run of one process, as far as that is seen without any work.

    Returns:
        What it learns: a node type or an edge type, as `TrainConfig.target` has it.
    """
    folder = Path(out)
    refuse_in_store(folder)
    if (folder / CHECKPOINT).exists():
        raise _holds_a_run(folder)
    data = read_training_data(Store.open(config.store), config)
    data.check_rows(config.hidden)
    with torch.device("meta"):
        data.make_model(config)
    return data.what


def _check_predictions(file: ResultFile | None, data: TrainingData) -> None:
    if file is not None and data.edges is not None:
        raise UsageError(
            f"{argument('predictions')} are of nodes, and edges are learnt: `penstock infer` writes rows of nodes, with --pairs what is "
            "said of pairs"
        )


def _holds_a_run(folder: Path) -> StateError:
    again = f"{argument('resume', True)} goes on with it, another {argument('out')} starts a new one"
    return StateError(f"{folder} holds a run already: {again}")


def make_order(plan: Plan, config: TrainConfig, data: TrainingData) -> Order | str:
    """Prepare the order of the train nodes; "split", over a partition, is made by the loader."""
    if plan.order == SPLIT:
        return SPLIT
    seeds = data.target, data.parts["train"]
    labels = data.labels if data.labels.ndim == 1 or not isinstance(data.task, Numbers) else None  # which are no 0 and 1
    return order_by_name(plan.order, data.graph, seeds, labels, seed=config.seed, batch_size=config.batch_size)


def _check_alike(own: tuple[str, TrainConfig, str | None], first: tuple[str, TrainConfig, str | None]) -> None:
    """Refuse to train together with process 0 where its digest of the store or its settings, `first`, would lead to other steps; or where
    its gradients go by another backend (see `Ranks.carrier`): both processes would wait for each other."""
    digest, config, carrier = own
    if digest != first[0]:
        raise UsageError(f"{config.store} has digest {digest}, and the store of process 0 has {first[0]}: give all processes the same")
    if carrier != first[2]:
        raise UsageError(
            f"{argument('device', config.device)}: gradients go by {carrier} here, and by {first[2]} in process 0: give all processes "
            "devices of one kind"
        )
    ours, theirs = ({**each.as_dict(), "order": each.plan().order} for each in (config, first[1]))  # of which a recipe may decide
    for name in (name for name in ours if name not in checkpoint.OF_EACH_PROCESS):
        if ours[name] != theirs[name]:
            raise UsageError(f"{argument(name, ours[name])}, and process 0 has {argument(name, theirs[name])}: give all processes the same")


class _Run:
    """One run in progress; `_state` returns all of its state."""

    def __init__(self, config: TrainConfig, store: Store | PartsStore, folder: Path, observer: Observer, ranks: Ranks) -> None:
        keep_freed_memory()
        cores = max(usable_cores() // ranks.num_here, 1)
        # torch counts the cores of the machine, not the share of them that a container may use
        if config.torch_threads or ranks.num_here > 1 or cores < torch.get_num_threads():
            torch.set_num_threads(config.torch_threads or cores)
        self.config = config
        self.store = store
        self.folder = folder
        self.observer = observer
        self.ranks = ranks
        device = torch.device("cpu") if config.device == "cpu" else tensor_device(config.device)
        plan = config.plan()
        if config.order is None and plan.order == "random" and isinstance(store, PartsStore):
            plan = replace(plan, order=SPLIT)
        if config.huge_pages is None and ranks.num_here > 1:  # each would have a copy of what the page cache has once
            plan = replace(plan, huge_pages=False)
        self.plan = plan.resolved(has_device=config.device != "cpu")
        if isinstance(store, PartsStore) and self.plan.order == SPLIT:  # else sums are in the same order whoever has which part
            ranks.place = store.rank
        self._saved = ""  # the position of the checkpoint, for messages
        self._setup_s = 0.0  # spent before the first batch: finding out what is hot, filling caches
        self.data = read_training_data(store, config)
        self.learner = Learner(config, self.data, device, ranks)
        self.evaluation = Evaluation(config, self.plan, self.learner, ranks, folder, observer.evaluating)
        self.history = History()

    def _make_loader(self) -> NeighborLoader | LinkNeighborLoader:
        config, device = self.config, self.learner.device
        is_tried = self.plan.host_memory is not None or (config.device == "cpu" and free_in_container() is not None)
        fork = torch.random.fork_rng([device] if device.type == "cuda" else [])  # a step may be tried
        with fork, hearing(self.observer.note):
            data, fanouts = self.data, list(config.num_neighbors)
            how: dict[str, Any] = dict(
                batch_size=config.batch_size,
                weight_attr=config.weight,
                batches_per_epoch=config.batches_per_epoch,
                shared_draws=config.shared_draws,
                layer_wise=config.layer_wise,
                plan=self.plan,
                num_workers=config.num_workers,
                seed=config.seed,
                rank=self.ranks.place,
                num_ranks=self.ranks.num_ranks,
                non_stop=config.non_stop and config.epochs,
                step=self.learner.step_on_a_copy() if is_tried else None,
                device=config.device,
            )
            if data.edges is None:
                nodes, order = (data.target, data.parts["train"]), make_order(self.plan, config, data)
                loader = _Loader(data.source(), fanouts, input_nodes=nodes, order=order, **how)
            else:
                loader = data.edges.loader(_LinkLoader, data.source(), fanouts, order=self.plan.order, **how)
        if is_tried:
            give_back_freed_memory()  # of a copy of all learnt rows, say: what is allocated next may not fit into its pieces
        return loader

    def go(self, resume: bool) -> Result:
        """Train to the end."""
        for part, count in self.data.num_unlabelled.items():
            if count:
                self.observer.note(f"{count} of {count + self.data.parts[part].size} {part} nodes have no label, and are left out")
        settings = self.folder / "config.json"
        have = sorted(self.ranks.gather((self.ranks.number, os.path.exists(self.folder / CHECKPOINT))))
        is_new, before = self.ranks.from_first(lambda: self._begin(settings, resume, [number for number, is_there in have if is_there]))
        self.observer.opened(describe_data(self.store, self.data))
        began = time.perf_counter()
        try:
            self.loader = self.ranks.agree(self._make_loader)
        except Exception:
            if is_new and self.ranks.is_first:  # settings that are refused are not kept as those of the run
                with suppress(OSError):
                    settings.unlink() if before is None else settings.write_bytes(before)
            raise
        self._setup_s = time.perf_counter() - began
        self._num_steps = max(self.ranks.gather(len(self.loader)))
        if not is_new:
            self._restore()
            give_back_freed_memory()  # what was read of the checkpoint
            self.ranks.from_first(lambda: write_json(settings, self.config.as_dict()))
        if self.evaluation.is_sampled and self.evaluation.reason:
            self.observer.note(self.evaluation.reason)
        self.observer.started(self.describe(), self.config.epochs)
        try:
            self._train()
        except KeyboardInterrupt:
            if self._saved:
                self.observer.note(f"saved at {self._saved}: --resume goes on from there")
            raise
        return self._result()

    def _begin(self, settings: Path, resume: bool, have: list[int]) -> tuple[bool, bytes | None]:
        """Write the settings, if this is a new run; `have`: the processes that see a checkpoint. Returns whether it is new, and the
        settings that were in the folder before."""
        is_new = not (self.folder / CHECKPOINT).exists()
        if is_new and resume and have:  # machines share no folder, and now the first process is on another one
            raise StateError(
                f"process {have[0]} has a checkpoint in {self.folder}, and process 0, which reads it, has none: start the processes in the "
                "order of before, or copy the folder to where process 0 is"
            )
        before = settings.read_bytes() if is_new and settings.exists() else None
        if is_new:
            if resume or before is not None:
                self.observer.note(f"no checkpoint in {self.folder}: starting from the beginning")
            write_json(settings, self.config.as_dict())  # at once: what follows may take as long as an epoch
        elif not resume:
            raise _holds_a_run(self.folder)
        return is_new, before

    def _train(self) -> None:
        while not self._is_over():
            record = self.history.record
            if record.num_batches < self._num_steps:  # else the checkpoint stood between the last batch and the evaluation
                self._train_epoch()
            self._check_store()
            is_best = self._evaluate() if self._is_due() else False
            self._check_bytes()
            self.history.end_epoch()
            self.observer.epoch_done(record, is_best)
            self._save()

    def describe(self) -> dict[str, Any]:
        """What is trained on what, as plain values."""
        return {
            **describe_data(self.store, self.data),
            **describe_run(self.config, self.plan, self.learner, self.loader),
            "setup_s": self._setup_s,
            "evaluation": "sampled" if self.evaluation.is_sampled else "full",
            "num_ranks": self.ranks.num_ranks,
        }

    def _train_epoch(self) -> None:
        self.learner.model.train()
        record, saved_at, started = self.history.record, time.monotonic(), time.perf_counter()
        steps = Steps(self.learner, record)
        before = self.loader.stats().as_dict()
        seconds_before = record.train_s
        with interrupts_wait() as interrupted:

            def wishes() -> int:
                is_due = self.ranks.is_first and time.monotonic() - saved_at >= self.config.checkpoint_every_s
                return STOP * bool(interrupted) | SAVE * is_due

            for batch in self.ranks.in_step(self.loader, self._num_steps, len(self.loader)):
                self._verify(batch)
                stepped = time.perf_counter()
                asked = steps.take(batch, wishes())
                del batch  # so that its memory can be used for another while this thread waits
                now = time.perf_counter()
                record.step_s += now - stepped
                record.train_s = seconds_before + now - started
                record.num_batches += 1
                self.observer.batch_done(record, self._num_steps)
                if self.ranks.num_ranks == 1:  # no other process must agree: at once
                    asked = wishes()
                if asked:
                    steps.catch_up()
                    before = self._count_feed(before)
                    self._check_store()
                    self._save()
                    saved_at = time.monotonic()
                if asked & STOP:
                    raise KeyboardInterrupt
            steps.catch_up()
            record.train_s = seconds_before + time.perf_counter() - started
            self._count_feed(before)
            if self.ranks.any(bool(interrupted)):  # since the last batch
                self._save()
                raise KeyboardInterrupt

    def _verify(self, batch: Any) -> None:
        """Verify every `config.verify`-th batch; raises MismatchError."""
        record = self.history.record
        if batch is not None and self.config.verify and record.num_batches % self.config.verify == 0:
            self.loader.verify(batch)
            record.num_verified += 1

    def _check_bytes(self) -> None:
        """Raise if a file of the store was written to: what was trained since the last checkpoint is not to be trusted, nor saved."""
        store = self.store
        if not isinstance(store, Store):
            return
        try:
            self.ranks.agree(lambda: check_bytes(store))
        except CorruptStoreError as error:
            again = f"{MAKE_AGAIN}, and go on from the last checkpoint by {argument('resume', True)}"
            raise CorruptStoreError(f"{error}: {again}") from error

    def _check_store(self) -> None:
        """Save and raise if the store is not in its place any more: open files keep their bytes, so what was trained is sound."""
        self._check_bytes()
        store = self.store
        if not isinstance(store, Store):
            return
        try:
            self.ranks.agree(lambda: check_place(store))
        except (StoreError, PipelineError) as error:
            self._save()  # all processes come here, as saving needs
            if isinstance(error, PipelineError):
                raise
            raise StoreError(f"{error}: saved at {self._saved}; put the store back, and {argument('resume', True)} goes on") from error

    def _count_feed(self, before: dict[str, Any]) -> dict[str, Any]:
        """Add to the record what the loader counted since `before`, and return its counts now."""
        after = self.loader.stats().as_dict()
        self.history.record.count_feed(before, after)
        return after

    def _is_due(self) -> bool:
        """Whether val and test are to be computed after this epoch."""
        number, counts = self.history.record.epoch + 1, self.data.counts
        is_due = number % self.config.eval_every == 0 or number == self.config.epochs
        return is_due and bool(counts["val"] or counts["test"])

    def _evaluate(self) -> bool:
        """Compute val and test. Returns whether this is the best epoch so far."""
        history, record, started = self.history, self.history.record, time.perf_counter()
        self._save()  # an evaluation over all neighbours may take longer than the epoch did
        record.val, record.test = self.evaluation.scores(self.loader)
        record.eval_s = time.perf_counter() - started
        if not history.is_improved(is_larger_better=self.data.task.is_larger_better):
            return False
        if not history.best.model:
            give_back_freed_memory()  # of steps: learnt rows may have no room beside it for a copy
        history.best = Best(record.epoch, record.val, record.test, self.learner.weights(history.best.model))
        return True

    def predict(self) -> np.ndarray:
        """Return what is predicted of every node of the target, see `Task.decide`, by the weights that were best by val, or the last."""
        if self.history.best.model:
            self.learner.model.load_state_dict(self.history.best.model)
        data = self.data
        return self.evaluation.rows(self.loader, np.arange(data.graph.num_nodes[data.target]), finish=data.task.decide)

    def _is_over(self) -> bool:
        """Whether the run has come to its end, or early stopping ends it."""
        return self.history.is_over(self.config.epochs, self.config.patience)

    def _state(self) -> dict[str, Any]:
        loaders, (random, *others) = zip(*self.ranks.gather((self.loader.state_dict(), self.learner.random_state())), strict=True)
        state = {
            "config": self.config.as_dict() | {"store": os.path.abspath(self.config.store)},  # for who looks for it from another folder
            "task": self.data.task.as_dict(),
            "target": self.data.what,
            **self.learner.state(),
            **random,
            "others": others,
            "order": self.plan.order,
            "store": self.store.digest,
            "cut_from": self.store.cut_from if isinstance(self.store, PartsStore) else None,
            "loader": loaders[0],  # no process has had more batches than the first
            **self.history.as_state(),
            "is_sampled_evaluation": self.evaluation.is_sampled,
        }
        return self.learner.collect(state, self.folder)

    def _save(self) -> None:
        with interrupts_wait():
            state = self._state()
            self.ranks.from_first(lambda: checkpoint.save(self.folder / CHECKPOINT, state))
            self._saved = self.history.position(self.config.epochs)

    def _restore(self) -> None:
        path = self.folder / CHECKPOINT

        def check(settings: dict[str, Any]) -> None:
            checkpoint.check_same(settings, self.folder, self.config, self.plan.order, self.store)

        state, tables = checkpoint.load_for_all(path, self.ranks, check, self.learner.set_aside)
        self.learner.spread(state, tables)

        def take() -> None:
            with checkpoint.damage_said(path):
                self._take(state)

        self.ranks.agree(take)
        self._saved = self.history.position(self.config.epochs)
        self.observer.note(f"resumed at {self._saved}")

    def _take(self, state: dict[str, Any]) -> None:
        others = state.get("others", [])
        self.learner.restore(state if not 0 < self.ranks.place <= len(others) else state | others[self.ranks.place - 1])
        if self.ranks.num_ranks == 1 + len(others):  # else nothing more is trained
            self.loader.load_state_dict(state["loader"])
        self.history = History.from_state(state)
        self.learner.check_weights(self.history.best.model)
        self.evaluation.is_sampled = bool(state.get("is_sampled_evaluation", self.evaluation.is_sampled))
        if self.ranks.num_ranks != 1 + len(others) and not self._is_over():
            raise StateError(
                f"{self.folder} is trained by {1 + len(others)} process{'es' * bool(others)}, not by {self.ranks.num_ranks}: a step is "
                f"over a batch of each; start as many, or take a new {argument('out')}"
            )

    def _result(self) -> Result:
        records, best = self.history.epochs, self.history.best
        if not records:
            raise MissingFieldError(f"{self.folder}: no epoch was trained")
        trained_s = sum(record.train_s for record in records)
        return Result(
            metric=self.data.task.metric,
            val=best.val,
            test=best.test,
            best_epoch=best.epoch if best.epoch >= 0 else None,
            epochs=len(records),
            seeds_per_s=sum(record.num_seeds for record in records) / max(trained_s, 1e-9),
            peak_memory_bytes=peak_resident_bytes(),
            weights_digest=self.learner.digest(self.folder),
            history=records,
            description=self.describe(),
            timeline=self.loader.timeline(),
        )


class _Loader(NeighborLoader):
    """The loader of a process that takes part in steps for which only other processes have a batch."""

    _ranks_wait = False


class _LinkLoader(LinkNeighborLoader):
    """The same of links."""

    _ranks_wait = False
