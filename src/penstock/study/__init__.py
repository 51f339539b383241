"""Studies: the effect of a choice for a given graph and training, measured without training."""

from penstock.study.config import STUDIED, CacheStudy
from penstock.study.layout import LayoutSettings, drop_layout, lay_out
from penstock.study.orders import ORDERS
from penstock.study.plans import PlanStudy, study_plans
from penstock.study.run import study_cache

__all__ = ["ORDERS", "STUDIED", "CacheStudy", "LayoutSettings", "PlanStudy", "drop_layout", "lay_out", "study_cache", "study_plans"]
