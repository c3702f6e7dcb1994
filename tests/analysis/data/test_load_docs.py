"""docs/analysis.md tells the truth: its examples run, its tables are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.analysis.data import matrices, publications
from fsmatrix.analysis.units import UNITS
from tests.analysis import campaigns
from tests.waiting import PATIENCE

TEXT = (Path(__file__).parents[3] / "docs" / "analysis.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_there_are_examples() -> None:
    assert len(BLOCKS) == 5


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    (folder / "out").mkdir()
    campaigns.write(folder / "out" / "campaign.h5", campaigns.realistic(blocks=2))
    return folder


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_run(place: Path, block: str) -> None:
    result = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", block],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_every_table_and_every_unit_is_named() -> None:
    named = set(re.findall(r"`([^`\n]+)`", TEXT))
    assert set(publications.names()) <= named
    units = {unit.label for choices in UNITS.values() for _, unit in choices}
    units |= {unit.label for choices in matrices.DECIMAL.values() for unit in choices}
    assert units - {""} <= named
    for name in publications.names():
        kind = "Dataset" if publications.describe(name).kind == "measurements" else "DataFrame"
        assert re.search(rf"^\| `{name}` \|.*\| {kind} \|$", TEXT, re.MULTILINE)
