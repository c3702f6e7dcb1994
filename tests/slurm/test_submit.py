"""`submit`, `status`, `cancel` and what breaks, on a real Slurm of four nodes.

Whatever was done to the jobs: after `submit --resume` every run is there exactly once.
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
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import pytest

from fsmatrix.results.store import NAME, Store
from fsmatrix.slurm import status as looking
from fsmatrix.slurm import submission
from fsmatrix.slurm.slurm import Slurm
from fsmatrix.slurm.testbed import BedOptions, SlurmBed, down, missing, up
from fsmatrix.suite.cli.submit import as_data

pytestmark = pytest.mark.root
PATIENCE = 120.0  # seconds; a bound for a machine under load
EXAMPLES = Path(__file__).parents[2] / "slurm" / "examples"
CAMPAIGN = """
campaign: small
targets:
  here: {backend: directory, options: {path: "PATH"}}
workloads:
  io: {workload: pattern, options: {bytes_total: 1MiB, fixed: time, seconds: SECONDS, wear_out: 0s}}
factors: {pattern: [seq-write, rand-write]}
repetitions: REPETITIONS
order: {block: BLOCK}
settle: {timeout: 0s}
limits: {time_per_run: 10s}
launcher: local
"""


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmBed]:
    if reason := missing():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("slurm") / "bed"
    yield up(BedOptions(nodes=4), directory)
    down(directory)


@dataclass(frozen=True)
class Lab:
    """A user's directory on the login node."""

    bed: SlurmBed
    home: Path

    @property
    def out(self) -> Path:
        return self.home / "out"

    def campaign(self, seconds: str = "0.1s", repetitions: int = 2, block: int = 1) -> Path:
        """Write small.yaml: 2 x `repetitions` runs, a job for each `block` of them."""
        (self.home / "data").mkdir(exist_ok=True)
        text = CAMPAIGN.replace("PATH", str(self.home / "data")).replace("SECONDS", seconds)
        text = text.replace("REPETITIONS", str(repetitions)).replace("BLOCK", str(block))
        path = self.home / "small.yaml"
        path.write_text(text)
        return path

    def call(self, *words: object, env: dict[str, str] | None = None) -> tuple[int, str]:
        """A command of fsmatrix: its status and what it printed."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "fsmatrix.suite.cli.main", *map(str, words)],
            env={**os.environ, "COLUMNS": "200", **(env or {})},
            cwd=self.home, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def submit(self, *words: object, out: Path | None = None) -> dict[str, Any]:
        status, text = self.call("submit", *words, "-o", out or self.out, "--json")
        assert status == 0, text
        return dict(json.JSONDecoder().raw_decode(text)[0])  # progress is on stderr, behind it

    def status(self, out: Path | None = None) -> dict[str, Any]:
        """What `fsmatrix status --json` says, asked in this process, which is faster."""
        place = out or self.out
        made = submission.read(place)
        assert made is not None
        return as_data(looking.status(place, made, Slurm()))

    def until(
        self, what: str, holds: Callable[[dict[str, Any]], bool], out: Path | None = None
    ) -> dict[str, Any]:
        """The status at which it holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds(found := self.status(out)):
            assert time.monotonic() < deadline, f"not {what}: {found}"
            time.sleep(0.2)
        return found

    def wait(self) -> dict[str, Any]:
        """Until no part waits or runs."""
        ended = {"done", "stopped", "not submitted"}
        return self.until("at an end", lambda f: {p["state"] for p in f["parts"]} <= ended)

    def reported(self, out: Path | None = None) -> None:
        """The last job has merged and written the report."""
        place = out or self.out
        self.until(
            "reported",
            lambda f: f["collect"] is not None and f["collect"]["state"] == "ended",
            place,
        )
        with h5py.File(place / "campaign.h5") as merged:
            assert merged["run_id"].shape[0] >= len(self.runs(place))
        assert "<html" in (place / "report.html").read_text()[:2000]

    def job(self, found: dict[str, Any], state: str = "running") -> str:
        return next(p["job"]["job"] for p in found["parts"] if p["state"] == state)

    def slurm(self, *words: str) -> str:
        return str(self.bed.run(*words).stdout)

    def runs(self, out: Path | None = None) -> Counter[tuple[str, int]]:
        """(case, repetition) -> attempts that are stored."""
        found: Counter[tuple[str, int]] = Counter()
        for run_id in Store.open(out or self.out).ids():
            match = NAME.fullmatch(run_id)
            assert match is not None
            found[match["case"], int(match["repetition"])] += 1
        return found

    def complete(self, out: Path | None = None) -> None:
        """Every run of the submission is stored once and ok, and no other."""
        place = out or self.out
        made = submission.read(place)
        assert made is not None
        planned = {run for part in made.parts for run in part.runs}
        assert self.runs(place) == Counter(dict.fromkeys(planned, 1))
        store = Store.open(place)
        assert {store.status(run_id) for run_id in store.ids()} == {"ok"}
        assert not list((self.home / "data").iterdir())  # and nothing was left on the target


