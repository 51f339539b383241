"""The part of YAML in which metadata is written, so that no package for all of YAML is needed.

In: a path. Out: dictionaries, lists, text, whole numbers, booleans and None. Known are blocks of `key: value` and `- item`, nested by
indentation; plain and quoted text on one line; comments; and JSON as a value. Everything else (anchors, tags, text over several lines) is
an error that names the line: it is never read as something else. Numbers with a point or zeros in front, and yes and no, stay text.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import InputError

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
_KEY = re.compile(rf"({_QUOTED}|\w[\w .-]*?)\s*:(?:\s+(.*))?")
_ITEM = re.compile(r"-(?:\s+(.*))?")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][\d_]{0,17})")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def read_yaml(path: Path) -> Any:
    """Read a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return _Reader(path, text).read()
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a YAML file that can be read ({error})") from error


class _Reader:
    """What is left of a file."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._at = path, 0
        lines = [_Line(i, len(line) - len(line.lstrip(" ")), line.strip(" ").rstrip()) for i, line in enumerate(text.splitlines(), start=1)]
        self._lines = [line for line in lines if line.text and line.text[0] != "#"]
        if self._lines and self._lines[0][1:] == (0, "---"):
            self._at = 1

    def read(self) -> Any:
        found = self._nested(-1)
        if (line := self._line()) is not None:
            raise self._refusal(line, line.text)
        return found

    def _line(self) -> _Line | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _nested(self, indent: int, *, or_items: bool = False) -> Any:
        """Read what is indented by more than `indent`; `or_items`: or items that are indented as much; None if nothing is."""
        line = self._line()
        if line is None or not (line.indent > indent or (or_items and line.indent == indent and _ITEM.fullmatch(line.text))):
            return None
        if _ITEM.fullmatch(line.text):
            return self._items(line.indent)
        if _KEY.fullmatch(line.text):
            return self._pairs(line.indent)
        self._at += 1
        return self._value(line, line.text)

    def _items(self, indent: int) -> list[Any]:
        found = []
        while (line := self._line()) is not None and line.indent == indent and (match := _ITEM.fullmatch(line.text)):
            if _is_blank(match[1]):
                self._at += 1
            else:  # what follows the hyphen is as if on a line of its own
                self._lines[self._at] = _Line(line.number, indent + match.start(1), match[1])
            found.append(self._nested(indent))
        return found

    def _pairs(self, indent: int) -> dict[str, Any]:
        found = {}
        while (line := self._line()) is not None and line.indent == indent and (match := _KEY.fullmatch(line.text)):
            key = str(self._value(line, match[1]))
            if key in found:
                raise InputError(f"{self._path}, line {line.number}: {key!r} is there a second time")
            self._at += 1
            found[key] = self._nested(indent, or_items=True) if _is_blank(match[2]) else self._value(line, match[2])
        return found

    def _value(self, line: _Line, text: str) -> Any:
        if match := re.fullmatch(rf"({_QUOTED})(?:\s+#.*)?", text):
            return match[1][1:-1].replace("''", "'") if text[0] == "'" else self._json(line, match[1])
        text = re.split(r"\s#", text)[0].strip()
        if text[:1] in ("[", "{"):
            return self._json(line, text)
        if text[:1] in tuple("\"'&*!|>%@`#,]}?\t") or re.search(r":(\s|$)", text):
            raise self._refusal(line, text)
        if _NUMBER.fullmatch(text):
            return int(text)
        return _WORDS.get(text.lower(), text)

    def _json(self, line: _Line, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._refusal(line, text) from error

    def _refusal(self, line: _Line, text: str) -> InputError:
        return InputError(f"{self._path}, line {line.number}: {text[:60]!r} is not understood: write `key: value` or `- item`, on one line")


def _is_blank(text: str | None) -> bool:
    return not text or text[0] == "#"
