"""What CONTRIBUTING.md shows works out of tree: installed, run, and to a number in the report."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.report.report import write_report
from fsmatrix.results.files.store import Store
from tests.results.hostile import record
from tests.suite import acme
from tests.suite.running import DEADLINE, FSMATRIX

pytestmark = pytest.mark.needs("mpirun")
MIB = 1 << 20


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package, its environment and a scratch file system."""
    folder = tmp_path_factory.mktemp("acme")
    (folder / "environment.json").write_text(json.dumps(acme.install(folder)))
    (folder / "scratch").mkdir()
    yield folder
    for pid in acme.running(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def fsmatrix(site: Path, *words: object) -> str:
    """What a command prints that must end well."""
    done = subprocess.run(
        [*FSMATRIX, *map(str, words)], cwd=site, capture_output=True, text=True,
        env=json.loads((site / "environment.json").read_text()), timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def campaign(site: Path, *sets: str) -> list[str]:
    """The page's campaign as words of a command, in this machine's scratch directory."""
    path = {"path": str(site / "scratch"), "expect_mount": False}
    few = ("repetitions=3", "order={attachments: 1, block: 3}")  # one session: it is quicker
    sets = (f"targets.scratch.options={json.dumps(path)}", "settle.timeout=1s", *few, *sets)
    return [str(site / "source" / "dd.yaml"), *(word for one in sets for word in ("--set", one))]


def measured(out: Path) -> float:
    """The median of the one cell, MiB/s, which the report has as well."""
    (cell,) = summarise(open_campaign(out / "campaign.h5")).cells
    assert (cell.runs, cell.failed, cell.invalid) == (3, 0, 0)
    assert (cell.target, cell.levels["engine"]) == ("scratch", "dd")
    speed = cell.metrics["bandwidth"].median / MIB
    said = html.unescape((out / "report.html").read_text())
    assert f"The slowest cell has {speed:.4g} MiB/s: scratch." in said
    return speed


def test_backend_workload_engine_launcher_and_analysis(site: Path) -> None:
    table = fsmatrix(site, "check")
    for name in ("scratch", "dd", "jsrun"):
        assert re.search(rf"\b{name} +yes", table), table
    fsmatrix(site, "run", *campaign(site, "geometry.processes_per_node=2"), "-o", "out", "--quiet")
    out = site / "out"
    assert measured(out) > 0
    records = [Store.open(out).read(run_id) for run_id in Store.open(out).ids()]
    assert {one.evidence.world.got_ranks for one in records} == {2}
    assert all(one.environment["launcher"]["name"] == "jsrun" for one in records)
    assert all(one.phases[0].bytes.tolist() == [64 * MIB] for one in records)
    version = subprocess.run(["dd", "--version"], capture_output=True, text=True, check=True).stdout
    assert {one.engine_version for one in records} == {version.split()[2]}
    for one in records:  # the window ends with the program, and dd timed it itself
        assert one.phases[0].end[0] < one.duration
    assert os.listdir(site / "scratch") == []


def test_import_format(site: Path) -> None:
    folder = site / "old"
    folder.mkdir()
    for number in range(3):
        with (folder / f"{number}.txt").open("wb") as out:
            subprocess.run(
                ["dd", "if=/dev/zero", f"of={site}/copied", "bs=64K", "count=512", "conv=fsync"],
                stderr=out, env={**os.environ, "LC_ALL": "C"}, check=True,
            )  # fmt: skip
    fsmatrix(site, "import", "old", "-o", "old.h5", "--set", "target=scratch")
    fsmatrix(site, "report", "old.h5", "-o", "old.html")
    (cell,) = summarise(open_campaign(site / "old.h5")).cells
    speed = cell.metrics["bandwidth"].median / MIB
    assert cell.runs == 3
    seconds = [float(re.findall(r"copied, (\S+) s", path.read_text())[0])
               for path in folder.iterdir()]  # fmt: skip
    assert speed == pytest.approx(32 / sorted(seconds)[1])
    assert f"The slowest cell has {speed:.4g} MiB/s: scratch." in (site / "old.html").read_text()


def test_batch_system(site: Path) -> None:
    words = campaign(site, "launcher=mpirun")
    fsmatrix(site, "submit", *words, "-o", "queued", "--scheduler", "pbs")
    deadline = time.monotonic() + DEADLINE
    while list(acme.running(site)):
        assert time.monotonic() < deadline, [p.read_text() for p in site.glob("queued/slurm/*.log")]
        time.sleep(0.2)
    assert measured(site / "queued") > 0


def test_a_workload_without_a_parser_says_so(site: Path, tmp_path: Path) -> None:
    """What the page said before: the run ended well, and gave no number."""
    shutil.copytree(site / "target", tmp_path / "target")
    module = tmp_path / "target" / "acme" / "dd.py"
    parser = re.compile(r"    def parse\(.*?\n\n", re.DOTALL)
    module.write_text(parser.sub("", module.read_text()))
    env = json.loads((site / "environment.json").read_text())
    done = subprocess.run(
        [*FSMATRIX, "run", *campaign(site, "launcher=mpirun"),
         "-o", tmp_path / "out", "--quiet", "--no-report"],
        env={**env, "PYTHONPATH": str(tmp_path / "target")},
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "nothing was measured: the workload dd made no phase" in done.stdout + done.stderr


def test_audit(site: Path, tmp_path: Path) -> None:
    """Audits come with fsmatrix only: the page's is asked as a built-in one would be."""
    text = acme.PAGE.read_text().split("## An audit\n")[1]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "working_hours", "exec", dont_inherit=True), names)  # our own text
    (audit,) = names["AUDITS"]
    noon, night = (record(started=f"2026-01-05T{hour}:00:00+00:00") for hour in ("12", "02"))
    assert not list(audit.findings(night))
    store = Store.create(tmp_path / "out")
    store.write(replace(noon, findings=tuple(audit.findings(noon))))
    page = write_report(store.merge(), tmp_path / "report.html").read_text()
    assert "working-hours" in page
    assert "began at 12:00 UTC on a working day" in page
