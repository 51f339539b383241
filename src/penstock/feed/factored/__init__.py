"""Factored feeding: samplers and trainers as processes, connected by a bounded queue in host memory (GNNLab)."""

from penstock.feed.factored.launch import run_factored
from penstock.feed.factored.loader import FactoredLoader
from penstock.feed.factored.measure import measure_times

__all__ = ["FactoredLoader", "measure_times", "run_factored"]
