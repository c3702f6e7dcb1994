"""A point of an open loop that is saturated in some run: no latency of it is compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.analysis.comparison.compare import compare
from fsmatrix.analysis.data import load
from fsmatrix.analysis.data.metric_cells import why_no_value
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.draw.charts import TOO_FEW, why_absent
from fsmatrix.analysis.questions.response import response
from fsmatrix.analysis.questions.tails import tails
from fsmatrix.results.audits import judged
from fsmatrix.results.evidence.workloads import CAPACITY, Capacity, OpenLoop, Probe
from fsmatrix.results.record import RunRecord
from tests.analysis import campaigns


def run(target: str, block: int, rate: int, backlog: int = 0) -> RunRecord:
    rng = np.random.default_rng(block)
    loop = OpenLoop(
        rate=rate, arrivals="constant", seconds=1.0, due=rate or 1, backlog=backlog, unplayed=0
    )
    phase = campaigns.phase("rand-read", 1e7, 4096, 1, rng, operations=1000)
    service = phase.latency["read"]
    phase = replace(
        phase,
        latency={"read": service, "read/service": service},
        facts={"open_loop": loop.document()},
    )
    made = campaigns.record(target, phases=(phase,), coordinates={"rate": rate}, block=block)
    return judged(made)


@pytest.fixture
def records() -> list[RunRecord]:
    """xfs keeps up with both rates, ext4 with the lower one; with the other not in one run."""
    return [
        run(target, block, rate, 500 * (target == "ext4" and rate == 2000 and block == 3))
        for target in ("xfs", "ext4")
        for block in range(8)
        for rate in (1000, 2000)
    ]


def test_one_saturated_run_takes_the_latencies_of_its_point(
    tmp_path: Path, records: list[RunRecord]
) -> None:
    path = campaigns.write(tmp_path / "campaign.h5", records)
    for lazy in (True, False):
        ds = load.open_campaign(path, lazy=lazy)
        point = (ds["target"] == "ext4") & (ds["rate"] == 2000)
        assert np.isnan(ds["latency_p50"].values[point]).all()
        assert (ds["latency_of"].values[point] == "").all()
        assert np.isfinite(ds["latency_p50"].values[~point]).all()
        assert ds["latency_p50"].attrs["units"] == "s"
        assert why_no_value(ds, point.values, "latency_p50") == (
            "8 runs ended well without it (saturated: no latency counts)"
        )
        summary = summarise(ds)
        why = {
            (cell.target, cell.levels["rate"]): why_absent(cell, "latency_p50")
            for cell in summary.cells
        }
        assert why.pop(("ext4", 2000)) == "saturated"
        assert set(why.values()) == {""}
        assert {cell.named for cell in tails(ds, 0.9).cells} == {
            "ext4, rate 1000", "xfs, rate 1000", "xfs, rate 2000"
        }  # fmt: skip


def test_the_comparison_of_latencies_says_what_it_lacks(
    tmp_path: Path, records: list[RunRecord]
) -> None:
    ds = load.open_campaign(campaigns.write(tmp_path / "campaign.h5", records))
    latency = compare(ds, "ext4", "xfs", "latency_p99")
    assert len(latency.cells) == 1
    assert "Left out of ext4: 8 runs of saturated points." in latency.remarks


def test_a_rate_that_was_given_is_no_throughput(tmp_path: Path, records: list[RunRecord]) -> None:
    """It says what was asked for; `response` draws it as a load, and nothing compares it."""
    closed = [
        replace(one, phases=tuple(replace(p, facts={}) for p in one.phases), findings=())
        for one in (run(target, block, 0) for target in ("xfs", "ext4") for block in range(8))
    ]
    ds = load.open_campaign(campaigns.write(tmp_path / "campaign.h5", [*records, *closed]))
    given = ds["rate"].values > 0
    for name in ("bandwidth", "iops"):
        assert np.isnan(ds[name].values[given]).all()
        assert np.isfinite(ds[name].values[~given]).all()
    compared = compare(ds, "ext4", "xfs")
    assert len(compared.cells) == 1
    assert "Left out of xfs: 16 runs whose rate was given." in compared.remarks
    why = {why_absent(c, "iops") for c in summarise(ds).cells if c.levels["rate"]}
    assert why == {"rate given"}
    only = load.open_campaign(campaigns.write(tmp_path / "only.h5", records))
    with pytest.raises(ValueError, match=r"32 runs .*the rate was given: see `fsmatrix response`"):
        compare(only, "ext4", "xfs")
    points = [point for line in response(only).lines for point in line.points]
    assert [point.rate.median for point in points] == [1000, 2000, 1000, 2000]


def test_of_a_search_for_a_capacity_the_capacity_is_the_throughput(tmp_path: Path) -> None:
    """Its last step ran near it, at a rate that the search chose."""
    searched = []
    for block in range(8):
        one = run("xfs", block, 1000)
        found = Capacity(
            percentile="p99",
            limit=0.01,
            probes=(Probe(rate=1000.0, latency=0.005, saturated=False, kept=True),),
            rate=500 + block,
        )
        facts = one.phases[0].facts | {CAPACITY: found.document()}
        searched.append(replace(one, phases=(replace(one.phases[0], facts=facts),)))
    ds = load.open_campaign(campaigns.write(tmp_path / "campaign.h5", searched))
    assert sorted(ds["iops"].values) == [500.0 + block for block in range(8)]
    assert sorted(ds["bandwidth"].values) == [4096 * (500.0 + block) for block in range(8)]


def test_campaigns_of_before_are_read_as_they_are(tmp_path: Path, records: list[RunRecord]) -> None:
    closed = [
        replace(one, phases=tuple(replace(p, facts={}) for p in one.phases), findings=())
        for one in records
    ]
    path = campaigns.write(tmp_path / "campaign.h5", closed)
    ds = load.open_campaign(path)
    assert np.isfinite(ds["latency_p50"].values).all()
    old = ds.drop_vars(["offered_rate", "achieved_rate", "backlog", "unplayed"])
    assert not [c for c in summarise(old).cells if why_absent(c, "latency_p50") == TOO_FEW]
