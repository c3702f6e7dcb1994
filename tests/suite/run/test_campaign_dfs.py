"""A campaign of the player on DFS: MPI ranks that share one connection, over the double."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.results.files.store import Store
from tests.backends.conftest import agent_folder, standin  # noqa: F401 - fixtures
from tests.suite.daos_campaigns import Doubled, doubled_daos  # noqa: F401 - the fixture
from tests.suite.running import FSMATRIX, fsmatrix
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.daos, pytest.mark.needs("c player", "compiler", "mpirun")]
CAMPAIGN = """
campaign: dfs
seed: 1
launcher: mpirun
targets:
  daos: {{backend: daos-dfs, options: {{pool: bench, library: {library}{more}}}}}
workloads:
  pattern: {{workload: pattern, options: {{bytes_per_process: 256KiB, chunk: 16KiB, iodepth: 4}}}}
  metadata: {{workload: metadata, options: {{files_per_process: 20, dirs_per_process: 20}}}}
factors: {{processes_per_node: [2]}}
repetitions: 1
settle: {{timeout: 2s}}
"""


def test_ranks_share_a_connection_and_leave_nothing(
    doubled_daos: Doubled,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    double, out = doubled_daos.folder, tmp_path / "out"
    file = tmp_path / "c.yaml"
    file.write_text(CAMPAIGN.format(library=doubled_daos.library, more=""))
    argv = [sys.executable, "-P", "-m", "fsmatrix.cli.main", "run", str(file), "-o", str(out)]
    done = subprocess.run(
        [*argv, "--quiet"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    store = Store.open(out)
    records = [store.read(run_id) for run_id in store.ids()]
    assert done.returncode == 0, (done.stdout, done.stderr, [record.error for record in records])
    assert [record.status for record in records] == ["ok", "ok"]
    assert all(phase.errors.sum() == 0 for record in records for phase in record.phases)
    assert doubled_daos.standin.ours == []
    assert doubled_daos.violations == []
    connected = [line.split() for line in (double / "connected").read_text().splitlines()]
    joined = {pid for how, pid in connected if how == "joined"}
    assert len(joined) == 1  # the second of two ranks ...
    assert joined.isdisjoint(pid for how, pid in connected if how == "alone")  # ... does only that
    assert doubled_daos.left == []  # runs removed what they made


def test_ctrl_c_while_a_tool_runs_is_no_failed_run(
    doubled_daos: Doubled,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """The terminal sends it to the whole process group; --resume then makes every run."""
    tool, out = doubled_daos.standin, tmp_path / "out"
    file = tmp_path / "c.yaml"
    file.write_text(CAMPAIGN.format(library=doubled_daos.library, more=", deadline: 3s"))
    tool.fault("container create", "hang")
    argv = [*FSMATRIX, "run", str(file), "-o", str(out), "--no-report"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        noted = tool.folder / "calls.jsonl"
        until(lambda: noted.exists() and any("create" in call for call in tool.calls))
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, errors
    assert list(Store.open(out).ids()) == []
    tool.fault()
    done = fsmatrix("run", file, "-o", out, "--resume", "--quiet")
    store = Store.open(out)
    assert [store.read(run_id).status for run_id in store.ids()] == ["ok", "ok"], done.stderr
    assert tool.ours == []
