"""What the process of a command begins with."""

import os

import pytest

from penstock.cli import main


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_of_torch_sleep_while_they_wait_unless_told_otherwise(given, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert os.environ["OMP_WAIT_POLICY"] == (given or "PASSIVE")
    assert capsys.readouterr().out.startswith("penstock ")
