"""Commands called as a user would, in this process."""

from __future__ import annotations

import sys

import pytest

from fsmatrix.cli import main as cli


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Status of a command, typed in a narrow terminal."""
    monkeypatch.setattr(sys, "argv", ["fsmatrix", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)
