"""What several tests of workloads share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.dbench_workload import LINES


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A loadfile of dbench with a few operations."""
    path = tmp_path / "small.txt"
    path.write_text(LINES)
    return str(path)
