"""Response curves: points, the knee where it is known to be, saturation, what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr

from fsmatrix.analysis.catalogue import STUDIES, possible
from fsmatrix.analysis.data.load import open_campaign, rows
from fsmatrix.analysis.draw import tables
from fsmatrix.analysis.questions.response import response
from tests.analysis import campaigns
from tests.analysis.data.test_saturation import run
from tests.analysis.study_data import Levels, campaign

RATES = (1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000)
CAPACITY = {"a": 10_000, "b": 20_000}


def queue(cell: Levels) -> dict[str, float]:
    """M/M/1: latency 1 / (capacity - rate), so that throughput / latency is largest at half."""
    latency = 1 / (CAPACITY[str(cell["target"])] - float(cell["rate"]))
    return {"iops": float(cell["rate"]), "latency_p99": latency, "latency_mean": latency / 2}


def made(attachments: int = 8, between: float = 0.01, rates: tuple[int, ...] = RATES) -> xr.Dataset:
    levels = {"target": ("a", "b"), "rate": rates}
    return campaign(queue, levels, attachments=attachments, between=between, within=0.002)


def test_the_knee_is_where_throughput_per_latency_is_largest() -> None:
    found = response(made())
    assert (found.along, found.metric) == ("rate", "latency_p99")
    a, b = found.lines
    assert a.knee is not None
    assert a.knee.load.median == a.knee.at.load == 5000
    assert a.knee.load.low <= 5000 <= a.knee.load.high
    assert not a.knee.last
    assert b.knee is not None
    assert (b.knee.load.median, b.knee.last) == (9000, True)  # half its capacity is beyond
    first, second, *_ = found.says
    assert first.startswith("a: knee at rate 5000 [5000, 5000]: ")
    assert " kIOPS @ p99 200 µs [" in first
    assert second.endswith("; no larger load has a latency.")


def test_each_block_has_its_knee_and_their_spread_is_the_interval() -> None:
    (a, _) = response(made(attachments=12, between=0.0)).lines
    assert a.knee is not None
    assert a.knee.load.independent == 12
    noisy = campaign(
        queue,
        {"target": ("a", "b"), "rate": RATES},
        attachments=12,
        between=0.0,
        within=0.2,
        seed=3,
    )
    (loose, _) = response(noisy).lines
    assert loose.knee is not None
    assert loose.knee.load.low < loose.knee.load.high
    assert loose.knee.load.low <= 5000 <= loose.knee.load.high


def test_few_loads_have_no_knee() -> None:
    found = response(made(rates=(1000, 2000)))
    assert [line.knee for line in found.lines] == [None, None]
    assert found.says[0] == "a: 2 loads with a latency, too few for a knee."


def test_a_saturated_point_has_a_throughput_and_no_latency(tmp_path: Path) -> None:
    """ext4 did not follow the highest rate in one of its runs."""
    records = [
        run(target, block, rate, 500 * (target == "ext4" and rate == 4000 and block == 3))
        for target in ("xfs", "ext4")
        for block in range(8)
        for rate in (500, 1000, 2000, 4000)
    ]
    ds = open_campaign(campaigns.write(tmp_path / "campaign.h5", records))
    found = response(ds, "latency_p50")
    ext4, xfs = found.lines
    assert [point.saturated for point in ext4.points] == [False, False, False, True]
    assert not any(point.saturated for point in xfs.points)
    last = ext4.points[-1]
    assert (last.latency.kind, last.rate.independent) == ("none", 8)
    assert "@" not in found.reads(last)
    assert "; saturated from rate 4000: " in found.says[0]
    assert "saturated" not in found.says[1]
    hiccup = replace(ext4, points=tuple(replace(p, saturated=p.load == 1000) for p in ext4.points))
    assert (
        replace(found, lines=(hiccup,))
        .says[0]
        .endswith("; saturated at rate 1000 and not at every larger load: no limit is known.")
    )
    bound = replace(xfs, points=tuple(replace(p, client_bound=p.load > 1000) for p in xfs.points))
    marked = replace(found, lines=(bound,))
    assert marked.says[0].endswith("; in doubt: client-bound at rate 2000, 4000.")
    assert marked.table()[""].tolist().count("client-bound") == 2
    frame = found.table()
    assert frame[""].tolist().count("saturated") == 1
    assert list(possible(rows(ds), {"response": STUDIES["response"]})) == ["response"]
    json.dumps(found.to_dict(), allow_nan=False)
    assert "saturated" in tables.csv(found)


def test_the_picture_has_both_panels_and_a_ring_for_each_knee() -> None:
    ds = made()
    ds["cpu_busy"] = ds["iops"] / 20_000
    found = response(ds)
    assert found.pages == 1
    figure = found.figure()
    assert len(figure.axes) == 2
    rings = [line for line in figure.axes[0].lines if line.get_markersize() == 11]
    assert [ring.get_xdata()[0] for ring in rings] == pytest.approx([5, 9], rel=0.05)
    assert figure.axes[1].get_ylabel() == "client CPU, %"
    with pytest.raises(ValueError, match="there are pages 0 to 0, not 1"):
        found.figure(1)
    assert len(response(made()).figure().axes) == 1


def test_what_is_no_load_or_no_latency_is_refused() -> None:
    with pytest.raises(ValueError, match="no load: iodepth must have several levels"):
        response(made(), along=["iodepth"])
    with pytest.raises(ValueError, match="no latency 'iops': there are latency_mean"):
        response(made(), "iops")
