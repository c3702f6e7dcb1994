"""Imported runs: ids, provenance, what is not known; texts; campaign files read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from fsmatrix.results import iterations
from fsmatrix.results.files import campaignfile, campaignread
from fsmatrix.results.files.campaignfile import CampaignWriter
from fsmatrix.results.files.runfile import read_run, write_run
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import DamagedFileError, ForeignFileError, NewerSchemaError
from fsmatrix.results.formats.parsed import (
    Format,
    KnownFormat,
    Note,
    Parsed,
    matching,
    recognise,
    totals,
)
from fsmatrix.results.histogram import BINS
from fsmatrix.results.record import Case, Finding, Latency, Phase, RunRecord
from fsmatrix.suite.importing.imported import ContradictionError, Source, case_id, records

WRITE = totals("write", 2.0, 1 << 20, 256)
PARSED = Parsed(
    engine="ior",
    version="4.1.0",
    phases=(WRITE,),
    options={"transfer_size": 4096, "api": "POSIX"},
    nodes=2,
    processes=8,
    notes=(Note("recovered", "the end was cut", 3, "write"),),
    facts={"machine": "Linux"},
)
SOURCE = Source(
    "results/a.txt", "ab" * 32, "ior-text", "2026-01-01T00:00:00Z", "0.1.0", {"a.txt": "IOR\n"}
)


def one(parsed: Parsed = PARSED, **labels: Any) -> RunRecord:
    (record,) = records([parsed], SOURCE, labels)
    return record


def test_what_the_output_tells_is_in_the_record() -> None:
    record = one(target="ceph-a", storage_nodes=3)
    assert record.coordinates == {
        "target": "ceph-a",
        "workload": "ior",
        "transfer_size": 4096,
        "api": "POSIX",
        "version": "4.1.0",
        "nodes": 2,
        "processes": 8,
        "processes_per_node": 4,
        "storage_nodes": 3,
    }
    assert (record.engine, record.engine_version, record.status) == ("ior", "4.1.0", "ok")
    assert record.texts == {"a.txt": "IOR\n"}
    assert record.environment["imported"] == {
        "file": "results/a.txt",
        "sha256": "ab" * 32,
        "format": "ior-text",
        "at": "2026-01-01T00:00:00Z",
        "by": "0.1.0",
        "labels": {"target": "ceph-a", "storage_nodes": 3},
    }
    engine = record.evidence.document()["engine"]
    assert engine["facts"] == {"machine": "Linux"}
    assert engine["notes"] == [
        {"key": "recovered", "message": "the end was cut", "line": 3, "phase": "write"}
    ]


def test_what_is_not_told_is_absent() -> None:
    record = one(Parsed(engine="dbench", phases=(WRITE,), processes=5, options={"sync": None}))
    assert record.coordinates == {"target": "unknown", "workload": "dbench", "processes": 5}
    assert np.isnan(record.duration)
    assert (record.session, record.started) == ("", "")
    case = json.loads(record.case)
    assert case["geometry"] == {"nodes": None, "processes_per_node": None}
    assert (case["cache"], case["device_state"], case["processes"]) == ("unknown", "unknown", 5)
    assert Case.from_canonical(record.case).cache == "unknown"


@pytest.mark.parametrize(
    ("nodes", "processes", "expected"), [(2, 8, 4), (3, 8, None), (None, 8, None), (2, None, None)]
)
def test_processes_per_node_only_if_both_are_known(
    nodes: int | None, processes: int | None, expected: int | None
) -> None:
    record = one(replace(PARSED, nodes=nodes, processes=processes))
    assert record.coordinates.get("processes_per_node") == expected


def test_ids_come_from_the_source_and_pair_across_targets() -> None:
    first, second = records([PARSED, PARSED], SOURCE, {"target": "a"})
    other = records([PARSED], replace(SOURCE, sha256="cd" * 32, file="b"), {"target": "b"})[0]
    assert [first.run_id, second.run_id] == [
        f"{case_id(SOURCE.sha256, index)}-r{index + 1:04d}-a1" for index in range(2)
    ]
    assert first.run_id == f"{first.case_id}-r0001-a1"
    assert len({first.case_id, second.case_id, other.case_id}) == 3
    assert first.work_id == second.work_id == other.work_id
    assert one(target="c").run_id == first.run_id  # labels are not in it
    assert one(replace(PARSED, nodes=4)).work_id != first.work_id
    assert {r.attachment for r in (first, second, other)} == {"imported"}


def test_failed_runs() -> None:
    assert one(replace(PARSED, failure="disk full")).error == "disk full"
    assert one(replace(PARSED, failure="disk full")).status == "failed"
    nothing = one(replace(PARSED, phases=()))
    assert (nothing.status, nothing.error) == ("failed", "the output holds no result")


@pytest.mark.parametrize(
    ("printed", "stored"),
    [
        ("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00Z"),
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z"),
        ("2026-01-01T12:00:00", ""),
        ("Fri Nov 20 12:38:26 2026", ""),
    ],
)
def test_a_time_without_its_zone_is_not_guessed(printed: str, stored: str) -> None:
    record = one(replace(PARSED, started=printed))
    assert record.started == stored
    assert record.evidence.engine.started == printed


def test_labels_that_contradict_the_output() -> None:
    with pytest.raises(ContradictionError, match=r"results/a.txt.*nodes = 2.*says 3"):
        one(nodes=3)
    assert one(nodes=2).coordinates["nodes"] == 2
    assert one(api="POSIX").coordinates["api"] == "POSIX"
    assert one(workload="mine").coordinates["workload"] == "mine"


def test_the_findings_are_of_the_audits() -> None:
    assert "output-recovered" in {finding.audit for finding in one().findings}


def test_the_most_specific_format_wins_and_families_count_once() -> None:
    def known(family: str, mark: str) -> KnownFormat:
        return KnownFormat(
            family, Format(f"{family} {mark}", lambda text: mark in text, lambda t, s: [])
        )

    formats = [known("x", "XY"), known("y", "Y"), known("y", "XY")]
    assert [one.format.name for one in matching("XY", formats)] == ["x XY", "y Y"]
    assert recognise("Y", formats) is formats[1].format
    assert recognise("Z", formats) is None


# -- texts ---------------------------------------------------------------------------------
TEXTS = {"stdout": "über\r\n\0" + "x" * 100_000, "stderr": "", "lone \ud800": "\udfff"}


def written(path: Path, runs: list[RunRecord]) -> Path:
    with campaignfile.writing(path) as writer:
        for run in runs:
            writer.add(run)
        writer.finish("", [])
    return path


def test_texts_in_a_run_file(tmp_path: Path) -> None:
    write_run(tmp_path / "run.h5", replace(one(), texts=TEXTS))
    assert read_run(tmp_path / "run.h5").texts == TEXTS
    assert (tmp_path / "run.h5").stat().st_size < 50_000
    write_run(tmp_path / "run.h5", replace(one(), texts={}))
    with h5py.File(tmp_path / "run.h5") as file:
        assert "texts" not in file


def test_texts_in_a_campaign_file_stand_once(tmp_path: Path) -> None:
    runs = [
        replace(one(), case_id="a" * 16, texts=TEXTS, phases=(WRITE, WRITE)),
        replace(one(), case_id="b" * 16, texts={}),
        replace(
            one(), case_id="c" * 16, texts={"again": TEXTS["stdout"], "other": "z" * 2_000_000}
        ),
    ]
    path = written(tmp_path / "c.h5", runs)
    for run in runs:
        assert campaignread.texts_of(path, run.run_id) == run.texts
    with h5py.File(path) as file:
        assert file["texts/text_sha256"].shape == (4,)
        stored = sum(len(text.encode("utf-8", "surrogatepass")) for text in TEXTS.values())
        assert file["texts/text_bytes"].shape == (stored + 2_000_000,)
        assert file["texts/output_run"][...].tolist() == [0, 0, 0, 3, 3]
    bare = written(tmp_path / "bare.h5", [replace(run, texts={}) for run in runs])
    assert path.stat().st_size - bare.stat().st_size < 400_000  # 2.1 MB of text in a new group
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        assert not any("text" in str(name) for name in dataset.variables)
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        assert tree["texts"]["output_name"].values.tolist()[:2] == ["stdout", "stderr"]
    with pytest.raises(LookupError, match="no run nobody"):
        campaignread.texts_of(path, "nobody")


def test_without_texts_nothing_is_stored(tmp_path: Path) -> None:
    path = written(tmp_path / "c.h5", [replace(one(), texts={})])
    with h5py.File(path) as file:
        assert "texts" not in file
    assert campaignread.texts_of(path, one().run_id) == {}


# -- a campaign file read back ---------------------------------------------------------------
def rich() -> list[RunRecord]:
    """Records with everything that a campaign file can hold."""
    counts = np.zeros(BINS, dtype=np.int64)
    counts[[3, 900]] = 5, 20
    read = Phase(
        "read",
        np.zeros(3),
        np.array([1.0, 2.0, 3.0]),
        np.array([1, 2, 3]),
        np.array([4, 5, 6]),
        np.array([0, 0, 1]),
        latency={
            "read": Latency(counts, 1.0, 0.1, 0.2),
            "open": Latency(counts * 2, 1.0, 0.1, 0.2),
        },
        interval=0.5,
        interval_bytes=np.array([1, 2, 3, 4]),
        interval_latency_max=np.array([0.5, 0.25, np.nan, 1.0]),
        began=5.0,
        clock_uncertainty=0.25,
        iterations=iterations.columns(
            [{"seconds": s, "bytes": 3, "operations": 7, "close": 0.5} for s in (1.0, 2.0)]
        ),
        summary={"iterations": 2, "iops_max": 5.5},
    )
    finding = Finding("x", 2, "warning", "json:é\0", "do", "read")
    base = replace(one(target="a"), block=3, texts={})
    return [
        replace(base, case_id="1" * 16, phases=(WRITE, read), findings=(finding,), texts=TEXTS),
        replace(base, case_id="2" * 16, attempt=1, status="failed", error="é", phases=()),
        replace(base, case_id="2" * 16, attempt=2, coordinates={"mixed": "auto", "share": 0.5}),
        replace(base, case_id="3" * 16, coordinates={"mixed": 4, "share": 1, "bad name/x": True}),
    ]


def copied(source: Path, target: Path, times: int = 1) -> Path:
    for _ in range(times):
        with campaignread.reading(source) as file, campaignfile.writing(target) as writer:
            for entry in campaignread.entries(file):
                writer.put(entry)
            writer.finish(str(file.attrs["campaign"]), [])
        source = target
    return target


def test_a_copy_of_a_campaign_file_is_the_same(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(campaignread, "AHEAD", 2)  # many readings
    first = written(tmp_path / "a.h5", rich())
    second = copied(first, tmp_path / "b.h5", times=2)
    with (
        xr.open_datatree(first, engine="h5netcdf") as one_tree,
        xr.open_datatree(second, engine="h5netcdf") as other_tree,
    ):
        attributes = [{**tree.attrs, "created": ""} for tree in (one_tree, other_tree)]
        assert attributes[0] == attributes[1]
        for group in ("/", "/texts"):
            one_set, other_set = one_tree[group].to_dataset(), other_tree[group].to_dataset()
            assert one_set.drop_attrs().identical(other_set.drop_attrs()), group
            assert {n: v.dtype for n, v in one_set.items()} == {
                n: v.dtype for n, v in other_set.items()
            }


def test_files_that_are_no_campaign(tmp_path: Path) -> None:
    text, other, newer = tmp_path / "a.txt", tmp_path / "b.h5", tmp_path / "c.h5"
    text.write_text("hello")
    write_run(other, one())
    written(newer, rich())
    with h5py.File(newer, "r+") as file:
        file.attrs["schema_version"] = 9
    for path, error in (
        (tmp_path / "none", ResultError),
        (tmp_path, ResultError),
        (text, ForeignFileError),
        (other, ForeignFileError),
        (newer, NewerSchemaError),
    ):
        with pytest.raises(error) as caught, campaignread.reading(path):
            pass
        assert str(path) in str(caught.value)


def test_a_damaged_campaign_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.h5", rich())
    with h5py.File(path, "r+") as file:
        del file["worker_size"]
    with pytest.raises(DamagedFileError, match=r"a\.h5"), campaignread.reading(path) as file:
        list(campaignread.entries(file))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DamagedFileError, match=r"a\.h5"), campaignread.reading(path):
        pass


def test_a_writer_that_stops_leaves_nothing(tmp_path: Path) -> None:
    def stop() -> None:
        with campaignfile.writing(tmp_path / "a.h5") as writer:
            assert isinstance(writer, CampaignWriter)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert list(tmp_path.iterdir()) == []
