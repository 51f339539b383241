"""Commands that take their options from several functions: each function is a group of options, shown as a panel of the help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Annotated, get_type_hints


def with_groups(
    run: Callable[..., None], groups: Mapping[Callable[..., None], str | None], reword: Callable[[str], str] = str
) -> Callable[..., None]:
    """Add the options of other functions to a command; it is called with all of them by name.

    Args:
        run: the command: its own arguments, and `**given`.
        groups: function whose signature names options -> title of their panel in the help; None: in the panel "Options".
        reword: applied to the help of each option.
    """
    parameters = [one for one in inspect.signature(run).parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    hints = get_type_hints(run, include_extras=True)
    annotations = {one.name: hints[one.name] for one in parameters}
    for function, title in groups.items():
        parameters += inspect.signature(function).parameters.values()
        for name, hint in get_type_hints(function, include_extras=True).items():
            if name != "return":
                option = copy(hint.__metadata__[0])
                option.help, option.rich_help_panel = reword(option.help or ""), title
                annotations[name] = Annotated[hint.__origin__, option]
    run.__signature__ = inspect.Signature([one.replace(annotation=annotations[one.name]) for one in parameters])  # type: ignore[attr-defined]
    run.__annotations__ = annotations
    return run
