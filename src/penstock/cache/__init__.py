"""Which rows are worth keeping: hotness, policies over ids, and simulation. Nothing here moves a byte of a row."""

from penstock.cache.belady import Belady
from penstock.cache.clock import CLOCK
from penstock.cache.fifo import FIFO
from penstock.cache.hotness import (
    check_hotness,
    degree_hotness,
    in_out_ratio,
    plan_static,
    random_hotness,
)
from penstock.cache.inclusion import inclusion_probability
from penstock.cache.lfu import LFU
from penstock.cache.lru import LRU
from penstock.cache.policy import Change, Policy
from penstock.cache.presample import oracle_hotness, sample_batches
from penstock.cache.s3fifo import S3FIFO
from penstock.cache.sieve import SIEVE
from penstock.cache.simulate import simulate, static_hits
from penstock.cache.static import Static

__all__ = [
    "CLOCK",
    "FIFO",
    "LFU",
    "LRU",
    "S3FIFO",
    "SIEVE",
    "Belady",
    "Change",
    "Policy",
    "Static",
    "check_hotness",
    "degree_hotness",
    "in_out_ratio",
    "inclusion_probability",
    "oracle_hotness",
    "plan_static",
    "random_hotness",
    "sample_batches",
    "simulate",
    "static_hits",
]
