"""Bad input, tried as a new user would: the table of docs/errors.md, row by row.

Each command ends with one line on standard error that says what is wrong and what to do, and exit code 2; each call of the library with
an exception whose message is that line. Nothing that was there before is lost.
"""

import re
from pathlib import Path

import pytest

from penstock.cli import run

TABLE = Path(__file__).parents[1] / "docs" / "errors.md"
TRAIN = ("--num-neighbors", "3,2", "--batch-size", "32", "--epochs", "1", "--num-workers", "0")


def call(capfd, *arguments):
    """Run a command; returns (exit code, standard error without progress)."""
    code = run([str(argument) for argument in arguments])
    _, error = capfd.readouterr()
    return code, error


def said(capfd, *arguments):
    """The one line that a refused command ends with; every other line is progress."""
    code, error = call(capfd, *arguments)
    assert code == 2, error
    lines = [line for line in error.splitlines() if line.startswith("penstock: ")]
    assert len(lines) == 1, error
    assert "Traceback" not in error
    assert_in_table(lines[0].removeprefix("penstock: "))
    return lines[0]


def assert_in_table(message):
    """Some row of the table, with ... for what varies, is this message."""
    rows = re.findall(r"\| `` (.+?) `` \|", TABLE.read_text())
    patterns = [".*".join(re.escape(part) for part in row.split("...")) for row in rows]
    assert any(re.search(pattern, message) for pattern in patterns), f"not in docs/errors.md: {message}"


def refused(error, function, *arguments, **options):
    """The message of an exception, which must be in the table too."""
    with pytest.raises(error) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert_in_table(str(caught.value))
    return str(caught.value)
