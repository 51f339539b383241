"""The model and its optimizer on their device, and a training step.

In: batches, on the same device. Out: losses, logits. Invariant: the initial weights follow from the seed alone, on any device; all that a
step changes is in `state` and `random_state`, of which the second is each process's own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd.grad_mode import set_multithreading_enabled

from penstock.errors import argument
from penstock.feed import layers
from penstock.inference.shelves import room_for_rows
from penstock.inference.whole_graph import weights_digest
from penstock.records import EDGE, NODE, NodeType
from penstock.store.budget import require_room
from penstock.store.device_memory import look_at_device_memory
from penstock.store.process_memory import letting_freed_memory_go
from penstock.train.config import TrainConfig
from penstock.train.data import TrainingData
from penstock.train.inference import degrees_of
from penstock.train.models import GNN
from penstock.train.ranks import SAVE, STOP, Ranks
from penstock.train.rows import MOMENTS, Gradient, LearntRows, RowAdam, form
from penstock.train.shared_rows import SharedRows

STEPS_AHEAD = 2
"""Steps that may be queued on a device before the host looks at the outcome of the first of them."""

LEAST_STEP_BYTES = 64 << 20
"""Memory of the smallest step, with what libraries take for it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step, on its way to the host.

    Attributes:
        batch: number within the epoch.
        told: the result of `Ranks.share_step`.
        logits, labels: of this process's batch. These and `told` are in memory of the host, complete when `mark` is reached.
        wishes: of this process.
        mark: an event of the stream that copies; None: nothing to wait for.
    """

    batch: int
    told: torch.Tensor
    logits: torch.Tensor
    labels: torch.Tensor
    wishes: int
    mark: Any

    def wait(self) -> tuple[int, float, int]:
        """Wait for it. Returns (seeds of all processes, their mean loss, the wishes of all: STOP, SAVE or both)."""
        if self.mark is not None:
            self.mark.synchronize()
        loss, *of_all = self.told.tolist()
        if not of_all:
            return len(self.labels), loss, self.wishes
        num_seeds, stop, save = of_all
        return int(num_seeds), loss, STOP * (stop > 0) + SAVE * (save > 0)


class Learner:
    """A model in training. With a device the host never waits: labels and degrees lie on it, and outcomes are looked at some steps later.

    Rows that nodes learn in place of features have an optimizer of their own, which updates only those of a batch, so that a step takes as
    long on a large graph as on a small one. With several processes, each has a share of these rows, and all wait for each other when rows
    are read and when their gradients are sent.

    Args:
        config, data: what is trained on what.
        device: where (see `tensor_device`); the CPU under Triton's interpreter.
        ranks: the processes that train together: their weights are equal, their dropout is not.
    """

    def __init__(self, config: TrainConfig, data: TrainingData, device: torch.device, ranks: Ranks | None = None) -> None:
        self.data = data
        self.device = device
        self.lr = config.lr
        self._ranks = ranks or Ranks()
        torch.manual_seed(config.seed)
        everyones = data.divide(self._ranks) if self._ranks.num_ranks > 1 else {}
        divisions = {t: everyones[t] for t in data.without_features if t in everyones}
        nodes = {t: division.nodes_of(self._ranks.number) for t, division in divisions.items()}
        data.check_rows(config.hidden, nodes)
        self.model = data.make_model(config, nodes).to(device)
        self._shared = {t: SharedRows(self.model.table(t), division, self._ranks) for t, division in divisions.items()}
        if self._ranks.place:
            torch.manual_seed((config.seed + self._ranks.place) % (1 << 64))
        self._whole: dict[NodeType, torch.Tensor] = {}
        self._decay = config.weight_decay
        self._make_optimizers()
        self.steps_ahead, self._labels_there, self._degrees_there = 0, None, None
        if config.device != "cpu":
            self.steps_ahead = STEPS_AHEAD
            if data.edges is None:
                self._labels_there = torch.from_numpy(data.labels_of(data.parts["train"])).to(device)
            if isinstance(self.model, GNN) and self.model.needs_degree:
                nodes = torch.arange(data.graph.num_nodes[NODE])
                self._degrees_there = degrees_of(data.graph.adjacency[EDGE], nodes).to(device)

    def loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return (the mean loss over the seeds of a batch, their logits, their labels); of links, their scores."""
        if self.data.edges is None:
            labels, logits = self._labels(batch), self.forward(batch)
        else:
            logits, labels = self.data.edges.outputs(self.model, self._rows_of_seeds(batch), batch)
        return self.data.task.loss(logits, labels), logits.detach(), labels

    def step(self, number: int, batch: Any, wishes: int) -> Outcome:
        """Take a step with batch `number` of the epoch (None where only other processes have one). Returns its outcome, on its way to the
        host. `wishes`: see `Ranks.share_step`."""
        if batch is None:
            nothing = self.forward(None)
            return self._outcome(number, self.learn(None, 0, wishes), nothing, nothing, wishes)
        loss, logits, labels = self.loss(batch)
        return self._outcome(number, self.learn(loss, len(labels), wishes), logits, labels, wishes)

    def learn(self, loss: torch.Tensor | None, num_seeds: int, wishes: int) -> torch.Tensor:
        """Update the weights by the losses of all processes, and clear the gradients. Arguments and result: see `Ranks.share_step`."""
        if loss is not None:
            with set_multithreading_enabled(False):  # a thread of its own for one device would wake up and be waited for
                loss.backward()
        told = self._ranks.share_step(self._weights, loss, num_seeds, wishes)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.row_optimizer.step([self._gradient(t, table, num_seeds, told) for t, table in self._tables.items()])
        return told

    def _gradient(self, node_type: NodeType, table: LearntRows, num_seeds: int, told: torch.Tensor) -> Gradient | None:
        """The gradient of the rows of a table that a step changes in this process."""
        if node_type in self._shared:
            return self._shared[node_type].take_gradient(num_seeds, told[1])
        gradient = table.take_gradient()
        if gradient is None or self._has_all(node_type):
            return gradient
        few = min(len(gradient[0]), len(table.weight))  # of a step that is tried
        return torch.arange(few, device=gradient[0].device), gradient[1][:few]

    def _make_optimizers(self) -> None:
        self._weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        self._tables = {t: self.model.table(t) for t in self.data.without_features}
        self.optimizer = torch.optim.Adam(self._weights, lr=self.lr, weight_decay=self._decay, fused=True)
        self.row_optimizer = RowAdam(list(self._tables.values()), self.lr, self._decay)

    def _outcome(self, number: int, told: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, wishes: int) -> Outcome:
        """Send it to the host, behind all that was asked of the device so far."""
        if self.device.type == "cpu":
            return Outcome(number, told, logits, labels, wishes, None)
        told, logits, labels = (_to_pinned(each.detach()) for each in (told, logits, labels))
        return Outcome(number, told, logits, labels, wishes, torch.cuda.current_stream(self.device).record_event())

    def forward(self, batch: Any, node_type: NodeType | None = None) -> torch.Tensor:
        """Logits of the seeds of a batch, or of those of one type; none where only other processes have one, which this one gives its
        rows."""
        return self._rows_of_seeds(batch).get(self.data.target if node_type is None else node_type, torch.empty(0, device=self.device))

    def _rows_of_seeds(self, batch: Any) -> dict[NodeType, torch.Tensor]:
        """The outputs of the model for the seeds of a batch, by node type; see `forward`."""
        data, model = self.data, self.model
        rows = {t: self._rows(t, self._nodes(batch, t)) for t in self._tables}
        if batch is None:
            return {}
        if not isinstance(model, GNN):
            x = {t: data.prepare(batch[t].x) if t in data.x else rows[t] for t in data.graph.num_nodes}
            hidden = model.hidden_rows(x, layers(batch))
            return {t: model.last(hidden[t], t) for t in dict.fromkeys((model.target, model.source or model.target))}
        x = rows[NODE] if rows else data.prepare(batch.x)
        if not model.needs_degree:
            return {NODE: model(x, layers(batch))}
        there, nodes = self._degrees_there, batch.n_id
        degrees = degrees_of(data.graph.adjacency[EDGE], nodes) if there is None else there[nodes]
        return {NODE: model(x, layers(batch), degrees)}

    def _nodes(self, batch: Any, node_type: NodeType) -> torch.Tensor:
        """int64[n]: the nodes of a type in a batch; in None there are none."""
        if batch is None:
            return torch.empty(0, dtype=torch.int64, device=self.device)
        return (batch if isinstance(self.model, GNN) else batch[node_type]).n_id

    @contextmanager
    def reading(self, num_rows: int) -> Iterator[None]:
        """Have whole tables of learnt rows here within the block, so that each of their rows comes once: tables that have no more rows than
        this process is going to read, as far as all have room for them. All processes enter it at the same point.

        Args:
            num_rows: that all processes together are going to read, about.
        """
        room = min(self._ranks.gather(min(room_for_rows(), look_at_device_memory(self.device).free // 2))) if self._shared else 0
        for t, shared in self._shared.items():
            num_bytes = 4 * math.prod(shared.shape)
            if shared.shape[0] * self._ranks.num_ranks <= num_rows and num_bytes <= room:
                self._whole[t], room = shared.everywhere(), room - num_bytes
        try:
            yield
        finally:
            self._whole = {}

    def _rows(self, node_type: NodeType, ids: torch.Tensor) -> torch.Tensor:
        """The rows that int64[n] distinct nodes of a type have learnt, read from all processes."""
        if node_type in self._whole:
            return self._whole[node_type].index_select(0, ids)
        if node_type in self._shared:
            return self._shared[node_type].read(ids)
        table = self._tables[node_type]
        if self._has_all(node_type):
            return table(ids)
        return table(ids, table.weight.new_zeros(len(ids), table.weight.shape[1]))  # a step is tried, where nobody is asked

    def _has_all(self, node_type: NodeType) -> bool:
        return len(self._tables[node_type].weight) == self.data.graph.num_nodes[node_type]

    def step_on_a_copy(self) -> Callable[[Any], object]:
        """Return a training step that leaves this model as it is, and asks no other process.

        Raises:
            BudgetError: the container around this process has no room for the copy, as it has none for what training keeps of learnt rows.
        """
        if self.num_bytes_to_come:
            what = "what training keeps of rows that are learnt in place of features"
            require_room(
                self.num_bytes_to_come + LEAST_STEP_BYTES, what, f"give it more memory, features, or a smaller {argument('hidden')}"
            )
        apart = copy.copy(self)
        apart._ranks, apart._shared, apart._whole = Ranks(), {}, {}
        with letting_freed_memory_go():  # the copy leaves no hole in the heap
            apart.model = copy.deepcopy(self.model).train()
        apart._make_optimizers()
        return lambda batch: apart.step(0, batch, 0)

    @property
    def num_bytes_to_come(self) -> int:
        """Memory of the host for what training keeps of learnt rows beside them: Adam's moments, unless they lie on a device, and the best
        rows so far. A step on a copy takes as much."""
        num_kept = 3 if self.device.type == "cpu" else 1
        return num_kept * sum(table.weight.nbytes for table in self._tables.values())

    def weights(self, into: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """A copy of the weights, in memory of the host; in that of an earlier copy, where there is one: learnt rows may take most of it."""
        new = {name: tensor.detach() for name, tensor in self.model.state_dict().items()}
        return {name: into[name].copy_(tensor) if into and name in into else tensor.cpu().clone() for name, tensor in new.items()}

    @property
    def num_weights(self) -> int:
        """Numbers that are learnt, here and, of learnt rows, by the other processes."""
        elsewhere = (math.prod(shared.shape) - self._tables[t].weight.numel() for t, shared in self._shared.items())
        return sum(weight.numel() for weight in self.model.parameters()) + sum(elsewhere)

    def state(self) -> dict[str, Any]:
        """What the next steps of all processes follow from; of learnt rows what is here, see `collect`."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "rows": self.row_optimizer.state()}

    def random_state(self) -> dict[str, Any]:
        """What only this process's follow from."""
        of_device = {} if self.device.type == "cpu" else {"device_random": torch.cuda.get_rng_state(self.device)}
        return {"random": torch.get_rng_state(), **of_device}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from both states; they may come from another kind of device, and dropout there then begins anew."""
        self.model.load_state_dict(state["model"])
        moments = state["optimizer"]["state"]
        self._check_moments(moments)
        self.optimizer.load_state_dict({"state": moments, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.row_optimizer.restore(state.get("rows", []))
        torch.set_rng_state(state["random"])
        if self.device.type != "cpu" and "device_random" in state:
            torch.cuda.set_rng_state(state["device_random"], self.device)

    def collect(self, state: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Make a state of a run whole where number 0 is, who writes it. Waits for the others; StoreError where the folder has no room.

        Args:
            state: "model" and "rows" as of `state`, and "best", whose "model" is as of `weights`.
            folder: for large tables.
        """
        best = state["best"] | {"model": dict(state["best"]["model"])}
        state = state | {"model": dict(state["model"]), "rows": [dict(kept) for kept in state["rows"]], "best": best}
        for kept, name, shared in self._shares_in(state):
            kept[name] = shared.collect(kept[name], folder)
        return state

    def set_aside(self, state: dict[str, Any]) -> list[torch.Tensor]:
        """Take the whole tables out of a state that was written, for `spread`; ValueError where they could not be those of this model."""
        tables, kept_rows = [], state.get("rows", [])
        if self._shared and len(kept_rows) != len(self._tables):
            raise ValueError("what Adam kept of learnt rows is of another model")
        for kept, name, shared in self._shares_in(state):
            table = kept.get(name)
            if not torch.is_tensor(table) or form(table) != form(torch.empty(shared.shape, device="meta")):
                raise ValueError("its learnt rows are those of another model")
            tables.append(table)
            kept[name] = None
        return tables

    def spread(self, state: dict[str, Any], tables: list[torch.Tensor] | None) -> None:
        """Put this process's shares of them in a state. `tables`: where number 0 is. Waits for the others."""
        for i, (kept, name, shared) in enumerate(self._shares_in(state)):
            kept[name] = shared.spread(None if tables is None else tables[i])

    def digest(self, folder: Path) -> str:
        """16 hex digits over all weights; `folder` as of `collect`. Waits for the others."""
        whole = self.collect({"model": self.model.state_dict(), "rows": [{} for _ in self._tables], "best": {"model": {}}}, folder)
        return self._ranks.from_first(lambda: weights_digest(whole["model"]))

    def _shares_in(self, state: dict[str, Any]) -> list[tuple[dict[str, Any], str, SharedRows]]:
        """Where tables that processes share stand in a state of a run: in which dictionary, by which name, and whose."""
        if not self._shared:
            return []
        names = {id(weight): name for name, weight in self.model.named_parameters()}
        found = []
        for (t, shared), moments in zip(self._shared.items(), state["rows"], strict=True):
            name = names[id(self._tables[t].weight)]
            found += [(weights, name, shared) for weights in (state["model"], state["best"]["model"]) if weights]
            found += [(moments, name, shared) for name in MOMENTS if moments]
        return found

    def _check_moments(self, states: dict[int, dict[str, torch.Tensor]]) -> None:
        """Raise ValueError where these could not be what Adam keeps of the model: it would write beyond them. Weights that no
        loss came to have none."""

        def forms(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
            return {name: form(each) for name, each in tensors.items()}

        weights = dict(enumerate(self._weights))
        for number, kept in states.items():
            if forms(kept) != forms({"exp_avg": weights[number], "exp_avg_sq": weights[number], "step": torch.ones(())}):
                raise ValueError("what Adam kept is of another model")

    def check_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Raise ValueError where these could not be those of the model; none are fine."""
        shapes = {name: tensor.shape for name, tensor in self.model.state_dict().items()}
        if weights and {name: getattr(tensor, "shape", None) for name, tensor in weights.items()} != shapes:
            raise ValueError("its best weights are those of another model")

    def _labels(self, batch: Any) -> torch.Tensor:
        """The labels of the seeds of a batch of train nodes."""
        target = batch if self.data.graph.is_homogeneous else batch[self.data.target]
        if self._labels_there is not None:
            return self._labels_there[target.input_id.to(self.device, non_blocking=True)]
        nodes = target.n_id[: target.batch_size].cpu().numpy()
        return torch.from_numpy(self.data.labels_of(nodes))


def _to_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in pinned memory of the host, whole when the current stream has come here."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