@pytest.fixture
def lab(bed: SlurmBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    for name, value in bed.environment().items():
        monkeypatch.setenv(name, value)
    yield Lab(bed, tmp_path)
    bed.run("scancel", f"--user={os.getuid()}", check=False)
    deadline = time.monotonic() + PATIENCE
    while bed.run("squeue", "--noheader").stdout.strip() and time.monotonic() < deadline:
        time.sleep(0.2)


# -- in good order -----------------------------------------------------------------------------
def test_a_campaign_goes_through_slurm_and_ends_in_a_report(lab: Lab) -> None:
    outcome = lab.submit(lab.campaign())
    assert len(outcome["submitted"]) == 2
    assert outcome["runs"] == 4
    first = lab.status()
    assert sum(first["runs"].values()) == 4
    assert sum(part["state"] == "running" for part in first["parts"]) <= 1  # one at a time
    found = lab.wait()
    assert found["runs"] == {"ok": 4, "failed": 0, "running": 0, "waiting": 0, "lost": 0}
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
        + f", system: {name}}}" for name in ("ceph", "daos")
    )  # fmt: skip
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
        odd, "--set", f"slurm={json.dumps(settings)}", "--only", "pattern=seq-write",
        out=place / "-out",
    )  # fmt: skip
    job = next(iter(outcome["submitted"].values()))
    lab_there = Lab(lab.bed, place)
    lab_there.until("done", lambda f: f["runs"]["ok"] == 2, place / "-out")
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
        assert not lab.slurm("squeue", "--noheader")
        shutil.rmtree(lab.out, ignore_errors=True)
    status, text = lab.call("submit", path, env={"PATH": "/nonexistent"})
    assert status == 2
    assert "testbed up slurm" in text
    status, text = lab.call("status", lab.home)
    assert status == 2
    assert "nothing was submitted" in text


# -- jobs that end before their end ----------------------------------------------------------------
def test_a_cancelled_campaign_goes_on_with_resume(lab: Lab) -> None:
    lab.submit(lab.campaign("3s", block=2))
    found = lab.until("running", lambda f: any(p["state"] == "running" for p in f["parts"]))
    first = lab.job(found)
    lab.until("one run ok", lambda f: f["runs"]["ok"] >= 1)
    lab.slurm("scancel", first)
    lab.until("cancelled", lambda f: f["runs"]["lost"] > 0)
    status, text = lab.call("cancel", lab.out)
    assert status == 0
    assert "jobs cancelled" in text
    found = lab.wait()
    assert found["runs"]["lost"] > 0
    assert lab.call("status", lab.out)[0] == 1
    assert {p["job"]["said"] for p in found["parts"]} == {"CANCELLED"}
    lab.campaign("0.1s")  # the stored campaign counts, not the file
    outcome = lab.submit("--resume")
    assert outcome["runs"] == found["runs"]["lost"]
    lab.wait()
    lab.complete()


def test_a_job_that_is_queued_again_twice_runs_nothing_twice(lab: Lab) -> None:
    lab.submit(lab.campaign("1s", repetitions=3, block=3))
    job = ""
    for count in (1, 2):
        found = lab.until("on", lambda f, n=count: f["runs"]["ok"] >= n and f["runs"]["running"])
        job = lab.job(found)
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


