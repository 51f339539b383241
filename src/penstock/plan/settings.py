"""Settings: checks their values, and shows them.

In: a dataclass of settings; its annotations are strings. Out: the same settings with plain values, which a file of settings can hold, or an
error that names the setting. Saved settings may have any values, so all are checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np

from penstock.errors import UsageError, argument

_KINDS = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "None": (type(None),)}


def settle(settings: Any) -> None:
    """Convert paths, NumPy numbers and lists to plain values, and check that each value has the annotated type of its setting.

    Args:
        settings: a dataclass; call this in its `__post_init__`. Supported types: those of `_KINDS`, `tuple[int, ...]`, `tuple[str, ...]`,
            and unions of them with `|`.
    Raises:
        UsageError: a value of another type; the message names the setting, the type and the value.
    """
    for each in fields(settings):
        kind, value = str(each.type), _plain(getattr(settings, each.name))
        is_huge = isinstance(value, int) and each.name != "seed" and abs(value) >= 1 << 63
        if is_huge or not any(_is_of(one, value) for one in kind.split(" | ")):
            raise UsageError(f"{argument(each.name)} must be of type {kind}, got {value!r:.60}")
        object.__setattr__(settings, each.name, value)


def check_choice(settings: Any, name: str, allowed: Iterable[str | None]) -> None:
    """Raise UsageError if a setting is not one of the allowed values."""
    if getattr(settings, name) not in allowed:
        known = ", ".join(each for each in allowed if each is not None)
        raise UsageError(f"{argument(name)} must be one of {known}; got {getattr(settings, name)!r}")


def check_positive(settings: Any, *names: str) -> None:
    """Raise UsageError for numbers below 1. None is allowed."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise UsageError(f"{argument(name)} must be at least 1, got {value}")


def show(self: Any) -> str:
    """A `__repr__` that shows only settings that differ from their defaults."""
    given = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if getattr(self, each.name) != each.default]
    return f"{type(self).__name__}({', '.join(given)})"


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is_of(kind: str, value: Any) -> bool:
    if kind.startswith("tuple"):
        item = kind.removeprefix("tuple[").removesuffix(", ...]")
        return isinstance(value, tuple) and all(_is_of(item, each) for each in value)
    return isinstance(value, _KINDS[kind]) and (kind == "bool" or not isinstance(value, bool))
