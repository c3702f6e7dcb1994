"""Where bandwidth stops growing, and what is full there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.data import load
from fsmatrix.analysis.questions.bottleneck import bottleneck as usage
from fsmatrix.analysis.questions.bottleneck.bottleneck import bottleneck
from fsmatrix.analysis.questions.bottleneck.bottleneck_result import Bottleneck
from fsmatrix.analysis.result import Result
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.nodes import WatchedNode
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Monitor
from tests.analysis import campaigns
from tests.analysis import study_data as studies
from tests.analysis.study_data import KIB, MIB, Levels

LINK = 1e8  # bytes per second
DEVICE = 3e8  # bytes per second
CHUNKS = (4 * KIB, 32 * KIB, 128 * KIB, MIB, 4 * MIB)
LEVELS = {
    "storage_nodes": (4,),
    "pattern": ("rand-write",),
    "chunk": CHUNKS,
    "processes_per_node": (1, 16),
}


def linked(cell: Levels) -> dict[str, float]:
    """Proportional to the chunk until the link is full: with 16 processes at 128 KiB."""
    free = cell["chunk"] * cell["processes_per_node"] * 60.0
    return {"bandwidth": min(free, LINK)}


def campaign(attachments: int = 8, **shares: Any) -> xr.Dataset:
    ds = studies.campaign(linked, LEVELS, attachments=attachments, between=0.01, within=0.01)
    return ds.assign({name: ("run", values(ds)) for name, values in shares.items()})


def full_link(ds: xr.Dataset) -> Any:
    return ds["bandwidth"].values


def constant(value: float) -> Any:
    return lambda ds: np.full(ds.sizes["run"], value)


def of(made: Bottleneck, axis: str, **levels: Any) -> Any:
    mine = [v for v in made.verdicts if v.axis == axis]
    (found,) = [v for v in mine if all(dict(v.key)[n] == x for n, x in levels.items())]
    return found


def test_growth_stops_at_the_knee_and_nowhere_else() -> None:
    made = bottleneck(campaign())
    assert isinstance(made, Result)
    many, single = of(made, "chunk", processes=16), of(made, "chunk", processes=1)
    assert [s.growth for s in many.steps] == ["grows", "grows", "stopped", "stopped"]
    assert many.knee == 128 * KIB
    assert [s.growth for s in single.steps] == ["grows"] * 4  # full at 4 MiB only
    assert math.isnan(single.knee)
    for step in many.steps[:1]:
        assert step.low <= 7.0 <= step.high  # proportional: 8 times from 4 to 32 KiB


@pytest.mark.parametrize(
    ("times", "growth"),
    [(1.05, "stopped"), (1.36, "grows"), (2.26, "grows"), (1.10, "cannot tell")],
)
def test_a_step_of_many_doublings_is_judged_as_a_whole(times: float, growth: str) -> None:
    """4 KiB to 1 MiB: 36 % more are 4 % for each doubling, and no end of growth at 4 KiB."""
    for last in (8 * KIB, MIB):
        levels = {"chunk": (4 * KIB, last)}
        ds = studies.campaign(
            lambda c: {"bandwidth": 1e8 * (times if c["chunk"] > 4 * KIB else 1)},
            levels,
            attachments=12,
            between=0.01,
            within=0.01,
        )
        (step,) = bottleneck(ds).verdicts[0].steps
        assert step.growth == growth
        assert step.low <= times - 1 <= step.high


def test_a_step_shorter_than_a_doubling_is_judged_for_a_doubling() -> None:
    """7 % more from 8 to 10 processes are 23 % for a doubling: it grows."""
    ds = studies.campaign(
        lambda c: {"bandwidth": 1e8 * (1.07 if c["processes_per_node"] == 10 else 1)},
        {"processes_per_node": (8, 10)},
        attachments=12,
        between=0.01,
        within=0.01,
    )
    (step,) = bottleneck(ds).verdicts[0].steps
    assert step.growth == "grows"
    assert step.low <= 1.07 ** (1 / math.log2(1.25)) - 1 <= step.high


def test_a_step_that_only_half_grows_is_not_called_stopped() -> None:
    """Each step brings 50 %: between proportional and none."""
    ds = studies.campaign(
        lambda c: {"bandwidth": 1e6 * 1.5 ** CHUNKS.index(c["chunk"])}, LEVELS, attachments=8
    )
    made = bottleneck(ds)
    steps = [s for v in made.verdicts if v.axis == "chunk" for s in v.steps]
    assert all(s.growth == "grows" and s.low <= 0.5 + 0.06 for s in steps)
    assert bottleneck(ds, threshold=0.6).verdicts[0].knee == 4 * KIB


@pytest.mark.parametrize(
    ("shares", "cause"),
    [
        ({"network_rate": full_link, "device_busy": constant(0.4), "cpu_busy": constant(0.3)},
         "network"),
        ({"network_rate": constant(LINK / 5), "device_busy": constant(0.97),
          "cpu_busy": constant(0.3)}, "unknown (device: always busy, limit not known)"),
        ({"network_rate": constant(LINK / 5), "device_busy": constant(0.97),
          "device_rate": constant(0.95 * DEVICE), "cpu_busy": constant(0.3)}, "device"),
        ({"network_rate": constant(LINK / 5), "device_busy": constant(0.4),
          "cpu_busy": constant(0.99)}, "client CPU"),
        ({"network_rate": constant(LINK / 5), "device_busy": constant(0.4),
          "cpu_busy": constant(0.3)},
         "none of network, device and client CPU: servers, locks or the queue depth"),
        ({"network_rate": full_link, "cpu_busy": constant(0.99)}, "network and client CPU"),
        ({"cpu_busy": constant(0.3)}, "unknown (network: not measured; device: not measured)"),
    ],
)  # fmt: skip
def test_the_cause_is_what_is_full(shares: Any, cause: str) -> None:
    made = bottleneck(campaign(**shares), limits={"network": LINK, "device": DEVICE})
    verdict = of(made, "chunk", processes=16)
    assert verdict.cause == cause
    assert any(f"at the limit: {cause}" in said for said in made.says)
    assert made.table()["at the limit"].tolist().count(cause) >= 4
    json.dumps(made.to_dict(), allow_nan=False)


@pytest.mark.parametrize("limit", [None, DEVICE])
def test_a_busy_ssd_far_below_its_limit_is_never_called_full(limit: float | None) -> None:
    """One request at a time: busy 99 % of the time, at 3 % of what 32 at a time would give."""
    causes = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        ds = campaign(network_rate=constant(LINK / 5), cpu_busy=constant(0.3))
        size = ds.sizes["run"]
        ds = ds.assign(
            device_busy=("run", random.normal(0.99, 0.003, size)),
            device_rate=("run", 0.03 * DEVICE * random.normal(1, 0.02, size)),
        )
        limits = {"network": LINK} | ({"device": limit} if limit else {})
        made = bottleneck(ds, limits=limits)
        causes.append(of(made, "chunk", processes=16).cause)
        assert any("is not shown to be at its limit" in said for said in made.says)
    assert set(causes) == {"unknown (device: always busy, limit not known)"}


def test_a_device_that_is_often_idle_is_not_the_limit() -> None:
    """Busy time excludes, whatever the limit leaves open."""
    ds = campaign(
        network_rate=constant(LINK / 5), cpu_busy=constant(0.3), device_busy=constant(0.4)
    )
    random = np.random.default_rng(1)
    for rate in (math.nan, 0.5 * DEVICE):
        scattered = rate * np.exp(random.normal(0, 1, ds.sizes["run"]))
        found = bottleneck(
            ds.assign(device_rate=("run", scattered)), limits={"network": LINK, "device": DEVICE}
        )
        states = {r.name: r.state for r in of(found, "chunk", processes=16).resources}
        assert states["device"] == "below its limit"


def test_the_study_s_conclusion_from_bandwidth_alone_is_not_drawn() -> None:
    made = bottleneck(campaign())
    assert of(made, "chunk", processes=16).cause.startswith("unknown (network: not measured")
    assert any("No evidence of network, device, client CPU" in said for said in made.says)
    assert len(made.figure().axes) == 1


def test_few_attachments_draw_no_verdict() -> None:
    ds = campaign(4, network_rate=full_link)
    made = bottleneck(ds, limits={"network": LINK})
    assert {s.growth for v in made.verdicts for s in v.steps} == {"cannot tell"}
    assert all(math.isnan(v.knee) for v in made.verdicts)
    assert {r.state for v in made.verdicts for r in v.resources if r.name == "network"} == {
        "cannot tell"
    }


def test_false_stops_are_rare_at_the_threshold() -> None:
    """True growth is exactly the threshold: at most 2.5 % of steps may be called stopped."""
    stopped, steps = 0, 0
    for seed in range(40):
        ds = studies.campaign(
            lambda c: {"bandwidth": 1e6 * 1.10 ** CHUNKS.index(c["chunk"])},
            LEVELS,
            attachments=8,
            between=0.05,
            seed=seed,
        )
        found = [s for v in bottleneck(ds).verdicts if v.axis == "chunk" for s in v.steps]
        stopped += sum(s.growth == "stopped" for s in found)
        steps += len(found)
    assert stopped / steps <= 0.025 + 2.6 * math.sqrt(0.025 * 0.975 / steps)


def test_the_factor_network_gives_the_limit_of_all_nodes_together() -> None:
    assert usage.link_limit("1Gbit", 4) == 4 * 125e6
    assert usage.link_limit("100Mbit", 2) == 25e6
    for unknown in ("none", "", math.nan, "10"):
        assert math.isnan(usage.link_limit(unknown, 4))
    assert math.isnan(usage.link_limit("1Gbit", math.nan))
    ds = campaign(network_rate=full_link)
    ds = ds.assign(network=("run", np.full(ds.sizes["run"], "200Mbit")))
    ds.attrs["factors"] = json.dumps({**json.loads(ds.attrs["factors"]), "network": "network"})
    assert of(bottleneck(ds), "chunk", processes=16).full == ("network",)


def test_figure_has_bandwidth_above_and_shares_below() -> None:
    ds = campaign(network_rate=full_link, cpu_busy=constant(0.2))
    figure = bottleneck(ds, limits={"network": LINK}).figure()
    above, below = figure.axes
    assert below.get_ylabel() == "share of the limit"
    rings = [line for line in above.lines if line.get_markersize() == 11]
    assert rings
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["1 process", "16 processes", "network", "client CPU"]


def test_bad_requests_are_refused_in_words() -> None:
    ds = campaign(2)
    with pytest.raises(ValueError, match="limits are of network and device, not of cpu"):
        bottleneck(ds, limits={"cpu": 1.0})
    with pytest.raises(ValueError, match="threshold of growth must be positive"):
        bottleneck(ds, threshold=0)
    with pytest.raises(ValueError, match="neither chunk size nor processes vary"):
        bottleneck(ds, where={"chunk": MIB, "processes": 1})
    with pytest.raises(ValueError, match="no run gave"):
        bottleneck(ds.assign(status=("run", np.full(ds.sizes["run"], "failed"))))


def stored(folder: Path) -> tuple[xr.Dataset, Path]:
    """A store with counters and CPU shares in its run files, and its campaign."""
    store = Store.create(folder / "out")
    rng = np.random.default_rng(3)
    for block in range(6):
        for chunk, rate in ((4 * KIB, 2e7), (128 * KIB, 1e8), (4 * MIB, 1e8)):
            done = campaigns.phase("write", rate, chunk, 1, rng, operations=600)
            window = float(done.end.max())
            looks = {
                "network_sent_bytes": rate * window,
                "network_received_bytes": 100.0,
                "device_read_bytes": 0.0,
                "device_written_bytes": rate * window,
                "device_busy_seconds": 0.4 * window,
            }
            evidence = read(
                Evidence,
                {
                    "counters": {
                        "write": [
                            {
                                "host": "h",
                                "before": dict.fromkeys(looks, 5.0),
                                "after": {n: v + 5 for n, v in looks.items()},
                            }
                        ]
                    },
                    "cpu": {"write": {"h": {"busy": 0.31}, "g": {"busy": 0.22}}},
                },
                "evidence",
            )
            environment = {"target": {"devices": [{"name": "vda"}]}}
            store.write(
                campaigns.record(
                    "ceph",
                    phases=(done,),
                    coordinates={"pattern": "rand-write", "chunk": chunk},
                    block=block,
                    evidence=evidence,
                    environment=environment,
                )
            )
    return load.open_campaign(store.merge()), folder / "out"


def test_evidence_comes_from_run_files(tmp_path: Path) -> None:
    ds, folder = stored(tmp_path)
    run_id, phase = str(ds["run_id"].values[0]), str(ds["phase"].values[0])
    found = usage.of_store(folder, [run_id, "0123456789abcdef-r0000-a1"])
    assert list(found) == [(run_id, phase)]
    one = found[run_id, phase]
    assert one.network_rate == pytest.approx(float(ds["bandwidth"].values[0]), rel=1e-6)
    assert one.device_rate == pytest.approx(one.network_rate)
    assert one.device_busy == pytest.approx(0.4)
    assert one.cpu_busy == 0.31
    (verdict,) = bottleneck(ds, store=folder, limits={"network": 1.05e8}).verdicts
    assert verdict.knee == 128 * KIB
    assert verdict.cause == "network"
    states = {r.name: r.state for r in verdict.resources}
    assert states["device"] == states["client CPU"] == "below its limit"


def test_looks_that_saw_more_than_the_window_are_no_evidence(tmp_path: Path) -> None:
    """As with a program that starts, lays out files and works for 0.1 s of 0.5 s."""
    done = campaigns.phase("write", 1e8, MIB, 1, np.random.default_rng(1), operations=10)
    seconds = float(done.end.max())

    def used(apart: float) -> usage.Usage:
        after = {
            "cpu_busy": 0.5 * apart,
            "cpu_idle": 1.5 * apart,
            "device_read_bytes": 0.0,
            "device_written_bytes": 1e7,
            "device_busy_seconds": 0.9 * apart,
        }
        look = {"host": "h", "before": dict.fromkeys(after, 0.0), "after": after}
        record = campaigns.record(
            "a",
            phases=(done,),
            coordinates={},
            evidence=read(
                Evidence,
                {
                    "counters": {"write": [look]},
                    "cpu": {"write": {"h": {"busy": 0.25}}},
                },
                "evidence",
            ),
            environment={"machine": {"host": "h", "cpus": 2}, "target": {"devices": [{}]}},
        )
        return usage.usage_of(record, done)

    assert used(seconds).cpu_busy == 0.25
    assert used(seconds).device_busy == pytest.approx(0.9)
    assert math.isnan(used(5 * seconds + 1).cpu_busy)
    assert math.isnan(used(5 * seconds + 1).device_rate)


def test_an_impossible_share_is_no_evidence() -> None:
    made = bottleneck(campaign(device_busy=constant(1.4), cpu_busy=constant(0.3)))
    states = {r.name: r.state for r in of(made, "chunk", processes=16).resources}
    assert states["device"] == "not measured"


def test_the_finding_of_a_busy_client_is_evidence_too() -> None:
    ds = campaign()
    rows = np.arange(ds.sizes["run"])
    ds = ds.assign(
        finding_run=("finding", rows),
        finding_audit=("finding", np.full(rows.size, usage.CPU_AUDIT)),
        finding_severity=("finding", np.full(rows.size, "warning")),
    )
    assert of(bottleneck(ds), "chunk", processes=16).cause == "client CPU"


def test_a_watched_node_s_full_link_is_named(tmp_path: Path) -> None:
    """What 128 KiB and 4 MiB get is what one of two nodes' links can carry; CPUs have room."""
    store = Store.create(tmp_path / "out")
    for block in range(6):
        for chunk, rate in ((4 * KIB, 2e7), (128 * KIB, 1e8), (4 * MIB, 1e8)):
            rng = np.random.default_rng(block)
            done = campaigns.phase("write", rate, chunk, 1, rng, operations=600)
            time = done.began + np.linspace(-0.1, float(done.end.max()) + 0.1, 9)
            received = np.array([[rate] * 9, [rate / 4] * 9])
            nodes = Monitor(
                ("node1", "node2"),
                time,
                {"link_received:eth0": received, "cpu_user": np.full((2, 9), 0.3)},
            )
            watched = {
                name: WatchedNode(source="testbed", interval=0.1, link_limits={"eth0": 1.05e8})
                for name in nodes.hosts
            }
            store.write(
                campaigns.record(
                    "ceph",
                    phases=(done,),
                    coordinates={"pattern": "rand-write", "chunk": chunk, "processes": 1},
                    block=block,
                    nodes=nodes,
                    evidence=Evidence(nodes=watched),
                )
            )
    made = bottleneck(load.open_campaign(store.merge()), store=tmp_path / "out")
    (verdict,) = made.verdicts
    assert (verdict.knee, verdict.cause) == (128 * KIB, "storage link")
    shares = {r.name: r.share.median for r in verdict.resources if r.share.runs}
    assert shares["storage link"] == pytest.approx(1e8 / 1.05e8, rel=0.02)
    assert shares["storage CPU"] == pytest.approx(0.3)
    assert "storage link" in {text.get_text() for text in made.figure().legends[0].get_texts()}
