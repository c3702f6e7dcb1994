"""Submission, status and what breaks on the way, with a batch system made of a dictionary.

It stands in for Slurm where an answer must be lost at a certain moment; the real one is in
test_submit.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsmatrix.results.files.store import Store, StoreError
from fsmatrix.slurm import submission, submitting
from fsmatrix.slurm import submission as looking
from fsmatrix.slurm.scheduler import (
    SchedulerAway,
    SchedulerError,
)
from fsmatrix.slurm.submission import JOB_SECONDS, divide, left
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.campaign.yamlio import CampaignError, Tree
from fsmatrix.suite.plan.plan import Installation, Plan, Request, build_plan
from tests.slurm.paper import CAMPAIGN, Paper, _submission, carry_out, planned, submit


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "PAUSES", (0.0, 0.0))


def test_every_run_is_in_one_part_and_parts_hold_one_system_and_node_count() -> None:
    plan = planned()
    parts = divide(plan, 1)
    runs = Counter(run for part in parts for run in part.runs)
    assert set(runs.values()) == {1}
    assert len(runs) == plan.estimate.runs == 3 * 4 * 5
    assert {(part.system, part.nodes) for part in parts} == {
        (system, nodes) for system in ("ceph-a", "storage") for nodes in (1, 4)
    }
    assert [part.blocks for part in parts] == [(b, b) for b in range(3) for _ in range(4)]
    orders = [[part.shard for part in parts[i : i + 4]] for i in (0, 4, 8)]
    assert len({tuple(order) for order in orders}) > 1  # not the same one in each block
    fewer = divide(plan, 2)
    assert [part.blocks for part in fewer] == [(0, 1)] * 4 + [(2, 2)] * 4
    started = JOB_SECONDS * (len(parts) - len(fewer))
    both = (sum(part.seconds for part in division) for division in (fewer, parts))
    assert next(both) + started == pytest.approx(next(both))


def test_many_blocks_share_jobs() -> None:
    plan = planned("repetitions=1000", "order.block=1")
    parts = divide(plan, 1)
    assert len(parts) <= 500
    assert sum(len(part.runs) for part in parts) == plan.estimate.runs


def test_a_job_runs_exactly_the_runs_of_its_part() -> None:
    """What `fsmatrix run` plans for the words of a part is what the part says."""
    for part in divide(planned(), 1):
        asked = Request(
            shard=(part.shard, part.shards), blocks=range(part.blocks[0], part.blocks[1] + 1)
        )
        plan = build_plan(
            Source(CAMPAIGN),
            asked,
            installation=Installation(site=SiteFile(), user=Tree(), environ={}),
            here=False,
        )
        runs = [(p.case.case_id, r) for plot in plan.plots() for p, r in plot.runs]
        assert sorted(runs) == sorted(part.runs)
        assert plan.estimate.runs == len(runs)
        assert plan.seed == 5


def test_one_job_at_a_time_for_each_system(tmp_path: Path) -> None:
    scheduler = Paper()
    outcome = submit(scheduler, tmp_path / "out")
    made = submission.read_submission(tmp_path / "out")
    assert made is not None
    assert set(made.names.values()) == {"fsmatrix-ceph-a", "fsmatrix-storage"}
    assert len(outcome.submitted) == 12
    assert scheduler.after[outcome.collect] == list(outcome.submitted.values())
    many = submit(Paper(), tmp_path / "many", planned("slurm.parallel=2"))
    again = submission.read_submission(tmp_path / "many")
    assert again is not None
    assert not many.missing
    assert Counter(again.names.values()) == dict.fromkeys(
        [f"fsmatrix-{system}-{lane}" for system in ("ceph-a", "storage") for lane in (1, 2)], 3
    )


def test_a_second_submit_is_refused_and_resume_queues_nothing_twice(tmp_path: Path) -> None:
    scheduler, out = Paper(), tmp_path / "out"
    first = submit(scheduler, out)
    with pytest.raises(StoreError, match="is a store already"):
        submit(scheduler, out)
    again = submit(scheduler, out, resume=True)
    assert not again.submitted
    assert again.live == first.submitted
    assert again.collect == first.collect
    assert len(scheduler.jobs) == 13


def test_while_another_submit_is_at_work_one_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    submit(Paper(), out)
    with submission.submit_lock(out), pytest.raises(StoreError, match="another `fsmatrix submit`"):
        submit(Paper(), out, resume=True)


@pytest.mark.parametrize(("away", "deaf"), [(2, 0), (0, 1), (0, 3), (3, 2)])
def test_answers_that_are_lost_cost_no_job_and_make_none_twice(
    tmp_path: Path, away: int, deaf: int
) -> None:
    scheduler = Paper(away=away, deaf=deaf)
    outcome = submit(scheduler, tmp_path / "out")
    assert not outcome.missing
    tokens = Counter(state.token for state in scheduler.jobs.values())
    assert len(tokens) == 13
    assert set(tokens.values()) == {1}
    noted = {each.job for each in submission.submitted(tmp_path / "out")}
    assert noted == scheduler.jobs.keys()


def test_a_batch_system_that_stays_away_is_said_and_resume_goes_on(tmp_path: Path) -> None:
    scheduler, out = Paper(room=5), tmp_path / "out"
    outcome = submit(scheduler, out)
    assert len(outcome.submitted) == 5
    assert len(outcome.missing) == 7
    assert outcome.why == "submit limit"
    assert not outcome.collect
    found = looking.status(out, _submission(out), scheduler)
    assert [part.word for part in found.parts].count("not submitted") == 7
    assert found.lost == sum(part.rest for part in found.parts if part.word == "not submitted") > 0
    scheduler.room = 100
    rest = submit(scheduler, out, resume=True)
    assert len(rest.submitted) == 7
    assert rest.collect
    fresh = Paper(away=10**6)
    with pytest.raises(SchedulerAway):
        submit(fresh, tmp_path / "other", patience=0.05)
    assert not fresh.jobs


def test_resume_queues_what_is_lost_and_only_that(tmp_path: Path) -> None:
    scheduler, out, plan = Paper(), tmp_path / "out", planned()
    first = submit(scheduler, out, plan)
    keys = list(first.submitted)
    carry_out(out, plan, keys[0])
    carry_out(out, plan, keys[1], most=3)
    carry_out(out, plan, keys[2], status="failed")
    for key in keys[:4]:  # ended: done, cut off, all failed, lost without a trace
        del scheduler.jobs[first.submitted[key]]
    found = looking.status(out, _submission(out), scheduler)
    words = {part.part.key: part.word for part in found.parts}
    assert [words[key] for key in keys[:5]] == ["done", "stopped", "done", "stopped", "waiting"]
    again = submit(scheduler, out, resume=True)
    assert set(again.submitted) == {keys[1], keys[3]}
    assert again.complete == 2
    script = (submission.folder(out) / f"{keys[1]}.sh").read_text()
    assert "--resume" in script
    assert scheduler.jobs[first.collect].state == "ended"  # the old one makes way
    assert set(scheduler.after[again.collect]) == {*again.live.values(), *again.submitted.values()}
    retried = submit(Paper(), out, resume=True, retry=True)
    assert keys[2] in retried.submitted
    assert keys[0] not in retried.submitted


def test_a_refused_submission_leaves_nothing_unless_a_job_may_be_queued(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(SchedulerError, match="submit limit"):
        submit(Paper(room=0), out)
    assert not out.exists()
    with pytest.raises(CampaignError, match="too short"):
        submit(Paper(), out, planned("slurm.time=10s"))
    assert not out.exists()
    with pytest.raises(SchedulerAway):
        submit(Paper(away=1), out, patience=-1.0)
    assert not out.exists(), "nothing was asked of it yet"
    with pytest.raises(SchedulerAway):
        submit(Paper(deaf=1), out, patience=-1.0)
    assert out.exists(), "the job may be there"
    assert submit(Paper(), out, resume=True).submitted
    with pytest.raises(StoreError, match="is a store already"):
        submit(Paper(), out)
    assert submission.read_submission(out) is not None


def test_a_submission_that_comes_second_leaves_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both began before the directory was there."""
    out = tmp_path / "out"
    made = submitting.open_store

    def late(plan: Plan, place: Path, resume: bool) -> Store:
        monkeypatch.setattr(submitting, "open_store", made)
        submit(Paper(), out)
        return made(plan, place, resume)

    monkeypatch.setattr(submitting, "open_store", late)
    with pytest.raises(StoreError, match="is a store already"):
        submit(Paper(), out)
    assert submission.read_submission(out) is not None
    assert submission.submitted(out)
    assert Store.open(out).ids() == []


