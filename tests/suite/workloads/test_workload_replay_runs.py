"""Replays as whole campaigns; traces and targets that mean harm write nothing outside."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.questions.replays import replays
from fsmatrix.analysis.units import MISSING
from fsmatrix.backends.player.ops import Kind
from fsmatrix.results.evidence.replay import Replayed, replayed
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord
from tests.suite.replay_workload import (
    Recorder,
    case_of,
    play,
    program,
    trace,
    workload,
)
from tests.suite.running import fsmatrix

CAMPAIGN = """
campaign: replayed
targets:
{targets}
workloads:
  app: {{workload: replay, options: {{{options}}}}}
{more}
repetitions: 1
cache: warm
settle: {{timeout: 1s}}
order: {{attachments: 1}}
limits: {{time_per_run: 60s}}
"""


def campaign(folder: Path, options: str, *names: str, more: str = "", target: str = "") -> Path:
    lines = []
    for name in names or ("one",):
        (folder / name).mkdir(exist_ok=True)
        given = target or f"{{backend: directory, options: {{path: {folder / name}}}}}"
        lines.append(f"  {name}: {given}")
    file = folder / "c.yaml"
    file.write_text(CAMPAIGN.format(targets="\n".join(lines), options=options, more=more))
    return file


def run(file: Path, report: bool = False) -> tuple[int, list[RunRecord], str]:
    out = file.parent / "out"
    done = fsmatrix("run", file, "-o", out, "--quiet", report=report)
    store = Store.open(out)
    return done.returncode, [store.read(run_id) for run_id in store.ids()], done.stderr


def told(record: RunRecord) -> Replayed:
    (phase,) = record.phases
    seen = replayed(phase.facts)
    assert seen is not None
    return seen


def test_a_trace_on_two_directories_and_its_report(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.h5", program)
    file = campaign(tmp_path, f"trace: {path}", "one", "two")
    status, records, errors = run(file, report=True)
    assert status == 0, errors
    assert len(records) == 2
    for record in records:
        seen = told(record)
        assert (seen.operations, seen.agreed, seen.fidelity) == (16, 16, 1.0)
        assert seen.trace == "t.h5"
        assert not {f.audit for f in record.findings} & {"replay-fidelity", "errors-ignored"}
        assert json.loads(record.case)["options"]["trace"].startswith("sha256:")
    shown = replays(open_campaign(tmp_path / "out"))
    assert shown is not None
    assert [cell.named for cell in shown.cells] == ["one", "two"]
    (read,) = [line for line in shown.cells[0].kinds if line.kind == "read"]
    assert (read.captured, read.played, read.agreed) == ("2", "2", "100 %")
    assert (read.captured_bytes, read.bytes) == ("5904 B", "5904 B")
    assert read.notes == "1 short"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Replays: what was played, and what had been captured" in page
    # what `trace info` says, and rates beside the captured ones: 2 reads in 15 ms
    assert read.captured_rate == "133"
    assert read.rate != MISSING
    like = " ".join(shown.cells[0].like)
    for words in (
        "touch 4 unique pages",
        "An LRU cache",
        "The working set",
        "66.7 % are reads",
        "beyond.",
    ):
        assert words in like
    assert all(line in html.unescape(page) for line in shown.cells[0].like)
    assert not list((tmp_path / "one").iterdir())


@pytest.mark.needs("mpirun")
def test_several_ranks_share_a_queue(tmp_path: Path) -> None:
    def many(to: Recorder) -> None:
        to.there(b"f", 1 << 20)
        to.do(Kind.OPEN, b"f")
        for number in range(20_000):
            to.do(Kind.READ, b"f", 16, offset=number * 32)

    path = trace(tmp_path / "t.h5", many)
    more = "geometry: {processes_per_node: 2, threads: 2}"
    status, records, errors = run(campaign(tmp_path, f"trace: {path}, mode: queue", more=more))
    assert status == 0, errors
    seen = told(records[0])
    assert (seen.operations, seen.played, seen.agreed) == (20_000, 20_000, 20_000)
    (phase,) = records[0].phases
    assert phase.operations.sum() == 20_000
    assert np.array_equal(phase.start, phase.io_start)  # type: ignore[arg-type]


def test_a_replay_below_its_declared_fidelity_carries_a_finding(tmp_path: Path) -> None:
    def lying(to: Recorder) -> None:
        to.there(b"f", 100)
        to.do(Kind.STAT, b"f")
        to.do(Kind.STAT, b"gone")

    path = trace(tmp_path / "t.h5", lying)
    # what the trace says to have been there was not: `gone` is ABSENT at its start
    status, records, _ = run(campaign(tmp_path, f"trace: {path}, fidelity: 0.9"))
    assert status == 0
    (finding,) = [f for f in records[0].findings if f.audit == "replay-fidelity"]
    assert finding.severity == "warning"
    assert "50 % of 2 operations had the captured outcome (1; 2 were played)" in finding.message
    assert "1 x stat failed differently; errors: 1 x ENOENT" in finding.message


def hostile(path: Path, name: bytes) -> Path:
    """A trace with a path that no trace may have."""
    trace(path, program)
    with h5py.File(path, "r+") as file:
        names, ends = file["files/names"][:].tobytes(), file["files/ends"][:]
        parts = [names[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        parts[0] = name
        del file["files/names"], file["files/ends"]
        file["files/names"] = np.frombuffer(b"".join(parts), np.uint8)
        file["files/ends"] = np.cumsum([len(p) for p in parts]).astype(np.uint64)
    return path


@pytest.mark.parametrize("name", [b"../sentinel", b"/etc/sentinel", b"a/../../sentinel", b"./x"])
def test_a_trace_that_leads_outside_is_refused(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "sentinel").write_text("mine")
    path = hostile(tmp_path / "t.h5", name)
    done = fsmatrix("run", campaign(tmp_path, f"trace: {path}"), "-o", tmp_path / "out")
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert "is absolute, or has an empty part, '.' or '..'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "sentinel").read_text() == "mine"


def test_a_link_in_the_tree_leads_nowhere(tmp_path: Path) -> None:
    """Somebody puts links into the tree after it was made: nothing behind them is touched."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "sentinel").write_text("mine")

    def writes(to: Recorder) -> None:
        to.there(b"d/f", 4)
        to.there(b"g", 4)
        to.there(b"e/sentinel", 4)
        to.do(Kind.OPEN, b"d/f")
        to.do(Kind.WRITE, b"d/f", 4)
        to.do(Kind.CREATE, b"d/new")
        to.do(Kind.OPEN, b"g", flags=8)
        to.do(Kind.WRITE, b"g", 4)
        to.do(Kind.UNLINK, b"e/sentinel")
        to.do(Kind.RENAME, b"e/sentinel", to=b"d/sentinel")
        to.do(Kind.MKDIR, b"d/directory")

    def spoil(root: Path) -> None:
        for name in ("d", "e"):
            for file in (root / name).iterdir():
                file.unlink()
            (root / name).rmdir()
            (root / name).symlink_to(outside)
        (root / "g").unlink()
        (root / "g").symlink_to(outside / "sentinel")

    (tmp_path / "root").mkdir()
    work = workload(trace=str(trace(tmp_path / "t.h5", writes)))
    for implementation in ("auto", "python"):
        place = tmp_path / implementation
        place.mkdir()
        facts = play(work, case_of(), place, before=spoil, implementation=implementation)
        assert facts["agreed"] == 0
        assert set(facts["errors_otherwise"]) <= {"ELOOP", "EBADF", "ENOTDIR"}
        assert os.listdir(outside) == ["sentinel"]
        assert (outside / "sentinel").read_text() == "mine"


