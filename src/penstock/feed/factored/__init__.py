"""Factored feeding: samplers and trainers as processes, joined by a bounded queue in memory of the host (GNNLab)."""

from penstock.feed.factored.launch import run_factored
from penstock.feed.factored.loader import FactoredLoader
from penstock.feed.factored.measure import measure_times

__all__ = ["FactoredLoader", "measure_times", "run_factored"]
