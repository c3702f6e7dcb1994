"""`submit`, `status`, `cancel` on a real Slurm of four nodes: good order, hostile words, a
controller that is away.  Whatever was done: every run is there exactly once.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import h5py
import pytest

from fsmatrix.results.files.store import Store
from tests.slurm.lab import EXAMPLES, WITH_FSMATRIX, Lab, jobs_below
from tests.waiting import PATIENCE

pytestmark = pytest.mark.root
UNDER_WAY = ("running", "waiting", "lost")


def done(**more: int) -> dict[str, int]:
    """Counts of `status --json` of four runs that ended well."""
    return dict.fromkeys(("doubtful", "invalid", "failed", *UNDER_WAY), 0) | {"ok": 4} | more


# -- in good order -----------------------------------------------------------------------------
def test_a_campaign_goes_through_slurm_and_ends_in_a_report(lab: Lab) -> None:
    outcome = lab.submit(lab.campaign())
    assert len(outcome["submitted"]) == 2
    assert outcome["runs"] == 4
    first = lab.status()
    assert sum(first["runs"][kind] for kind in ("ok", "failed", *UNDER_WAY)) == 4
    assert sum(part["state"] == "running" for part in first["parts"]) <= 1  # one at a time
    found = lab.wait()
    assert found["runs"] == done(doubtful=4)  # emulated nodes
    assert found["expected_end"] is None
    lab.complete()
    lab.reported()
    with h5py.File(lab.out / "campaign.h5") as merged:
        jobs = {text.decode() for text in merged["job"][:]}
    assert jobs == set(outcome["submitted"].values())
    status, text = lab.call("status", lab.out, "--json")
    assert (status, json.loads(text)["runs"]) == (0, found["runs"])
    status, text = lab.call("status", lab.out)
    assert status == 0
    assert f"report: {lab.out / 'report.html'}" in text
    lost = sorted((lab.out / "runs").rglob("*-r0001-*.h5"))
    assert len(lost) == 2
    for path in lost:
        path.unlink()
    # the script of a part runs by hand, and does what is missing
    subprocess.run(["sbatch", "--wait", "s1of1-b1-1.sh"], cwd=lab.out / "slurm", check=True)
    lab.complete()


def test_jobs_of_a_system_follow_each_other_and_two_systems_go_on_at_once(lab: Lab) -> None:
    path = lab.campaign()
    text = path.read_text()
    line = next(line for line in text.splitlines() if "here:" in line)
    for name in ("ceph", "daos"):
        (lab.home / "data" / name).mkdir()
    two = "\n".join(
        line.replace("here:", f"{name}:").replace("/data", f"/data/{name}")[:-1]
        + f", system: {name}}}"
        for name in ("ceph", "daos")
    )
    path.write_text(text.replace(line, two))
    lab.submit(path)
    lab.wait()
    spans: dict[str, list[tuple[str, str]]] = {"ceph": [], "daos": []}
    told = lab.slurm("squeue", "--noheader", "--states=all", "--format=%j|%i")
    for row in told.splitlines():
        name, job = row.split("|")
        shown = lab.slurm("scontrol", "show", "job", job)
        facts = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        if facts.get("WorkDir", "").startswith(str(lab.home)) and "collect" not in name:
            spans[name.removeprefix("fsmatrix-")].append((facts["StartTime"], facts["EndTime"]))
    for of_system in spans.values():
        ordered = sorted(of_system)
        assert len(ordered) == 2
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ordered))
    for name in ("ceph", "daos"):
        (lab.home / "data" / name).rmdir()
    lab.complete()


# -- hostile words -------------------------------------------------------------------------------
def test_no_word_of_a_user_is_run(lab: Lab) -> None:
    evil = "a b'c\"$(touch pwned)`touch pwned`;touch pwned|\n-x #SBATCH --wait"
    place = lab.home / evil
    place.mkdir()
    campaign = lab.campaign()
    odd = place / "-c $(touch pwned).yaml"
    shutil.copy(campaign, odd)
    settings = {
        "environment": {"OMP_NUM_THREADS": "1$(touch pwned)`touch pwned`'\" \\"},
        "mail-user": "me$(touch pwned)'\"\\ you@example.org",
        "mail-type": "TIME_LIMIT_90",
    }
    outcome = lab.submit(
        odd,
        "--set",
        f"slurm={json.dumps(settings)}",
        "--only",
        "pattern=seq-write",
        out=place / "-out",
    )
    job = next(iter(outcome["submitted"].values()))
    lab_there = Lab(lab.bed, place)
    lab_there.until("done", lambda f: f["runs"]["ok"] == 2, place / "-out")
    lab_there.wait(place / "-out")
    shown = lab.slurm("scontrol", "show", "job", job)
    assert settings["mail-user"] in shown
    lab.complete(place / "-out")
    assert not list(lab.home.rglob("pwned"))
    record = Store.open(place / "-out").read(Store.open(place / "-out").ids()[0])
    variables = record.environment["machine"]["variables"]
    assert variables["OMP_NUM_THREADS"] == settings["environment"]["OMP_NUM_THREADS"]


def test_what_cannot_be_is_refused_before_anything_is_queued(lab: Lab) -> None:
    path = lab.campaign()
    for words, said in (
        (["--set", "slurm.partition=nowhere"], "sinfo lists them"),
        (["--set", 'slurm.qos="a\\nb"'], "must be one line"),
        (["--set", "slurm.time=1min"], "slurm.time"),
        (["--set", "campaign=a b$(x)"], "lower-case"),
        (["-o", lab.home / "100%"], "Slurm takes % for patterns"),
        (["--nodes", "500"], "starts one process, not 500"),
    ):
        status, text = lab.call("submit", path, "-o", lab.out, *words)
        assert (status, said in text) == (2, True), text
        assert not jobs_below(lab.bed, lab.home)
        shutil.rmtree(lab.out, ignore_errors=True)
    status, text = lab.call("submit", path, env={"PATH": "/nonexistent"})
    assert status == 2
    assert "testbed up slurm" in text
    status, text = lab.call("status", lab.home)
    assert status == 2
    assert "nothing was submitted" in text


# -- a controller that is away ---------------------------------------------------------------------
def test_submission_and_status_outlast_a_controller_that_stops(lab: Lab) -> None:
    path = lab.campaign()
    lab.bed.end_slurmctld()
    submitting = subprocess.Popen(
        [sys.executable, "-P", "-m", "fsmatrix.cli.main", "submit", path, "-o", lab.out],
        cwd=lab.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert submitting.stdout is not None
        assert any("trying again" in line for line in submitting.stdout)
        lab.bed.restart("slurmctld")
        lab.bed.wait_ready(PATIENCE)
        rest, _ = submitting.communicate(timeout=PATIENCE)
        assert submitting.returncode == 0, rest
    finally:
        if submitting.poll() is None:
            submitting.send_signal(signal.SIGINT)
    lab.bed.end_slurmctld()
    status, text = lab.call("status", lab.out)
    assert "the batch system did not answer" in text
    assert status in (0, 1)
    lab.bed.restart("slurmctld")
    lab.bed.wait_ready(PATIENCE)
    lab.wait()
    lab.complete()


def test_two_submits_at_once_make_one_submission(lab: Lab) -> None:
    path = lab.campaign()
    both = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "fsmatrix.cli.main", "submit", path, "-o", lab.out],
            cwd=lab.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=PATIENCE)[0] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], told
    found = lab.wait()
    assert len(found["parts"]) == 2
    lab.complete()


# -- scripts of one's own --------------------------------------------------------------------------
def test_an_array_that_lost_a_task_goes_on_by_being_submitted_again(lab: Lab) -> None:
    path = lab.campaign("0.3s")
    text = path.read_text().replace("backend: directory,", "backend: directory, system: a,")
    path.write_text(text + "seed: 3\n")
    env = {"PATH": WITH_FSMATRIX}
    words = [
        "sbatch",
        "--parsable",
        f"--chdir={lab.home}",
        str(EXAMPLES / "array.sh"),
        "small.yaml",
    ]

    def submit() -> str:
        done = subprocess.run(
            [*words, "out"], env={**os.environ, **env}, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def wait(job: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while lab.slurm("squeue", "--noheader", f"--jobs={job}"):
            assert time.monotonic() < deadline
            time.sleep(0.3)

    first = submit()
    lab.slurm("scancel", f"{first}_2")
    wait(first)
    lost = len(lab.runs())
    assert 0 < lost < 4
    wait(submit())
    assert len(lab.runs()) == 4
    assert set(lab.runs().values()) == {1}
