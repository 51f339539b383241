"""The exact output of a trained model for all nodes, layer by layer over the whole graph: `infer`."""

from penstock.inference.steps import OfRows
from penstock.inference.whole_graph import infer

__all__ = ["OfRows", "infer"]
