"""Training: the reference loop over the loader, on PyG layers."""

from penstock.errors import DivergedError
from penstock.store.process_memory import keep_freed_memory
from penstock.train.aggregate import aggregate, of_aggregated
from penstock.train.config import METRICS, MODELS, TrainConfig
from penstock.train.finished import infer_run
from penstock.train.observer import EpochRecord, Observer, Result
from penstock.train.pairs import infer_pairs
from penstock.train.ranks import started_together
from penstock.train.run import train
from penstock.train.trimming import trim

__all__ = [
    "METRICS",
    "MODELS",
    "DivergedError",
    "EpochRecord",
    "Observer",
    "Result",
    "TrainConfig",
    "aggregate",
    "infer_pairs",
    "infer_run",
    "keep_freed_memory",
    "of_aggregated",
    "started_together",
    "train",
    "trim",
]
