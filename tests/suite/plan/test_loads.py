"""Loads: their closed loops are planned with them, come first, and go where they go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.evidence.workloads import open_loop
from fsmatrix.results.files.store import Store
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.plan import order
from fsmatrix.suite.plan.plan import Plan, Request, build_plan
from tests.suite.running import fsmatrix

CAMPAIGN = """
campaign: loads
targets:
  one: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io:
    workload: pattern
    options:
      {{pattern: rand-read, bytes_per_process: 1MiB, fixed: time, seconds: {seconds}}}
factors: {{chunk: [4KiB, 8KiB], {more}}}
repetitions: {repetitions}
cache: warm
"""


def text(path: Path, more: str = "load: ladder", repetitions: int = 3, seconds: str = "1s") -> str:
    path.mkdir(exist_ok=True)
    return CAMPAIGN.format(path=path, more=more, repetitions=repetitions, seconds=seconds)


def plan(path: Path, more: str = "load: ladder", **request: Any) -> Plan:
    return build_plan(Source(text(path, more)), Request(**request), here=False)


def test_a_ladder_has_twelve_loads_and_a_closed_loop_that_comes_first(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert len(made.cases) == 2 * 13
    firsts = set()
    for plot in made.plots():
        ids = [case.case.case_id for case, _ in plot.runs]
        assert len(set(ids)) == 26
        for case, _ in plot.runs:
            if case.closed_loop:
                assert ids.index(case.closed_loop) < ids.index(case.case.case_id)
                firsts.add(case.closed_loop)
    closed = [case for case in made.cases if not case.closed_loop]
    assert firsts == {case.case.case_id for case in closed}
    assert all("load" not in case.case.options for case in closed)
    orders = {tuple(case.coordinates["load"] for case, _ in plot.runs) for plot in made.plots()}
    assert len(orders) == 3  # random


@pytest.mark.parametrize("load", ["50", "50.0"])
def test_a_selection_has_the_closed_loop_with_it(tmp_path: Path, load: str) -> None:
    made = plan(tmp_path, only=(f"load={load}", "chunk=4KiB"))
    assert sorted(str(case.coordinates["load"]) for case in made.cases) == ["50.0", "None"]


def test_shards_that_divide_a_plot_keep_ladders_whole(tmp_path: Path) -> None:
    groups = plan(tmp_path).groups
    parts = [order.shard(groups, k, 2) for k in (1, 2)]
    for part in parts:
        ((_, cases),) = part.items()
        assert len(cases) == 13
        assert len({case.closed_loop or case.case.case_id for case in cases}) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("load: [0]", "from 5 to 100 (percent), not 0"),
        ("load: [-5]", "from 5 to 100 (percent), not -5"),
        ("load: [101]", "from 5 to 100 (percent), not 101"),
        ("load: [0.5]", "from 5 to 100 (percent), not 0.5"),
        ("load: [half]", "a number of percent such as 50 or 50%"),
        ("load: [50], rate: [100]", "give load or rate, not both"),
        ("load: [50], rate_per: [process]", "a load is a share of what all processes do"),
    ],
)
def test_loads_that_cannot_be(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(CampaignError) as error:
        plan(tmp_path, more)
    assert said in str(error.value)
    assert len(error.value.problems) == 1


def test_a_share_becomes_a_rate_and_fails_where_its_closed_loop_failed(tmp_path: Path) -> None:
    """The second part resumes with the closed loop of the first, which is then made a failure."""
    file, out = tmp_path / "c.yaml", tmp_path / "out"
    more = "load: [50]"
    file.write_text(text(tmp_path / "data", more, 1, "0.2s"))
    assert fsmatrix("run", file, "-o", out, "--only", "chunk=4KiB").returncode == 0
    store = Store.open(out)
    records = [store.read(run_id) for run_id in store.ids()]
    (share,) = [record for record in records if record.coordinates["load"] == 50]
    (closed,) = [record for record in records if record.coordinates["load"] is None]
    loop = open_loop(share.phases[0].facts)
    assert loop is not None
    assert loop.closed_loop_rate is not None
    assert loop.rate == pytest.approx(loop.closed_loop_rate / 2)
    assert loop.columns()["closed_loop_rate"] == loop.closed_loop_rate
    assert share.started > closed.started
    store.path(share.run_id).unlink()
    assert fsmatrix("run", file, "-o", out, "--resume", "--only", "chunk=4KiB").returncode == 0
    again = open_loop(store.read(share.run_id).phases[0].facts)
    assert again is not None
    assert again.closed_loop_rate == loop.closed_loop_rate
    store.path(share.run_id).unlink()
    store.path(closed.run_id).unlink()
    store.write(replace(closed, status="failed", error="made so", phases=()))
    fsmatrix("run", file, "-o", out, "--resume")
    failed = store.read(share.run_id)
    assert failed.status == "failed"
    assert failed.error == f"not begun: its closed loop {closed.run_id} failed: made so"
    statuses = [store.status(run_id) for run_id in store.ids()]
    assert sorted(statuses) == ["failed", "failed", "ok", "ok"]  # the campaign went on
