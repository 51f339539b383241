"""Recipes: the systems of the papers as plans with names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.cache.choose import POLICIES
from penstock.errors import UsageError, argument
from penstock.plan.capacity import parse_capacity
from penstock.plan.plan import BUDGETS, SAME, Plan

RECIPES = {
    "pyg": Plan(features="memory", topology="memory"),
    "mmap": Plan(huge_pages=False),
    "uva": Plan(),
    "pagraph": Plan(policy="degree", cache="20%"),
    "gnnlab": Plan(policy="presample", cache="10%"),
    "bgl": Plan(policy="fifo", cache="10%", device_policy=SAME, device_cache="5%", order="proximity"),
    "ali+pg": Plan(policy="degree", cache="10%", neighbor_policy="ratio", neighbor_cache="10%"),
    "ducati": Plan(policy="presample", cache="10%", neighbor_policy="presample", neighbor_cache="shared", neighbor_layout="prefix"),
    "ginex": Plan(features="disk", topology="disk", policy="belady", cache="10%", neighbor_policy="ratio", neighbor_cache="10%"),
}
RECIPES = {name: replace(plan, recipe=name) for name, plan in RECIPES.items()}
SPOOLED = Plan(features="disk", topology="disk", policy="presample")


def make_plan(plan: Plan | str | None, **changes: Any) -> Plan:
    """Return a plan: the given one, a recipe by name, or the default, with all settings of `changes` that are not None.

    A plan that has only `host_memory`, and perhaps settings of a device, becomes the recipe ginex within that budget. If it also has
    `spool`, rows are spooled instead of cached, and chosen by "presample".

    Raises:
        UsageError: an unknown recipe, a setting that is not allowed, or a policy without a capacity and vice versa.
    """
    if isinstance(plan, str):
        if plan not in RECIPES:
            auto = " (auto is of the command `penstock train`)" if plan == "auto" else ""
            raise UsageError(f"there is no recipe {plan!r}: choose one of {', '.join(RECIPES)}{auto}")
        plan = RECIPES[plan]
    if plan is not None and not isinstance(plan, Plan):
        raise UsageError(f"plan must be a penstock.Plan or the name of a recipe ({', '.join(RECIPES)}); got {type(plan).__name__}")
    given = {name: value for name, value in changes.items() if value is not None}
    made = replace(plan or Plan(), **given)
    if made.policy is None and parse_capacity(made.cache)[1]:
        raise UsageError(f"{argument('cache', made.cache)} keeps nothing without {argument('policy')}: one of {', '.join(POLICIES)}")
    if made.policy is not None and made.cache == Plan().cache and made.host_memory is None and made.spool is None:
        raise UsageError(f"{argument('policy', made.policy)} keeps nothing without {argument('cache')}: say how much, for instance 10%")
    if not made.is_budget:
        return made
    return replace(RECIPES["ginex"] if made.spool is None else SPOOLED, **{name: getattr(made, name) for name in BUDGETS})
