"""Memory as a factor of transactions: a cgroup for the database and its users, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import journal as journalled
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.journal.proof import NotProvenOurs, OwnershipScope, identity
from fsmatrix.backends.system import cgroups, mounts
from fsmatrix.backends.system.cgroups import Hierarchy
from fsmatrix.suite.oltp.account import POSTGRESQL, SQLITE
from fsmatrix.suite.session.programs import Finished
from tests.suite import oltp_steps
from tests.suite.oltp_steps import answer, in_background

REFUSAL = cgroups.memory_refusal()
limited = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "memory can be limited")
pytestmark = pytest.mark.xdist_group("sqlite")
MIB = 1 << 20


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A store's journals."""
    folder = tmp_path / "journal"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    return folder


def step(do: str, path: Path, **more: Any) -> Finished:
    return oltp_steps.step(do, path, **{"engine": SQLITE, **more})


def cgroups_of_stores() -> set[Path]:
    return set(cgroups.memory_parent().glob("fsmatrix-memory-*"))


def pending(state: Path) -> list[str]:
    return [entry.kind for path in state.glob("*.jsonl") for entry in Journal(path).pending()]


@limited
@pytest.mark.parametrize("engine", [SQLITE, pytest.param(POSTGRESQL, marks=oltp_steps.NEEDED)])
def test_it_holds_and_is_recorded_and_goes(place: Path, state: Path, engine: str) -> None:
    answer(step("load", place, engine=engine))
    before = cgroups_of_stores()
    size = 64 * MIB
    used = answer(step("run", place, engine=engine, memory=size, journal=str(state)))["memory"]
    assert used["limit"] == size
    assert used["peak"] is None or MIB < used["peak"] <= size
    assert used["oom_kills"] == 0
    assert cgroups_of_stores() <= before
    assert list(state.glob("*.jsonl"))
    assert pending(state) == []


@limited
def test_pages_of_files_are_its_own() -> None:
    """Of files in memory: a disk's go whenever a test beside this one drops the caches."""
    folder = cgroups.make_memory_limit(
        cgroups.memory_parent() / f"fsmatrix-memory-{uuid.uuid4()}", 64 * MIB
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        argv = ["dd", "if=/dev/zero", f"of={place}/data", "bs=1M", "count=4", "status=none"]
        subprocess.run(cgroups.entering(folder, argv), check=True)
        assert 4 * MIB <= cgroups.memory_used(folder).file_bytes < 5 * MIB
    assert cgroups.remove(folder) == ""


@limited
def test_too_little_is_a_failure_and_an_orphan_goes_on_resume(place: Path, state: Path) -> None:
    answer(step("load", place))
    done = step("run", place, memory=4 * MIB, journal=str(state))
    assert done.returncode == 1
    assert "out of memory: the kernel killed" in done.stderr
    assert "memory: 4 MiB" in done.stderr
    assert pending(state) == []
    with in_background("run", place, engine=SQLITE, memory=64 * MIB, journal=str(state)) as running:
        driver = oltp_steps.parent(running.users(2)[0])
        os.kill(driver, signal.SIGKILL)
    assert pending(state) == ["memory-limit"]
    (entry,) = [entry for path in state.glob("*.jsonl") for entry in Journal(path).pending()]
    folder = Path(entry.facts["path"])
    assert folder.is_dir()
    assert undo_pending(state) == [f"removed cgroup {folder}"]
    assert not folder.exists()
    assert pending(state) == []


def test_what_a_forged_journal_names_stays(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = state / "cgroup"
    foreign = root / "fsmatrix-memory-6546a147-1d69-4c89-8b6b-8d7bd9e5e224"
    (root / "somebodys").mkdir(parents=True)
    foreign.mkdir()
    monkeypatch.setattr(cgroups, "memory_hierarchy", lambda: Hierarchy(2, root, "memory"))
    ground = OwnershipScope(identity(state))
    own = root / f"fsmatrix-memory-{ground.identity.new_uuid()}"
    journalled.prove({"path": str(own)}, ground)
    for path in (foreign, root / "somebodys", state, root / ".." / "cgroup" / own.name):
        with pytest.raises(NotProvenOurs, match="not removed"):
            journalled.prove({"path": str(path)}, ground)


def unified(monkeypatch: pytest.MonkeyPatch, root: Path, own: str) -> None:
    """Version 2 as files, with this process in the cgroup `own`."""
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu io memory\n")
    mount = mounts.Mount(
        **{**vars(mounts.mounts()[0]), "point": str(root), "fstype": "cgroup2", "super_options": ""}
    )
    monkeypatch.setattr(mounts, "mounts", lambda: [mount])
    monkeypatch.setattr(cgroups, "PROC_SELF", root.parent / "self")
    (root.parent / "self").write_text(f"0::{own}\n")


def test_version_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "unified"
    unified(monkeypatch, root, "/a/b")
    (root / "a" / "b").mkdir(parents=True)
    assert cgroups.memory_parent() == root / "a"  # beside it: no processes inside
    (root / "a" / "cgroup.subtree_control").write_text("cpu\n")
    folder = cgroups.make_memory_limit(root / "a" / "fsmatrix-memory-x", 5 * MIB)
    assert (root / "a" / "cgroup.subtree_control").read_text() == "+memory"
    assert (folder / "memory.max").read_text() == str(5 * MIB)
    assert (folder / "memory.swap.max").read_text() == "0"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\n")
    (folder / "memory.stat").write_text("anon 5\nfile 4096\n")
    assert cgroups.memory_used(folder) == cgroups.MemoryUse(5 * MIB, None, 7, 1, 4096, 2)
    (folder / "memory.peak").write_text("99\n")
    assert cgroups.memory_used(folder).peak == 99


def test_without_a_controller_it_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "mounts", list)
    with pytest.raises(BackendError, match="no cgroup hierarchy here has the memory controller"):
        cgroups.memory_parent()
    assert "systemd-run" in cgroups.memory_refusal()
    monkeypatch.undo()
    unified(monkeypatch, tmp_path / "unified", "/gone/b")
    assert "is not to be seen" in cgroups.memory_refusal()


def test_the_journal_holds_what_is_about_to_be_made(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it then cannot be made: nothing is left, and nothing is pending."""
    unified(monkeypatch, tmp_path / "unified", "/")
    (tmp_path / "unified" / "cgroup.subtree_control").write_text("memory\n")
    seen = []

    def refused(folder: Path, limit: int) -> Path:
        seen.append(json.loads((state / "n.jsonl").read_text().splitlines()[-1])["facts"]["path"])
        raise BackendError(f"cgroup {folder} cannot be made ({limit})")

    monkeypatch.setattr(cgroups, "make_memory_limit", refused)
    with (
        pytest.raises(BackendError, match="cannot be made"),
        journalled.limited(MIB, Journal(state / "n.jsonl")),
    ):
        raise AssertionError
    assert Path(seen[0]).parent == tmp_path / "unified"
    assert pending(state) == []
