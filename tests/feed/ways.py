"""The ways to sample, as a loader has them, for tests that hold for each: a way joins by an entry in WAYS.

All ways load one graph (`plain_data`, `typed_data`), which has the fields that any of them needs.
"""

from dataclasses import dataclass

import pytest
import torch
from torch_geometric.data import HeteroData

from penstock import NeighborLoader, Walks
from tests.feed import inputs
from tests.feed.inputs import check_homogeneous, check_nodes, check_typed, check_typed_nodes
from tests.feed.links import BY, WRITES

HUB = 500


def plain_data(is_sorted=False):
    """A third of the weights are 0, those of some nodes all of them; times, some of them the same, of nodes and of edges; a long list."""
    data, random = inputs.homogeneous_data(hub_degree=HUB, is_sorted=is_sorted), torch.Generator().manual_seed(4)
    num_edges = data.num_edges
    data.edge_weight = 4 * torch.rand(num_edges, generator=random) ** 6 * (torch.rand(num_edges, generator=random) > 0.3)
    data.edge_weight[data.edge_index[1] % 10 == 3] = 0
    data.time = torch.randint(0, 300, (300,), generator=random)
    data.edge_time = torch.randint(0, 300, (num_edges,), generator=random)
    return data


def typed_data():
    """Times of one node type; weights of edges of one type; wide times of edges of one, and of another in the order of its lists."""
    data, random = inputs.typed_data(), torch.Generator().manual_seed(6)
    data["author"].time = torch.randint(0, 9, (60,), generator=random)
    data[WRITES].edge_weight = torch.arange(900) % 5
    data[WRITES].edge_time = torch.randint(0, 9, (900,), generator=random) * (1 << 40)
    data[BY].edge_time = torch.arange(900)
    return data


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to sample.

    Attributes:
        plain: options of a loader of `plain_data`, beyond those that all have.
        typed: of one of `typed_data`, where they are others.
        links: of one of links, where they are others.
        says: what is said when its state is given to a loader that samples uniformly.
        changes: (options, what is said) of loaders that sample in the same way, and to which its state is refused.
        refuses: which of these it does not go with: "pad", "replace", "disjoint", "induced", "budget", "fanouts", "edges" (it has edges of
            its own).
        trains: settings of `TrainConfig`; None: no training samples like this.
        is_by_cpu: no device draws like this.
    """

    plain: dict
    typed: dict | None = None
    links: dict | None = None
    says: str = "another configuration"
    changes: tuple = ()
    refuses: tuple = ()
    trains: dict | None = None
    is_by_cpu: bool = False
    num_neighbors: tuple = (3, 2)

    def check(self, batch, data):
        """Rows of a batch are those of its nodes and edges."""
        of_nodes, of_all = (check_typed_nodes, check_typed) if isinstance(data, HeteroData) else (check_nodes, check_homogeneous)
        (of_nodes if "edges" in self.refuses else of_all)(batch, data)

    def of(self, kind):
        """Options of a loader of "plain" or "typed" data, or of "links"."""
        return dict(num_neighbors=self.num_neighbors, **(getattr(self, kind) or self.plain))

    def load(self, data, **options):
        """A loader of plain data, or of what was made of them."""
        return NeighborLoader(data, **dict(batch_size=32, seed=5) | self.of("plain") | options)


TIMES = dict(says=r"edges of node/to/node: .* by time", refuses=("induced",))
MOMENTS = torch.arange(300)
BY_EDGE = dict(time_attr="edge_time", input_time=MOMENTS)
OF_LINKS = torch.arange(3000 + HUB) % 350
WAYS = {
    "uniform": Way(plain={}),
    "by weight": Way(
        plain={"weight_attr": "edge_weight"}, says=r"edges of node/to/node: .* by weight", trains={"weight": "edge_weight"}
    ),
    "by time of nodes": Way(
        plain={"time_attr": "time"},
        typed={"time_attr": "time", "input_time": torch.arange(200) % 10},
        links={"time_attr": "time", "edge_label_time": OF_LINKS},
        changes=(({"temporal_strategy": "last"}, "temporal_strategy: 'uniform' then, 'last' now"),),
        **TIMES,
    ),
    "by time of edges": Way(
        plain=BY_EDGE,
        typed={"time_attr": "edge_time", "input_time": torch.arange(200) << 35},
        links={"time_attr": "edge_time", "edge_label_time": OF_LINKS},
        changes=(({"input_time": MOMENTS + 1}, "input_time"),),
        **TIMES,
    ),
    "the latest": Way(
        plain=BY_EDGE | {"temporal_strategy": "last"},
        typed={"time_attr": "edge_time", "input_time": torch.arange(200) << 35, "temporal_strategy": "last"},
        links={"time_attr": "edge_time", "edge_label_time": OF_LINKS, "temporal_strategy": "last"},
        changes=(({"temporal_strategy": "uniform"}, "temporal_strategy: 'last' then, 'uniform' now"),),
        **TIMES,
    ),
    "earlier": Way(
        plain=BY_EDGE | {"temporal_rule": "<"},
        typed={"time_attr": "edge_time", "input_time": torch.arange(200) << 40, "temporal_rule": "<"},
        links={"time_attr": "edge_time", "edge_label_time": OF_LINKS, "temporal_rule": "<"},
        changes=(({"temporal_rule": "<="}, "temporal_rule: '<' then, None now"),),
        **TIMES,
    ),
    "in a window": Way(
        plain=BY_EDGE | {"temporal_rule": "<", "time_window": 60},
        typed={"time_attr": "edge_time", "input_time": torch.arange(200) << 35, "time_window": 2 << 40},
        links={"time_attr": "edge_time", "edge_label_time": OF_LINKS, "time_window": 0},
        changes=(({"time_window": 61}, "time_window: 60 then, 61 now"), ({"time_window": None}, "time_window: 60 then, None now")),
        **TIMES,
    ),
    "shared": Way(
        plain={"shared_draws": 3},
        says="shared_draws: 3 then, ",
        changes=(({"shared_draws": True}, "shared_draws: 3 then, "), ({"shared_draws": 2}, "shared_draws: 3 then, ")),
        refuses=("replace", "disjoint"),
        trains={"shared_draws": 2},
    ),
    "walks": Way(
        plain={"walks": Walks(num=6, length=3)},
        typed={"walks": Walks(num=6, length=2, path=[WRITES, BY])},
        says=(says := r"walks: '6 of length 3, end 0.5 along node/to/node' then, "),
        changes=tuple(({"walks": Walks(**how)}, says) for how in (
            {"num": 7, "length": 3}, {"num": 6, "length": 4}, {"num": 6, "length": 3, "end": 0.25}
        )),
        refuses=("pad", "replace", "induced", "edges"),
        is_by_cpu=True,
    ),
    "layers": Way(
        plain={"layer_wise": True},
        says="layer_wise",
        refuses=("replace", "disjoint"),
        trains={"layer_wise": True, "num_neighbors": (30, 20)},
        is_by_cpu=True,
        num_neighbors=(40, 20),
    ),
    "numbers of nodes": Way(
        plain={"num_samples": [30, 20], "subgraph_type": "induced"},
        typed={"num_samples": {"author": [9, 3], "paper": [20, 9], "venue": [1, 2]}, "subgraph_type": "induced"},
        says="subgraph_type",
        changes=(({"num_samples": [30, 21]}, "num_samples: .* then, .* now"),),
        refuses=("pad", "replace", "disjoint", "induced", "budget", "fanouts"),
        is_by_cpu=True,
        num_neighbors=(),
    ),
}  # fmt: skip

each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def each_that(holds):
    """Parametrise by the ways of which something holds."""
    return pytest.mark.parametrize("way", [pytest.param(way, id=name) for name, way in WAYS.items() if holds(way)])
