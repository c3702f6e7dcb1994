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
from fsmatrix.analysis.data.metric_cells import study
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.draw.charts import charts
from fsmatrix.analysis.questions.effects import effects
from fsmatrix.analysis.questions.variability import variability
from fsmatrix.analysis.report.pivot import cell_table, pivots
from fsmatrix.analysis.report.report import render
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.studies.claims import claims_file as claims_files
from fsmatrix.analysis.studies.claims.claims import claims
from fsmatrix.analysis.studies.oltp import NOT_AUDITED, oltp
from fsmatrix.analysis.units import MISSING
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


def test_the_report_calls_them_transactions_and_never_iops(store: Path) -> None:
    text = render(analysis.open(str(store)))
    page = re.sub(r"<script.*?</script>|src=\"data:[^\"]*\"", "", text, flags=re.DOTALL)
    assert not re.findall(r".*IOPS.*|.*Operations per second.*", page)
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "Transactions of all types in tpm" in words
    assert "Transactions of all types: ext2 against nilfs2" in words
    assert "cell ext2, tpm nilfs2, tpm" in words
    assert "Transactions of all types: coefficient of variation" in words
    assert "transactions, tpm" in words  # of all cells
    drawn = next(c for c in charts(summarise(analysis.open(str(store)))) if c.metric == "iops")
    assert drawn.title == "Transactions of all types"
    assert sorted(round(bar["y"][0], -1) for bar in drawn.data) == [600, 3000]


def test_operations_of_other_phases_beside_them_stay_operations(tmp_path: Path) -> None:
    other = campaigns.phase("seq-write", 1e8, 1 << 20, 1, np.random.default_rng(1))
    works = {"tpcc": phase(10.0), "pattern": other}
    records = [
        campaigns.record("ext2", workload=name, phases=(of,), coordinates={})
        for name, of in works.items()
    ]
    ds = analysis.open(str(campaigns.write(tmp_path / "campaign.h5", records)))
    _, titles, found = cell_table(summarise(ds))
    assert {"transactions, tpm", "IOPS"} <= set(titles)
    columns = [titles.index("transactions, tpm"), titles.index("IOPS")]
    shown = {row.cell.levels["workload"]: [row.medians[i][0] for i in columns] for row in found}
    assert shown["tpcc"] == ["6000", MISSING]
    assert shown["pattern"][0] == MISSING != shown["pattern"][1]


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
    assert compare(ds, "ext2", "nilfs2", "iops").unit.label == "tpm"
    unit = next(p for p in pivots(summarise(ds)) if p.metric == "iops").parts[0].unit
    assert unit == "tpm"
    assert study(ds, "iops").fitting().label == "tpm"
    assert variability(ds, "iops").unit.label == "tpm"
    html = render(ds)
    shown = re.sub(r"(?s)<script.*?</script>|<style.*?</style>", "", html)
    assert not re.search(r"\d[\d.]* k?IOPS|>IOPS<", shown)


def test_events_of_an_analysis_are_not_called_iops(tmp_path: Path) -> None:
    records = [
        campaigns.record(
            target,
            phases=(campaigns.phase("read", speed, 1 << 20, 1, np.random.default_rng(block)),),
            block=block,
            coordinates={},
            workload="rntuple",
            engine="uproot",
        )
        for block in range(3)
        for target, speed in (("xfs", 1e8), ("ext4", 2e8))
    ]
    ds = analysis.open(str(campaigns.write(tmp_path / "campaign.h5", records)))
    assert compare(ds, "xfs", "ext4", "iops").unit.label == "events/s"
    assert "events, events/s" in cell_table(summarise(ds))[1]
    assert next(p for p in pivots(summarise(ds)) if p.metric == "iops").title == "Events per second"


def test_variation_is_told_of_transactions_too(store: Path) -> None:
    ds = analysis.open(str(store))
    assert variability(ds).metric == variability(ds, question="repetitions").metric == "iops"
    assert effects(ds).study.metric.name == "iops"
    html = render(ds)
    assert "no run gave any bandwidth" not in html
