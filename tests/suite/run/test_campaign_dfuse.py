"""A campaign on DFUSE by doubles of DAOS's programs; fio is the real one."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from fsmatrix.backends.system.mounts import mounted_below
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord
from tests.backends import daos_agent_double
from tests.suite.running import FSMATRIX
from tests.waiting import PATIENCE

STANDINS = Path(__file__).parents[2] / "standins"
CAMPAIGN = """\
campaign: dfuse
targets:
  dfuse: {backend: daos-dfuse, options: {pool: bench}}
workloads:
  fio: {workload: fio, options: {rw: write, size: 1MiB, bs: 64KiB, end_fsync: true}}
  pattern: {workload: pattern, options: {bytes_per_process: 1MiB, chunk: 64KiB}}
factors:
  caching: [site, disabled]
  interception: [none, ioil]
impossible: skip
geometry: {nodes: 1, processes_per_node: 2}
repetitions: 1
"""

pytestmark = [pytest.mark.root, pytest.mark.needs("fio", "mpirun", "compiler", "c player")]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the results `out`, and what the doubles kept in `standin`."""
    folder = tmp_path_factory.mktemp("dfuse")
    (folder / "standin").mkdir()
    (folder / "standin/containers.json").write_text("{}")
    (folder / "c.yaml").write_text(CAMPAIGN)
    library = [str(STANDINS / "libioil.c"), "-o", str(folder / "libioil.so")]
    subprocess.run(["cc", "-shared", "-fPIC", *library], check=True)
    env = {
        **os.environ,
        "PATH": f"{STANDINS}{os.pathsep}{os.environ['PATH']}",
        "STANDIN_DAOS": str(folder / "standin"),
        "LD_LIBRARY_PATH": str(folder),
    }
    argv = [*FSMATRIX, "run", str(folder / "c.yaml"), "-o", str(folder / "out"), "--quiet"]
    with tempfile.TemporaryDirectory(prefix="agent-") as agent:  # short: it is part of an address
        env["DAOS_AGENT_DRPC_DIR"] = agent
        with daos_agent_double.running(Path(agent)):
            ran = subprocess.run(
                [*argv, "--no-report"], env=env, capture_output=True, text=True, timeout=PATIENCE
            )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="module")
def runs(done: Path) -> dict[tuple[str, str, str], RunRecord]:
    """(workload, caching, interception) -> run."""
    store = Store.open(done / "out")
    records = [store.read(run_id) for run_id in store.ids()]
    names = ("workload", "caching", "interception")
    return {tuple(str(r.coordinates[n]) for n in names): r for r in records}  # type: ignore[misc]


def test_what_can_be_run(runs: dict[tuple[str, str, str], RunRecord]) -> None:
    assert sorted(runs) == [
        ("fio", "disabled", "ioil"),
        ("fio", "disabled", "none"),
        ("fio", "site", "ioil"),
        ("fio", "site", "none"),
        ("pattern", "disabled", "ioil"),
        ("pattern", "disabled", "none"),
        ("pattern", "site", "ioil"),
        ("pattern", "site", "none"),
    ]
    assert {record.status for record in runs.values()} == {"ok"}


def test_the_library_is_in_the_program_and_its_calls_are_proof(
    runs: dict[tuple[str, str, str], RunRecord], done: Path
) -> None:
    record = runs["fio", "site", "ioil"]
    preload = f"LD_PRELOAD={done / 'libioil.so'}"
    assert record.argv[0][:3] == ("env", preload, "D_IL_REPORT=0")
    seen = record.evidence.interception["write"]
    assert (seen.library, seen.summaries) == ("ioil", 1)
    assert seen.calls["write"] == 2 * 16
    assert [f for f in record.findings if f.audit.startswith("interception")] == []
    plain = runs["fio", "site", "none"]
    assert plain.argv[0][0] != "env"
    assert plain.evidence.interception == {}


def test_the_player_works_in_processes_with_the_library(
    runs: dict[tuple[str, str, str], RunRecord],
) -> None:
    for caching in ("site", "disabled"):
        record = runs["pattern", caching, "ioil"]
        assert list(record.evidence.interception) == ["read"]
        seen = record.evidence.interception["read"]
        assert (seen.library, seen.summaries) == ("ioil", 2)  # one for each rank
        assert seen.calls == {"read": 2 * 16, "write": 0}
        assert [f for f in record.findings if f.audit.startswith("interception")] == []
        assert runs["pattern", caching, "none"].evidence.interception == {}
        first, second = (runs["pattern", caching, kind].phases[0] for kind in ("ioil", "none"))
        assert first.operations.tolist() == second.operations.tolist() == [16, 16]


def test_each_run_says_how_its_mount_cached(
    runs: dict[tuple[str, str, str], RunRecord],
) -> None:
    for (_, caching, kind), record in runs.items():
        target = record.environment["target"]
        assert (target["caching"], target["interception"]) == (caching, kind)
        assert ("--disable-caching" in target["mount_command"]) == (caching == "disabled")
        assert target["filesystem"] == "fuse.daos"


def test_nothing_is_left(done: Path, runs: dict[tuple[str, str, str], RunRecord]) -> None:
    assert json.loads((done / "standin/containers.json").read_text()) == {}
    assert mounted_below(done) == []
    assert runs
