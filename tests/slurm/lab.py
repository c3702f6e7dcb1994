"""A user's directory on the login node of a real Slurm of four nodes, and what is done there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from fsmatrix.cli.campaigns.batch_jobs import as_data
from fsmatrix.results.files.store import NAME, Store
from fsmatrix.slurm import submission
from fsmatrix.slurm import submission as looking
from fsmatrix.slurm.slurm import Slurm
from fsmatrix.slurm.testbed import SlurmTestbed
from tests.waiting import PATIENCE

WITH_FSMATRIX = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
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


@dataclass(frozen=True)
class Lab:
    """A user's directory on the login node."""

    bed: SlurmTestbed
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
            [sys.executable, "-P", "-m", "fsmatrix.cli.main", *map(str, words)],
            env={**os.environ, "COLUMNS": "200", **(env or {})},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    def submit(self, *words: object, out: Path | None = None) -> dict[str, Any]:
        status, text = self.call("submit", *words, "-o", out or self.out, "--json")
        assert status == 0, text
        return dict(json.JSONDecoder().raw_decode(text)[0])  # progress is on stderr, behind it

    def status(self, out: Path | None = None) -> dict[str, Any]:
        """What `fsmatrix status --json` says, asked in this process, which is faster."""
        place = out or self.out
        made = submission.read_submission(place)
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

    def under_way(self, stored: int = 1) -> tuple[str, str]:
        """(job, node) of a part that runs, once so many runs are stored and another has begun."""
        found = self.until("on", lambda f: f["runs"]["ok"] >= stored and f["runs"]["running"])
        job = next(part["job"] for part in found["parts"] if part["state"] == "running")
        return job["job"], job["nodes"]

    def wait(self, out: Path | None = None) -> dict[str, Any]:
        """Until no part waits or runs; a job whose runs are all stored still has to clean up."""
        ended = {"done", "stopped", "not submitted"}
        return self.until("at an end", lambda f: {p["state"] for p in f["parts"]} <= ended, out)

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
        made = submission.read_submission(place)
        assert made is not None
        planned = {run for part in made.parts for run in part.runs}
        assert self.runs(place) == Counter(dict.fromkeys(planned, 1))
        store = Store.open(place)
        assert {store.status(run_id) for run_id in store.ids()} == {"ok"}
        assert not list((self.home / "data").iterdir())  # and nothing was left on the target


def jobs_below(bed: SlurmTestbed, home: Path) -> list[str]:
    rows = bed.run("squeue", "--noheader", "--format=%A %Z").stdout.splitlines()
    return [
        job for job, _, where in (row.partition(" ") for row in rows) if where.startswith(str(home))
    ]
