"""`submit --wait` on a real Slurm, and what its jobs printed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from fsmatrix.cli.campaigns import batch_jobs
from fsmatrix.results.files.store import Store
from tests.slurm.lab import Lab, jobs_below
from tests.waiting import PATIENCE

pytestmark = pytest.mark.root


def test_it_follows_the_jobs_to_their_end_and_logs_gives_what_they_printed(lab: Lab) -> None:
    status, text = lab.call("submit", lab.campaign(repetitions=1), "-o", lab.out, "--wait")
    assert status == 0, text
    whole = (
        r"\b2 valid, 2 of them doubtful \([^()]*\), 0 running, 0 waiting"  # none invalid or failed
    )
    assert re.search(whole, text), text
    assert f"report: {lab.out / 'report.html'}" in text
    lab.complete()
    lab.reported()
    (log,) = (lab.out / "slurm").glob("s1of1-b0-0-*.log")
    job = log.stem.rpartition("-")[2]
    for named in (job, "s1of1-b0-0"):
        status, text = lab.call("logs", lab.out, named, "-o", lab.home / "log")
        assert status == 0, text
        assert (lab.home / "log").read_text() == log.read_text()
    log.unlink()
    status, text = lab.call("logs", lab.out, job)
    assert status == 2
    assert f"{log}: is not there" in text


def test_a_variable_of_the_jobs_is_resolved_on_their_node_alone(lab: Lab) -> None:
    path = lab.campaign(repetitions=1)
    text = path.read_text().replace(str(lab.home), "$PLACE")
    assert "$PLACE/data" in text
    path.write_text(f"{text}slurm: {{time: 00:10:00, environment: {{PLACE: '{lab.home}'}}}}\n")
    status, text = lab.call("submit", path, "-o", lab.out, "--wait")
    assert status == 0, text
    lab.complete()
    store = Store.open(lab.out)
    facts = [store.read(run).environment["target"] for run in store.ids()]
    assert {fact["path_written"] for fact in facts} == {"$PLACE/data"}
    assert {fact["path"] for fact in facts} == {str(lab.home / "data")}


def test_a_variable_that_jobs_do_not_have_is_named_with_their_node(lab: Lab) -> None:
    path = lab.campaign(repetitions=1)
    path.write_text(path.read_text().replace(str(lab.home), "$PLACE"))
    status, text = lab.call("submit", path, "-o", lab.out, "--wait")
    assert status == 1
    assert "$PLACE/data: $PLACE is not set on n" in text, text


def test_ctrl_c_leaves_the_jobs(lab: Lab) -> None:
    path = lab.campaign("2s")
    words = ["submit", path, "-o", lab.out, "--wait"]
    waiting = subprocess.Popen(
        [sys.executable, "-P", "-m", "fsmatrix.cli.main", *words],
        cwd=lab.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert waiting.stdout is not None
    assert any(" waiting" in line for line in waiting.stdout)
    waiting.send_signal(signal.SIGINT)
    rest, _ = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 130
    assert f"the jobs go on: fsmatrix status {lab.out}" in rest
    assert "Traceback" not in rest
    assert jobs_below(lab.bed, lab.home)
    assert lab.status()["runs"]["lost"] == 0
    assert batch_jobs.PAUSE >= 5  # a controller serves others too
