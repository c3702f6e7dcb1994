"""Jobs that end before their end, on a real Slurm of four nodes.

Whatever was done to the jobs: after `submit --resume` every run is there exactly once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from fsmatrix.slurm.slurm import Slurm
from fsmatrix.slurm.testbed import SlurmTestbed
from tests.slurm.lab import EXAMPLES, WITH_FSMATRIX, Lab, jobs_below
from tests.waiting import PATIENCE

pytestmark = pytest.mark.root


@dataclass(frozen=True)
class Limited:
    """Two jobs with a limit of one minute, which is Slurm's least; they run beside the others."""

    warned: Lab
    warned_job: str
    ended: Lab
    ended_job: str


@pytest.fixture(scope="module", autouse=True)
def limited(bed: SlurmTestbed, tmp_path_factory: pytest.TempPathFactory) -> Limited:
    """One is warned and queued again, the other is ended; both need more than a minute."""
    labs = [Lab(bed, tmp_path_factory.mktemp(name)) for name in ("warned", "ended")]
    env = {**os.environ, **bed.environment(), "PATH": WITH_FSMATRIX}
    ends = (
        ["--signal=B:USR1@20", "--requeue", str(EXAMPLES / "one-node.sh"), "small.yaml", "out"],
        ["--wrap", "exec fsmatrix run small.yaml -o out --resume --quiet"],
    )
    jobs = []
    for place, end in zip(labs, ends, strict=True):
        place.campaign("4s", repetitions=12, block=12)
        words = ["sbatch", "--parsable", "--time=1", f"--chdir={place.home}", *end]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
        jobs.append(done.stdout.strip())
    return Limited(labs[0], jobs[0], labs[1], jobs[1])


# -- jobs that end before their end ----------------------------------------------------------------
def test_a_cancelled_campaign_goes_on_with_resume(lab: Lab) -> None:
    lab.submit(lab.campaign("2s", block=2))
    found = lab.until("running", lambda f: any(p["state"] == "running" for p in f["parts"]))
    first = lab.job(found)
    lab.until("one run ok", lambda f: f["runs"]["ok"] >= 1)
    assert not Slurm().ended(first)
    lab.slurm("scancel", first)
    lab.until("cancelled", lambda f: f["runs"]["lost"] > 0)
    status, text = lab.call("cancel", lab.out)
    assert status == 0
    assert re.search(r"\d+ jobs? cancelled", text)
    found = lab.wait()
    assert found["runs"]["lost"] > 0
    assert lab.call("status", lab.out)[0] == 1
    assert {p["job"]["said"] for p in found["parts"]} == {"CANCELLED"}
    assert Slurm().ended(first)
    assert Slurm().ended("999999")
    lab.campaign("0.1s")  # the stored campaign counts, not the file
    outcome = lab.submit("--resume")
    assert outcome["runs"] == found["runs"]["lost"]
    lab.wait()
    lab.complete()


def test_a_job_that_is_queued_again_twice_runs_nothing_twice(lab: Lab) -> None:
    lab.submit(lab.campaign("1s", repetitions=3, block=3))
    job = ""
    for count in (1, 2):
        job, _ = lab.under_way(count)
        lab.slurm("scontrol", "requeue", job)
        lab.until("requeued", lambda f: any(p["state"] == "waiting" for p in f["parts"]))
    lab.wait()
    assert "Restarts=2" in lab.slurm("scontrol", "show", "job", job)
    lab.complete()


def test_the_warning_before_the_limit_ends_a_run_and_queues_the_job_again(lab: Lab) -> None:
    """USR1 as Slurm sends it with --signal=B:USR1@N, without waiting for the limit."""
    lab.submit(lab.campaign("1s", repetitions=3, block=3))
    found = lab.until("on", lambda f: f["runs"]["ok"] >= 1)
    job = lab.job(found)
    lab.slurm("scancel", "--batch", "--signal=USR1", job)
    lab.until("queued again", lambda f: any(p["state"] == "waiting" for p in f["parts"]))
    log = next((lab.out / "slurm").glob(f"*-{job}.log"))
    assert "queued again" in log.read_text()
    lab.wait()
    lab.complete()


