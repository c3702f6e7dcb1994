"""Capacities: the search on queues without luck, its steps, campaigns that have one, bad input."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.results.evidence.workloads import capacity, open_loop
from fsmatrix.results.files.store import Store
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.plan.plan import Plan, Request, build_plan
from fsmatrix.suite.workloads.capacity import (
    ABOVE,
    BISECTED,
    POINTS,
    STEPS,
    Limit,
    Search,
    Standing,
)
from fsmatrix.suite.workloads.metadata import MetadataOptions
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions
from tests.suite.running import fsmatrix

SEARCH = Search(20, 1000)
STEP = (1000 / 20) ** (1 / (POINTS - 1))  # ratio of neighbours
CAMPAIGN = """
campaign: limits
targets:
  one: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io:
    workload: {workload}
    options: {{{options}}}
repetitions: 1
cache: warm
settle: {{timeout: 1s}}
"""
TIMED = "pattern: rand-read, chunk: 4KiB, bytes_per_process: 1MiB, fixed: time, seconds: 0.1s"


def searched(keeps: Callable[[int, float], bool]) -> tuple[Standing, list[float]]:
    """The end of a search of a system that keeps the limit so (step, rate), and its rates."""
    kept: list[bool] = []
    rates: list[float] = []
    while (rate := SEARCH.after(kept).rate) is not None:
        kept.append(keeps(len(kept), rate))
        rates.append(rate)
    return SEARCH.after(kept), rates


@pytest.mark.parametrize("true", [20.1, 21, 99.9, 333, 690, 800, 960])
def test_the_search_finds_the_highest_rate_that_is_kept(true: float) -> None:
    end, rates = searched(lambda _, rate: rate <= true)
    assert end.found is not None
    assert end.found <= true < end.found * STEP
    assert not end.highest
    assert rates[-1] == end.found
    checked = rates[BISECTED] > end.found  # below the highest quarter a rate above is tried too
    assert checked == (true < 700)
    assert len(rates) == BISECTED + 1 + checked


def test_every_point_can_be_found() -> None:
    points = [SEARCH.rate(point) for point in range(POINTS)]
    found = [searched(lambda _, rate, at=at: rate <= at * 1.0001)[0].found for at in points]
    assert found == points
    assert (points[0], points[-1]) == (pytest.approx(20), pytest.approx(1000))


def test_the_ends_of_the_grid_are_no_capacity() -> None:
    none, rates = searched(lambda _, rate: False)
    assert none == Standing(None)
    assert (len(rates), rates[-1]) == (BISECTED, pytest.approx(20))
    all_of_it, rates = searched(lambda _, rate: True)
    assert (all_of_it.highest, all_of_it.found) == (True, pytest.approx(1000))
    assert len(rates) == BISECTED + 1


@pytest.mark.parametrize("unlucky", [0, 1, 2, 3])
def test_the_rate_that_was_found_is_confirmed_or_one_below_is(unlucky: int) -> None:
    confirming = BISECTED + 1
    end, rates = searched(
        lambda step, rate: rate <= 300 and not confirming <= step < confirming + unlucky
    )
    last = rates[confirming:]
    assert rates[BISECTED] == pytest.approx(last[0] * STEP**ABOVE)
    assert [a / b for a, b in pairwise(last)] == pytest.approx([STEP] * (len(last) - 1))
    if unlucky < STEPS - confirming:
        assert end.found == last[-1]
        assert len(last) == unlucky + 1
    else:
        assert end == Standing(None)
        assert len(rates) == STEPS


@pytest.mark.parametrize("stalled", [0, 1, 2])
def test_a_stall_at_the_beginning_gives_no_number(stalled: int) -> None:
    """Bisection would end at a fraction of the true rate, just below the step that stalled."""
    end, rates = searched(lambda step, rate: rate <= 900 and step != stalled)
    assert end == Standing(None)
    assert len(rates) == BISECTED + 1
    assert rates[-1] < 900


def test_rates_that_cannot_tell_the_percentile_are_not_tried() -> None:
    limit = Limit.of({"p99": "2ms"})
    assert limit.search(100_000, 1.0) == Search(5000, 100_000)  # 5 % of it
    assert limit.search(10_000, 1.0) == Search(pytest.approx(1200), 10_000)
    assert limit.search(1000, 1.0) is None
    assert Limit.of({"mean": "1s"}).search(1000, 1.0) == Search(50, 1000)


def test_the_limit_is_stored_as_it_is_best_read() -> None:
    for given in ("2ms", "0.002s", "2000 us"):
        options = PatternOptions(fixed="time", seconds="1s", capacity={"p99": given})
        assert options.model_dump(exclude_defaults=True)["capacity"] == {"p99": "2ms"}
        assert options.labels() == {"capacity": "p99 2ms"}
    closed = Pattern(options.model_copy(update={"arrivals": "poisson"})).closed_loop
    assert closed is not None
    assert closed.options == PatternOptions(fixed="time", seconds="1s")


# -- campaigns ---------------------------------------------------------------------------------
def text(path: Path, options: str, workload: str = "pattern") -> str:
    path.mkdir(exist_ok=True)
    return CAMPAIGN.format(path=path, options=options, workload=workload)


def plan(path: Path, options: str, workload: str = "pattern") -> Plan:
    return build_plan(Source(text(path, options, workload)), Request(), here=False)


def ran(tmp_path: Path, limit: str) -> tuple[Any, Path]:
    """The run of a search for a capacity within that limit of the mean, and the output."""
    file, out = tmp_path / "c.yaml", tmp_path / "out"
    file.write_text(text(tmp_path / "data", f"{TIMED}, capacity: {{mean: {limit}}}"))
    fsmatrix("run", file, "-o", out, "--quiet")
    store = Store.open(out)
    (record,) = [
        record
        for record in (store.read(run_id) for run_id in store.ids())
        if record.coordinates["capacity"] is not None
    ]
    return record, out


def test_a_capacity_of_a_real_run(tmp_path: Path) -> None:
    """Within a second only rates that saturate are not kept; a busy machine contradicts itself."""
    record, out = ran(tmp_path, "1s")
    assert record.status == "ok", record.error
    assert record.coordinates["capacity"] == "mean 1s"
    (phase,) = record.phases
    found, loop = capacity(phase.facts), open_loop(phase.facts)
    assert found is not None
    assert loop is not None
    assert loop.closed_loop_rate is not None
    assert BISECTED < len(found.probes) <= STEPS
    first, last = found.probes[0], found.probes[-1]
    assert first.rate == pytest.approx((0.05 * loop.closed_loop_rate**2) ** 0.5)
    assert loop.rate == last.rate
    assert phase.operations.sum() == loop.due - loop.unplayed  # of the last step alone
    audits = {finding.audit for finding in record.findings}
    assert ("capacity-not-found" in audits) == (found.rate is None and found.at_least is None)
    assert last.kept or "capacity-not-found" in audits
    assert ("capacity-at-least" in audits) == (found.at_least is not None)
    assert fsmatrix("collect", out).returncode == 0
    stored = open_campaign(out / "campaign.h5")
    mine = stored["run_id"].values == record.run_id
    kept = stored["capacity"].values[mine].tolist() if found.rate else []
    assert kept == ([found.rate] if found.rate else [])


def test_a_limit_that_no_rate_keeps_gives_no_number(tmp_path: Path) -> None:
    record, _ = ran(tmp_path, "1ns")
    assert record.status == "failed"
    assert record.phases == ()
    assert "no rate keeps mean within 1e-06 ms; the lowest tried, " in record.error
    assert record.error.endswith(" ms") or record.error.endswith("saturated")  # a busy machine


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("capacity: {p99: 0ms}", "a limit of at least 1ns, not '0ms'"),
        ("capacity: {p99: -1ms}", "must be at least zero"),
        ("capacity: {p98: 1ms}", "no percentile 'p98': one of mean, p50, p95, p99, p99.9"),
        ("capacity: {p99: 1ms, p50: 1ms}", "one percentile and its limit"),
        ("capacity: {}", "one percentile and its limit"),
        ("capacity: 2ms", "one percentile and its limit"),
        ("capacity: {p99: 2}", "a time with its unit, such as 2ms, not 2"),
        ("capacity: {p99: '2'}", "a time with its unit, such as 2ms, not '2'"),
        ("capacity: {p99: 2lightyears}", "lightyears"),
        ("capacity: {p99: 2ms}, rate: 100", "capacity: give it or rate, not both"),
        ("capacity: {p99: 2ms}, load: 50", "capacity: give it or load, not both"),
        ("capacity: {p99: 2ms}, rate_per: process", "rate_per: "),
    ],
)
def test_capacities_that_cannot_be(tmp_path: Path, options: str, said: str) -> None:
    with pytest.raises(CampaignError) as error:
        plan(tmp_path, f"{TIMED}, {options}")
    assert said in str(error.value)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("pattern: rand-read", "give fixed: time and seconds"),
        ("pattern: seq-write, fixed: time, seconds: 1s", "give overwrite: true"),
    ],
)
def test_steps_that_cannot_be_repeated(tmp_path: Path, options: str, said: str) -> None:
    with pytest.raises(CampaignError, match=said):
        plan(tmp_path, f"{options}, capacity: {{p99: 1s}}")


def test_metadata_has_no_capacity(tmp_path: Path) -> None:
    assert "capacity" not in MetadataOptions.model_fields
    with pytest.raises(CampaignError, match="capacity"):
        plan(tmp_path, "capacity: {p99: 2ms}", "metadata")


def test_a_plan_counts_the_steps(tmp_path: Path) -> None:
    made = plan(tmp_path, f"{TIMED}, capacity: {{p99: 2ms}}")
    closed, limited = sorted(made.cases, key=lambda case: case.closed_loop)
    assert limited.closed_loop == closed.case.case_id
    works = [each.work for each in (closed, limited)]
    assert None not in works
    seconds = [work.footprint(closed.case).seconds for work in works if work is not None]
    assert seconds == pytest.approx([0.1, 0.1 * STEPS])
