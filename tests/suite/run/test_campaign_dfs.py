"""A campaign of the player on DFS: MPI ranks that share one connection, over the double."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.results.files.store import Store
from tests.backends import daos_places
from tests.backends.conftest import agent_folder, standin  # noqa: F401 - fixtures
from tests.backends.daos_standin import TESTS, Standin

pytestmark = [pytest.mark.daos, pytest.mark.needs("c player", "compiler", "mpirun")]
CAMPAIGN = """
campaign: dfs
seed: 1
launcher: mpirun
targets:
  daos: {{backend: daos-dfs, options: {{pool: bench, library: {library}}}}}
workloads:
  pattern: {{workload: pattern, options: {{bytes_per_process: 256KiB, chunk: 16KiB, iodepth: 4}}}}
  metadata: {{workload: metadata, options: {{files_per_process: 20}}}}
factors: {{processes_per_node: [2]}}
repetitions: 1
settle: {{timeout: 2s}}
"""
WRAPPER = """#!/bin/sh
# the stand-in of the tool, and a directory of the double for each container that it makes
python3 -S {standin} "$@" || exit
case "$*" in
*container\\ create*) mkdir -p "$FSMATRIX_DOUBLE/bench/$5/root" ;;
*container\\ destroy*) ls "$FSMATRIX_DOUBLE/bench" >>"$FSMATRIX_DOUBLE/seen" ;;
esac
"""


def test_ranks_share_a_connection_and_leave_nothing(
    standin: Standin,  # noqa: F811 - the fixture
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    library = daos_places.compiled(tmp_path_factory.mktemp("double"))
    double, programs, out = tmp_path / "daos", tmp_path / "programs", tmp_path / "out"
    double.joinpath("bench").mkdir(parents=True)
    programs.mkdir()
    tool = programs / "daos"
    tool.write_text(WRAPPER.format(standin=TESTS / "standins" / "daos"))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FSMATRIX_DOUBLE", str(double))
    file = tmp_path / "c.yaml"
    file.write_text(CAMPAIGN.format(library=library))
    argv = [sys.executable, "-P", "-m", "fsmatrix.cli.main", "run", str(file), "-o", str(out)]
    done = subprocess.run(
        [*argv, "--quiet"], capture_output=True, text=True, timeout=400, check=False
    )
    store = Store.open(out)
    records = [store.read(run_id) for run_id in store.ids()]
    assert done.returncode == 0, (done.stdout, done.stderr, [record.error for record in records])
    assert [record.status for record in records] == ["ok", "ok"]
    assert all(phase.errors.sum() == 0 for record in records for phase in record.phases)
    assert standin.ours == []
    storage = daos_places.Storage("bench", "", str(library), double)
    assert storage.violations == []
    connected = [line.split() for line in (double / "connected").read_text().splitlines()]
    joined = {pid for how, pid in connected if how == "joined"}
    assert len(joined) == 1  # the second of two ranks ...
    assert joined.isdisjoint(pid for how, pid in connected if how == "alone")  # ... does only that
    for container in double.joinpath("bench").iterdir():
        assert list(container.joinpath("root").iterdir()) == []  # runs removed what they made
