"""Where a submitted campaign stands: runs, lost answers, learnt times, reasons of failures."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fsmatrix.cli import progress
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Finding
from fsmatrix.slurm import submission, submitting
from fsmatrix.slurm import submission as looking
from fsmatrix.slurm.submission import JOB_SECONDS, divide
from tests.slurm.paper import Paper, _submission, carry_out, planned, submit


def test_status_counts_runs_and_expects_an_end(tmp_path: Path) -> None:
    scheduler, out, plan = Paper(), tmp_path / "out", planned()
    first = submit(scheduler, out, plan)
    key, other, third = list(first.submitted)[:3]
    carry_out(out, plan, key, most=2)
    cached = Finding("read-served-by-cache", 1, "invalid", "from memory")
    carry_out(out, plan, third, most=1, findings=(cached,))
    carry_out(out, plan, other, status="failed", most=1)
    job = first.submitted[key]
    scheduler.jobs[job] = replace(scheduler.jobs[job], state="running", said="RUNNING", nodes="n1")
    found = looking.status(out, _submission(out), scheduler)
    assert found.tally.says == "2 valid, 1 invalid (read-served-by-cache), 1 failed"
    assert (found.running, found.lost) == (1, 0)
    assert found.waiting == plan.estimate.runs - 2 - 1 - 1 - 1
    assert found.expected is not None
    assert found.expected > datetime.now()
    by_key = {part.part.key: part for part in found.parts}
    assert (by_key[key].word, by_key[key].says) == ("running", "n1")
    seen = (submission.folder(out) / looking.SEEN).stat().st_mtime_ns
    assert looking.status(out, _submission(out), scheduler).tally == found.tally
    assert (submission.folder(out) / looking.SEEN).stat().st_mtime_ns == seen


def test_a_batch_system_that_does_not_answer_leaves_the_runs_to_be_seen(tmp_path: Path) -> None:
    scheduler, out, plan = Paper(), tmp_path / "out", planned()
    first = submit(scheduler, out, plan)
    carry_out(out, plan, next(iter(first.submitted)))
    scheduler.away = 1
    found = looking.status(out, _submission(out), scheduler)
    assert found.scheduler_says == "nobody answers"
    assert [part.word for part in found.parts] == ["done"] + ["unknown"] * 11
    assert found.lost == 0
    assert found.tally.valid == len(found.parts[0].part.runs)


def test_a_stopped_job_says_its_last_line(tmp_path: Path) -> None:
    scheduler, out = Paper(), tmp_path / "out"
    first = submit(scheduler, out)
    (key, job), (silent, _) = list(first.submitted.items())[:2]
    (submission.folder(out) / f"{key}-{job}.log").write_text("one\nerror: no such path\n\n")
    scheduler.cancel(first.submitted.values())
    found = {p.part.key: p for p in looking.status(out, _submission(out), scheduler).parts}
    assert found[key].says == "CANCELLED: error: no such path"
    assert "left no log" in found[silent].says


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("error: old\nerror: sv.yaml:3: a\nsv.yaml:4: b\n", "error: sv.yaml:3: a | sv.yaml:4: b"),
        ("error: 1\n2\n3\n4\n5\n6\n", "error: 1 | 2 | 3 | 4 | 6"),
        ("one\ntwo\n", "two"),
        ("\n", "it printed nothing (a-1.log)"),
    ],
)
def test_all_lines_of_a_jobs_last_error_are_said(tmp_path: Path, printed: str, said: str) -> None:
    submission.folder(tmp_path).mkdir(parents=True)
    (submission.folder(tmp_path) / "a-1.log").write_text(printed)
    assert looking.last_words(tmp_path, "a", "1") == said


def test_the_end_is_that_of_the_busiest_system(tmp_path: Path) -> None:
    scheduler, out = Paper(), tmp_path / "out"
    submit(scheduler, out)
    parts = looking.status(out, _submission(out), scheduler).parts
    now = datetime(2026, 1, 1)
    whole: dict[str, float] = {}
    for part in parts:
        whole[part.part.system] = whole.get(part.part.system, 0.0) + part.part.seconds
    end = looking.expected(parts, now, 1.0)
    assert end is not None
    assert abs((end - now) - timedelta(seconds=max(whole.values()))) < timedelta(seconds=1)


def test_the_end_is_learned_from_the_parts_that_ran(tmp_path: Path) -> None:
    scheduler, out, plan = Paper(), tmp_path / "out", planned()
    key = next(iter(submit(scheduler, out, plan).submitted))
    part = next(p for p in _submission(out).parts if p.key == key)
    each = 4 * (part.seconds - JOB_SECONDS) / len(part.runs)  # four times as long as estimated
    carry_out(out, plan, key, each=each)
    found = looking.status(out, _submission(out), scheduler)
    left: dict[str, float] = {}
    for status in found.parts:
        if status.rest:
            left[status.part.system] = left.get(status.part.system, 0) + 4 * status.part.seconds
    assert found.expected is not None
    measured = (found.expected - datetime.now()).total_seconds()
    assert measured == pytest.approx(max(left.values()), abs=60)
    assert max(left.values()) > 4 * 60


def test_failed_runs_are_named_with_their_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsmatrix.cli.campaigns import batch_jobs as commands

    monkeypatch.setenv("COLUMNS", "60")
    out, plan, scheduler = tmp_path / "out", planned(), Paper()
    first = submit(scheduler, out, plan)
    key = next(iter(first.submitted))
    carry_out(out, plan, key, status="failed", most=2)
    job = first.submitted[key]
    scheduler.jobs[job] = replace(scheduler.jobs[job], state="ended", said="FAILED")
    made = submission.read_submission(out)
    assert made is not None
    found = looking.status(out, made, scheduler)
    assert len(found.failures) == 2
    assert {status for _, status, _ in found.failures} == {"failed"}
    assert len(commands.as_data(found)["failures"]) == 2
    commands.show(progress.console(), found, out)
    lines = capsys.readouterr().out.splitlines()
    assert f"{key} stopped: FAILED: it left no log ({key}-{job}.log)" in lines, "whole, in one line"
    assert any(line.startswith("failed 2 runs (") for line in lines)
    assert "invalid" not in lines[0], "there is none"
    assert all(part.part.key in "\n".join(lines) for part in found.parts), "no name is cut"


def test_times_are_the_medians_of_runs_from_all_over_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12 runs every third is looked at, not only the first."""

    seen: list[Path] = []
    monkeypatch.setattr(submitting, "LOOKED_AT", 4)
    monkeypatch.setattr(submitting, "read_duration", lambda path: seen.append(path))
    store = type("Stored", (), {"files": lambda _: [Path(f"{i:02d}-r0-a1") for i in range(12)]})()
    cases = [
        type("Planned", (), {"case": type("C", (), {"case_id": f"{i:02d}"})}) for i in range(12)
    ]
    assert submitting.speeds(store, type("Plan", (), {"cases": cases})()) == {}
    assert [path.name[:2] for path in seen] == ["00", "03", "06", "09"]


def test_times_are_learned_from_finished_runs(tmp_path: Path) -> None:
    from fsmatrix.slurm.submitting import speeds

    out, plan = tmp_path / "out", planned()
    first = submit(Paper(), out, plan)
    before = divide(plan, 1)
    carry_out(out, plan, next(iter(first.submitted)))  # 3 s each
    speed = speeds(Store.open(out), plan)
    assert set(speed) == {"io"}
    after = divide(plan, 1, speed)
    attach = [len(part.runs) * 3.0 for part in after]
    for part, old, runs in zip(after, before, attach, strict=True):
        assert part.seconds > old.seconds
        assert part.seconds == pytest.approx(runs, abs=0.2 * runs + 15)
