"""What `--only` leaves out is not counted, and nothing is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.plan.plan import Request, build_plan
from tests.suite.planning_stubs import planned, problems

TWO = """
campaign: two
targets:
  one: {{backend: directory, options: {{path: {path}/one}}}}
  two: {{backend: directory, options: {{path: {path}/two}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 1MiB, chunk: 64KiB}}}}
factors:
  pattern: [seq-write]
repetitions: 2
"""


def test_one_target_is_compared_with_none_and_shares_its_disk_with_none(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    source = Source(TWO.format(path=tmp_path))
    both = build_plan(source, Request(), out=tmp_path / "out")
    assert both.comparisons == 1
    assert any("different paths" in warning for warning in both.warnings)
    one = build_plan(source, Request(only=("target=one",)), out=tmp_path / "out")
    assert {cell.target for cell in one.matrix.cells} == {"one"}
    assert one.comparisons == 0
    assert not any("compar" in text or "different paths" in text for text in one.warnings)


def test_the_matrix_counts_the_selected_cases() -> None:
    body = "factors: {chunk: [4KiB, 1MiB]}\n"
    whole, part = planned(body), planned(body, only=("chunk=4KiB",))
    assert 2 * sum(c.cases for c in part.matrix.cells) == sum(c.cases for c in whole.matrix.cells)
    assert 2 * part.comparisons == whole.comparisons


def test_an_empty_selection_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="matches none of 2 cases: target is one, two"):
        build_plan(Source(TWO.format(path=tmp_path)), Request(only=("target=three",)), here=False)
    assert problems("", only=("target=z",))[0].startswith("--only")
