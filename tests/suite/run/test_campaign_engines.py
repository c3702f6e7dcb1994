"""Campaigns with external engines, on one client node and on two emulated ones.

fio and dbench are the real programs.  IOR and mdtest are in no registry: where they are not
installed, stand-ins replay what the real ones printed (tests/standins), and the tests of the
real ones say that they were skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray

from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord, window
from tests import asking
from tests.waiting import PATIENCE

pytestmark = pytest.mark.real
FSMATRIX = [sys.executable, "-P", "-m", "fsmatrix.cli.main"]
HERE = Path(__file__).parents[2]
MIB = 1 << 20
Runs = dict[tuple[str, str, int], RunRecord]


def environment() -> dict[str, str]:
    """With stand-ins for what is not installed."""
    env = dict(os.environ)
    for program in ("ior", "mdtest"):
        name = f"FSMATRIX_{program.upper()}"
        if name not in env and shutil.which(program) is None:
            env[name] = str(HERE / "standins" / program)
    return env


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of tests/standins/engines.yaml."""
    if reason := asking.first_refusal("fio", "dbench", "mpirun", "emulated nodes"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("engines")
    (folder / "data").mkdir()
    text = (HERE / "standins" / "engines.yaml").read_text()
    (folder / "engines.yaml").write_text(text.replace("{path}", str(folder / "data")))
    done = subprocess.run(
        [*FSMATRIX, "run", str(folder / "engines.yaml"), "-o", str(folder / "out"), "--quiet"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.listdir(folder / "data") == [], "everything that was made is removed"
    return folder / "out"


@pytest.fixture(scope="module")
def runs(out: Path) -> Iterator[Runs]:
    """(workload, kind, nodes) -> run."""
    store = Store.open(out)
    found: Runs = {}
    for run_id in store.ids():
        record = store.read(run_id)
        levels = record.coordinates
        kind = str(levels.get("rw") or levels["cache"])
        found[str(levels["workload"]), kind, int(levels["nodes"])] = record
    assert len(found) == 16
    yield found


def test_every_command_line_is_what_was_executed(runs: Runs) -> None:
    for record in runs.values():
        words = [word for argv in record.argv for word in argv]
        assert not [word for word in words if re.search(r"\{[a-z]+\}", word)]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("kind", ["randread", "write", "randrw"])
def test_fio_adds_up_over_jobs_and_nodes(runs: Runs, kind: str, nodes: int) -> None:
    record = runs["fio", kind, nodes]
    assert (record.status, record.engine) == ("ok", "fio"), record.error
    (phase,) = record.phases
    assert phase.start.shape == (2 * nodes,), "one worker for each job of each node"
    piece = 64 << 10 if kind == "write" else 4096
    assert (phase.bytes == phase.operations * piece).all()
    if kind != "randrw":
        assert (phase.bytes == 4 * MIB).all()
    kinds = {"randread": {"read"}, "write": {"write"}, "randrw": {"read", "write"}}[kind]
    assert phase.latency.keys() == kinds
    counted = sum(int(latency.counts.sum()) for latency in phase.latency.values())
    assert counted == phase.operations.sum(), "histograms add up bin by bin"
    assert 0 < phase.clock_uncertainty < 1
    assert phase.start.min() == 0.0
    assert window(phase) < record.duration
    assert ("overlap" in phase.facts) is (nodes == 2)
    hosts = {name.split("/")[1] for name in record.texts if name.endswith("stdout")}
    assert hosts == {f"node{i + 1}" for i in range(nodes)}


@pytest.mark.parametrize("nodes", [1, 2])
def test_fio_s_fixed_time_is_kept_and_overlaps(runs: Runs, nodes: int) -> None:
    (phase,) = runs["fio", "randrw", nodes].phases
    assert (phase.end - phase.start >= 0.99).all()
    assert phase.interval_bytes is not None
    assert phase.interval_bytes.sum() == pytest.approx(phase.bytes.sum(), rel=1e-6)


def test_a_cold_read_finds_what_was_laid_out_in_a_step_of_its_own(runs: Runs) -> None:
    record = runs["fio", "randread", 2]
    assert ["--create_only=1" in argv for argv in record.argv] == [True, True, False, False]
    nodes = [re.findall(r"node\d", " ".join(argv))[0] for argv in record.argv]
    assert nodes == ["node0", "node1"] * 2
    assert record.evidence.cache["read"].state == "cold"
    assert record.evidence.seconds.keys() == {"program", "settle", "cache"}


@pytest.mark.parametrize("nodes", [1, 2])
def test_dbench_adds_up_over_nodes(runs: Runs, nodes: int) -> None:
    record = runs["dbench", "warm", nodes]
    assert (record.status, record.engine) == ("ok", "dbench"), record.error
    (phase,) = record.phases
    assert phase.name == "mixed"
    assert (phase.bytes > 0).all()
    table = phase.facts["operations"]
    assert phase.operations.sum() == sum(row["count"] for row in table.values())
    assert {"NTCreateX", "Close", "Flush"} <= table.keys()
    assert window(phase) == pytest.approx(5.0, rel=0.5)
    assert "implicit-warm-up" in {finding.audit for finding in record.findings}


@pytest.mark.parametrize("nodes", [1, 2])
def test_ior_apart_and_together(runs: Runs, nodes: int) -> None:
    apart, together = runs["ior", "cold", nodes], runs["ior", "warm", nodes]
    for record, iterations in ((apart, 1), (together, 2)):
        assert (record.status, record.engine) == ("ok", "ior"), record.error
        assert [phase.name for phase in record.phases] == ["write", "read"]
        for phase in record.phases:
            assert phase.bytes.sum() == iterations * 2 * nodes * 2 * MIB
            assert phase.operations.sum() == iterations * 2 * nodes * 8
            assert len(phase.iterations["seconds"]) == iterations
        assert record.phases[0].facts["synced"] is True
    assert [("-w" in argv, "-r" in argv) for argv in apart.argv] == [(True, False), (False, True)]
    assert [("-w" in argv, "-r" in argv) for argv in together.argv] == [(True, True)]
    assert together.evidence.counters.keys() == {"write", "read"}


def test_minus_c_on_a_single_node_is_said(runs: Runs) -> None:
    """The CERN report's first series: reads that never left the client."""
    (found,) = [f for f in runs["ior", "warm", 1].findings if f.audit == "reorder-shifts-nothing"]
    assert "of 8.39 MB read" in found.message
    # the device may be everybody's: what others read from it counts too
    came = found.evidence["device_read_bytes"]
    assert found.severity in (("info", "warning") if came >= 0.9 * 8 * MIB else ("invalid",))
    two = {finding.audit for finding in runs["ior", "warm", 2].findings}
    assert "reorder-shifts-nothing" not in two


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_mdtest_counts_files(runs: Runs, nodes: int, cache: str) -> None:
    record = runs["mdtest", cache, nodes]
    assert (record.status, record.engine) == ("ok", "mdtest"), record.error
    phases = {phase.name: phase for phase in record.phases}
    for name in ("create", "stat", "read", "remove"):
        assert phases[name].operations.sum() == 40 * 2 * nodes
        assert window(phases[name]) > 0
    empty = "empty-read" in {finding.audit for finding in record.findings}
    assert empty is (cache == "cold")
    assert phases["read"].bytes.sum() == (0 if cache == "cold" else 3901 * 40 * 2 * nodes)
    assert len(record.argv) == (4 if cache == "cold" else 1)


def test_the_engine_is_always_named(out: Path) -> None:
    with xarray.open_dataset(out / "campaign.h5", engine="h5netcdf") as data:
        engines = {str(value) for value in np.unique(data["engine"].values)}
        versions = {str(value) for value in np.unique(data["engine_version"].values)}
    assert engines == {"ior", "mdtest", "fio", "dbench"}
    assert all(versions)


def test_show_names_engines(out: Path) -> None:
    done = subprocess.run(
        [*FSMATRIX, "show", str(out), "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    text = json.dumps(json.loads(done.stdout))
    assert "fio" in text
    assert "ior" in text


def campaign(folder: Path, workload: str, options: str = "", top: str = "") -> Path:
    file = folder / "one.yaml"
    (folder / "data").mkdir(exist_ok=True)
    file.write_text(
        "campaign: one\n"
        f"targets: {{here: {{backend: directory, options: {{path: {folder / 'data'}}}}}}}\n"
        f"workloads: {{w: {{workload: {workload}, cache: warm, options: {{{options}}}}}}}\n"
        f"repetitions: 1\n{top}\n"
    )
    return file


def program(folder: Path, text: str) -> Path:
    file = folder / "program"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.mark.parametrize(
    ("workload", "options", "script", "says"),
    [
        ("fio", "size: 1MiB", None, ["install", "FSMATRIX_FIO"]),
        ("ior", "", None, ["FSMATRIX_IOR"]),
        ("mdtest", "", None, ["FSMATRIX_MDTEST"]),
        ("dbench", "", None, ["install", "FSMATRIX_DBENCH"]),
        ("fio", "size: 1MiB", "echo fio-2.21", ["fio", "2.21", "3.0"]),
        ("fio", "size: 1MiB", "echo hello", ["fio"]),
        ("ior", "", "echo nothing", ["ior"]),
        ("dbench", "", "exit 1", ["dbench"]),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused_with_the_cure(
    tmp_path: Path, workload: str, options: str, script: str | None, says: list[str]
) -> None:
    path = program(tmp_path, script) if script else tmp_path / "nowhere"
    file = campaign(tmp_path, workload, options, f"engines: {{{workload}: {path}}}")
    done = subprocess.run(
        [*FSMATRIX, "run", str(file), "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    flat = " ".join(done.stderr.split())
    for word in says:
        assert word in flat
    assert not (tmp_path / "out").exists(), "nothing is written"


def test_check_lists_engines_with_versions_and_cures(tmp_path: Path) -> None:
    env = environment() | {"FSMATRIX_DBENCH": str(tmp_path / "nowhere")}
    done = subprocess.run(
        [*FSMATRIX, "check", "--json"],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    engines = {item["name"]: item for item in json.loads(done.stdout) if item["kind"] == "engine"}
    assert {"fio", "ior", "mdtest", "dbench", "player-c"} <= engines.keys()
    assert engines["fio"]["ok"] == (not asking.why_not("fio"))
    if engines["fio"]["ok"]:
        assert "ioengine" in engines["fio"]["version"]
    assert not engines["dbench"]["ok"]
    assert "FSMATRIX_DBENCH" in engines["dbench"]["reason"]
