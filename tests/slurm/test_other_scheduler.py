"""Under another batch system than Slurm: nothing asks Slurm, and locks end with their jobs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from fsmatrix.results.files.lock import Holder
from fsmatrix.results.files.store import Store
from fsmatrix.results.process import CurrentJob, Process
from tests.waiting import PATIENCE

COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sacct", "srun", "sinfo")
CAMPAIGN = """
campaign: plain
seed: 4
targets:
  here: {backend: directory, options: {path: "PATH"}}
workloads:
  io: {workload: pattern, options: {bytes_total: 1MiB, pattern: seq-write}}
repetitions: 2
settle: {timeout: 0s}
launcher: local
"""


@dataclass(frozen=True)
class Site:
    """A user's directory where the scheduler `plain` is installed, and Slurm tells on us."""

    home: Path
    environment: dict[str, str]
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.home / "out"

    def call(self, *words: object, **more: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "fsmatrix.cli.main", *map(str, words)],
            env={**self.environment, **more},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def jobs(self) -> dict[str, Process]:
        found = {}
        for path in sorted((self.home / "plain").glob("*/start-*")):
            pid, start, boot_id = path.read_text().split()
            found[f"{path.parent.name}/{path.name}"] = Process(int(pid), int(start), boot_id)
        return found

    def wait(self) -> None:
        """Until no process of a job is left."""
        deadline = time.monotonic() + PATIENCE
        while any(process.runs for process in self.jobs().values()):
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in (self.home / "plain").glob("*/log"))

    def lives(self, job: str) -> Path:
        """A job that runs; the file that says by which process."""
        child = subprocess.Popen(["sleep", str(PATIENCE)])
        self.children.append(child)
        process = Process.of(child.pid)
        assert process is not None
        place = self.home / "plain" / job
        place.mkdir()
        (place / "token").write_text("somebody")
        path = place / "start-0"
        path.write_text(f"{process.pid} {process.start} {process.boot_id}")
        return path

    def asked_of_slurm(self) -> list[str]:
        told = self.home / "asked"
        return told.read_text().splitlines() if told.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    package, programs = tmp_path / "package", tmp_path / "programs"
    about = package / "plain-1.dist-info"
    for folder in (about, programs, tmp_path / "plain", tmp_path / "data"):
        folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("plain_scheduler.py"), package)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fsmatrix.schedulers]\nplain=plain_scheduler:Plain\n")
    for name in COMMANDS:
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\nexit 1\n')
        (programs / name).chmod(0o755)
    (tmp_path / "plain.yaml").write_text(CAMPAIGN.replace("PATH", str(tmp_path / "data")))
    environment = {name: value for name, value in os.environ.items() if "SLURM" not in name}
    environment |= {
        "PLAIN_HOME": str(tmp_path / "plain"),
        "PYTHONPATH": str(package),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    made = Site(tmp_path, environment)
    yield made
    for child in made.children:
        child.kill()
        child.wait()
    for process in made.jobs().values():
        with process.held() as handle:
            if handle is not None:
                os.kill(process.pid, 9)


def held_far_away(site: Site, job: CurrentJob) -> Path:
    """A lock of the store that a process of another host left, as part of a job."""
    folder = site.out / "locks"
    folder.mkdir(exist_ok=True)
    holder = asdict(Holder.me(1, 1, job)) | {"host": "far", "boot_id": "another"}
    path = folder / "shard-1-of-1.json"
    path.write_text(json.dumps(holder))
    return path


def test_a_campaign_under_another_scheduler_asks_slurm_nothing(site: Site) -> None:
    status, text = site.call("submit", "plain.yaml", "-o", site.out, "--scheduler", "plain")
    assert status == 0, text
    site.wait()
    store = Store.open(site.out)
    jobs = {store.read(run_id).job for run_id in store.ids()}
    assert len(jobs) == 2, site.logs()
    assert jobs < set(os.listdir(site.home / "plain"))
    assert (site.out / "report.html").exists(), site.logs()
    status, text = site.call("status", site.out)
    assert status == 0, text
    whole = r"\b2 valid, 2 of them doubtful \([^()]*\), 0 running"  # none invalid or failed
    assert re.search(whole, text), text
    assert site.asked_of_slurm() == []


def test_a_lock_of_another_host_ends_with_its_job(site: Site) -> None:
    """Its own scheduler is asked, whichever this process is under."""
    status, text = site.call("run", "plain.yaml", "-o", site.out, "--no-report")
    assert status == 0, text
    start = site.lives("500")
    lock = held_far_away(site, CurrentJob("plain", "500"))
    words = ("run", "-o", site.out, "--resume", "--no-report")
    status, text = site.call(*words)
    assert (status, "plain job 500" in text, lock.exists()) == (2, True, True), text
    pid, began, boot_id = start.read_text().split()
    start.write_text(f"{pid} {int(began) + 1} {boot_id}")  # the pid was used again
    status, text = site.call(*words)
    assert (status, "2 were there before" in text, lock.exists()) == (0, True, False), text
    held_far_away(site, CurrentJob("not-installed-here", "500"))
    assert site.call(*words)[0] == 2, "nobody knows whether that job has ended"
    assert site.asked_of_slurm() == []


def test_a_job_that_was_queued_again_knows_its_own_lock(site: Site) -> None:
    status, text = site.call("run", "plain.yaml", "-o", site.out, "--no-report")
    assert status == 0, text
    site.lives("500")  # only its restarts tell
    held_far_away(site, CurrentJob("plain", "500"))
    words = ("run", "-o", site.out, "--resume", "--no-report")
    assert site.call(*words, PLAIN_JOB="500", PLAIN_RESTARTS="0")[0] == 2
    status, text = site.call(*words, PLAIN_JOB="500", PLAIN_RESTARTS="1")
    assert status == 0, text
    assert site.asked_of_slurm() == []


def test_a_warned_job_is_queued_again_by_its_own_scheduler(site: Site) -> None:
    long = (site.home / "plain.yaml").read_text().replace("repetitions: 2", "repetitions: 40")
    (site.home / "plain.yaml").write_text(long.replace("seed: 4", "seed: 4\norder: {block: 40}"))
    status, text = site.call("submit", "plain.yaml", "-o", site.out, "--scheduler", "plain")
    assert status == 0, text
    store = Store.open(site.out)
    deadline = time.monotonic() + PATIENCE
    while not any(store.ids()):
        assert time.monotonic() < deadline, site.logs()
        time.sleep(0.02)
    job = store.read(next(iter(store.ids()))).job
    process = site.jobs()[f"{job}/start-0"]
    os.kill(process.pid, 10)  # SIGUSR1, as before a limit
    site.wait()
    assert "queued again" in site.logs()
    assert f"{job}/start-1" in site.jobs()
    site.wait()
    assert len(list(store.ids())) == 40, site.logs()
    assert site.asked_of_slurm() == []


def test_a_scheduler_that_is_not_there_is_refused(site: Site) -> None:
    status, text = site.call("submit", "plain.yaml", "-o", site.out, "--scheduler", "plane")
    assert status == 2
    assert "did you mean 'plain'?" in text
    assert not site.out.exists()
