"""The table itself."""

import re
from pathlib import Path

from tests.refusals import TABLE


def test_the_table_names_tests_that_exist():
    named = set(re.findall(r"`(test_\w+)`", TABLE.read_text()))
    folders = (Path(__file__).parent.glob("test_*.py"), (Path(__file__).parents[3] / "faults").glob("test_train_*.py"))
    code = "\n".join(path.read_text() for paths in folders for path in paths)
    assert named <= set(re.findall(r"^def (test_\w+)", code, flags=re.MULTILINE))
