"""Real programs under strace: their operations are known, and all of them are in the trace."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.errors import ToolError
from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.traces.capture import strace
from fsmatrix.traces.tracefile import opened
from tests.traces.capture import again
from tests.traces.capture.texts import Read, read_all, words

pytestmark = pytest.mark.needs("strace")

PROGRAM = r"""
import os
open_file = os.open("data", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
os.write(open_file, bytes(1000))
os.pwrite(open_file, bytes(24), 1000)
os.pread(open_file, 4096, 24)
copy = os.dup(open_file)
os.lseek(open_file, 100, os.SEEK_SET)
if (child := os.fork()) == 0:
    os.read(open_file, 50)
    os._exit(0)
os.waitpid(child, 0)
os.read(copy, 50)
os.writev(copy, [bytes(3), bytes(4)])
log = os.open("log", os.O_WRONLY | os.O_APPEND)
os.write(log, b"more")
os.fsync(log)
os.close(log)
os.fdatasync(open_file)
os.ftruncate(open_file, 77)
os.mkdir("folder")
os.chdir("folder")
os.rename("../data", b"\xff\n")
assert os.listdir("..") and os.listdir(".") == [os.fsdecode(b"\xff\n")]
os.stat("../log")
os.stat("../log/none") if False else None
try:
    os.unlink("none")
except FileNotFoundError:
    pass
os.sendfile(open_file, os.open("../log", os.O_RDONLY), 0, 9)
os.unlink(b"\xff\n")
os.chdir("..")
os.rmdir("folder")
"""
OPERATIONS = [
    "create data",
    "write data 0+1000 = 1000",
    "write data 1000+24 = 24",
    "read data 24+4096 = 1000",
    "read data 100+50 = 50",
    "read data 150+50 = 50",
    "write data 200+7 = 7",
    "open log",
    "write log 500+4 = 4",
    "fsync log",
    "close log",
    "fsync data",
    "truncate data 77",
    "mkdir folder",
    "rename data folder/\xff\n",
    "readdir folder",
    "stat log",
    "unlink folder/none = -2",
    "open log",
    "read log 0+9 = 9",
    "write data 207+9 = 9",
    "unlink folder/\xff\n",
    "rmdir folder",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: it holds a log of 500 bytes."""
    made = tmp_path / "here"
    made.mkdir()
    (made / "log").write_bytes(bytes(500))
    monkeypatch.chdir(made)
    return made


def captured(folder: Path, *command: str) -> Read:
    """What a command did in a folder."""
    out = folder.parent / "t.h5"
    assert strace.capture(command, [folder], out) == 0
    with opened(out) as trace:
        return words(trace)


def test_a_program_whose_operations_are_known(folder: Path) -> None:
    got = captured(folder, sys.executable, "-I", "-S", "-c", PROGRAM)
    own = [line for line in got.said if not _of_the_interpreter(line)]
    assert own == OPERATIONS
    assert got.names == {"log": 500}
    assert got.header.source == "strace"
    assert got.header.command[-1] == PROGRAM
    assert got.times == sorted(got.times)
    assert got.times[0] == 0
    assert len(got.threads) == 2


def _of_the_interpreter(line: str) -> bool:
    """listdir opens a directory, asks what it is, reads it and closes it; the end closes files."""
    return line.endswith("= ?") or line in ("open folder", "stat folder", "close folder")


def test_git_clone(folder: Path) -> None:
    """What the clone has in the end is what the trace says was made and was not removed."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    source = folder.parent / "source"
    subprocess.run([*git, "init", "-q", str(source)], check=True)
    for number in range(20):
        (source / f"file {number}").write_bytes(os.urandom(1000 * number))
    subprocess.run([*git, "-C", str(source), "add", "."], check=True)
    subprocess.run([*git, "-C", str(source), "commit", "-qm", "all"], check=True)
    got = captured(folder, "git", "clone", "-q", "--no-local", str(source), "copy")
    made: set[str] = set()
    for line in got.said:
        kind, _, rest = line.partition(" ")
        if " = -" in line:
            continue
        if kind in ("create", "mkdir"):
            made.add(rest)
        elif kind in ("unlink", "rmdir"):
            made.discard(rest)
        elif kind == "rename":
            old, new = _split(rest, made)
            made = {new + name[len(old) :] if _below(name, old) else name for name in made}
    there = {str(path.relative_to(folder)) for path in folder.rglob("*")} - {"log"}
    linked = set(there) - made  # made by calls that no trace has
    assert made <= there
    assert len(linked) <= sum(got.header.unseen.get(name, 0) for name in ("link", "symlink"))
    written = sum(int(line.rpartition("= ")[2]) for line in got.said if "write copy/file " in line)
    assert written == sum(1000 * number for number in range(20))


def _split(rest: str, made: set[str]) -> tuple[str, str]:
    """Of "old new": the old name is one that was made."""
    old = next(name for name in made if rest.startswith(f"{name} ") and rest != f"{name} ")
    return old, rest[len(old) + 1 :]


def _below(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")


def test_threads_of_a_program(folder: Path) -> None:
    script = """
import os, threading
def work(name):
    with open(name, "wb", buffering=0) as file:
        for _ in range(100):
            file.write(bytes(10))
threads = [threading.Thread(target=work, args=(str(n),)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    got = captured(folder, sys.executable, "-I", "-S", "-c", script)
    for number in range(8):
        own = [line for line in got.said if line.startswith(f"write {number} ")]
        assert own == [f"write {number} {10 * at}+10 = 10" for at in range(100)]
    assert len(got.threads) == 8  # the main thread does nothing to a file
    assert len({process for process, _, _ in got.threads}) == 1


SQLITE = """
import sqlite3
base = sqlite3.connect("base.db")
base.execute("create table t(a, b)")
for mode in ("delete", "wal", "truncate"):
    base.execute(f"pragma journal_mode={mode}")
    for row in range(10):
        base.execute("insert into t values(?, ?)", (row, "x" * 2000))
        base.commit()
base.execute("vacuum")
"""
SHELL = """
echo a >> log; echo b >> new; cat log new >> both; mv new other; mkdir -p d/e/f; mv d g
cat both | tee g/e/x > y; ln y z; rm y; cp z g; ls g g/e; tar cf t.tar g; rm -r g; tar xf t.tar
"""
SAME_AGAIN = {
    "shell": ["sh", "-ec", SHELL],
    "sqlite": [sys.executable, "-I", "-S", "-c", SQLITE],
    "git": ["git", "clone", "-q", "../source", "copy"],
    "git, no links": ["git", "clone", "-q", "--no-local", "../source", "copy"],
}


@pytest.mark.parametrize("name", SAME_AGAIN)
def test_all_operations_have_the_same_outcome_again(folder: Path, name: str) -> None:
    """What the trace says was there is made elsewhere; then each operation is done again."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    source = folder.parent / "source"
    subprocess.run([*git, "init", "-q", str(source)], check=True)
    (source / "file").write_bytes(os.urandom(10_000))
    subprocess.run([*git, "-C", str(source), "add", "."], check=True)
    subprocess.run([*git, "-C", str(source), "commit", "-qm", "all"], check=True)
    out, elsewhere = folder.parent / "t.h5", folder.parent / "elsewhere"
    assert strace.capture(SAME_AGAIN[name], [folder], out) == 0
    with opened(out) as trace:
        assert trace.operations > 30
        assert again.differences(trace, elsewhere) == []
    names = {path.relative_to(folder) for path in folder.rglob("*")} - {Path("log")}
    assert {path.relative_to(elsewhere) for path in elsewhere.rglob("*")} - {Path("log")} == names
    for path in names:
        facts = (folder / path).lstat()
        linked = facts.st_nlink > 1  # with a file outside the root, whose length nothing tells
        if stat.S_ISREG(facts.st_mode) and not linked:
            assert (elsewhere / path).stat().st_size == (folder / path).stat().st_size, path


# -- how the command is run --------------------------------------------------------------------
def fsmatrix(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own."""
    argv = [sys.executable, "-P", "-m", "fsmatrix.cli.main", "trace", *command]
    return subprocess.run(argv, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_streams_and_status_are_those_of_the_command(folder: Path) -> None:
    script = "read line; echo out $line; echo err >&2; echo x > made; exit 7"
    done = fsmatrix("capture", "-o", "../t.h5", "--", "sh", "-c", script, input="in\n")
    assert (done.returncode, done.stdout) == (7, "out in\n")
    assert done.stderr.startswith("err\n")
    assert "1 x create" in done.stderr
    done = fsmatrix("capture", "-o", "../t.h5", "--json", "--", "sh", "-c", script, input="in\n")
    assert done.returncode == 7
    assert done.stderr == "out in\nerr\n"
    facts = json.loads(done.stdout)
    assert facts["status"] == 7
    assert facts["kinds"] == {"create": 1, "write": 1, "close": 1}
    assert facts["files"] == 1
    assert facts["facts"]["sizes_from"] == "a look before the start"


def test_a_command_that_a_signal_ends(folder: Path) -> None:
    done = fsmatrix("capture", "-o", "../t.h5", "--", "sh", "-c", "echo x > made; kill -9 $$")
    assert done.returncode == 128 + 9
    assert "1 x create" in done.stderr


def test_ctrl_c_is_for_the_command(folder: Path) -> None:
    """Both get it, as at a terminal; what the command did before and after is in the trace."""
    script = "trap 'echo x > after; exit 5' INT; echo x > before; kill -INT 0; sleep 60"
    words = ["capture", "-o", "../t.h5", "--", "sh", "-c", script]
    done = fsmatrix(*words, start_new_session=True)
    assert done.returncode == 5, done.stderr
    assert "2 x create" in done.stderr


BAD = {
    "no such command": (["-o", "../t.h5", "--", "no-such-command"], "no such program"),
    "no command": (["-o", "../t.h5"], "Missing argument"),
    "no folder for the trace": (["-o", "none/t.h5", "--", "true"], "is not a directory"),
    "a folder as the trace": (["-o", "sub", "--", "touch", "made"], "is a directory"),
    "no root": (["-o", "../t.h5", "--root", "none", "--", "true"], "is not a directory"),
    "root in root": (
        ["-o", "../t.h5", "--root", ".", "--root", "sub", "--", "touch", "made"],
        "lies below",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(folder: Path, what: str) -> None:
    (folder / "sub").mkdir()
    words, message = BAD[what]
    done = fsmatrix("capture", *words)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (folder.parent / "t.h5").exists()
    assert not (folder / "made").exists()


def test_strace_that_may_not_trace(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "bin" / "strace"
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\necho 'strace: ptrace: Operation not permitted' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:/usr/bin:/bin")
    strace.options.cache_clear()
    with pytest.raises(ToolError, match="Operation not permitted; ptrace must be allowed"):
        strace.capture(["touch", "made"], [folder], tmp_path / "t.h5")
    strace.options.cache_clear()
    assert not (folder / "made").exists()


def test_strace_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fsmatrix.backends.system.tools._SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    strace.options.cache_clear()
    with pytest.raises(ToolError, match="strace is missing"):
        strace.options()
    strace.options.cache_clear()


def test_an_older_strace(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """One that knows neither nanoseconds nor a filter in the kernel."""
    monkeypatch.setattr(strace, "_FILTER", "--no-such-option")
    monkeypatch.setattr(strace, "_NANOSECONDS", ("--no-such-option",))
    strace.options.cache_clear()
    got = captured(folder, "sh", "-c", "echo x > made")
    strace.options.cache_clear()
    assert got.said == ["create made", "write made 0+2 = 2", "close made = ?"]
    assert all(latency > 0 and latency % 1000 == 0 for latency in got.latencies[:2])


# -- ranks -------------------------------------------------------------------------------------
@pytest.mark.needs("mpirun")
def test_ranks_of_an_mpi_program(folder: Path) -> None:
    script = "from mpi4py import MPI; rank = MPI.COMM_WORLD.rank\n"
    script += "open(f'of-{rank}', 'w').write('x' * (rank + 1)); MPI.COMM_WORLD.barrier()"
    texts = folder.parent / "texts"
    texts.mkdir()
    argv = [sys.executable, "-P", "-m", "fsmatrix.cli.main", "trace", "rank", "-o", str(texts)]
    launcher = Mpirun(Mpirun.probe())
    done = subprocess.run(
        launcher.command([*argv, "--", sys.executable, "-P", "-c", script], Geometry(1, 2), {}),
        env={**os.environ, **launcher.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    paths = sorted(texts.iterdir())
    assert [path.name for path in paths] == ["rank-0.strace", "rank-1.strace"]
    got = read_all(folder.parent, paths, [])
    for rank in (0, 1):
        own = [at for at, line in enumerate(got.said) if f" of-{rank}" in line]
        said = [got.said[at] for at in own]
        assert said[0] == f"create of-{rank}"
        assert f"write of-{rank} 0+{rank + 1} = {rank + 1}" in said
        assert {got.threads[got.thread[at]][2] for at in own} == {rank}


def test_no_rank(folder: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if "RANK" not in name}
    kept.pop("SLURM_PROCID", None)
    done = fsmatrix("rank", "-o", ".", "--", "touch", "made", env=kept)
    assert done.returncode == 2
    assert "no rank" in done.stderr
    assert not (folder / "made").exists()
