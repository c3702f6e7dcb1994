"""Transactions of a database, from made-up runs of the workload with known numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fsmatrix import analysis
from fsmatrix.analysis.catalogue import STUDIES, possible
from fsmatrix.analysis.comparison.compare import compare
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.study import study
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.questions.effects import effects
from fsmatrix.analysis.questions.variability import spread
from fsmatrix.analysis.report.pivot import cell_table, pivots
from fsmatrix.analysis.report.report import render
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.studies.claims import files as claims_files
from fsmatrix.analysis.studies.claims.claims import claims
from fsmatrix.analysis.studies.oltp import NOT_AUDITED, oltp
from fsmatrix.results import histogram
from fsmatrix.results.record import Latency, Phase
from tests.analysis import campaigns

SPEED = {"ext2": 1.0, "nilfs2": 5.0}  # times 10 transactions per second
SHARES = {"cpu_user": 0.2, "cpu_system": 0.1, "cpu_iowait": 0.6, "cpu_idle": 0.1}


def latency(count: int, seconds: float) -> Latency:
    counts = np.zeros(histogram.BINS, np.int64)
    counts[histogram.bin_of(round(seconds * 1e9))] = count
    return Latency(counts, count * seconds, seconds, seconds)


def phase(speed: float) -> Phase:
    done = round(6000 * speed)
    seen = {
        "transaction_rate": done / 600,
        "new_order_rate": 0.45 * done / 600,
        "device_iops": 30 * speed,
        "device_latency": 8e-3 / (4 if speed > 2 else 1),
        "nonsense": 3.0,
        **SHARES,
    }
    return Phase(
        "transactions",
        start=np.zeros(1),
        end=np.full(1, 600.0),
        bytes=np.zeros(1, np.int64),
        operations=np.array([done]),
        errors=np.zeros(1, np.int64),
        latency={"new-order": latency(done // 2, 0.02), "payment": latency(done // 2, 0.004)},
        began=1.7e9,
        facts={"observed": seen},
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two file systems, 14 attachments each."""
    rng = np.random.default_rng(3)
    records = [
        campaigns.record(
            target,
            phases=(phase(speed * rng.lognormal(0, 0.002)),),
            coordinates={"warehouses": 10},
            block=block,
            workload="tpcc",
            engine="postgresql",
        )
        for block in range(14)
        for target, speed in SPEED.items()
    ]
    return campaigns.write(tmp_path_factory.mktemp("oltp") / "campaign.h5", records)


def test_rates_and_latencies_by_type(store: Path) -> None:
    found = oltp(analysis.open(str(store)))
    assert isinstance(found, Result)
    assert found.says[0] == NOT_AUDITED
    assert found.says[-1] == "Engine: postgresql."
    tpm, nopm = map(int, re.findall(r"(\d+) (?:tpm|NOPM)", found.says[2]))
    assert tpm == pytest.approx(3000, rel=0.01)
    assert nopm == pytest.approx(1350, rel=0.01)
    assert "new orders within 20.1 ms in 95 %" in found.says[2]
    assert "the device served 150 requests/s in 2 ms each" in found.says[2]
    frame = found.table().set_index("target")
    assert frame.loc["ext2", "tpm"] == pytest.approx(600, rel=0.01)
    assert frame.loc["nilfs2", "payment p95, ms"] == pytest.approx(4, rel=0.02)
    assert json.loads(json.dumps(found.to_dict()))["cells"][0]["levels"] == {"target": "ext2"}
    left, right = found.figure().axes
    assert left.get_xlabel() == "tpm, all types"
    labels = right.get_legend_handles_labels()[1]
    assert labels[:2] == ["new-order", "payment"]


def test_the_report_has_a_section_of_it(store: Path) -> None:
    ds = analysis.open(str(store))
    assert {"oltp", "cpu"} <= set(possible(rows(ds), STUDIES))
    published = rows(analysis.open("published:cern-ior-dfs-peaks"))
    assert "oltp" not in possible(published, STUDIES)


def test_two_engines_are_never_compared_silently(tmp_path: Path) -> None:
    engines = {"ext2": "postgresql", "nilfs2": "sqlite"}
    records = [
        campaigns.record(
            target,
            phases=(phase(speed),),
            coordinates={"warehouses": 10},
            block=block,
            workload="tpcc",
            engine=engines[target],
        )
        for block in range(4)
        for target, speed in SPEED.items()
    ]
    ds = analysis.open(str(campaigns.write(tmp_path / "campaign.h5", records)))
    with pytest.raises(ValueError, match="mix engines: ext2 has postgresql, nilfs2 has sqlite"):
        compare(ds, "ext2", "nilfs2", metric="latency_mean")
    found = oltp(ds)
    assert [cell.levels["engine"] for cell in found.cells] == ["postgresql", "sqlite"]
    assert "postgresql" in found.says[1]
    assert "sqlite" in found.says[2]
    assert found.says[3] == "Engine: postgresql, sqlite. Never compare them with each other."


def test_what_is_no_metric_is_no_column(store: Path) -> None:
    ds = analysis.open(str(store))
    assert "nonsense" not in ds
    assert float(ds["cpu_iowait"][0]) == 0.6


def test_without_transactions_there_is_nothing() -> None:
    ds = analysis.open("published:cern-ior-dfs-peaks")
    with pytest.raises(ValueError, match="no"):
        oltp(ds)


def test_claims_of_the_study_are_judged_on_such_runs(store: Path) -> None:
    found = {
        judged.claim.id: judged.kind
        for judged in claims(analysis.open(str(store)), claims_files.load("flash-oltp")).judged
    }
    assert found["log-structured-tpm"] == "holds"
    assert found["log-structured-iops"] == "holds"
    assert found["service-time"] == "holds"
    assert found["memory-1g"] == "cannot be tested"


def test_transactions_are_not_called_iops(store: Path) -> None:
    ds = analysis.open(str(store))
    assert compare(ds, "ext2", "nilfs2", "iops").unit.label == "transactions/s"
    unit = next(p for p in pivots(summarise(ds)) if p.metric == "iops").parts[0].unit
    assert unit == "transactions/s"
    assert cell_table(summarise(ds))[1][0] == "transactions per second"
    assert study(ds, "iops").fitting().label == "transactions/s"
    assert spread(ds, "iops").unit.label == "transactions/s"
    html = render(ds)
    shown = re.sub(r"(?s)<script.*?</script>|<style.*?</style>", "", html)
    assert "transactions/s" in shown
    assert not re.search(r"\d[\d.]* k?IOPS|>IOPS<", shown)


def test_variation_is_told_of_transactions_too(store: Path) -> None:
    ds = analysis.open(str(store))
    assert spread(ds).metric == spread(ds, question="repetitions").metric == "iops"
    assert effects(ds).study.metric.name == "iops"
    html = render(ds)
    assert "no run gave any bandwidth" not in html
