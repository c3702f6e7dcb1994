"""What statfs says that it does not know: never a number, never too few."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsmatrix.backends.local import provenance
from fsmatrix.backends.system import devices
from fsmatrix.backends.system.mounts import mount_of
from fsmatrix.backends.system.tools import Quota, parse_quota
from fsmatrix.suite.plan.estimate import short_of_room

ALL_ONES = 2**64 - 1
UNKNOWN = [(-1, -1), (ALL_ONES, ALL_ONES), (0, 0), (7, -1), (7, ALL_ONES)]


def statfs(monkeypatch: pytest.MonkeyPatch, path: Path, **fields: int) -> None:
    """What statvfs answers from now on: as for `path`, with some fields of its own."""
    names = [name for name in dir(os.statvfs(path)) if name.startswith("f_")]
    real = {name: getattr(os.statvfs(path), name) for name in names}
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(**real | fields))


def facts_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    numbers: Sequence[str] = ()
    monkeypatch.setattr(devices, "devices_of", lambda _mount: numbers)
    return provenance.filesystem_facts(path)


@pytest.mark.parametrize(("total", "free"), UNKNOWN)
def test_inodes_that_are_not_counted_refuse_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int
) -> None:
    statfs(monkeypatch, tmp_path, f_files=total, f_ffree=free, f_favail=free)
    room = provenance.space(tmp_path)
    assert room.inodes is None
    assert room.bytes is not None
    assert list(short_of_room(1, 10**9, room)) == []
    assert facts_of(tmp_path, monkeypatch)["inodes_free"] is None


@pytest.mark.parametrize(("total", "free"), UNKNOWN)
def test_bytes_that_are_not_counted_refuse_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int
) -> None:
    statfs(monkeypatch, tmp_path, f_blocks=total, f_bavail=free, f_bfree=free)
    room = provenance.space(tmp_path)
    assert room.bytes is None
    assert list(short_of_room(2**60, 0, room)) == []
    assert facts_of(tmp_path, monkeypatch)["free"] is None


def test_none_left_is_not_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statfs(monkeypatch, tmp_path, f_files=7, f_favail=0, f_blocks=9, f_bavail=0)
    room = provenance.space(tmp_path)
    assert (room.bytes, room.inodes) == (0, 0)
    assert len(list(short_of_room(1, 1, room))) == 2
    facts = facts_of(tmp_path, monkeypatch)
    assert (facts["inodes"], facts["inodes_free"], facts["free"]) == (7, 0, 0)


def test_a_quota_holds_where_statfs_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statfs(monkeypatch, tmp_path, f_files=-1, f_favail=-1)
    monkeypatch.setattr(provenance.tools, "user_quota", lambda *_: Quota(None, 3))
    assert provenance.space(tmp_path).inodes == 3


def test_a_quota_without_end_is_none() -> None:
    line = f"/dfuse 5 {ALL_ONES} {ALL_ONES} 0 7 {ALL_ONES} {ALL_ONES} 0\n"
    assert parse_quota(line) == {"/dfuse": Quota(None, None)}


def test_what_the_kernel_says_of_a_pseudo_file_system() -> None:
    """/proc counts nothing: 0 of 0."""
    assert mount_of("/proc").fstype == "proc"
    assert provenance.space("/proc") == provenance.Space(None, None, "statfs")
