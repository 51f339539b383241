"""A stand-in for the `TensorFrame` of torch_frame, which tests do not need: derived from the class that PyG, and Penstock, know it by.

The columns of a kind are a tensor, entries that differ in length, or a dictionary of these, as in torch_frame.
"""

import torch
from torch_geometric.typing import TensorFrame

from tests.feed.inputs import homogeneous_data, typed_data

WRITES = ("author", "writes", "paper")


class Ragged:
    """A column whose entries differ in length: `values[offset[i]:offset[i + 1]]` is entry i."""

    def __init__(self, values, offset):
        self.values, self.offset = values, offset

    def __getitem__(self, index):
        entries = [self.values[self.offset[i] : self.offset[i + 1]] for i in index.tolist()]
        lengths = torch.tensor([0, *map(len, entries)])
        return Ragged(torch.cat([self.values[:0], *entries]), lengths.cumsum(0))

    def to(self, device):
        return Ragged(self.values.to(device), self.offset.to(device))


class Frame(TensorFrame):
    """A table: kind -> columns, and labels or None."""

    def __init__(self, feat_dict, y=None):
        self.feat_dict, self.y = feat_dict, y

    @property
    def num_rows(self):
        return len(self.feat_dict["numerical"])

    def __len__(self):
        return self.num_rows

    def __repr__(self):
        return f"Frame(\n  num_rows={self.num_rows},\n)"

    def __getitem__(self, index):
        return self._each(lambda columns: columns[index])

    def to(self, device):
        return self._each(lambda columns: columns.to(device))

    def cpu(self):
        return self.to("cpu")

    def _each(self, change):
        feats = {k: {n: change(v) for n, v in f.items()} if isinstance(f, dict) else change(f) for k, f in self.feat_dict.items()}
        return Frame(feats, None if self.y is None else change(self.y))


def frame_of(ids):
    """A frame whose rows say their ids in all columns; an entry of a ragged one is the id, id % 3 times."""
    ragged = Ragged(ids.repeat_interleave(ids % 3), torch.cat([torch.zeros(1, dtype=torch.int64), (ids % 3).cumsum(0)]))
    tokens = {"input_ids": ragged, "mask": Ragged(ragged.values * 0 + 1, ragged.offset)}
    return Frame({"numerical": torch.stack([ids, -ids], 1).float(), "multicategorical": ragged, "tokens": tokens}, y=ids % 7)


def homogeneous_frames():
    """The data of `homogeneous_data`, with a frame of nodes and one of edges."""
    data = homogeneous_data()
    data.tf, data.edge_tf = frame_of(torch.arange(data.num_nodes)), frame_of(torch.arange(data.num_edges))
    return data


def typed_frames():
    """The data of `typed_data`, with frames of papers, of authors, who have nothing else, and of who writes what."""
    data = typed_data()
    del data["author"].x
    data["author"].tf, data["paper"].tf = frame_of(torch.arange(60)), frame_of(torch.arange(500))
    data[WRITES].edge_tf = frame_of(torch.arange(900))
    return data
