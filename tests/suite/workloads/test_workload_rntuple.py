"""The workload `rntuple`: one histogram everywhere, and every refusal with its reason."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.analysis.catalogue import STUDIES, possible
from fsmatrix.analysis.data.load import open_campaign, rows
from fsmatrix.analysis.studies.lhcb import lhcb
from fsmatrix.backends.access import DaosAccess
from fsmatrix.cli import main as cli
from fsmatrix.results.audits import audit_run
from fsmatrix.results.evidence.workloads import Analysed, analysed
from fsmatrix.results.files.campaignfile import writing
from fsmatrix.results.record import Case, Geometry, RunRecord
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.engines.python import ROOT as ROOT_KIND
from fsmatrix.suite.workloads.rntuple import Rntuple, RntupleOptions
from fsmatrix.suite.workloads.streams.lhcb.analysis import READ_BYTES
from fsmatrix.suite.workloads.workload import Argv
from tests.suite.rntuple_workload import (
    COMPRESSIONS,
    EVENTS,
    campaign,
    in_root,
    matrix,
    refused,
    run,
    sample,
    tree,
)

FACTORS = f"factors: {{compression: {list(COMPRESSIONS)}}}"
ENGINES = ("uproot", pytest.param("root", marks=pytest.mark.needs("root")))


def told(record: RunRecord, phase: str) -> Analysed:
    assert record.status == "ok", record.error
    (found,) = [one for one in record.phases if one.name == phase]
    seen = analysed(found.facts)
    assert seen is not None
    return seen


def planned(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str]:
    """Status of `fsmatrix plan`, and what it said on one line."""
    monkeypatch.setattr(sys, "argv", ["fsmatrix", "plan", str(file), *words])
    monkeypatch.setenv("COLUMNS", "400")
    status = int(cli.command() or 0)
    printed = capsys.readouterr()
    return status, " ".join((printed.out + printed.err).split())


# -- one histogram ---------------------------------------------------------------------------
@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on another file system than the tests' own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.needs("root")
def test_root_finds_what_uproot_finds_in_every_cell(tmp_path: Path, memory: Path) -> None:
    """2 compressions x 4 page sizes x 2 file systems x 2 engines: one histogram, bit by bit."""
    assert memory.stat().st_dev != tmp_path.stat().st_dev
    root = in_root("matrix", tmp_path, memory)
    uproot = matrix("uproot", tmp_path, memory)
    assert (len(root), len(uproot)) == (17, 17)
    cells = [{**cell, "stored": 0} for cell in (*root.values(), *uproot.values())]
    assert all(cell == cells[0] for cell in cells)
    assert sum(cells[0]["counts"]) > 20
    assert len({cell.get("stored") for cell in root.values()}) > 4  # pages and compression differ


@pytest.mark.loop
@pytest.mark.needs("xfs", "ext4")
def test_the_histogram_is_one_on_two_file_systems(tmp_path: Path) -> None:
    """Cold, and each run with what was written; a run with other data would be invalid."""
    targets = "\n".join(
        f"  {name}: {{backend: {name}, options: {{size: 512MiB}}}}" for name in ("xfs", "ext4")
    )
    file = campaign(tmp_path, "events: 1000000", targets, more=FACTORS, cache="cold")
    status, records, said = run(file, "--set", f"events={EVENTS}")
    assert status == 0, said
    assert len(records) == 4
    assert len({json.dumps(told(record, "read").found.document()) for record in records}) == 1
    for record in records:
        seen = told(record, "read")
        assert (seen.found.events, seen.wanted) == (EVENTS, seen.found)
        assert not {f.audit for f in record.findings} & {"lhcb-histogram", "read-from-cache"}
        assert seen.uncompressed == EVENTS * READ_BYTES
    stored = {
        (r.coordinates["target"], r.coordinates["compression"]): told(r, "write").stored
        for r in records
    }
    for target in ("xfs", "ext4"):
        assert stored[target, "zstd"] < 0.8 * stored[target, "none"]
    _other_data_make_a_run_invalid(records[0])
    _the_campaign_tells_of_one_histogram(records, tmp_path / "campaign.h5")


def _the_campaign_tells_of_one_histogram(records: list[RunRecord], file: Path) -> None:
    with writing(file) as writer:
        for record in records:
            writer.add(record)
        writer.finish("lhcb", [])
    ds = open_campaign(file)
    shown = lhcb(ds)
    (one,) = shown.found
    assert (one.runs, one.engine, set(one.targets)) == (4, "uproot", {"xfs", "ext4"})
    assert "the histogram is the same in all 4 runs (uproot on" in shown.says[0]
    table = shown.table()
    assert len(table) == 8
    ratio = {
        (row["compression"], row["phase"]): row["uncompressed / stored"]
        for _, row in table.iterrows()
    }
    assert ratio["none", "write"] == pytest.approx(1, abs=0.01)
    assert ratio["zstd", "read"] > 1.2
    figure = shown.figure()
    (panel,) = figure.axes
    (drawn,) = panel.patches
    assert drawn.get_data().values.sum() == sum(one.selection.counts)  # type: ignore[attr-defined]
    first, *rest = one.selection.counts
    selection = replace(one.selection, counts=(first + 3, *rest))
    other = replace(one, engine="root", runs=1, selection=selection)
    both = replace(shown, found=(one, other))
    assert "root finds at least 3 events elsewhere in 1 run" in both.says[1]
    assert possible(rows(ds), {"lhcb": STUDIES["lhcb"]})


def _other_data_make_a_run_invalid(record: RunRecord) -> None:
    write, read = record.phases
    seen = told(record, "read")
    counts = list(seen.found.counts)
    full = next(index for index, count in enumerate(counts) if count)
    counts[full], counts[full - 1] = counts[full] - 1, counts[full - 1] + 1
    moved = replace(seen, found=replace(seen.found, counts=tuple(counts)))
    lost = replace(seen, found=replace(seen.found, events=seen.found.events - 7))
    for changed, events in ((moved, 1), (lost, 7)):
        phase = replace(read, facts={**read.facts, "lhcb": changed.document()})
        findings = audit_run(replace(record, phases=(write, phase)))
        (finding,) = [f for f in findings if f.audit == "lhcb-histogram"]
        assert (finding.severity, finding.phase) == ("invalid", "read")
        assert finding.evidence["events"] == events


@pytest.mark.needs("mpirun", "root")
def test_processes_write_a_file_each_of_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tree(tmp_path / "own.root", sample(3001) | {"more": sample(3001)["H1_PX"]})
    more = "geometry: {processes_per_node: 2}"
    file = campaign(tmp_path, f"source: {path}", engine="root", more=more)
    status, records, said = run(file)
    assert status == 0, said
    (record,) = records
    write, read = told(record, "write"), told(record, "read")
    assert (write.files, read.files, read.found.events) == (2, 2, 3001)
    assert read.found == read.wanted == write.found
    assert read.data.startswith("sha256:")
    assert str(record.coordinates["source"]).startswith("own.root ")
    assert record.engine == "root"
    for phase, event in zip(record.phases, (184, 132), strict=True):
        assert phase.operations.tolist() == [1500, 1501]
        assert phase.bytes.tolist() == [event * n for n in phase.operations.tolist()]
        assert (phase.end > phase.start).all()
    assert len([name for name in record.texts if "read" in name and "stdout" in name]) == 2
    assert not list((tmp_path / "one").iterdir())


# -- refusals --------------------------------------------------------------------------------
@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small], check=True)
    try:
        yield small
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.root
@pytest.mark.parametrize("engine", ENGINES)
def test_a_program_says_what_it_cannot_use(tmp_path: Path, full: Path, engine: str) -> None:
    """Also a full disk, which ROOT's writer keeps to itself when its destructor meets it."""
    if engine == "root":
        said = in_root("refused", tmp_path, full)
    else:
        said = refused(engine, tmp_path, full)
    assert all(text.startswith("3: ") for text in said.values()), said
    assert "NaN or infinite: 1 in B_FlightDistance, 2 in H3_ProbK" in said["nan"]
    assert "no column B_VertexChi2, H2_ProbPi; H1_isMuon is of type" in said["schema"]
    assert "has no 'DecayTree'; it has: Other" in said["tree"]
    assert "is no file of ROOT" in said["text"]
    assert "ENOSPC: " in said["full"]


