"""The journal: what a crash leaves is known, and only that is taken down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import journal as module
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import Journal, make_tree, release_tree, undo_pending
from fsmatrix.results.process import start_of

TAG = "0123456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def journal(folder: Path) -> Journal:
    return Journal(folder / "host.jsonl")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A user's directory with sentinels that nothing may touch."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "sentinel").write_text("keep")
    (place / "folder").mkdir()
    (place / "folder/sentinel").write_text("keep")
    return place


def keeps_sentinels(place: Path) -> bool:
    return all((place / name).read_text() == "keep" for name in ("sentinel", "folder/sentinel"))


def rewrite(journal: Journal, **changes: Any) -> None:
    """Turn our begin lines into those of another process, boot or host."""
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    for line in lines:
        if line["event"] == "begin":
            line.update(changes)
    journal.path.write_text("".join(json.dumps(line) + "\n" for line in lines))


# -- the file ------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "confirm", "end", "tear"]), st.integers(0, 9))))
def test_pending_is_what_has_no_end(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int]]
) -> None:
    journal = Journal(tmp_path_factory.mktemp("j") / "a.jsonl")
    known, open_ = [], {}
    for action, number in actions:
        if action == "begin":
            entry = journal.begin("tree", path=f"/x/{number}", tag="t")
            known.append(entry)
            open_[entry.id] = dict(entry.facts)
        elif action == "tear":
            with journal.path.open("a") as file:
                file.write('{"event": "begin", "id": "to')
        elif known:
            entry = known[number % len(known)]
            if action == "confirm":
                journal.confirm(entry, extra=number)
                if entry.id in open_:
                    open_[entry.id]["extra"] = number
            else:
                journal.end(entry)
                open_.pop(entry.id, None)
    assert {entry.id: dict(entry.facts) for entry in journal.pending()} == open_


def test_pending_by_kind_and_facts(journal: Journal) -> None:
    first = journal.begin("image", path="/a", target="one")
    journal.begin("image", path="/b", target="two")
    journal.begin("loop", image="/a")
    assert journal.pending("image", target="one") == [first]
    assert [entry.facts["path"] for entry in journal.pending("image")] == ["/a", "/b"]
    assert journal.confirm(first, inode=7).facts["inode"] == 7
    assert journal.pending("image", inode=7)[0].id == first.id
    assert first.is_own


def test_intent_is_on_the_disk_before_the_action(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    journal.begin("tree", path="/x", tag="t")
    assert synced == [str(journal.path), str(journal.path.parent)]


def test_processes_share_a_journal(journal: Journal) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from fsmatrix.backends.journal.journal import Journal\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "for n in range(50): j.end(j.begin('tree', path=f'/p/{n}', tag='t' * 500))\n"
        "j.begin('tree', path='/last', tag='t')"
    )
    argv = [sys.executable, "-P", "-c", code, str(journal.path)]
    processes = [subprocess.Popen(argv) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert [entry.facts["path"] for entry in journal.pending()] == ["/last"] * 3


# -- undoing trees -------------------------------------------------------------------------
def test_tree_of_a_crash_is_removed_and_links_are_not_followed(
    journal: Journal, folder: Path, place: Path
) -> None:
    made_tree = make_tree(place, TAG, journal)
    deep = made_tree / "data/a/b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    (deep / "link").symlink_to(place / "folder")
    (made_tree / "data/up").symlink_to("../../sentinel")
    rewrite(journal, pid=2**22 - 1)
    assert undo_pending(folder) == [f"removed directory {made_tree}"]
    assert not made_tree.exists()
    assert keeps_sentinels(place)
    assert undo_pending(folder) == []


@pytest.mark.parametrize("marker", [None, "", "not json", "[]", '{"tag": "other"}'])
def test_directory_that_is_not_ours_stays(
    journal: Journal, folder: Path, place: Path, marker: str | None
) -> None:
    journal.begin("tree", path=str(place / "folder"), tag=TAG)
    if marker is not None:
        (place / "folder" / tree.MARKER).write_text(marker)
    assert undo_pending(folder)[0].startswith("left alone: ")
    assert keeps_sentinels(place)
    assert len(journal.pending()) == 1


def test_marker_that_is_a_link_does_not_count(
    journal: Journal, folder: Path, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps({"tag": TAG}))
    (place / "folder" / tree.MARKER).symlink_to(tmp_path / "elsewhere")
    journal.begin("tree", path=str(place / "folder"), tag=TAG)
    assert "has no marker" in undo_pending(folder)[0]
    assert keeps_sentinels(place)


def test_link_in_place_of_a_tree_is_not_followed(
    journal: Journal, folder: Path, place: Path
) -> None:
    made_tree = make_tree(place, TAG, journal)
    moved = made_tree.rename(place / "moved")
    made_tree.symlink_to(moved)
    assert undo_pending(folder)[0].startswith("left alone: ")
    assert (moved / tree.MARKER).exists()


def test_crash_between_making_and_marking(journal: Journal, folder: Path, place: Path) -> None:
    path = place / f"fsmatrix-{TAG}"
    journal.begin("tree", path=str(path), tag=TAG)
    path.mkdir()
    assert undo_pending(folder) == [f"removed directory {path}"]
    assert keeps_sentinels(place)


def test_unmarked_directory_with_something_in_it_stays(
    journal: Journal, folder: Path, place: Path
) -> None:
    path = place / f"fsmatrix-{TAG}"
    journal.begin("tree", path=str(path), tag=TAG)
    path.mkdir()
    (path / "precious").write_text("keep")
    assert undo_pending(folder)[0].startswith("left alone: ")
    assert (path / "precious").exists()


def test_interrupted_removal_can_be_repeated(
    journal: Journal, folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_tree = make_tree(place, TAG, journal)
    for number in range(5):
        (made_tree / f"data/{number}").write_text("x")
    real, calls = os.unlink, []

    def unlink(name: str, **where: Any) -> None:
        calls.append(name)
        if len(calls) == 3:
            raise OSError(5, "Input/output error")
        real(name, **where)

    monkeypatch.setattr(os, "unlink", unlink)
    assert "Input/output error" in undo_pending(folder)[0]
    assert undo_pending(folder) == [f"removed directory {made_tree}"]
    assert keeps_sentinels(place)


def test_trees_never_take_over_a_directory(journal: Journal, place: Path) -> None:
    first = make_tree(place, TAG, journal)
    second = make_tree(place, TAG, journal)
    assert first != second
    release_tree(second, TAG, journal)
    assert first.is_dir()
    assert [entry.facts["path"] for entry in journal.pending()] == [str(first)]


def test_a_tree_whose_place_is_away_is_kept_in_the_journal(
    journal: Journal, folder: Path, place: Path
) -> None:
    """A target that was moved, or is unmounted: its tree comes back with it."""
    made_tree = make_tree(place, TAG, journal)
    away = place.rename(place.with_name("away"))
    with pytest.raises(BackendError, match="is not there any more; was it moved"):
        release_tree(made_tree, TAG, journal)
    rewrite(journal, pid=2**22 - 1)
    assert "was it moved" in undo_pending(folder)[0]
    away.rename(place)
    assert undo_pending(folder) == [f"removed directory {made_tree}"]
    assert keeps_sentinels(place)


# -- who may undo --------------------------------------------------------------------------
def test_living_process_is_left_alone(journal: Journal, folder: Path, place: Path) -> None:
    made_tree = make_tree(place, TAG, journal)
    child = subprocess.Popen(["sleep", "60"])
    try:
        start = start_of(child.pid)
        rewrite(journal, pid=child.pid, process_start=start)
        assert undo_pending(folder) == []
        assert made_tree.is_dir()
        rewrite(journal, pid=child.pid, process_start=start + 1)  # the pid was used again
        assert undo_pending(folder) == [f"removed directory {made_tree}"]
    finally:
        child.kill()
        child.wait()


def test_other_host_is_left_alone(journal: Journal, folder: Path, place: Path) -> None:
    made_tree = make_tree(place, TAG, journal)
    rewrite(journal, host="elsewhere", boot_id="another")
    assert "belongs to host elsewhere" in undo_pending(folder)[0]
    assert made_tree.is_dir()
    rewrite(journal, host="elsewhere", boot_id=module.boot_id())  # a virtual node of this kernel
    assert undo_pending(folder) == [f"removed directory {made_tree}"]


def test_after_a_reboot_only_files_are_undone(
    journal: Journal, folder: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_tree = make_tree(place, TAG, journal)
    journal.begin("mount", path="/", source="/dev/root")
    journal.begin("loop", image="/x.img", inode=1, filesystem=1)
    rewrite(journal, boot_id="before")
    monkeypatch.setattr(
        "fsmatrix.backends.system.mounts.unmount", lambda *_: pytest.fail("tried to unmount")
    )
    assert undo_pending(folder) == [f"removed directory {made_tree}"]
    assert journal.pending() == []


def test_mount_of_another_source_stays(journal: Journal, folder: Path) -> None:
    journal.begin("mount", path="/proc", source="/dev/loop99")
    assert "left alone: /proc: proc is mounted there" in undo_pending(folder)[0]
    assert Path("/proc/self").exists()


def test_image_is_removed_by_inode_only(journal: Journal, folder: Path, place: Path) -> None:
    state = folder.parent / "state"
    state.mkdir()
    image = state / f"{TAG}.img"
    image.write_text("mine")
    facts = image.stat()
    journal.begin(
        "image", path=str(image), folder=str(state), inode=facts.st_ino, filesystem=facts.st_dev
    )
    image.rename(state / "kept.img")
    image.write_text("somebody else's")
    assert "is another file" in undo_pending(folder)[0]
    assert image.exists()
    image.unlink()
    (state / "kept.img").rename(image)
    assert undo_pending(folder) == [f"removed image {image}"]
    assert keeps_sentinels(place)


def test_image_without_confirmation_or_outside_its_folder_stays(
    journal: Journal, folder: Path, place: Path
) -> None:
    path = place / "sentinel"
    journal.begin("image", path=str(path), folder=str(place))
    journal.begin("image", path=str(path), folder="/elsewhere", inode=path.stat().st_ino)
    assert [text.startswith("left alone: ") for text in undo_pending(folder)] == [True, True]
    assert keeps_sentinels(place)


def test_unknown_kind_is_left_alone(journal: Journal, folder: Path) -> None:
    journal.begin("pool", path="p")
    assert "does not know how to undo it" in undo_pending(folder)[0]


def test_no_journals(tmp_path: Path) -> None:
    assert undo_pending(tmp_path / "none") == []
