"""Plans: what is kept where, and how much of it. This package decides; it moves no data."""

from penstock.plan.capacity import parse_capacity, plan_rows, slow_options
from penstock.plan.factored import Times, plan_samplers, plan_samplers_beside
from penstock.plan.lists import SHARED, plan_lists, plan_shared
from penstock.plan.plan import SAME, Plan
from penstock.plan.recipes import RECIPES, make_plan

__all__ = [
    "RECIPES",
    "SAME",
    "SHARED",
    "Plan",
    "Times",
    "make_plan",
    "parse_capacity",
    "plan_lists",
    "plan_rows",
    "plan_samplers",
    "plan_samplers_beside",
    "plan_shared",
    "slow_options",
]
