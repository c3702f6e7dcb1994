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
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.results.files.store import Store
from fsmatrix.traces.tracefile import opened
from tests.suite import acme
from tests.suite.running import FSMATRIX
from tests.waiting import PATIENCE

pytestmark = pytest.mark.needs("mpirun")
MIB = 1 << 20
AUDIT, AUDITED = "inside-buffer", {"inside-buffer": "version 1, acme-fsmatrix 1.0"}
CONTRACTS = "tests/house/test_contracts.py::test_"
FOUND = [
    *(
        f"{CONTRACTS}{kind}[{name}]"
        for kind, name in (
            ("backend", "scratch"),
            ("backend", "bucket"),
            ("journal", "acme-bucket"),
            ("testbed", "buckets"),
            ("workload", "dd"),
            ("engine", "dd"),
            ("format", "dd"),
            ("launcher", "jsrun"),
            ("scheduler", "pbs"),
            ("audits", "buffer"),
        )
    ),
    "tests/analysis/test_contract.py::test_a_result_or_a_reason_and_never_anything_else[slowest]",
]


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
        [*FSMATRIX, *map(str, words)],
        cwd=site,
        capture_output=True,
        text=True,
        env=json.loads((site / "environment.json").read_text()),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def changed(
    site: Path, folder: Path, module: str, old: str, new: str
) -> subprocess.CompletedProcess[str]:
    """A run with another text in a module of the package, into `folder`/out."""
    shutil.copytree(site / "target", folder / "target")
    file = folder / "target" / "acme" / f"{module}.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    env = json.loads((site / "environment.json").read_text())
    return subprocess.run(
        [
            *FSMATRIX,
            "run",
            *campaign(site, "launcher=mpirun"),
            "-o",
            folder / "out",
            "--quiet",
            "--no-report",
        ],
        env={**env, "PYTHONPATH": str(folder / "target")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


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


def test_a_trace_format(site: Path) -> None:
    (site / "reads.txt").write_text("5 /d/a 0 100\n7 /d/a 4096 4096\n", encoding="ascii")
    text = fsmatrix(site, "trace", "import", "reads.txt", "-o", "reads.h5")
    assert "3 operations of acme-reads in reads.h5" in text
    with opened(site / "reads.h5") as trace:
        (block,) = trace.blocks()
        assert block["time"].tolist() == [0, 0, 2000]
        assert trace.files.size[list(trace.files.names()).index(b"d/a")] == 8192


def test_backend_workload_engine_launcher_and_analysis(site: Path) -> None:
    table = fsmatrix(site, "check")
    for name in ("scratch", "dd", "jsrun", "buffer"):
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
    fsmatrix(site, "report", "out", "-o", "again.html", "--tables", "tables")
    assert str(measured(out) * MIB)[:6] in (site / "tables" / "slowest.csv").read_text()
    for one in records:
        assert one.environment["audits"] == AUDITED
        assert [
            (f.audit, f.severity, f.phase, f.evidence) for f in one.findings if f.audit == AUDIT
        ] == [(AUDIT, "warning", "write", {"bytes": 64 * MIB})]
    assert AUDIT in fsmatrix(site, "findings", "out")


# dd that waits while the file `hold` is there
HELD = """#!/bin/sh
while [ "${{1%%=*}}" = if ] && [ -e "{0}/hold" ]; do touch "{0}/holds"; sleep 0.1; done
exec {1} "$@"
"""


def test_access_and_journal_entry_of_its_own(site: Path, tmp_path: Path) -> None:
    """What a killed run made is taken down by another process; what it did not make stays."""
    buckets, dd = tmp_path / "buckets", tmp_path / "programs" / "dd"
    for folder in (dd.parent, buckets / "fsmatrix-theirs"):
        folder.mkdir(parents=True)
    (tmp_path / "hold").touch()
    dd.write_text(HELD.format(tmp_path, shutil.which("dd")))
    dd.chmod(0o755)
    env = json.loads((site / "environment.json").read_text())
    env["PATH"] = f"{dd.parent}:{env['PATH']}"
    (tmp_path / "bucket.yaml").write_text(
        f"campaign: bucket\nlauncher: mpirun\nrepetitions: 1\nsettle: {{timeout: 1s}}\n"
        f"targets: {{bucket: {{backend: bucket, options: {{store: {buckets}}}}}}}\n"
        "workloads: {dd: {workload: dd, cache: warm, options: {bytes_per_node: 1MiB}}}\n"
    )
    out, quiet = tmp_path / "out", ("--quiet", "--no-report")
    words = [*FSMATRIX, "run", tmp_path / "bucket.yaml", "-o", out, *quiet]
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as killed:
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / "holds").exists():
            assert killed.poll() is None, killed.stderr and killed.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        killed.kill()
    (tmp_path / "hold").unlink()
    (left,) = set(os.listdir(buckets)) - {"fsmatrix-theirs"}
    again = subprocess.run(
        [*FSMATRIX, "run", "-o", out, "--resume", *quiet],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"removed bucket {buckets / left}" in again.stdout + again.stderr
    assert os.listdir(buckets) == ["fsmatrix-theirs"]
    (kept,) = [Store.open(out).read(run_id) for run_id in Store.open(out).ids()]
    assert kept.phases[0].bytes.tolist() == [MIB]


def test_a_test_bed(site: Path, tmp_path: Path) -> None:
    """It comes up for the attachment, and goes with all in it."""
    (tmp_path / "bed.yaml").write_text(
        "campaign: bed\nlauncher: mpirun\nrepetitions: 1\nsettle: {timeout: 1s}\n"
        "targets: {bucket: {backend: bucket, testbed: {nodes: 1}}}\n"
        "workloads: {dd: {workload: dd, cache: warm, options: {bytes_per_node: 1MiB}}}\n"
    )
    out = tmp_path / "out"
    fsmatrix(site, "run", tmp_path / "bed.yaml", "-o", out, "--quiet", "--no-report")
    (kept,) = [Store.open(out).read(run_id) for run_id in Store.open(out).ids()]
    assert kept.phases[0].bytes.tolist() == [MIB]
    assert kept.coordinates["storage_nodes"] == 1
    assert list(out.glob("state/*/bed-*")) == []


def test_import_format(site: Path) -> None:
    folder = site / "old"
    folder.mkdir()
    for number in range(3):
        with (folder / f"{number}.txt").open("wb") as out:
            subprocess.run(
                ["dd", "if=/dev/zero", f"of={site}/copied", "bs=64K", "count=512", "conv=fsync"],
                stderr=out,
                env={**os.environ, "LC_ALL": "C"},
                check=True,
            )
    fsmatrix(site, "import", "old", "-o", "old.h5", "--set", "target=scratch")
    fsmatrix(site, "report", "old.h5", "-o", "old.html")
    (cell,) = summarise(open_campaign(site / "old.h5")).cells
    speed = cell.metrics["bandwidth"].median / MIB
    assert cell.runs == 3
    seconds = [
        float(re.findall(r"copied, (\S+) s", path.read_text())[0]) for path in folder.iterdir()
    ]
    assert speed == pytest.approx(32 / sorted(seconds)[1])
    assert f"The slowest cell has {speed:.4g} MiB/s: scratch." in (site / "old.html").read_text()
    assert AUDIT in fsmatrix(site, "findings", "old.h5")


def test_batch_system(site: Path) -> None:
    words = campaign(site, "launcher=mpirun")
    fsmatrix(site, "submit", *words, "-o", "queued", "--scheduler", "pbs")
    deadline = time.monotonic() + PATIENCE
    while list(acme.running(site)):
        assert time.monotonic() < deadline, [p.read_text() for p in site.glob("queued/slurm/*.log")]
        time.sleep(0.2)
    assert measured(site / "queued") > 0


def test_a_workload_without_a_parser_says_so(site: Path, tmp_path: Path) -> None:
    """What the page said before: the run ended well, and gave no number."""
    parser = re.compile(r"    def parse\(.*?\n\n", re.DOTALL)
    text = parser.findall((site / "target" / "acme" / "dd.py").read_text())[0]
    done = changed(site, tmp_path, "dd", text, "")
    assert done.returncode == 1
    assert "nothing was measured: the workload dd made no phase" in done.stdout + done.stderr


def test_the_contract_tests_find_each(site: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            f"--basetemp={tmp_path / 'inside'}",
            *FOUND,
        ],
        env=json.loads((site / "environment.json").read_text()),
        cwd=acme.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(FOUND)} passed" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("AUDITS = ", "OTHERS = ", "audit 'buffer' of an entry point: .*no attribute 'AUDITS'"),
        (
            '"inside-buffer"',
            '"too-short"',
            "audit 'buffer' of an entry point: there is a 'too-short'",
        ),
    ],
    ids=["gone", "of the same name"],
)
def test_an_audit_that_cannot_be_had_is_refused_before_anything_is_written(
    site: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    done = changed(site, tmp_path, "buffer", old, new)
    assert done.returncode == 2
    assert re.search(said, done.stderr.replace("\n", " ")), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_audit_that_fails_costs_no_run(site: Path, tmp_path: Path) -> None:
    done = changed(site, tmp_path, "buffer", "int(phase.bytes.max(initial=0))", "1 // 0")
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(tmp_path / "out")
    for run_id in store.ids():
        record = store.read(run_id)
        assert record.phases[0].bytes.tolist() == [64 * MIB]
        assert [f.message for f in record.findings if f.audit == AUDIT] == [
            "the audit itself failed: ZeroDivisionError: integer division or modulo by zero"
        ]
