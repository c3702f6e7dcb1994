"""The flash study: the published table, and a made-up OLTP campaign with a known truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix import analysis
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.questions.curves import speedup
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.studies import flash
from fsmatrix.analysis.studies.claims import claims_file as claims_files
from fsmatrix.analysis.studies.claims.claims import claims
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.stored import read
from tests.analysis import campaigns
from tests.analysis import study_data as studies

GIB = 1 << 30
SPEED = {
    "hdd-ext2": dict.fromkeys((GIB // 2, GIB, 2 * GIB), 1.1),
    "flash-ext2": dict.fromkeys((GIB // 2, GIB, 2 * GIB), 1.0),
    "flash-nilfs2": {GIB // 2: 2.0, GIB: 4.4, 2 * GIB: 6.5},
}
CPU = {True: (0.25, 0.25, 0.25, 0.25), False: (0.1, 0.08, 0.7, 0.12)}


def truth(cell: studies.Levels) -> dict[str, float]:
    """Transactions, requests, their time, CPU shares; the shares hardly scatter."""
    speed = SPEED[cell["target"]][cell["memory_bytes"]]
    rate = speed * 25 * (1 - float(np.exp(-cell["warehouses"] / 8)))
    shares = dict(zip(flash.CPU, CPU["nilfs2" in cell["target"]], strict=True))
    times = dict.fromkeys(("device_latency", "latency_mean"), 4e-3 / speed)
    return {"transaction_rate": rate, "device_iops": 12 * rate, **times, **shares}


@pytest.fixture(scope="module")
def campaign() -> Any:
    levels = {
        "target": tuple(SPEED),
        "warehouses": (5, 10, 20),
        "memory_bytes": (GIB // 2, GIB, 2 * GIB),
    }
    ds = studies.campaign(truth, levels, attachments=14, between=0.002, within=0.002)
    ds["transaction_rate"].attrs["units"] = "s-1"
    return ds


def test_throughput(campaign: Any) -> None:
    found = flash.throughput(campaign, where={"memory_bytes": 2 * GIB})
    assert isinstance(found, Result)
    assert found.along == "warehouses"
    assert [dict(line.key)["target"] for line in found.lines] == sorted(SPEED)
    tpm = found.table().set_index(["target", "warehouses"])["median, tpm"]
    expected = 60 * 6.5 * 25 * (1 - np.exp(-20 / 8))
    assert tpm["flash-nilfs2", 20] == pytest.approx(expected, rel=0.01)
    (ax,) = found.figure().axes
    assert ax.get_ylabel() == "tpm"
    assert len(ax.get_legend_handles_labels()[0]) == 3
    assert json.loads(json.dumps(found.to_dict()))["along"] == "warehouses"
    ios = flash.requests(campaign, where={"memory_bytes": GIB})
    assert "1/s" in ios.says[0]
    service = flash.service_time(campaign, where={"memory_bytes": GIB})
    times = {dict(line.key)["target"]: line.cells[0].median.median for line in service.lines}
    assert times["flash-nilfs2"] == pytest.approx(4e-3 / 4.4, rel=0.01)
    assert " ms at warehouses 5" in service.says[0]


def test_cpu(campaign: Any) -> None:
    found = flash.cpu(campaign, where={"memory_bytes": GIB, "warehouses": 10})
    assert isinstance(found, Result)
    parts = {dict(s.key)["target"]: s for s in found.shares}
    assert parts["flash-ext2"].parts["cpu_iowait"].median == pytest.approx(0.7, rel=0.02)
    assert parts["flash-nilfs2"].total == pytest.approx(1, abs=0.01)
    assert any("flash-ext2: mostly iowait (70%)" in line for line in found.says)
    (ax,) = found.figure().axes
    assert len(ax.patches) == 3 * 4
    with pytest.raises(ValueError, match="no cpu_user"):
        flash.cpu(campaign.drop_vars("cpu_user"))


def test_cpu_of_a_measured_campaign(tmp_path: Path) -> None:
    """Shares of the busiest client, from counters as a session stores them."""
    done = campaigns.phase("write", 1e8, 4096, 1, np.random.default_rng(1))
    spent = {"n1": (0.5, 0.1, 0.1, 0.2, 0.1), "n2": (0.1, 0.1, 0.2, 0.6, 0.0)}
    looks, shares = [], {}
    for host, (user, system, iowait, idle, steal) in spent.items():
        moved = {
            "cpu_busy": user + system,
            "cpu_user": user,
            "cpu_iowait": iowait,
            "cpu_idle": idle,
            "cpu_steal": steal,
        }
        after = {name: 7 + 3 * seconds for name, seconds in moved.items()}
        looks.append({"host": host, "before": dict.fromkeys(moved, 7.0), "after": after})
        shares[host] = {n: moved[f"cpu_{n}"] for n in ("busy", "idle", "iowait", "steal")}
    records = [
        campaigns.record(
            "xfs",
            phases=(done,),
            coordinates={},
            block=block,
            evidence=read(
                Evidence,
                {
                    "counters": {"write": looks if block else []},
                    "cpu": {"write": shares},
                },
                "evidence",
            ),
        )
        for block in range(8)
    ]
    ds = analysis.open(campaigns.write(tmp_path / "c.h5", records))
    assert np.isnan(ds["cpu_user"].values).tolist() == [True] + [False] * 7
    (share,) = flash.cpu(ds).shares
    parts = {name.removeprefix("cpu_"): part.median for name, part in share.parts.items()}
    assert parts == pytest.approx({"user": 0.5, "system": 0.1, "iowait": 0.1, "idle": 0.2})
    assert "The parts sum to 0.90, not one" in flash.cpu(ds).says[1]
    np.testing.assert_allclose((ds["cpu_user"] + ds["cpu_system"])[1:], ds["cpu_busy"][1:])


def test_speedup_under_less_memory(campaign: Any) -> None:
    found = flash.memory(
        campaign, "flash-nilfs2", "flash-ext2", ComparisonOptions(where={"warehouses": 20})
    )
    assert isinstance(found, Result)
    table = found.table().set_index("memory_bytes")
    assert [round(x, 1) for x in table["speed-up"]] == [2.0, 4.4, 6.5]
    assert ((table["low"] <= table["speed-up"]) & (table["speed-up"] <= table["high"])).all()
    assert set(table["verdict"]) == {"faster"}
    assert "memory bytes 512 MiB: flash-nilfs2 is 2 times as fast" in found.says[0]
    assert json.loads(json.dumps(found.to_dict()))["points"][0]["memory_bytes"] == GIB // 2
    (ax,) = found.figure().axes
    assert ax.get_xscale() == "log"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["512 MiB", "1 GiB", "2 GiB"]
    with pytest.raises(ValueError, match="target 'a' is not there"):
        flash.memory(campaign, "a", "flash-ext2")
    published = analysis.open("published:flash-tpcc-nilfs2-gc")
    with pytest.raises(ValueError, match="no factor memory or memory_bytes"):
        speedup(
            published,
            "none",
            "protection=1,segments=2,interval=5",
            by="gc",
            along=flash.MEMORY,
            metric="transaction_rate",
        )


def test_speedup_of_times_and_across_engines(campaign: Any) -> None:
    one = {"warehouses": 20}
    found = speedup(
        campaign,
        "flash-nilfs2",
        "flash-ext2",
        "latency_mean",
        along=flash.MEMORY,
        options=ComparisonOptions(where=one),
    )
    assert [round(x, 1) for x in found.table()["speed-up"]] == [2.0, 4.4, 6.5]
    mixed = campaign.copy()
    engines = np.where(campaign["target"].values == "flash-ext2", "fio", "player-c")
    mixed["engine"] = ("run", engines)
    with pytest.raises(ValueError, match="engine"):
        flash.memory(mixed, "flash-nilfs2", "flash-ext2", ComparisonOptions(where=one))
    allowed = flash.memory(
        mixed, "flash-nilfs2", "flash-ext2", ComparisonOptions(where=one, across_engines=True)
    )
    assert any("engine" in line for line in allowed.says)


def test_claims_on_the_made_up_campaign(campaign: Any) -> None:
    on_flash = campaign.isel(run=campaign["target"].values != "hdd-ext2")
    found = {j.claim.id: j for j in claims(on_flash, claims_files.load("flash-oltp")).judged}
    kinds = {name: one.kind for name, one in found.items()}
    assert kinds == {
        "log-structured-tpm": "holds",
        "log-structured-iops": "holds",
        "service-time": "holds",
        "memory-1g": "holds",
        "memory-512m": "holds",
        "greedy-gc-throughput": "cannot be tested",
        "greedy-gc-response-time": "cannot be tested",
    }
    assert "gc" in found["greedy-gc-throughput"].why


def test_published_garbage_collection() -> None:
    ds = analysis.open("published:flash-tpcc-nilfs2-gc")
    found = flash.setting(ds, "gc", "protection=1,segments=2,interval=5", "none")
    assert list(found) == list(flash.METRICS)
    assert found["transaction_rate"].mean_ratio == pytest.approx(9933 / 9983)
    assert found["device_latency"].mean_ratio == pytest.approx(1.82 / 1.02)
    assert found["device_latency"].ahead == (0, 1)
    assert "chance cannot be told" in found["device_iops"].says[0]
    tpm = flash.throughput(ds).table()["median, tpm"]
    assert sorted(tpm) == pytest.approx([9933, 9983])
    with pytest.raises(ValueError, match="none of"):
        flash.setting(ds, "gc", "none", "none", metrics=["latency_p99"])