def test_a_dead_node_costs_a_run_and_no_more(lab: Lab) -> None:
    """slurmd, the job's step and the conductor killed: Slurm queues the job again elsewhere."""
    lab.submit(lab.campaign("1s", block=2))
    job, node = lab.under_way()
    (lock,) = (lab.out / "locks").glob("shard-1-of-1-blocks-0-0.json")
    conductor = psutil.Process(json.loads(lock.read_text())["pid"])
    step = conductor.parent()
    assert step is not None
    assert step.name() == "slurmstepd"
    lab.bed.kill(f"slurmd.{node}")
    step.kill()
    conductor.kill()
    try:
        lab.until("queued again", lambda f: any(p["state"] == "waiting" for p in f["parts"]))
    finally:
        lab.bed.restart(f"slurmd.{node}")
        lab.bed.wait_ready(PATIENCE)
    lab.wait()
    assert "Restarts=1" in lab.slurm("scontrol", "show", "job", job)
    lab.complete()


def test_a_slurmd_that_is_killed_and_started_again_costs_nothing(lab: Lab) -> None:
    lab.submit(lab.campaign("2s", block=2))
    job, node = lab.under_way()
    lab.bed.kill(f"slurmd.{node}")
    lab.bed.restart(f"slurmd.{node}")
    lab.bed.wait_ready(PATIENCE)
    lab.wait()
    assert "Restarts=0" in lab.slurm("scontrol", "show", "job", job)
    lab.complete()


def test_a_full_disk_for_the_results_is_said_and_resume_goes_on(lab: Lab) -> None:
    path = lab.campaign()
    disk = lab.home / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "fsmatrix-test", disk], check=True)
    try:
        out = disk / "out"
        lab.submit(path, out=out)
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"\0" * (32 << 20))
        deadline = time.monotonic() + PATIENCE
        while (found := lab.status(out))["runs"]["waiting"] + found["runs"]["running"]:
            assert time.monotonic() < deadline
            time.sleep(0.3)
        assert found["runs"]["lost"] > 0
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        lab.submit("--resume", out=out)
        lab.until("done", lambda f: f["runs"]["ok"] == 4, out)
        lab.wait(out)
        lab.complete(out)
        lab.reported(out)
    finally:
        lab.call("cancel", disk / "out")
        time.sleep(1)
        subprocess.run(["umount", "--lazy", disk], check=True)


# -- what began with the first test ----------------------------------------------------------------
def test_a_job_that_slurm_warns_of_its_limit_goes_on_by_itself(limited: Limited, lab: Lab) -> None:
    there, job = limited.warned, limited.warned_job
    _wait_for_jobs(lab, there.home)
    assert set(there.runs().values()) == {1}
    assert len(there.runs()) == 24
    assert "Restarts=0" not in lab.slurm("scontrol", "show", "job", job)
    assert "queued again" in (there.home / f"fsmatrix-{job}.log").read_text()


def test_a_job_that_its_limit_ended_goes_on_with_the_next(limited: Limited, lab: Lab) -> None:
    there = limited.ended
    _wait_for_jobs(lab, there.home)
    assert "JobState=TIMEOUT" in lab.slurm("scontrol", "show", "job", limited.ended_job)
    before = len(there.runs())
    assert 0 < before < 24
    assert not list((there.home / "data").iterdir())  # it had the time to clean up
    status, text = there.call("run", "-o", there.out, "--resume", "--no-report", "--blocks", "0")
    assert status == 0, text
    assert set(there.runs().values()) == {1}
    assert len(there.runs()) == 24


def _wait_for_jobs(lab: Lab, home: Path) -> None:
    deadline = time.monotonic() + 2 * PATIENCE
    while jobs_below(lab.bed, home):
        assert time.monotonic() < deadline
        time.sleep(0.5)
