"""Which calls belong to a trace: those on what lies below its roots, however it is named."""

from __future__ import annotations

from pathlib import Path

from tests.traces.capture.texts import read, read_all, text


def test_only_below_the_root(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 open("/etc/passwd", O_RDONLY) = 3',
        '1 read(3, ""..., 100) = 100',
        "1 close(3) = 0",
        '1 stat("../r2/a", {...}) = 0',
        '1 stat("/r/../../etc", {...}) = 0',
        '1 stat("x/../../r/b", {st_mode=S_IFREG|0644, st_size=1, ...}) = 0',
        '1 stat(".", {st_mode=S_IFDIR|0755, ...}) = 0',
        '1 read(0, ""..., 100) = 100',
        "1 stat(0x7ffe, 0x1) = -1 EFAULT (Bad address)",
        '1 newfstatat(9, "x", 0x1, 0) = -1 EBADF (Bad file descriptor)',
        '1 chdir("/etc") = 0',
        '1 stat("b", {...}) = 0',
        '1 chdir("/r/sub") = 0',
        '1 stat("b", 0x1) = -1 ENOENT (No such file or directory)',
        f'1 stat("{"x/" * 2048}", 0x1) = -1 ENAMETOOLONG (File name too long)',
    )
    assert got.said == ["stat b", "stat sub/b = -2"]
    assert got.header.unseen == {
        "outside the root": 5,  # the close has no operation either, but is none of its own
        "the root itself": 1,
        "a descriptor that was not opened in the trace": 1,
        "a path that strace could not read": 1,
        "a path relative to a directory that is not known": 1,
        "a path that is too long": 1,
    }


def test_several_roots_have_names(tmp_path: Path) -> None:
    path = text(
        tmp_path / "text",
        ['1 rename("/a/data/x", "/b/data/y") = 0', '1 mkdir("/a/data", 0777) = 0'],
    )
    got = read_all(tmp_path, [path], ["/a/data", "/b/data"])
    assert got.said == ["rename data/x data-2/y", "mkdir data"]
