"""A store and its journal, and what somebody else owns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backends.journal.stores import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "out").mkdir(mode=0o755)
    return Store((tmp_path / "out").resolve())


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    place = tmp_path.resolve() / "theirs"
    place.mkdir()
    (place / "file").write_text("keep")
    return place
