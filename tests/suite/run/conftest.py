"""Directories that campaigns of these tests work on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """A directory with a sentinel that must be there, alone, at the end."""
    place = tmp_path / "target"
    place.mkdir()
    (place / "sentinel").write_text("not yours")
    yield place
    assert (place / "sentinel").read_text() == "not yours"
    assert sorted(os.listdir(place)) == ["sentinel"]
