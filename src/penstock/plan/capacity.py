"""Reads capacities and simulated devices, as users write them."""

from __future__ import annotations

import math
import re
from typing import Any

from penstock.errors import UsageError, argument
from penstock.store.budget import parse_bytes

DIRECTORY_BYTES_PER_NODE = 8
STATE_BYTES_PER_ROW = 24
"""Most bytes that a policy and its directory take, beside the rows."""

STATIC_DIRECTORY_BYTES_PER_NODE = 4
"""All bytes that a static policy and its directory take, beside the rows."""

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def parse_capacity(text: str, name: str = "cache", unit: str = "rows") -> tuple[str, float]:
    """Read "10%", "5000 rows" or a number of bytes such as "2GiB": returns ("share", 0.1), ("rows", 5000) or ("bytes", n).

    Args:
        name: of the argument, for messages.
        unit: what is counted, "rows" or "lists"; it may be left out in the text.
    Raises:
        UsageError: another text, or more than 100%.
    """
    if not isinstance(text, str):
        raise UsageError(f"{argument(name, text)} must be text with a unit: 10%, 2GiB or '5000 {unit}'")
    if match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text):
        if float(match[1]) > 100:
            raise UsageError(f"{argument(name, text)}: more than all {unit}")
        return "share", float(match[1]) / 100
    if match := re.fullmatch(rf"\s*(\d{{1,30}})\s*{unit}?\s*", text):
        return unit, float(match[1])
    try:
        return "bytes", float(parse_bytes(text))
    except UsageError:
        raise UsageError(f"cannot read {argument(name, text)}: write a share (10%), bytes (2GiB) or {unit} (5000 {unit})") from None


def plan_rows(
    text: str, num_rows: dict[Any, int], row_bytes: dict[Any, int], name: str = "cache", *, is_static: bool = False
) -> dict[Any, int]:
    """Divide a capacity among types. Returns type -> number of rows to keep; each type keeps the same share of its rows.

    Args:
        text: see `parse_capacity`. Bytes cover rows, directory and state.
        num_rows, row_bytes: type -> number of its rows; bytes of a row.
        name: of the argument, for messages.
        is_static: the policy is static; it needs less memory.
    Raises:
        UsageError: bytes that do not hold the directory, or as `parse_capacity`.
    """
    per_node, per_row = (STATIC_DIRECTORY_BYTES_PER_NODE, 0) if is_static else (DIRECTORY_BYTES_PER_NODE, STATE_BYTES_PER_ROW)
    (kind, amount), total = parse_capacity(text, name), sum(num_rows.values())
    if kind == "rows":
        return {key: min(count, math.floor(amount * count / max(total, 1))) for key, count in num_rows.items()}
    if kind == "bytes":
        left = amount - per_node * total
        whole = sum(count * (row_bytes[key] + per_row) for key, count in num_rows.items())
        if amount and left <= 0:
            raise UsageError(
                f"{argument(name, text)} does not even hold the directory: {per_node} bytes for each of {total:,} rows; give more, or 0"
                + (f" ({text}% is a share)" if text.strip().isdecimal() else "")
            )
        amount = max(0.0, min(1.0, left / max(whole, 1)))
    return {key: math.floor(amount * count) for key, count in num_rows.items()}


def slow_options(text: str, name: str = "slow") -> dict[str, Any]:
    """Read "1GB/s,100us", rate and delay of a simulated device. Returns the arguments of `SlowTier`.

    A part "64 rows" or "4KiB blocks" says what one request reads, "depth 8" how many requests are under way at the same time.

    Args:
        name: of the argument, for messages.
    Raises:
        UsageError: another text.
    """
    options: dict[str, Any] = {}
    for part in text.split(","):
        if match := re.fullmatch(r"\s*(.+)/s\s*", part):
            options["bytes_per_s"] = parse_bytes(match[1])
        elif match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|ms|us)\s*", part):
            options["delay_s"] = float(match[1]) * _SECONDS[match[2]]
        elif match := re.fullmatch(r"\s*(\d+)\s*rows?\s*", part):
            options["rows_per_request"] = int(match[1])
        elif match := re.fullmatch(r"\s*depth\s*(\d+)\s*", part):
            options["depth"] = int(match[1])
        elif match := re.fullmatch(r"\s*(.+?)\s*blocks?\s*", part):
            options["block_bytes"] = parse_bytes(match[1])
        else:
            raise UsageError(f"cannot read {part.strip()!r} of {argument(name, text)}: write for instance 1GB/s,100us")
    if "block_bytes" in options and "rows_per_request" in options:
        raise UsageError(f"{argument(name, text)}: a request brings rows or a block; give one of them")
    return options
