"""Journals that somebody forged or copied: nothing is undone on their word alone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import journal, tree
from fsmatrix.backends.journal import journal as module
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.journal.proof import FILE, KINDS, VARIABLE, identity
from fsmatrix.backends.journal.tree import marker_of
from fsmatrix.backends.local import images, own_mounts
from fsmatrix.backends.system import devices, mounts
from tests.backends.journal.stores import TAG, Store, left

WHY_NOT = own_mounts.root_refusal() or images.loop_refusal()
mounts_here = [pytest.mark.root, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "can")]


# -- what others own -----------------------------------------------------------------------
@pytest.fixture
def their_tmpfs(theirs: Path) -> Iterator[Path]:
    point = theirs / "mnt"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "fsmatrix-theirs", str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)  # it is still there


@pytest.fixture
def their_loop(theirs: Path) -> Iterator[devices.Backing]:
    image = theirs / f"{TAG}.img"
    image.write_bytes(bytes(1 << 20))
    argv = ["losetup", "--find", "--show", str(image)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    behind = devices.loop_backing(device)
    assert behind is not None
    yield behind
    assert devices.loop_backing(device) == behind
    subprocess.run(["losetup", "--detach", device], check=True)


class TestMounts:
    pytestmark = mounts_here

    def test_foreign_tmpfs_stays(self, store: Store, their_tmpfs: Path) -> None:
        store.forge("mount", path=str(their_tmpfs), source="fsmatrix-theirs", fstype="tmpfs")
        assert left(store.undo())
        assert mounts.mounted_at(their_tmpfs) is not None

    def test_foreign_tmpfs_inside_our_state_stays(self, store: Store) -> None:
        point = store.state / "t/mnt"
        point.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "somebody", str(point)], check=True)
        try:
            store.forge("mount", path=str(point), source="somebody", fstype="tmpfs")
            assert left(store.undo())
            assert mounts.mounted_at(point) is not None
        finally:
            subprocess.run(["umount", str(point)], check=True)

    def test_foreign_tmpfs_behind_a_link_stays(self, store: Store, their_tmpfs: Path) -> None:
        (store.state / "t/mnt").symlink_to(their_tmpfs)
        for path in (store.state / "t/mnt", store.state / "../../theirs/mnt"):
            store.forge("mount", path=str(path), source="fsmatrix-theirs", fstype="tmpfs")
        store.undo()
        assert mounts.mounted_at(their_tmpfs) is not None

    def test_foreign_loop_stays(self, store: Store, their_loop: devices.Backing) -> None:
        numbers = {"inode": their_loop.inode, "filesystem": their_loop.filesystem}
        store.forge("loop", image=their_loop.file, device=their_loop.device, **numbers)
        assert left(store.undo())

    def test_foreign_loop_under_a_name_of_ours_stays(
        self, store: Store, their_loop: devices.Backing
    ) -> None:
        numbers = {"inode": their_loop.inode, "filesystem": their_loop.filesystem}
        store.forge("loop", image=str(store.state / "t" / f"{TAG}.img"), **numbers)
        assert left(store.undo())

    def test_foreign_device_keeps_its_signature(
        self, store: Store, their_loop: devices.Backing
    ) -> None:
        device = their_loop.device
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        (found,) = devices.signatures(device)
        store.forge("device", device=device, uuid=found.uuid, target="t")
        assert left(store.undo())
        assert left(store.undo(devices={"t": device}))  # a forged plan names it, too
        assert left(store.undo(devices={"other": device}))
        assert devices.signatures(device) == [found]

    def test_our_file_system_on_a_named_device_goes(
        self, store: Store, their_loop: devices.Backing
    ) -> None:
        uuid, device = store.journal.identity.new_uuid(), their_loop.device
        subprocess.run(["mkfs.ext4", "-q", "-U", uuid, device], check=True)
        store.forge("device", device=device, uuid=uuid, target="t")
        assert left(store.undo())  # the plan does not name it
        assert store.undo(devices={"t": device}) == [f"erased our file system on {device}"]


# -- files ---------------------------------------------------------------------------------
def test_foreign_file_is_no_image(store: Store, theirs: Path) -> None:
    path, facts = theirs / "file", (theirs / "file").stat()
    numbers = {"inode": facts.st_ino, "filesystem": facts.st_dev}
    store.forge("image", path=str(path), folder=str(theirs), target="t", **numbers)
    assert left(store.undo())
    assert left(store.undo(images={"other": str(path)}))
    assert path.read_text() == "keep"
    assert store.undo(images={"t": str(path)}) == [f"removed image {path}"]  # its user named it


def test_an_image_is_known_by_the_path_that_its_variable_gives_here(
    store: Store, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, facts = theirs / "file", (theirs / "file").stat()
    numbers = {"inode": facts.st_ino, "filesystem": facts.st_dev}
    store.forge("image", path=str(path), folder=str(theirs), target="t", **numbers)
    monkeypatch.delenv("SCRATCH", raising=False)
    assert left(store.undo(images={"t": "$SCRATCH/file"}))  # not set here
    monkeypatch.setenv("SCRATCH", "/var")
    assert left(store.undo(images={"t": "$SCRATCH/file"}))
    monkeypatch.setenv("SCRATCH", str(theirs))
    assert store.undo(images={"t": "$SCRATCH/file"}) == [f"removed image {path}"]


def test_foreign_file_by_a_link_or_dots_is_no_image(store: Store, theirs: Path) -> None:
    facts = (theirs / "file").stat()
    (theirs / "file").rename(theirs / f"{TAG}.img")
    (store.state / "link").symlink_to(theirs)
    numbers = {"inode": facts.st_ino, "filesystem": facts.st_dev}
    for folder in (store.state / "link", store.state / "../../theirs"):
        path = folder / f"{TAG}.img"
        store.forge("image", path=str(path), folder=str(path.parent), target="t", **numbers)
    assert all(line.startswith("left alone: ") for line in store.undo())
    assert (theirs / f"{TAG}.img").read_text() == "keep"


@pytest.mark.parametrize("kind", ["folder", "tree"])
@pytest.mark.parametrize("name", ["empty", "fsmatrix-x", "mnt"])
def test_foreign_empty_directory_stays(store: Store, theirs: Path, kind: str, name: str) -> None:
    (theirs / name).mkdir()
    store.forge(kind, path=str(theirs / name), tag=name.removeprefix("fsmatrix-"))
    assert left(store.undo())
    assert (theirs / name).is_dir()


def test_tree_of_another_store_stays(store: Store, theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o755)
    other = Store(tmp_path.resolve() / "other")
    live = journal.make_tree(theirs, TAG, other.journal)
    store.forge("tree", path=str(live), tag=TAG)
    assert "another results directory" in store.undo()[0]
    assert live.is_dir()


def test_marker_without_a_store_is_no_proof(store: Store, theirs: Path) -> None:
    (theirs / tree.MARKER).write_bytes(marker_of(TAG))
    store.forge("tree", path=str(theirs), tag=TAG)
    assert left(store.undo())
    assert (theirs / "file").read_text() == "keep"


# -- copies --------------------------------------------------------------------------------
def test_copied_store_does_not_touch_the_originals_live_tree(store: Store, theirs: Path) -> None:
    live = journal.make_tree(theirs, TAG, store.journal)
    copy = store.base.with_name("out2")
    shutil.copytree(store.base, copy)
    with pytest.raises(BackendError, match="moved or copied"):
        undo_pending(copy / "journal")
    assert live.is_dir()
    assert Journal(copy / "journal/host.jsonl").pending() == []
    for name in ("journal", "state"):  # as the message says
        shutil.rmtree(copy / name)
    assert undo_pending(copy / "journal") == []


def test_copy_at_the_place_of_the_original_is_another_store(store: Store, theirs: Path) -> None:
    """Containers see different directories under one path."""
    live = journal.make_tree(theirs, TAG, store.journal)
    store.base.rename(store.base.with_name("away"))
    shutil.copytree(store.base.with_name("away"), store.base)
    with pytest.raises(BackendError, match="moved or copied"):
        undo_pending(store.folder)
    assert live.is_dir()


def test_moved_store_says_what_to_do_and_works_again_at_its_place(
    store: Store, theirs: Path
) -> None:
    store.forge("tree", path=str(journal.make_tree(theirs, TAG, store.journal)), tag=TAG)
    lines = store.journal.path.read_text().splitlines()
    store.journal.path.write_text(lines[-1] + "\n")
    away = store.base.rename(store.base.with_name("away"))
    with pytest.raises(BackendError, match=f"written in {store.folder}.*move it back"):
        undo_pending(away / "journal")
    away.rename(store.base)
    assert undo_pending(store.folder) == [f"removed directory {theirs}/fsmatrix-{TAG}"]


def test_after_a_reboot_a_copy_is_refused_too(store: Store, theirs: Path) -> None:
    live = journal.make_tree(theirs, TAG, store.journal)
    text = store.journal.path.read_text()
    store.journal.path.write_text(text.replace(module.boot_id(), "before"))
    copy = shutil.copytree(store.base, store.base.with_name("out2"))
    with pytest.raises(BackendError, match="moved or copied"):
        undo_pending(copy / "journal")
    assert live.is_dir()
    assert store.undo() == [f"removed directory {live}"]


# -- owners and forms ----------------------------------------------------------------------
@pytest.mark.parametrize("name", ["host.jsonl", FILE])
def test_notes_that_others_can_write_are_refused(store: Store, theirs: Path, name: str) -> None:
    store.forge("tree", path=str(journal.make_tree(theirs, TAG, store.journal)), tag=TAG)
    (store.folder / name).chmod(0o664)
    with pytest.raises(BackendError, match="can be written by others"):
        undo_pending(store.folder)
    assert (theirs / f"fsmatrix-{TAG}").is_dir()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
FACTS = ("path", "folder", "tag", "source", "image", "inode", "filesystem", "device", "uuid",
         "target", "argv", "fstype", "prefix", "name", "label")  # fmt: skip


def _lines(folder: Path) -> st.SearchStrategy[bytes]:
    fields = {
        "event": "begin", "id": "a", "kind": "tree", "facts": {}, "host": socket.gethostname(),
        "boot_id": module.boot_id(), "pid": 2**22 - 1, "process_start": 7, "time": 1.0,
        "store": identity(folder).store, "home": str(folder),
    }  # fmt: skip
    known = st.fixed_dictionaries({}, optional=dict.fromkeys(fields, VALUES))
    facts = st.dictionaries(st.sampled_from(FACTS), VALUES)
    kinds = st.sampled_from(KINDS.names())
    return st.one_of(
        st.binary(max_size=40),
        VALUES.map(lambda value: json.dumps(value).encode()),
        known.map(lambda changed: json.dumps({**fields, **changed}).encode()),
        st.tuples(kinds, facts).map(
            lambda two: json.dumps({**fields, "kind": two[0], "facts": two[1]}).encode()
        ),
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_malformed_lines_are_said_and_the_sound_ones_undone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    base = tmp_path_factory.mktemp("lines")
    (base / "out").mkdir(mode=0o755)
    store = Store((base / "out").resolve())
    store.forge("tree", path=str(journal.make_tree(base, TAG, store.journal)), tag=TAG)
    kept = store.journal.path.read_bytes().splitlines()[-1]
    bad = data.draw(st.lists(_lines(store.folder), max_size=4))
    store.journal.path.write_bytes(b"\n".join([*bad, kept, *bad, b""]))
    said = undo_pending(store.folder)
    assert f"removed directory {base.resolve()}/fsmatrix-{TAG}" in said
    assert all(line.isprintable() for line in said)
    assert sorted(os.listdir(base)) == ["out"]


@pytest.mark.parametrize(
    "line",
    ["[1, 2]", "nonsense", '{"event": "begin", "id": 3}', '{"event": "begin", "id": "x"}',
     '{"event": "confirm", "id": "x", "facts": 7}', '{"id": {}}', "[" * 100_000],
)  # fmt: skip
def test_malformed_line_is_named(store: Store, line: str) -> None:
    store.folder.mkdir(exist_ok=True)
    store.journal.path.write_text(f"\n{line}\n")
    (said,) = store.undo()
    assert said.startswith(f"left alone: {store.journal.path}:2: ")


def test_environment_of_a_process_is_proof(store: Store) -> None:
    from fsmatrix.backends.journal.proof import carries

    own = store.journal.identity
    with subprocess.Popen(["sleep", "60"], env=own.environment) as ours:
        assert carries(ours.pid, own.store)
        ours.kill()
    with subprocess.Popen(["sleep", "60"], env={VARIABLE: "0" * 32}) as other:
        assert not carries(other.pid, own.store)
        other.kill()
