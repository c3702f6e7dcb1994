"""Cache states: what was done, what the kernel shows, and that links are never followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsmatrix.backends import cache
from fsmatrix.backends.contract import CacheMethod
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import files

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "tree/deep").mkdir(parents=True)
    for name in ("big", "tree/one", "tree/deep/two"):
        (root / name).write_bytes(os.urandom(MIB))
    (root / "tree/empty").touch()
    return root


def resident(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return files.resident_pages(descriptor)
    finally:
        os.close(descriptor)


def needs_disk(root: Path) -> None:
    """On a file system in memory nothing can be cold."""
    evidence = cache.cold(root, ["big"], "fadvise")
    if evidence.state != "cold":
        pytest.skip("not in any registry: a temporary directory on a disk (this one is memory)")


def test_cold_and_warm(root: Path) -> None:
    needs_disk(root)
    evidence = cache.warm(root, ["big", "tree"])
    assert (evidence.state, evidence.method) == ("warm", "read")
    assert evidence.facts["files"] == 4
    assert evidence.facts["bytes"] == 3 * MIB
    assert evidence.facts["resident_after"] == 3 * MIB
    assert resident(root / "tree/deep/two") == MIB
    evidence = cache.cold(root, ["big", "tree"])
    assert (evidence.state, evidence.method) == ("cold", "fadvise")
    assert evidence.facts["resident_before"] == 3 * MIB
    assert evidence.facts["resident_after"] == 0
    assert evidence.facts["metadata_caches"] == "kept"
    assert resident(root / "big") == 0


def test_dirty_data_is_written_back_first(root: Path) -> None:
    needs_disk(root)
    (root / "big").write_bytes(b"y" * (4 * MIB))
    assert cache.cold(root, ["big"]).facts["resident_after"] == 0
    assert (root / "big").read_bytes() == b"y" * (4 * MIB)


def test_other_files_stay_in_memory(root: Path) -> None:
    needs_disk(root)
    cache.warm(root, ["."])
    cache.cold(root, ["big"])
    assert resident(root / "big") == 0
    assert resident(root / "tree/one") == MIB


def test_both_ways_of_counting_agree(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not files._has_cachestat():
        pytest.skip("not in any registry: a kernel with cachestat (6.5)")
    path = root / "big"
    os.truncate(path, MIB + 5000)  # not a whole number of pages
    for prepare in (cache.warm, cache.cold):
        prepare(root, ["big"])
        first = resident(path)
        with monkeypatch.context() as patch:
            patch.setattr(files, "_has_cachestat", lambda: False)
            assert files.residency_method() == "mincore"
            assert resident(path) == first
            patch.setattr(files, "_WINDOW", 256 * 1024)
            assert resident(path) == first


def test_file_that_does_not_tell(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_by_cachestat", lambda *_: None)
    monkeypatch.setattr(files, "_may_write", lambda *_: False)
    assert resident(root / "big") is None
    assert cache.cold(root, ["big"], "fadvise").state == "unknown"
    monkeypatch.setattr(cache, "may_drop", lambda: False)
    evidence = cache.cold(root, ["big"], "auto")
    assert (evidence.state, evidence.method) == ("unknown", "fadvise")
    assert evidence.facts["resident_after"] is None
    assert cache.warm(root, ["big"]).state == "warm"


def test_auto_falls_back_to_drop_caches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fadvise does nothing (some network file systems)."""
    dropped: list[Path] = []
    cache.warm(root, ["big"])
    monkeypatch.setattr(cache, "_drop", lambda *_: None)
    monkeypatch.setattr(cache, "may_drop", lambda: True)
    monkeypatch.setattr(cache, "drop_caches", dropped.append)
    evidence = cache.cold(root, ["big"])
    assert dropped[0] == root
    assert evidence.method == "drop_caches"
    assert evidence.state == "unknown"  # it is still resident, and that is said
    assert evidence.facts["metadata_caches"] == "dropped"


def test_drop_caches_needs_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "may_drop", lambda: False)
    with pytest.raises(BackendError, match="needs root"):
        cache.cold(root, ["big"], "drop_caches")


@pytest.mark.skipif(not cache.may_drop(), reason="needs root: may not write drop_caches")
def test_drop_caches(root: Path) -> None:
    needs_disk(root)
    cache.warm(root, ["tree"])
    evidence = cache.cold(root, ["tree"], "drop_caches")
    assert (evidence.state, evidence.method) == ("cold", "drop_caches")
    assert resident(root / "tree/one") == 0


@pytest.mark.parametrize("method", ["auto", "drop_caches"])
def test_names_are_not_brought_back_by_looking(
    root: Path, monkeypatch: pytest.MonkeyPatch, method: CacheMethod
) -> None:
    """Whoever opens the files to see whether their pages went has their names in memory again."""
    done: list[str] = []
    look = files.resident_pages
    monkeypatch.setattr(cache, "resident_pages", lambda file: done.append("look") or look(file))
    monkeypatch.setattr(cache, "_drop", lambda *_: None)
    monkeypatch.setattr(cache, "may_drop", lambda: True)
    monkeypatch.setattr(cache, "drop_caches", lambda _: done.append("drop"))
    cache.warm(root, ["big"])
    evidence = cache.cold(root, ["big"], method)
    assert evidence.facts["metadata_caches"] == "dropped"
    assert done[-3:] == ["drop", "look", "drop"]


def test_links_are_never_followed(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"x" * MIB)
    (root / "tree/link").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    os.mkfifo(root / "tree/fifo")
    evidence = cache.warm(root, ["tree"])
    assert evidence.facts["files"] == 3
    assert evidence.facts["not_regular"] == 2
    for name in ("tree/link", "folder", "folder/secret"):
        with pytest.raises(BackendError, match=name):
            cache.warm(root, [name])


@pytest.mark.parametrize("name", ["../outside", "tree/../../x", "/etc/passwd"])
def test_names_stay_below_the_root(root: Path, name: str) -> None:
    with pytest.raises(BackendError, match="is not a path below"):
        cache.cold(root, [name])


def test_missing_file_is_named(root: Path) -> None:
    with pytest.raises(BackendError, match="'no/such' does not exist"):
        cache.cold(root, ["big", "no/such"])


def test_many_files_are_written_back_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = root / "many"
    many.mkdir()
    for number in range(cache.MANY_FILES + 1):
        (many / str(number)).write_bytes(b"x" * 5000)
    monkeypatch.setattr(os, "fsync", lambda *_: pytest.fail("one fsync for each"))
    evidence = cache.cold(root, ["many"], "fadvise")
    assert evidence.facts["files"] == cache.MANY_FILES + 1
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    cache.warm(root, ["many", "tree"])
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_bypass_leaves_nothing_resident(root: Path) -> None:
    needs_disk(root)
    (root / "big").write_bytes(b"z" * MIB)
    evidence = cache.bypass(root, ["big"])
    assert evidence.facts["resident_after"] == 0
    assert evidence.state == ("bypass" if evidence.facts["o_direct"] else "unknown")
