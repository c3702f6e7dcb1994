"""A campaign file is fresh if it was made of the very set of runs that is there."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.cli.common import campaign_file
from fsmatrix.results.files import store as store_module
from fsmatrix.results.files.runfile import write_run
from fsmatrix.results.files.store import Store
from fsmatrix.results.sharing.bundle import Options, bundle
from tests.archives import unpack
from tests.results.hostile import record

OLD = (1_000_000_000, 1_000_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.create(tmp_path / "out")
    store.append([record(), record("ext4")])
    store.merge()
    return store


def targets(store: Store) -> list[str]:
    return sorted(open_campaign(campaign_file(store.directory))["target"].values.tolist())


def identity(store: Store) -> int:
    return (store.directory / "campaign.h5").stat().st_ino


def test_a_run_that_was_added_with_an_old_time(store: Store, tmp_path: Path) -> None:
    other = Store.create(tmp_path / "shard")
    path = other.write(record("btrfs"))
    os.utime(path, OLD)
    target = store.path(path.stem)
    target.parent.mkdir(exist_ok=True)
    shutil.copy2(path, target)
    assert targets(store) == ["btrfs", "ext4", "xfs"]


def test_a_run_that_was_removed(store: Store) -> None:
    store.path(record("ext4").run_id).unlink()
    assert targets(store) == ["xfs"]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_run_that_was_replaced_with_its_size_and_time_kept(store: Store, in_place: bool) -> None:
    path = store.path(record().run_id)
    before = path.stat()
    other = replace(record(), attachment="b")
    if in_place:
        aside = store.directory.parent / path.name
        write_run(aside, other)
        path.write_bytes(aside.read_bytes())
    else:
        write_run(path, other)
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    ds = open_campaign(campaign_file(store.directory))
    assert sorted(ds["attachment"].values.tolist()) == ["a", "b"]


def test_of_a_run_with_a_checksum_that_alone_is_read(store: Store) -> None:
    """Thousands of them are looked at in a command; whoever reads the run sees the damage."""
    path = store.path(record().run_id)
    before = store_module.contents_of([path], store.directory, "")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"?" + whole[101:])
    assert store_module.contents_of([path], store.directory, "") == before
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert store_module.contents_of([path], store.directory, "") != before


def test_a_run_without_checksum_that_changed(store: Store) -> None:
    path = store.path(record().run_id)
    path.write_bytes(path.read_bytes()[:-24])
    store.merge()
    made = identity(store)
    os.utime(path, OLD)  # another look, the same contents
    targets(store)
    assert identity(store) == made
    path.write_bytes(path.read_bytes()[:-100])
    os.utime(path, OLD)
    assert targets(store) == ["ext4"]


def test_the_campaign_itself_counts(store: Store) -> None:
    (store.directory / "campaign.json").write_text('{"name": "x"}')
    assert open_campaign(campaign_file(store.directory)).attrs["campaign"] == '{"name": "x"}'


def test_what_did_not_change_is_not_merged_again(store: Store) -> None:
    made = identity(store)
    for _ in range(2):
        targets(store)
    for path in store.files():
        os.utime(path, None)  # newer, but the same
    targets(store)
    assert identity(store) == made


def test_a_copied_store_is_not_merged_again(store: Store, tmp_path: Path) -> None:
    shutil.copytree(store.directory, tmp_path / "copy")
    copy = Store.open(tmp_path / "copy")
    made = identity(copy)
    assert targets(copy) == ["ext4", "xfs"]
    assert identity(copy) == made


@pytest.mark.parametrize("options", [Options(), Options(anonymise=True), Options(runs=False)])
def test_an_unpacked_bundle_is_not_merged_again(
    store: Store, tmp_path: Path, options: Options
) -> None:
    damaged = store.write(record("bad"))
    damaged.write_bytes(b"x")
    made = bundle(store.directory, tmp_path / "b.tar.gz", options)
    unpack(made.path, tmp_path / "there")
    inside = Store.open(tmp_path / "there" / made.folder)
    before = identity(inside)
    assert len(targets(inside)) == 2
    assert identity(inside) == before


def test_a_file_of_before_that_has_no_stamp_is_made_anew(store: Store) -> None:
    import h5py

    path = store.directory / "campaign.h5"
    with h5py.File(path, "r+") as file:
        for name in (store_module.LOOKS, store_module.CONTENTS):
            file.attrs.pop(name, None)
    made = identity(store)
    targets(store)
    assert identity(store) != made


@pytest.mark.parametrize("kind", ["link", "fifo", "text"])
def test_a_campaign_file_that_is_none_is_made_anew(store: Store, kind: str) -> None:
    path = store.directory / "campaign.h5"
    path.unlink()
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("x")
    assert targets(store) == ["ext4", "xfs"]
    assert path.is_file()
    assert not path.is_symlink()


def test_one_look_at_each_file_is_enough(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is opened where nothing changed: 10,000 files take a tenth of a second."""
    monkeypatch.setattr(store_module, "TICK", -(10**12))  # as if they had been written long ago
    store.merge()
    monkeypatch.setattr(store_module, "contents_of", None)
    made = identity(store)
    assert targets(store) == ["ext4", "xfs"]
    assert identity(store) == made