@pytest.mark.parametrize("with_its_job", [True, False], ids=["node-dead", "slurmd-dead"])
def test_a_dead_node_costs_a_run_and_no_more(lab: Lab, with_its_job: bool) -> None:
    """Slurm takes the node for dead and queues the job again; its job may live on there."""
    lab.submit(lab.campaign("3s", repetitions=4, block=4))
    found = lab.until("on", lambda f: f["runs"]["ok"] >= 1 and f["runs"]["running"])
    node = next(p["job"]["nodes"] for p in found["parts"] if p["state"] == "running")
    job = lab.job(found)
    (lock,) = (lab.out / "locks").glob("shard-1-of-1-blocks-0-0.json")
    lab.bed.kill_slurmd(node)
    if with_its_job:
        os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
    try:
        lab.until("queued again", lambda f: any(p["state"] == "waiting" for p in f["parts"]))
    finally:
        lab.bed.restart_slurmd(node)
        lab.bed.wait_ready(PATIENCE)
    found = lab.wait()
    assert "Restarts=1" in lab.slurm("scontrol", "show", "job", job)
    if found["runs"]["lost"]:  # the living one held the lock, then Slurm ended it
        assert not with_its_job
        lab.submit("--resume")
        lab.wait()
    lab.complete()


def test_a_full_disk_for_the_results_is_said_and_resume_goes_on(lab: Lab) -> None:
    path = lab.campaign()
    disk = lab.home / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "fsmatrix-test", disk], check=True)
    try:
        out = disk / "out"
        lab.submit(path, out=out)
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"\0" * (4 << 20))
        deadline = time.monotonic() + PATIENCE
        while (found := lab.status(out))["runs"]["waiting"] + found["runs"]["running"]:
            assert time.monotonic() < deadline
            time.sleep(0.3)
        assert found["runs"]["lost"] > 0
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        lab.submit("--resume", out=out)
        lab.until("done", lambda f: f["runs"]["ok"] == 4, out)
        lab.complete(out)
        lab.reported(out)
    finally:
        lab.call("cancel", disk / "out")
        time.sleep(1)
        subprocess.run(["umount", "--lazy", disk], check=True)


# -- a controller that is away ---------------------------------------------------------------------
def test_submission_and_status_outlast_a_controller_that_stops(lab: Lab) -> None:
    path = lab.campaign()
    lab.bed.end_slurmctld()
    submitting = subprocess.Popen(
        [sys.executable, "-P", "-m", "fsmatrix.suite.cli.main", "submit", path, "-o", lab.out],
        cwd=lab.home,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert submitting.stdout is not None
        assert any("trying again" in line for line in submitting.stdout)
        lab.bed.restart_slurmctld()
        lab.bed.wait_ready(PATIENCE)
        rest, _ = submitting.communicate(timeout=PATIENCE)
        assert submitting.returncode == 0, rest
    finally:
        if submitting.poll() is None:
            submitting.send_signal(signal.SIGINT)
    lab.bed.end_slurmctld()
    status, text = lab.call("status", lab.out)
    assert "the batch system could not be asked" in text
    assert status in (0, 1)
    lab.bed.restart_slurmctld()
    lab.bed.wait_ready(PATIENCE)
    lab.wait()
    lab.complete()


def test_two_submits_at_once_make_one_submission(lab: Lab) -> None:
    path = lab.campaign()
    both = [
        subprocess.Popen(
            [sys.executable, "-P", "-m", "fsmatrix.suite.cli.main", "submit", path, "-o", lab.out],
            cwd=lab.home,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
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
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = [
        "sbatch",
        "--parsable",
        f"--chdir={lab.home}",
        str(EXAMPLES / "array.sh"),
        "small.yaml",
    ]

    def submit() -> str:
        done = subprocess.run([*words, "out"], env={**os.environ, **env},
                              capture_output=True, text=True, check=True)  # fmt: skip
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