@pytest.mark.root
@pytest.mark.loop
def test_a_target_that_is_too_small_fails_or_is_counted(tmp_path: Path) -> None:
    """The tree does not fit: refused by plan.  The writes do not: counted, with a finding."""

    def large(to: Recorder) -> None:
        to.there(b"large", 900 << 20)
        to.do(Kind.STAT, b"large")

    def grows(to: Recorder) -> None:
        to.do(Kind.CREATE, b"f")
        for number in range(400):
            to.do(Kind.WRITE, b"f", 1 << 20, offset=number << 20)

    target = "{backend: ext4, options: {size: 300MiB, direct_io: preferred}}"
    path = trace(tmp_path / "large.h5", large)
    file = campaign(tmp_path, f"trace: {path}", target=target)
    done = fsmatrix("run", file, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "must hold 900.0MiB at once" in " ".join(done.stderr.split())
    path = trace(tmp_path / "grows.h5", grows)
    options = f"trace: {path}, fill: sparse"
    done = fsmatrix("plan", campaign(tmp_path, options, target=target))
    assert done.returncode == 2  # what is written is known too


def test_the_facts_of_a_damaged_record_are_no_error() -> None:
    from tests.results.audit_records import phase, record

    for facts in ({"replay": {}}, {"replay": 5}, {"replay": {"kinds": {"read": 1}}}):
        from fsmatrix.results.audits.outcomes import fidelity

        assert not list(fidelity(record(phase("replay", facts=facts))))


@pytest.mark.parametrize("mode", ["timed", "closed, time_scale: 1"])
def test_times_that_never_come_fail_their_runs_only(tmp_path: Path, mode: str) -> None:
    """The other workload of the campaign has its run."""

    def late(to: Recorder) -> None:
        to.there(b"f", 100)
        to.do(Kind.STAT, b"f")
        to.do(Kind.STAT, b"f", at=(1 << 63) - 2)

    path = trace(tmp_path / "t.h5", late)
    more = "  plain: {workload: pattern, options: {pattern: seq-write, bytes_per_process: 1MiB}}"
    _, records, errors = run(campaign(tmp_path, f"trace: {path}, mode: {mode}", more=more))
    said = {json.loads(record.case)["workload"]: record for record in records}
    assert said["pattern"].status == "ok", errors
    assert said["replay"].status == "failed"
    assert "9.22e+09 s after the first" in said["replay"].error
    assert "choose a window" in said["replay"].error


@pytest.mark.parametrize("mode", ["closed", "queue", "timed"])
@pytest.mark.parametrize("fill", ["sparse", "filled"])
@pytest.mark.parametrize("result", [0, -27])
def test_a_truncate_beyond_all_files_is_skipped(
    tmp_path: Path, mode: str, fill: str, result: int
) -> None:
    def far(to: Recorder) -> None:
        to.there(b"f", 100)
        to.do(Kind.OPEN, b"f")
        to.do(Kind.TRUNCATE, b"f", offset=(1 << 63) - 1, result=result)
        to.do(Kind.READ, b"f", 100)
        to.do(Kind.CLOSE, b"f")

    path, root = trace(tmp_path / "t.h5", far), tmp_path / "root"
    root.mkdir()
    for window in (None, ("2ms", "60ms")):  # or before the window begins
        work = workload(trace=str(path), mode=mode, fill=fill, window=window)
        facts = play(work, case_of(), root)
        assert facts["kinds"]["read"]["agreed"] == 1
        if not window and mode != "queue":
            (skipped,) = facts["kinds"]["truncate"]["skipped"].values()
            assert skipped == 1
        assert (root / "f").stat().st_size == 100
        assert work.footprint(case_of()).space <= 200
