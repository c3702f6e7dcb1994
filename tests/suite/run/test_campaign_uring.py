"""Campaigns with the factor io: by io_uring, where it is, where it is forbidden, without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord
from tests.backends.forbidding import SETUP
from tests.suite.running import FSMATRIX, fsmatrix
from tests.waiting import PATIENCE

pytestmark = pytest.mark.needs("io_uring")

CAMPAIGN = """
campaign: uring
seed: 7
cache: warm
targets:
  here: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io:
    workload: pattern
    options: {{bytes_per_process: 4MiB, chunk: 4KiB, verify: true}}
factors:
  pattern: [rand-read, seq-write]
  io: [{io}]
  iodepth: [{depth}]
  processes_per_node: [2]
repetitions: 1
order: {{attachments: 1}}
{more}
"""
REPOSITORY = Path(__file__).parents[3]


def campaign(folder: Path, target: Path, io: str, depth: str = "16", more: str = "") -> Path:
    path = folder / "uring.yaml"
    path.write_text(CAMPAIGN.format(path=target, io=io, depth=depth, more=more))
    return path


def forbidden(*words: object) -> subprocess.CompletedProcess[str]:
    """The command where a filter forbids io_uring to it and to all that it starts."""
    by = [sys.executable, "-m", "tests.backends.forbidding", "EPERM", str(SETUP), "--"]
    return subprocess.run(
        [*by, *FSMATRIX, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=REPOSITORY,
    )


def records(out: Path) -> list[RunRecord]:
    store = Store.open(out)
    return [store.read(run) for run in store.ids()]


def facts(record: RunRecord) -> dict[str, Any]:
    (phase,) = record.phases
    return {name: value for name, value in phase.facts.items() if name.startswith(("driver", "io"))}


def test_io_is_a_factor(tmp_path: Path, target: Path) -> None:
    io = "auto, uring, uring-sqpoll, uring-or-posix"
    path = campaign(tmp_path, target, io, "1, 16", "impossible: skip")
    done = fsmatrix("run", path, "-o", tmp_path / "out", "--quiet")
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "out")
    assert len(found) == 2 + 3 * 4  # auto has no depth of 16
    for record in found:
        assert (record.status, record.error) == ("ok", "")
        (phase,) = record.phases
        assert (int(phase.bytes.sum()), int(phase.errors.sum())) == (8 << 20, 0)
        chosen = json.loads(record.case).get("options", {}).get("io", "auto")
        if chosen == "auto":
            assert facts(record) == {}
            continue
        seen = facts(record)
        assert seen["driver"] == chosen.replace("-or-posix", "")
        assert ("SQPOLL" in seen["driver_features"]) == (chosen == "uring-sqpoll")
        assert not [f for f in record.findings if f.audit == "io-fell-back"]


def test_where_it_is_forbidden_a_plan_says_so(tmp_path: Path, target: Path) -> None:
    path = campaign(tmp_path, target, "uring")
    done = forbidden("run", path, "-o", tmp_path / "out", "--quiet", "--no-report")
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert "factors.io: io: io_uring is forbidden here: by a seccomp filter" in done.stderr
    assert "io: uring-or-posix would do without it" in done.stderr
    assert forbidden("plan", path, "--elsewhere").returncode == 0
    checked = {
        (item["kind"], item["name"]): item
        for item in json.loads(forbidden("check", "--json").stdout)
    }
    for name in ("uring", "uring-sqpoll"):
        assert not checked["driver", name]["ok"]
        assert "io_uring is forbidden here" in checked["driver", name]["reason"]
    assert checked["workload", "pattern"]["ok"]


def test_a_campaign_that_may_falls_back_and_tells(tmp_path: Path, target: Path) -> None:
    path = campaign(tmp_path, target, "uring-or-posix")
    done = forbidden("run", path, "-o", tmp_path / "out", "--quiet", "--no-report")
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "out")
    assert len(found) == 2
    for record in found:
        assert record.status == "ok"
        seen = facts(record)
        assert (seen["driver"], seen["iodepth"]) == ("posix", 1)
        assert "io_uring is forbidden here" in seen["driver_refused"]
        (finding,) = (each for each in record.findings if each.audit == "io-fell-back")
        assert finding.severity == "warning"


def test_where_a_node_forbids_it_the_run_fails_with_the_reason(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conductor's machine has it; the launcher's ranks do not, as in a container of theirs."""
    path = campaign(tmp_path, target, "uring")
    starter = tmp_path / "python"
    by = f"{sys.executable} -m tests.backends.forbidding EPERM {SETUP} -- {sys.executable}"
    starter.write_text(f'#!/bin/sh\ncd {REPOSITORY} && exec {by} "$@"\n')
    starter.chmod(0o755)
    text = (
        "import sys; from fsmatrix.suite.session import client\n"
        f"sys.executable = {str(starter)!r}\n"
        "from fsmatrix.cli.main import command\n"
        f"sys.argv = ['fsmatrix', 'run', {str(path)!r}, '-o', {str(tmp_path / 'out')!r}, "
        "'--quiet', '--no-report']\nsys.exit(command())\n"
    )
    subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=REPOSITORY,
    )
    found = records(tmp_path / "out")
    assert found
    for record in found:
        assert record.status == "failed"
        assert "io_uring is forbidden here" in record.error
