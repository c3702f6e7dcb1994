"""Whatever the suite starts as root comes from a folder that nobody else may write."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.slurm import slurm
from fsmatrix.slurm.scheduler import SchedulerError
from fsmatrix.suite.engines.engine import EngineError
from fsmatrix.suite.engines.fio import KIND as FIO
from fsmatrix.suite.launchers.mpiexec import Mpiexec
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.launchers.srun import Srun
from fsmatrix.suite.oltp.account import Account, OltpError
from fsmatrix.suite.registry import ENGINES
from fsmatrix.suite.session import programs
from fsmatrix.traces.capture import strace as capture

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
NAMES = (
    *("setpriv", "fio", "mpirun", "mpiexec", "srun", "sbatch", "scontrol", "strace", "env", "sh"),
    *("unshare", "true", "test", "hostname", "mount", "ipcrm", "lsblk", "ceph-fuse", "dfuse"),
    *("python3", "sleep", "echo", "daos"),
)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that everybody may write, first on PATH, with programs that tell when they run."""
    folder, told = tmp_path / "trap", tmp_path / "told"
    folder.mkdir()
    for name in NAMES:
        path = folder / name
        path.write_text(f'#!/bin/bash\necho "$0 $@" >> {told}\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    programs._until_we_die.cache_clear()
    subprocess.run(["echo"], check=True)
    assert told.read_text().startswith(str(folder))  # so it is, else this shows nothing
    told.unlink()
    folder.chmod(0o777)
    yield folder
    programs._until_we_die.cache_clear()
    assert not told.exists(), told.read_text()


@pytest.mark.root
def test_nothing_is_started_from_there(trap: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"root does not run {trap}/fio: {trap} can be written"):
        FIO.probe()
    with pytest.raises(EngineError, match=f"root does not run {trap}/fio: "):
        FIO.probe(str(trap / "fio"))
    Mpirun.probe()  # this Python's own comes first
    for kind in (Mpiexec, Srun):
        assert f"root does not run {trap}/" in kind.probe().reason
    with pytest.raises(OltpError, match=f"root does not run {trap}/setpriv"):
        Account("nobody", NOBODY, NOBODY).words("KILL")
    with pytest.raises(ToolError, match=f"root does not run {trap}/strace"):
        capture.run(["sleep", "0"], tmp_path / "text")
    with pytest.raises(SchedulerError, match=f"root does not run {trap}/sbatch"):
        slurm._ask(["sbatch", "--version"])
    done = programs.run(("env", "A=b", "echo", "x"), "/", 30)
    assert (done.returncode, done.stdout) == (127, "")
    assert f"root does not run {trap}/env" in done.stderr


@pytest.mark.root
def test_what_is_started_finds_nothing_there_either(trap: Path) -> None:
    """By its own PATH: shells and wrappers look programs up themselves."""
    shell = shutil.which("bash", path="/bin:/usr/bin")
    assert shell is not None
    script = 'echo "found $(type -P env)"'
    for stdout in (
        tools.run([shell, "-c", script]).stdout,
        programs.run((shell, "-c", script), "/", 30).stdout,
    ):
        assert stdout.startswith("found /")
        assert str(trap) not in stdout


@pytest.mark.root
@pytest.mark.parametrize("name", ENGINES.names())
def test_no_engine_that_a_campaign_names_is_run_from_there(trap: Path, name: str) -> None:
    with pytest.raises(EngineError, match=f"root does not run {trap}/fio: "):
        ENGINES.load(name).find(str(trap / "fio"))


STARTS = re.compile(
    r"\bsubprocess\.(?:run|Popen|check_\w+|call)\(|\bos\.(?:exec|posix_spawn|popen|system)"
)
BY_PATH = {  # modules that start programs, by a path that `tools.find` or this Python gave
    *("backends/ceph/trees.py", "backends/daos/bindings.py"),
    *("backends/daos/libraries.py", "traces/importing/darshan.py"),  # sys.executable
    *("backends/local/cleaner.py", "suite/oltp/server.py", "suite/oltp/clients.py"),
    *(
        "backends/local/own_mounts.py",
        "backends/system/tools.py",
        "backends/testbed/daemons.py",
    ),
    *("slurm/slurm.py", "suite/engines/engine.py", "suite/launchers/mpirun.py"),
    *("suite/launchers/launcher.py", "suite/oltp/tpcc_rows.py", "suite/session/client.py"),
    *("suite/nodes/ssh.py", "suite/session/players.py", "suite/session/programs.py"),
    "traces/capture/strace.py",
}


def test_programs_are_found_in_one_place() -> None:
    """Who adds a place that starts one finds it by `tools.find`, and adds it above."""
    packages = ("analysis", "backends", "cli", "results", "slurm", "suite", "traces")
    modules = [path for name in packages for path in (ROOT / name).rglob("*.py")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in modules}
    assert [name for name, text in texts.items() if "shutil.which" in text] == [
        "backends/system/tools.py"
    ]
    assert {name for name, text in texts.items() if STARTS.search(text)} == BY_PATH
