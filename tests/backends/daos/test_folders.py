"""Directories of runs in a container, made and removed through libdfs: a double, or a real DAOS."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from fsmatrix.backends.access import DfsAccess
from fsmatrix.backends.daos import bindings
from fsmatrix.backends.daos.bindings import Folders
from fsmatrix.backends.daos.native import DaosDfs
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.player.ops import Kind
from tests.backends.daos_places import Place, Storage
from tests.backends.playing import op

pytestmark = [pytest.mark.daos, pytest.mark.needs("c player", "compiler")]


def of(storage: Storage) -> Folders:
    return Folders(storage.pool, storage.container, "", storage.library)


def test_a_run_has_its_directory_until_it_is_removed(dfs: Place) -> None:
    storage = dfs.storage
    access = DfsAccess(
        "daos-dfs", "a", {}, storage.pool, storage.container, prefix=f"/{dfs.name}",
        library=storage.library,
    )  # fmt: skip
    DaosDfs.make_run(access, "run")
    DaosDfs.make_run(access, "run")  # another node
    root = DaosDfs.run_root(access, "run")
    made = dfs.played(
        op(Kind.MKDIR, 0), op(Kind.CREATE, 1), op(Kind.WRITE, 1, 0, 4096), op(Kind.CLOSE, 1),
        names=(b"d", b"d/f"), root=root,
    )  # fmt: skip
    assert made.errors == 0
    there = dfs.played(op(Kind.STAT), names=(b"run/d/f",))
    assert there.errors == 0
    DaosDfs.remove_run(access, "run")
    DaosDfs.remove_run(access, "run")
    gone = dfs.played(op(Kind.STAT), names=(b"run",))
    assert gone.errors_by_errno == {"ENOENT": 1}


def test_what_is_wrong_is_named_and_nothing_is_made(dfs: Place) -> None:
    good = of(dfs.storage)
    with pytest.raises(BackendError, match=r"open pool no-such: .*-1005"):
        replace(good, pool="no-such").make("/a")
    for _ in range(2):
        with pytest.raises(BackendError, match=r"open container no-such of pool .*-1005"):
            replace(good, container="no-such").make("/a")
    with pytest.raises(BackendError, match="option library names the folder"):
        replace(good, library="/no/such/folder").make("/a")
    dfs.played(op(Kind.CREATE), names=(b"file",))
    with pytest.raises(BackendError, match="Not a directory"):
        good.make(f"/{dfs.name}/file/below")


def test_links_are_not_followed(doubled: Storage) -> None:
    assert doubled.folder is not None
    root = doubled.folder / "pool" / "container" / "root"
    (root / "kept").mkdir()
    (root / "link").symlink_to("kept")
    with pytest.raises(BackendError, match="Not a directory"):
        of(doubled).make("/link/below")
    with pytest.raises(BackendError, match="Not a directory"):
        of(doubled).remove("/link/below")
    of(doubled).remove("/link")
    assert [item.name for item in root.iterdir()] == ["kept"]
    assert list((root / "kept").iterdir()) == []


def test_an_agent_that_hangs_ends_the_child(
    doubled: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bindings, "MAKING", 1.0)
    doubled.faults(hung_agent=1)
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(BackendError, match="nothing happened for 1 s: daos_agent"):
        of(doubled).make("/a")
    assert set(psutil.Process().children(recursive=True)) <= before
