"""The published tables: numbers picked by hand from the CSV files, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fsmatrix import analysis
from fsmatrix.analysis.data import load, publications
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.results.files.safefile import ResultError

MEASUREMENTS = [n for n in publications.names() if publications.describe(n).kind != "notes"]
NOTES = [n for n in publications.names() if publications.describe(n).kind == "notes"]


def value(name: str, metric: str, unit: str | None = None, **levels: object) -> float:
    array = analysis.matrix(analysis.published(name), metric, unit=unit)
    for coordinate, level in levels.items():
        if coordinate not in array.dims:
            assert array.coords[coordinate].values == level
    return float(array.sel({n: v for n, v in levels.items() if n in array.dims}))


def test_every_table_is_described_and_used() -> None:
    assert len(MEASUREMENTS) == 6
    assert len(NOTES) == 5
    described = {path.stem for path in publications.FOLDER.glob("*.yaml")}
    assert described >= set(publications.names())


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_table_is_a_campaign(name: str) -> None:
    description = publications.describe(name)
    ds = analysis.open(f"published:{name}")
    frame = analysis.published_table(name)
    assert ds.sizes["run"] == len(frame) * len(description.readings)
    assert (ds["status"].values == "ok").all()
    data = load.rows(ds)
    assert np.unique(data["attachment"]).size == len(frame)
    assert (data["last_attempt"] == 1).all()
    for key in ("title", "source", "where", "value", "repetitions"):
        assert ds.attrs[key]
    summary = summarise(ds)
    metrics = {m for reading in description.readings for m in reading.metrics}
    for metric in metrics:
        array = analysis.matrix(ds, metric)
        numbers = [reading.metrics[metric] for reading in description.readings]
        printed = sorted(v for one in numbers for v in frame[one.column] * one.scale)
        assert sorted(array.values[~np.isnan(array.values)]) == pytest.approx(printed)
        assert (array.coords["runs"].values <= 1).all()
    assert not any(m.decides for cell in summary.cells for m in cell.metrics.values())


@pytest.mark.parametrize("name", NOTES)
def test_a_table_of_no_measurements_is_a_frame(name: str) -> None:
    frame = analysis.published_table(name)
    lines = (publications.FOLDER / f"{name}.csv").read_text().splitlines()
    assert len(frame) == len(lines) - 1
    assert list(frame.columns) == lines[0].split(",")
    assert frame.attrs["source"]
    with pytest.raises(ValueError, match="no measurements"):
        analysis.published(name)


def test_numbers_are_those_of_the_papers() -> None:
    rntuple = {"compression": "zstd", "page_size": 1048576, "object_class": "RP_XSF"}
    assert value(
        "cern-lhcb-rntuple",
        "bandwidth",
        "GB/s",
        phase="read",
        trial=2,
        target="ice-lake",
        **rntuple,
    ) == pytest.approx(1.94331)
    assert value(
        "cern-lhcb-rntuple", "bandwidth", phase="write", trial=1, target="cascade-lake", **rntuple
    ) == pytest.approx(2.75375e9)
    peaks = {"target": "ice-lake", "storage_nodes": 4}
    array = analysis.matrix(analysis.published("cern-ior-dfs-peaks"), "bandwidth", unit="MB/s")
    ice = array.sel(target=peaks["target"])
    assert ice.coords["storage_nodes"] == peaks["storage_nodes"]
    assert float(ice.sel(phase="write")) == pytest.approx(5200)
    assert value(
        "cern-cephfs-fio", "bandwidth", "kB/s", pattern="rand-write", processes=5, target="cephfs"
    ) == pytest.approx(400)
    assert value(
        "flash-raw-device-response", "latency_mean", target="ssd", pattern="rand-write", chunk=4096
    ) == pytest.approx(8143e-6)
    assert value("ssd-per-hba", "iops_per_device", phase="read", devices_per_adapter=8) == 47000
    greedy = "protection=1,segments=2,interval=5"
    tpcc = "flash-tpcc-nilfs2-gc"
    assert value(tpcc, "transaction_rate", "1/min", gc=greedy) == pytest.approx(9933)
    assert value(tpcc, "device_iops", gc="none") == 2198
    assert value(tpcc, "device_latency", "ms", gc=greedy) == pytest.approx(1.82)


def test_trials_are_apart_and_the_same_work() -> None:
    data = load.rows(analysis.published("cern-lhcb-rntuple"))
    ice = data["target"] == "ice-lake"
    assert np.unique(data["work_id"]).size == 16  # compression, page size, object class
    assert np.unique(data["case_id"][ice]).size == 32
    assert set(data["block"][ice]) == {1, 2}
    doubted = (data["worst_finding"] == "warning") & ice
    assert (data["trial"][doubted] == 1).all()
    assert doubted.sum() == 32


def test_doubts_and_remarks_stay_with_their_values() -> None:
    ds = analysis.published("ssd-per-hba")
    data = load.rows(ds)
    row = (data["phase"] == "write") & (data["devices_per_adapter"] == 1)
    assert ((data["worst_finding"] == "warning") == row).all()
    assert "61,000 is the restoration" in data["remark"][row][0]
    peaks = load.rows(analysis.published("cern-ior-dfs-peaks"))
    assert peaks["remark"].tolist()[0] == "a little less than"


def test_joins_with_campaigns_of_other_tables() -> None:
    tables = ["published:cern-cephfs-fio", "published:cern-lhcb-rntuple"]
    ds = analysis.open(tables)
    assert ds.sizes["run"] == 8 + 96
    array = analysis.matrix(ds, "bandwidth")
    assert int(np.isfinite(array.values).sum()) == 104


def test_faulty_tables_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"no published table 'cern'.*cern-lhcb-rntuple"):
        analysis.open("published:cern")
    monkeypatch.setattr(publications, "FOLDER", tmp_path)
    pd.DataFrame({"a": [1]}).to_csv(tmp_path / "mine.csv", index=False)
    for text in ("", "title: [", "title: mine\nkind: guesses\n", "title: mine\nunknown: 1\n"):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(ResultError, match=r"mine\.yaml: does not describe a table"):
            analysis.published("mine")
