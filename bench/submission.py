"""What a large campaign costs before and beside its runs: planning, queueing, looking, resuming.

    python bench/submission.py [--runs 100000]

A real Slurm of this machine (a test bed of its own; root), on which the jobs are held: nothing
is run.  Collecting is bench/merge.py.  Seconds are those of this machine; beside them stands what
sbatch alone takes for as many empty scripts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fsmatrix.slurm import submission
from fsmatrix.slurm.slurm import Slurm
from fsmatrix.slurm.submitting import Submitter
from fsmatrix.slurm.testbed import SlurmTestbed, SlurmTestbedOptions, down, missing, up
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.plan.as_json import plan_json
from fsmatrix.suite.plan.plan import Request, build_plan
from fsmatrix.suite.run.execute import stored_plan

LIMIT = 300.0  # seconds of all steps together: minutes, not hours
CASES = 200
CAMPAIGN = """
campaign: large
seed: 1
targets:
  here: {{backend: directory, options: {{path: /nowhere}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_total: 1MiB}}}}
factors:
  pattern: [seq-write, rand-write, seq-read, rand-read]
  chunk: [4KiB, 8KiB, 16KiB, 32KiB, 64KiB]
  processes_per_node: [1, 2]
  nodes: [1, 2, 3, 4, 5]
repetitions: {repetitions}
impossible: skip
slurm: {{hold: true}}
"""


def steps(bed: SlurmTestbed, out: Path, runs: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """Name of each step, and what does it and says what came of it."""
    source = Source(CAMPAIGN.format(repetitions=runs // CASES))
    submitter = Submitter(Slurm())
    plans = {}

    def plan() -> str:
        plans["made"] = build_plan(source, Request(), here=False)
        plan_json(plans["made"])
        return f"{plans['made'].estimate.runs} runs"

    def submit() -> str:
        outcome = submitter.submit(plans["made"], out, False, out.parent)
        return f"{len(outcome.submitted)} jobs"

    def look() -> str:
        stored = submission.read_submission(out)
        assert stored is not None
        return f"{submission.status(out, stored, Slurm()).waiting} runs wait"

    def resume() -> str:
        outcome = submitter.submit(stored_plan(out, Request(), here=False), out, True, out.parent)
        return f"{len(outcome.submitted)} jobs more, {len(outcome.live)} were there"

    def bare() -> str:
        script = out.parent / "empty.sh"
        script.write_text("#!/bin/bash\n#SBATCH --hold\n")
        jobs = len(submission.submitted(out))
        for _ in range(jobs):
            bed.run("sbatch", str(script))
        return f"{jobs} jobs"

    yield "plan", plan
    yield "submit", submit
    yield "status", look
    yield "submit --resume", resume
    yield "sbatch alone", bare


def main() -> None:
    """Measure and print; status 1 beyond the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    runs = parser.parse_args().runs
    if reason := missing():
        sys.exit(reason)
    table = Table("step", "seconds", "", box=None)
    total = 0.0
    with tempfile.TemporaryDirectory(prefix="fsm-") as folder:
        home = Path(folder)
        bed = up(SlurmTestbedOptions(nodes=5), home / "bed")
        try:
            os.environ.update(bed.environment())
            for name, step in steps(bed, home / "out", runs):
                began = time.monotonic()
                text = step()
                seconds = time.monotonic() - began
                total += seconds if name != "sbatch alone" else 0.0
                table.add_row(name, f"{seconds:.1f}", text)
            subprocess.run(["scancel", "--user=root"], check=True)
        finally:
            down(home / "bed")
    Console().print(table)
    print(f"together {total:.0f} s of {LIMIT:g} s")
    sys.exit(total > LIMIT)


if __name__ == "__main__":
    main()
