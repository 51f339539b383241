"""Type checks for the options of tables: a description comes from a JSON file, which may contain anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import UsageError, argument


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | Path)


def _is_list_of(value: Any, is_item: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(is_item, value))


def _is_mapping_to(value: Any, is_item: Callable[[Any], bool]) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(is_item, value.values()))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


_TEXT = (_is_text, "text")
_WANTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "files": (lambda value: _is_path(value) or _is_list_of(value, _is_path), "the name of a file, or a list of names"),
    "src": _TEXT,
    "dst": _TEXT,
    "id": _TEXT,
    "ids": _TEXT,
    "split": _TEXT,
    "num_nodes": (_is_number, "a whole number"),
    "fields": (
        lambda value: _is_mapping_to(value, lambda columns: _is_path(columns) or _is_list_of(columns, _is_text)),
        "names with the columns of each as text, or as a list of texts",
    ),
    "dtypes": (lambda value: _is_mapping_to(value, _is_text), "names of fields with the dtype of each"),
    "splits": (lambda value: _is_path(value) or _is_mapping_to(value, _is_path), "a folder, or parts with the file of each"),
    "header": (lambda value: isinstance(value, bool), "true or false"),
    "delimiter": (lambda value: _is_text(value) and len(value) == 1, "one character"),
}


def check_types(options: Any) -> None:
    """Refuse values of `NodeFiles` or `EdgeFiles` that have the wrong type."""
    for option in fields(options):
        value, (is_fine, wanted) = getattr(options, option.name), _WANTED[option.name]
        if not is_fine(value) and not (value is None and option.default is None):
            raise UsageError(f"{argument(option.name)} must be {wanted}, got {value!r:.60}")