def test_a_refused_submission_keeps_what_others_put_there(tmp_path: Path) -> None:
    out = tmp_path / "out"

    class Slow(Paper):
        def submit(self, script: Path, after: Sequence[str] = ()) -> str:
            (out / "notes.txt").write_text("mine")
            (out / "slurm" / "mine.txt").write_text("mine")
            raise SchedulerError("refused")

    with pytest.raises(SchedulerError, match="refused"):
        submit(Slow(), out)
    assert {path.name for path in out.rglob("*.txt")} == {"notes.txt", "mine.txt"}
    assert submission.read_submission(out) is None


def test_live_jobs_that_divide_otherwise_are_not_run_over(tmp_path: Path) -> None:
    scheduler, out = Paper(), tmp_path / "out"
    submit(scheduler, out)
    other = planned("slurm.blocks_per_job=3")
    with pytest.raises(StoreError, match="divide the campaign differently"):
        submit(scheduler, out, other, resume=True)
    scheduler.cancel(list(scheduler.jobs))
    assert len(submit(scheduler, out, other, resume=True).submitted) == 4


def test_the_selection_of_a_submission_holds_for_its_jobs(tmp_path: Path) -> None:
    scheduler, out = Paper(), tmp_path / "out"
    submit(scheduler, out, planned(only=("target=ceph",)))
    made = _submission(out)
    assert made.only == ("target=ceph",)
    script = next((submission.folder(out)).glob("s*.sh")).read_text()
    assert "--only target=ceph" in script


def test_damaged_submissions_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    submit(Paper(), out)
    path = submission.folder(out) / submission.FILE
    with (submission.folder(out) / submission.JOBS).open("a") as file:
        file.write('{"key": "s1')  # torn by a crash
    assert len(submission.submitted(out)) == 13
    whole = json.loads(path.read_text())
    whole["parts"][1]["nodes"] = "many"
    path.write_text(json.dumps(whole))
    with pytest.raises(StoreError, match=r"submission.json: damaged: parts\.1\.nodes: "):
        submission.read_submission(out)
    path.write_text("{")
    with pytest.raises(StoreError, match=r"submission.json: damaged"):
        submission.read_submission(out)
    part = divide(planned(), 1)[0]
    assert left(part, set(part.runs)).runs == ()
    some = left(part, set(part.runs[:1]))
    assert some.seconds == pytest.approx(part.seconds * len(some.runs) / len(part.runs))
    nothing = left(part, set(part.runs))
    assert left(nothing, set()).seconds == nothing.seconds == 0.0
