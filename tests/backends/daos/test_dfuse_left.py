"""DFUSE that somebody else mounted, and what a crash leaves mounted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import dfuse_mount
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import undo_pending
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.system import mounts
from tests.backends.daos.dfuse_targets import client_of, dfuse, mounting
from tests.backends.daos_standin import THEIRS, Standin


@contextmanager
def theirs(standin: Standin, point: Path, *flags: str) -> Iterator[Path]:
    """A mount of a container that is not the suite's, made by somebody else."""
    point.mkdir()
    argv = dfuse_mount.argv(
        {"point": point, "pool": "bench", "container": "posix1", "system": "", "flags": flags}
    )
    dfuse_mount.start(argv, point)
    try:
        yield point
    finally:
        (standin.folder / "hang").unlink(missing_ok=True)
        own_mounts.detach_mount(point, argv)


@mounting
def test_a_mount_that_is_there(standin: Standin, context: ProvisionContext, tmp_path: Path) -> None:
    with theirs(standin, tmp_path / "mnt", "--disable-caching") as point:
        (point / "theirs").write_text("keep")
        backend = dfuse(path=str(point))
        assert backend.refusal() == ""
        assert backend.space().inodes is None
        access = backend.provision({}, context)
        backend.mount(access, context.journal)
        assert access.path == str(point / "fsmatrix-tag1/data")
        backend.make_run(access, "r1")
        Path(access.path, "r1/file").write_bytes(b"x" * 4096)
        facts = backend.describe(access)
        assert facts["caching"] == "as_found"
        assert "--disable-caching" in facts["mount_command"]
        assert not facts["managed"]
        assert backend.health(access) == []
        assert backend.cache(access, "cold", ["r1"]).method in ("fadvise", "drop_caches")
        assert len(backend.workers(access)) == 1
        backend.remove_run(access, "r1")
        backend.unmount(access, context.journal)
        assert mounts.mounted_at(point) is not None
        backend.release(access, context)
        assert [path.name for path in point.iterdir()] == ["theirs"]
        assert context.journal.pending() == []
    assert standin.containers == {"posix1": THEIRS}


@mounting
def test_a_found_mount_that_hangs_is_not_touched(
    standin: Standin, context: ProvisionContext, tmp_path: Path, fast: None
) -> None:
    with theirs(standin, tmp_path / "mnt") as point:
        backend = dfuse(path=str(point))
        access = backend.provision({}, context)
        (standin.folder / "hang").touch()
        assert "does not answer within 2 s" in backend.refusal()
        assert "does not answer within 2 s" in backend.health(access)[0]
        assert backend.space().bytes is None
        with pytest.raises(BackendError, match="does not answer"):
            backend.mount(access, context.journal)
        with pytest.raises(BackendError, match="was not removed"):
            backend.release(access, context)
        (standin.folder / "hang").unlink()
        backend.release(access, context)


def test_a_path_that_is_no_dfuse(standin: Standin, tmp_path: Path) -> None:
    assert "not DFUSE" in dfuse(path=str(tmp_path)).refusal()
    assert "does not exist" in dfuse(path=str(tmp_path / "no")).refusal()
    with suppress(FileExistsError):
        (tmp_path / "link").symlink_to(tmp_path)
    assert "symbolic link" in dfuse(path=str(tmp_path / "link")).refusal()


CONDUCTOR = """
import json, os, signal, sys
from pathlib import Path
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.contract import load

base = Path(sys.argv[1])
kind = load("daos-dfuse")
backend = kind(kind.Options(pool="bench"))
context = ProvisionContext("a", base / "state/a", Journal(base / "journal/host.jsonl"), "tag1")
access = backend.provision({}, context)
backend.mount(access, context.journal)
print(json.dumps(access.to_json()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def crashed(standin: Standin, tmp_path: Path) -> Iterator[PathAccess]:
    """What a conductor left that was killed with its mount; nothing stays in any case."""
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path)]
    killed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    access = PathAccess.from_json(json.loads(killed.stdout))
    yield access
    own_mounts.detach_mount(Path(access.details["point"]), dfuse_mount.argv(access.details))


@mounting
@pytest.mark.parametrize("client", ["lives", "is dead"])
def test_a_crash_is_undone(
    standin: Standin, crashed: PathAccess, tmp_path: Path, client: str
) -> None:
    point, argv = crashed.details["point"], dfuse_mount.argv(crashed.details)
    (label,) = standin.ours
    if client == "is dead":
        os.kill(client_of(crashed), signal.SIGKILL)
    assert undo_pending(tmp_path / "journal") == [
        f"unmounted {point}",
        f"removed directory {point}",
        f"destroyed container {label} of pool bench",
    ]
    assert own_mounts.client_processes(argv) == []
    assert mounts.mounted_below(tmp_path) == []
    assert standin.containers == {"posix1": THEIRS}
    assert undo_pending(tmp_path / "journal") == []


@mounting
def test_a_forged_mount_point_is_left_alone(
    standin: Standin, crashed: PathAccess, tmp_path: Path
) -> None:
    journal = next((tmp_path / "journal").glob("*.jsonl"))
    elsewhere = str(tmp_path / "elsewhere/mnt")
    journal.write_text(journal.read_text().replace(crashed.details["point"], elsewhere))
    said = undo_pending(tmp_path / "journal")
    assert any(f"{elsewhere} is no mount point of this results directory" in line for line in said)
    assert client_of(crashed)


@mounting
def test_a_client_of_another_store_is_left_alone(
    standin: Standin, crashed: PathAccess, tmp_path: Path
) -> None:
    """It has our very arguments, but not our proof in its environment."""
    point, argv = Path(crashed.details["point"]), dfuse_mount.argv(crashed.details)
    own_mounts.detach_mount(point, argv)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSMATRIX_STORE", "0" * 32)
        pid = dfuse_mount.start(argv, point)
    said = undo_pending(tmp_path / "journal")
    assert f"left alone: process {pid} is not of this results directory: not ended" in said
    assert client_of(crashed) == pid
    assert dfuse_mount.serves(point)


@mounting
def test_a_tree_in_a_found_mount_outlives_a_crash_marked(
    standin: Standin, context: ProvisionContext, tmp_path: Path
) -> None:
    with theirs(standin, tmp_path / "mnt") as point:
        access = dfuse(path=str(point)).provision({}, context)
        folder = Path(access.details["tree"])
        assert tree.read_marker(folder) == "tag1"
        dfuse(path=str(point)).release(access, context)
        assert not folder.exists()
