"""What files were at the start, learned from what a program did to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsmatrix.traces.capture import processes, strace
from fsmatrix.traces.capture.processes import DIRECTORY, LOOSE
from fsmatrix.traces.trace_model import Roots
from fsmatrix.traces.tracefile import opened, writing
from tests.traces.capture.texts import read, text

LEARNED = {
    "stat": (['1 stat("f", {st_mode=S_IFREG|0644, st_size=9, ...}) = 0'], 9),
    "empty": (['1 stat("f", {st_mode=S_IFREG|0644, st_size=0, ...}) = 0'], 0),
    "a link": (['1 lstat("f", {st_mode=S_IFLNK|0777, st_size=9, ...}) = 0'], 0),
    "opened only": (['1 open("f", O_RDWR) = 3'], 0),
    "highest byte read": (
        ['1 open("f", O_RDWR) = 3', '1 pread64(3, ""..., 4, 100) = 4', '1 read(3, ""..., 8) = 8'],
        104,
    ),
    "read to the end": (['1 open("f", O_RDWR) = 3', '1 read(3, ""..., 100) = 30'], 30),
    "a read that a signal cut short": (
        ['1 open("f", O_RDWR) = 3', '1 read(3, ""..., 100) = 30', '1 read(3, ""..., 100) = 100'],
        130,
    ),
    "end by lseek": (['1 open("f", O_RDWR) = 3', "1 lseek(3, 0, SEEK_END) = 77"], 77),
    "stat after it was made longer": (
        [
            '1 open("f", O_RDWR) = 3',
            "1 fstat(3, {st_mode=S_IFREG|0644, st_size=9, ...}) = 0",
            '1 pwrite64(3, ""..., 10, 90) = 10',
            "1 fstat(3, {st_mode=S_IFREG|0644, st_size=100, ...}) = 0",
        ],
        9,
    ),
    "longer than what was written": (
        [
            '1 open("f", O_RDWR) = 3',
            '1 write(3, ""..., 10) = 10',
            "1 fstat(3, {st_mode=S_IFREG|0644, st_size=100, ...}) = 0",
        ],
        100,
    ),
    "not longer than what was written": (
        [
            '1 open("f", O_RDWR) = 3',
            '1 write(3, ""..., 10) = 10',
            "1 fstat(3, {st_mode=S_IFREG|0644, st_size=10, ...}) = 0",
        ],
        0,
    ),
    "read back": (
        [
            '1 open("f", O_RDWR|O_CREAT, 0666) = 3',
            '1 write(3, ""..., 10) = 10',
            '1 pread64(3, ""..., 10, 0) = 10',
            '1 unlink("f") = 0',
        ],
        None,
    ),
    "opened with O_CREAT, but it has bytes": (
        ['1 open("f", O_RDWR|O_CREAT, 0666) = 3', '1 read(3, ""..., 10) = 10'],
        10,
    ),
    "emptied": (
        [
            '1 open("f", O_RDWR|O_TRUNC) = 3',
            '1 write(3, ""..., 10) = 10',
            '1 pread64(3, ""..., 10, 0) = 10',
        ],
        0,
    ),
    "not there": (['1 stat("f", 0x1) = -1 ENOENT (No such file or directory)'], None),
    "not allowed": (['1 stat("f", 0x1) = -1 EACCES (Permission denied)'], None),
    "in the way": (['1 mkdir("f", 0777) = -1 EEXIST (File exists)'], 0),
    "removed": (['1 unlink("f") = 0', '1 unlink("f") = -1 ENOENT (No such file)'], 0),
    "renamed away": (['1 rename("f", "g") = 0'], 0),
    "renamed, then read": (
        [
            '1 rename("f", "g") = 0',
            '1 open("g", O_RDONLY) = 3',
            '1 read(3, ""..., 100) = 60',
        ],
        60,
    ),
}


@pytest.mark.parametrize("name", LEARNED)
def test_from_the_calls(tmp_path: Path, name: str) -> None:
    lines, size = LEARNED[name]
    got = read(tmp_path, *lines)
    assert got.names == ({} if size is None else {"f": size})
    assert got.header.facts["sizes_from"] == "the calls themselves"


def test_what_others_lie_in_is_a_directory(tmp_path: Path) -> None:
    out = tmp_path / "t.h5"
    path = text(
        tmp_path / "text",
        ['1 access("a", F_OK) = 0', '1 open("a/b/c", O_RDONLY) = 3', '1 access("a/d", F_OK) = 0'],
    )
    with writing(out) as writer:
        writer.finish(strace.read([path], writer, ["/r"], folder="/r"))
    with opened(out) as trace:
        assert list(trace.files.names()) == [b"a", b"a/b/c", b"a/d"]
        assert trace.files.directory.tolist() == [True, False, False]
        assert trace.files.size.tolist() == [0, 0, 0]


def test_from_a_look_before(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 open("there", O_RDWR|O_CREAT, 0666) = 3',
        '1 open("new", O_RDWR|O_CREAT, 0666) = 4',
        '1 open("d/e", O_RDONLY|O_DIRECTORY) = 5',
        '1 stat("link/x", {st_mode=S_IFREG|0644, st_size=6, ...}) = 0',
        '1 rename("/other", "made") = 0',
        '1 stat("made", {st_mode=S_IFREG|0644, st_size=8, ...}) = 0',
        sizes={b"there": 5, b"d": DIRECTORY, b"d/e": DIRECTORY, b"link": LOOSE},
    )
    assert got.names == {"there": 5, "d/e": 0, "link/x": 6, "made": 8}
    assert got.header.facts["sizes_from"] == "a look before the start"


def test_a_look(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / os.fsdecode(b"\xff")).write_bytes(bytes(7))
    (tmp_path / "file").write_bytes(bytes(3))
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-d").symlink_to("d")
    (tmp_path / "to-none").symlink_to("none")
    os.mkfifo(tmp_path / "fifo")
    root = os.fsencode(tmp_path)
    look = {
        b"d": DIRECTORY, b"d/\xff": 7, b"file": 3, b"to-file": 3, b"to-d": LOOSE, b"fifo": 0,
    }  # fmt: skip
    assert processes.found_sizes(Roots([root])) == look | {b"to-none": LOOSE}
    two = processes.found_sizes(Roots([root + b"/d", b"/none"]))
    assert two == {b"d": DIRECTORY, b"d/\xff": 7, b"none": LOOSE}
    assert processes.found_sizes(Roots([root]), most=6) is None
