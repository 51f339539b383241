"""Parsing of options with several values: `15,10`, `1,16,all`, `NAME=VALUE`."""

from __future__ import annotations

from penstock.errors import UsageError


def parse_fanouts(text: str, num_layers: int | None) -> tuple[int, ...]:
    """Read '15,10,5'; with a number of layers, the last fanout is repeated up to it."""
    try:
        fanouts = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--num-neighbors takes whole numbers with commas, for instance 15,10; got {text!r}") from None
    if num_layers is None:
        return tuple(fanouts)
    if num_layers < len(fanouts):
        raise UsageError(f"--layers {num_layers} does not fit --num-neighbors {text}: one fanout per layer")
    return tuple(fanouts + [fanouts[-1]] * (num_layers - len(fanouts)))


def parse_windows(text: str) -> tuple[int, ...]:
    """Read '1,16,all'."""
    try:
        windows = tuple(0 if part == "all" else int(part) for part in names(text))
    except ValueError:
        windows = (-1,)
    if any(window < 1 and part != "all" for window, part in zip(windows, names(text), strict=False)):
        raise UsageError(f"--windows takes numbers of batches, at least 1, or all, with commas; got {text!r}")
    return windows


def names(text: str) -> tuple[str, ...]:
    """Parts between commas, each once, in their order."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_pairs(items: list[str] | None, option: str) -> dict[str, str]:
    """Parse repeated NAME=VALUE options."""
    pairs = {}
    for item in items or []:
        name, sign, value = item.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"{option} takes NAME=VALUE, got {item!r}")
        if name in pairs:
            raise UsageError(f"{option} is given twice for {name!r}, as {pairs[name]} and as {value}: leave one out")
        pairs[name] = value
    return pairs