def test_a_program_that_gives_up_is_a_failed_run_with_its_reason(tmp_path: Path) -> None:
    columns = sample()
    columns["H1_PX"][9] = np.nan
    path = tree(tmp_path / "own.root", columns)
    status, records, said = run(campaign(tmp_path, f"source: {path}"))
    assert status == 1, said
    (record,) = records
    assert (record.status, record.phases) == ("failed", ())
    assert "NaN or infinite: 1 in H1_PX (events 0 to 399)" in record.error
    assert not list((tmp_path / "one").iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("source: /no/such/file.root", r"c.yaml:6: .*source.*cannot be read: No such file"),
        ("source: '/tmp/*.root'", r"wildcards"),
        ("source: relative.root", r"must be an absolute path"),
        ("source: {notes}", r"c.yaml:6: .*source.*is no file of ROOT"),
        ("source: {own}, tree: 'a b'", r"c.yaml:6: .*tree"),
        ("events: 0", r"c.yaml:6: .*events"),
        ("page_size: 10", r"page_size is from 1024"),
        ("page_size: 64MiB", r"is larger than cluster_size"),
        ("cluster_size: 10MiB", r"uproot writes one page of each column as a cluster"),
        ("compression: lzma", r"c.yaml:6: .*compression"),
        ("source: {own}, event_seed: 4", r"event_seed belongs to the generator"),
        ("events: 3", r"c.yaml:6: .*3 cannot be divided among 4 processes"),
        ("source: {own}", r"c.yaml:6: .*3 events cannot be divided among 4 processes"),
    ],
)
def test_bad_input_is_named(
    tmp_path: Path,
    options: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = tree(tmp_path / "own.root", sample(3))
    notes = tmp_path / "notes.txt"
    notes.write_text("no file of ROOT\n" * 20)
    more = "geometry: {processes_per_node: 4}"
    file = campaign(tmp_path, options.format(own=own, notes=notes), more=more)
    status, printed = planned(file, monkeypatch, capsys)
    assert status == 2, printed
    assert re.search(said, printed), printed


def test_a_word_alone_sets_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = campaign(tmp_path, "events: 5000")
    status, printed = planned(file, monkeypatch, capsys, "--set", "events=1000", "--json")
    assert status == 0, printed
    assert '"events": 1000' in printed
    status, printed = planned(file, monkeypatch, capsys, "--set", "evens=1000")
    assert (status, "--set evens=1000" in printed) == (2, True), printed


def test_without_root_it_says_what_to_install(tmp_path: Path) -> None:
    def program(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    bare = program("bare", f'exec {sys.executable} -S -I "$@"')  # no site-packages
    with pytest.raises(EngineError, match=r"cannot use ROOT .*ModuleNotFound.*fsmatrix\[hep\]"):
        ROOT_KIND.probe(bare)
    with pytest.raises(EngineError, match=r"not an executable file.*FSMATRIX_ROOT"):
        ROOT_KIND.probe(str(tmp_path / "nothing"))
    with pytest.raises(EngineError, match=r"it says nothing"):
        ROOT_KIND.probe(program("silent", "exit 0"))


def test_daos_needs_a_root_that_has_it() -> None:
    work = Rntuple(RntupleOptions(events=1000))
    case = Case("t", "rntuple", geometry=Geometry(processes_per_node=2))
    without = Engine("root", "6.40.00", "/p/python", frozenset({"has:imt", "lacks:daos"}))
    assert "built without DAOS" in work.unsupported(case, "daos", without)
    assert "uproot has no DAOS" in work.unsupported(case, "daos", Engine("uproot", "5"))
    able = replace(without, features=frozenset({"has:daos"}))
    assert work.unsupported(case, "daos", able) == ""
    assert work.unsupported(case, "path", without) == ""
    access = DaosAccess("daos-objects", "t", pool="bench", container="fsm-1", oclass="SX")
    for step in work.steps(case, access, able):
        assert isinstance(step.what, Argv)
        assert step.what.argv[0] == "/p/python"
        assert step.what.argv[-2:] == ("daos://bench/fsm-1.{run}", "{rank}")
        assert json.loads(step.what.argv[-3])["object_class"] == "SX"
