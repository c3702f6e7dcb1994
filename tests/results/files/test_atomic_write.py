"""Files written aside by a process that was killed: removed by the next run, and no others."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fsmatrix.backends.journal.journal import Journal
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import write_whole
from fsmatrix.results.files.store import Store

KILLED = """
import os, signal, sys
from pathlib import Path
from fsmatrix.results.files.safefile import write_whole

Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_whole(Path(sys.argv[1]), b"half")
"""


def killed_while_writing(path: Path) -> list[Path]:
    """What a process leaves that was about to rename what is to be `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = set(path.parent.iterdir())
    ran = subprocess.run([sys.executable, "-P", "-c", KILLED, str(path)], check=False)
    assert ran.returncode == -signal.SIGKILL
    return sorted(set(path.parent.iterdir()) - before)


def test_what_cannot_be_replaced_is_named(tmp_path: Path) -> None:
    """Nobody knows the name that was written aside."""
    store = Store.create(tmp_path / "out")
    (store.directory / "campaign.h5").mkdir()
    with pytest.raises(IsADirectoryError) as error:
        store.merge()
    assert error.value.filename == str(store.directory / "campaign.h5")
    assert [path.name for path in store.directory.glob(".*")] == []


def test_what_killed_writers_left_in_a_store_is_removed(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "out")
    places = ("campaign.json", "engines.json", "journal/session-x-1.json", "runs/9a/9abc.h5")
    left = [file for name in places for file in killed_while_writing(store.directory / name)]
    assert len(left) == len(places)
    host = os.uname().nodename
    kept = [
        store.directory / f".campaign.json.{host}.{os.getpid()}.tmp",  # its writer lives
        store.directory / "runs/9a/.x.h5.elsewhere.4194000.tmp",  # of another host
        store.directory / "runs/9a/.notes",
        store.directory / f"runs/9a/x.h5.{host}.4194000.tmp",
    ]
    for path in kept:
        path.write_text("keep")
    link = store.directory / f".link.{host}.4194000.tmp"
    link.symlink_to(kept[0])
    assert sorted(store.remove_abandoned()) == sorted(left)
    assert [path.read_text() for path in kept] == ["keep"] * 4
    assert link.is_symlink()
    assert store.remove_abandoned() == []


def test_a_full_disk_names_the_file_that_was_being_replaced(tmp_path: Path) -> None:
    """`run` printed a traceback when the disk was full as it wrote the report."""
    report = tmp_path / "report.html"

    def write() -> None:
        with safefile.replacing(report) as part:
            part.write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as write(2) gives it

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert caught.value.filename == str(report)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "out")
    (left,) = killed_while_writing(tmp_path / "theirs" / "x")
    (store.runs / "9a").symlink_to(left.parent)
    assert store.remove_abandoned() == []
    assert left.exists()


def test_writers_name_what_they_write_aside(tmp_path: Path) -> None:
    name = f".x.h5.{os.uname().nodename}.{os.getpid()}.tmp"
    assert safefile.beside(tmp_path / "x.h5") == tmp_path / name


@pytest.mark.root
def test_a_full_disk_is_named_by_the_file_that_did_not_fit(tmp_path: Path) -> None:
    """write(2) and fsync(2) name no file; without a name an error ends in a traceback."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "test", str(place)], check=True)
    try:
        journal = Journal(place / "journal" / "x.jsonl")
        entry = journal.begin("folder", path="x")
        (place / "full").write_bytes(bytes(44 << 10))
        writers: dict[Path, Callable[[Path], object]] = {
            place / "whole": lambda path: write_whole(path, bytes(32 << 10)),
            place / "new": lambda path: safefile.create_note(path, bytes(32 << 10)),
            journal.path: lambda _: journal.confirm(entry, much="x" * (32 << 10)),
        }
        for path, write in writers.items():
            with pytest.raises(OSError, match="No space left") as caught:
                write(path)
            assert caught.value.filename == str(path)
    finally:
        subprocess.run(["umount", str(place)], check=True)
