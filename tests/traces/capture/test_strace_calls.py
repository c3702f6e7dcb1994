"""What calls mean: texts of strace whose operations are known, a group of calls at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.backends.player.ops import Flag
from tests.traces.capture.texts import read

OPEN = '1 openat(AT_FDCWD, "a", O_RDWR|O_CREAT, 0666) = 3'


def test_reads_and_writes_move_the_offset(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 write(3, ""..., 100) = 100',
        '1 write(3, "ab, \\"c) = 5", 50) = 20',
        "1 lseek(3, 10, SEEK_SET) = 10",
        '1 read(3, ""..., 4096) = 110',
        '1 read(3, "", 4096) = 0',
        '1 pwrite64(3, ""..., 7, 1000) = 7',
        '1 pread64(3, ""..., 8, 1000) = 7',
        "1 lseek(3, -7, SEEK_END) = 1000",
        "1 read(3, 0x7ffe, 5) = -1 EIO (Input/output error)",
        '1 read(3, ""..., 7) = 7',
        "1 close(3) = 0",
    )
    assert got.said == [
        "create a",
        "write a 0+100 = 100",
        "write a 100+50 = 20",
        "read a 10+4096 = 110",
        "read a 120+4096 = 0",
        "write a 1000+7 = 7",
        "read a 1000+8 = 7",
        "read a 1000+5 = -5",
        "read a 1000+7 = 7",
        "close a",
    ]
    assert got.names == {}  # it was not there


def test_programs_of_32_bits(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        "[ Process PID=1 runs in 32 bit mode. ]",
        OPEN,
        "1 _llseek(3, 5000000000, [5000000000], SEEK_SET) = 0",
        '1 write(3, ""..., 1) = 1',
        "1 ftruncate64(3, 7) = 0",
        '1 stat64("b", 0x1) = -1 ENOENT (No such file or directory)',
    )
    assert got.said[1:] == ["write a 5000000000+1 = 1", "truncate a 7", "stat b = -2"]


def test_vectors(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 writev(3, [{iov_base="iov_len=9, }"..., iov_len=10}, {iov_base="", iov_len=5}], 2) = 15',
        "1 readv(3, [{iov_base=0x1, iov_len=4}, {iov_base=0x2, iov_len=4}], 2) = 0",
        '1 pwritev(3, [{iov_base=""..., iov_len=8}], 1, 100) = 8',
        '1 preadv(3, [{iov_base=""..., iov_len=8}, {iov_base=""..., iov_len=8}], 2, 96) = 12',
        '1 preadv2(3, [{iov_base=""..., iov_len=3}], 1, -1, 0) = 3',
        '1 pwritev2(3, [{iov_base=""..., iov_len=3}], 1, 0, RWF_APPEND) = 3',
        '1 writev(3, [{iov_base=""..., iov_len=1}, ...], 40) = 40',
    )
    assert got.said[1:] == [
        "write a 0+15 = 15",
        "read a 15+8 = 0",
        "write a 100+8 = 8",
        "read a 96+16 = 12",
        "read a 15+3 = 3",
        "write a 108+3 = 3",
        "write a 18+40 = 40",
    ]


def test_append_writes_at_the_end_whoever_made_it_longer(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 openat(AT_FDCWD, "log", O_WRONLY|O_CREAT|O_EXCL|O_APPEND, 0666) = 3',
        '1 openat(AT_FDCWD, "log", O_RDWR) = 4',
        '1 write(3, ""..., 10) = 10',
        '1 write(4, ""..., 50) = 50',
        '1 write(3, ""..., 10) = 10',
        "1 ftruncate(4, 20) = 0",
        '1 write(3, ""..., 10) = 10',
        "1 fcntl(3, F_SETFL, O_WRONLY) = 0",
        '1 write(3, ""..., 1) = 1',
        "1 fcntl(4, F_SETFL, O_RDWR|O_APPEND) = 0",
        '1 write(4, ""..., 1) = 1',
    )
    assert [line for line in got.said if line.startswith("write")] == [
        "write log 0+10 = 10",
        "write log 0+50 = 50",
        "write log 50+10 = 10",
        "write log 20+10 = 10",
        "write log 30+1 = 1",
        "write log 31+1 = 1",
    ]
    assert "appends_where_the_size_is_a_guess" not in got.header.facts


def test_an_append_to_a_file_of_unknown_size_is_counted(tmp_path: Path) -> None:
    lines = ['1 open("log", O_WRONLY|O_APPEND) = 3', '1 write(3, ""..., 10) = 10']
    got = read(tmp_path, *lines)
    assert got.header.facts["appends_where_the_size_is_a_guess"] == 1
    got = read(tmp_path, *lines, sizes={b"log": 500})
    assert got.said[1] == "write log 500+10 = 10"
    assert "appends_where_the_size_is_a_guess" not in got.header.facts


def test_copies_between_files(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 open("b", O_RDONLY) = 4',
        '1 open("/elsewhere", O_RDONLY) = 5',
        "1 sendfile(3, 4, NULL, 2147479552) = 300",
        "1 sendfile(3, 4, [10] => [20], 10) = 10",
        "1 copy_file_range(4, NULL, 3, NULL, 9223372035781033984, 0) = 5",
        "1 copy_file_range(4, [7], 3, [9], 2, 0) = 2",
        "1 sendfile(3, 5, NULL, 40) = 40 <0.000009>",
        "1 sendfile(3, 4, NULL, 40) = -1 EINVAL (Invalid argument)",
        "1 sendfile(3, 4, NULL, 2147479552) = 0",
    )
    assert got.said[2:] == [
        "read b 0+300 = 300",
        "write a 0+300 = 300",
        "read b 10+10 = 10",
        "write a 300+10 = 10",
        "read b 300+5 = 5",
        "write a 310+5 = 5",
        "read b 7+2 = 2",
        "write a 9+2 = 2",
        "write a 315+40 = 40",
        "read b 305+131072 = 0",
    ]
    assert got.latencies[-2] == 9000  # alone in its call; of the others, two are done in one
    assert got.header.unseen == {"outside the root": 2, "sendfile": 1}


def test_lengths_are_set(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        "1 fallocate(3, 0, 0, 4096) = 0",
        "1 fallocate(3, FALLOC_FL_KEEP_SIZE, 0, 8192) = 0",
        "1 ftruncate(3, 100) = 0",
        "1 fallocate(3, 0, 0, 50) = 0",
        '1 truncate("a", 7) = 0 <0.000005>',
        '1 truncate("none", 7) = -1 ENOENT (No such file or directory)',
    )
    assert got.said == [
        "create a",
        "truncate a 4096",
        "truncate a 100",
        "open a",
        "truncate a 7",
        "close a",
        "open none = -2",
    ]
    assert got.slots[3] != got.slots[0]  # while the other handle is open
    assert got.latencies[3:6] == [-1, 5000, -1]
    assert got.header.unseen == {"fallocate": 2}
    assert got.header.facts["fallocate_as_truncate"] == 1


def test_ways_to_open(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 open("a", O_WRONLY|O_CREAT|O_EXCL|O_CLOEXEC, 0666) = 3',
        '1 creat("b", 0600) = 4',
        '1 openat(AT_FDCWD, "c", O_RDONLY|O_DIRECT) = 5',
        '1 openat2(AT_FDCWD, "d", {flags=O_RDWR|O_DSYNC, resolve=RESOLVE_BENEATH}, 24) = 6',
        '1 open("e", O_RDWR|O_TRUNC) = 7',
        '1 open("a", O_WRONLY|O_CREAT|O_EXCL, 0666) = -1 EEXIST (File exists)',
        '1 open("d", O_RDONLY|O_DIRECTORY) = -1 ENOTDIR (Not a directory)',
        '1 open("p", O_RDONLY|O_PATH) = 8',
        '1 open("t", O_RDWR|O_TMPFILE, 0600) = 9',
    )
    assert got.said == [
        "create a",
        "create b",
        "open c",
        "open d",
        "open e",
        "create a = -17",
        "open d = -20",
        "create t/.tmpfile-1",
    ]
    assert got.flags == [
        Flag.EXCLUSIVE | Flag.WRITE_ONLY,
        Flag.WRITE_ONLY | Flag.TRUNCATE,
        Flag.READ_ONLY | Flag.DIRECT,
        Flag.DSYNC,
        Flag.TRUNCATE,
        Flag.EXCLUSIVE | Flag.WRITE_ONLY,
        Flag.READ_ONLY,
        Flag.EXCLUSIVE,
    ]
    assert got.header.unseen == {"open with O_PATH": 1}
    assert set(got.names) == {"c", "d", "e"}


def test_questions_about_files(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 stat("a", {st_mode=S_IFREG|0644, st_size=11, ...}) = 0',
        '1 lstat("b", 0x7f) = -1 ENOENT (No such file or directory)',
        '1 newfstatat(AT_FDCWD, "c", {st_mode=S_IFDIR|0755, st_size=4096, ...}, 0) = 0',
        '1 statx(AT_FDCWD, "d", AT_STATX_SYNC_AS_STAT, STATX_ALL, {stx_mask=STATX_ALL, '
        "stx_mode=S_IFREG|0644, stx_size=12, ...}) = 0",
        '1 access("e", R_OK) = 0',
        '1 faccessat2(AT_FDCWD, "f", F_OK, AT_EACCESS) = -1 EACCES (Permission denied)',
        '1 open("a", O_RDONLY) = 3',
        "1 fstat(3, {st_mode=S_IFREG|0644, st_size=11, ...}) = 0",
        '1 newfstatat(3, "", {st_mode=S_IFREG|0644, st_size=11, ...}, AT_EMPTY_PATH) = 0',
        '1 stat("st_mode=S_IFREG, st_size=99", {st_mode=S_IFDIR|0755, ...}) = 0',
    )
    assert got.said == [
        "stat a",
        "stat b = -2",
        "stat c",
        "stat d",
        "stat e",
        "stat f = -13",
        "open a",
        "stat a",
        "stat a",
        "stat st_mode=S_IFREG, st_size=99",
    ]
    assert got.names == {"a": 11, "c": 0, "d": 12, "e": 0, "st_mode=S_IFREG, st_size=99": 0}


def test_directories(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 mkdir("d", 0777) = 0',
        '1 mkdirat(AT_FDCWD, "d/e", 0777) = 0',
        '1 mkdir("d", 0777) = -1 EEXIST (File exists)',
        '1 openat(AT_FDCWD, "d", O_RDONLY|O_DIRECTORY) = 3',
        "1 getdents64(3, 0x55 /* 3 entries */, 32768) = 72",
        "1 getdents64(3, 0x55 /* 0 entries */, 32768) = 0",
        "1 lseek(3, 0, SEEK_SET) = 0",
        "1 getdents64(3, 0x55 /* 3 entries */, 32768) = 72",
        '1 openat(3, "x", O_WRONLY|O_CREAT, 0666) = 4',
        '1 unlinkat(3, "x", 0) = 0',
        '1 unlinkat(AT_FDCWD, "d/e", AT_REMOVEDIR) = 0',
        "1 fsync(3) = 0",
        "1 pread64(3, 0x7f, 5, -5) = -1 EINVAL (Invalid argument)",
        "1 close(3) = 0",
        '1 rmdir("d") = -1 ENOTEMPTY (Directory not empty)',
    )
    assert got.said == [
        "mkdir d",
        "mkdir d/e",
        "mkdir d = -17",
        "open d",
        "readdir d",
        "readdir d",
        "create d/x",
        "unlink d/x",
        "rmdir d/e",
        "fsync d",
        "close d",
        "rmdir d = -39",
    ]
    assert got.header.facts["further_calls_of_listings"] == 1
    assert got.header.unseen == {"at a negative offset": 1}
    assert got.names == {}


def test_fsync(tmp_path: Path) -> None:
    got = read(tmp_path, OPEN, "1 fsync(3) = 0", "1 fdatasync(3) = 0")
    assert got.said[1:] == ["fsync a", "fsync a"]
    assert got.flags[1:] == [Flag(0), Flag.DATA_ONLY]


def test_renames(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 write(3, ""..., 10) = 10',
        '1 rename("a", "b") = 0',
        "1 fstat(3, {st_mode=S_IFREG|0644, st_size=10, ...}) = 0",
        '1 stat("a", 0x1) = -1 ENOENT (No such file or directory)',
        '1 open("b", O_WRONLY|O_APPEND) = 4',
        '1 write(4, ""..., 1) = 1',
        '1 renameat(AT_FDCWD, "b", AT_FDCWD, "c") = 0',
        '1 renameat2(AT_FDCWD, "c", AT_FDCWD, "d", RENAME_NOREPLACE) = 0',
        '1 renameat2(AT_FDCWD, "d", AT_FDCWD, "e", RENAME_NOREPLACE) = -1 EEXIST (File exists)',
        '1 rename("d", "/elsewhere") = 0',
        '1 rename("/elsewhere", "f") = 0',
        '1 stat("f", {st_mode=S_IFREG|0644, st_size=33, ...}) = 0',
    )
    assert got.said == [
        "create a",
        "write a 0+10 = 10",
        "rename a b",
        "stat b",
        "stat a = -2",
        "open b",
        "write b 10+1 = 1",
        "rename b c",
        "rename c d",
        "stat f",
    ]
    assert got.header.unseen == {
        "a rename over the border of the roots": 2,
        "renameat2 with flags": 1,
    }
    assert got.names == {"f": 33}  # for the trace it was there before


def test_what_is_in_a_renamed_directory(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 stat("d/x", {st_mode=S_IFREG|0644, st_size=5, ...}) = 0',
        '1 rename("d", "e") = 0',
        '1 open("e/x", O_WRONLY|O_APPEND) = 3',
        '1 write(3, ""..., 1) = 1',
        '1 stat("e/y", {st_mode=S_IFREG|0644, st_size=7, ...}) = 0',
    )
    assert got.said[2:] == ["open e/x", "write e/x 5+1 = 1", "stat e/y"]
    assert got.names == {"d": 0, "d/x": 5, "d/y": 7}  # where they lay at the start


def test_a_file_without_a_name_lives_on(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 unlink("a") = 0',
        '1 write(3, ""..., 10) = 10',
        "1 fstat(3, {st_mode=S_IFREG|0644, st_size=10, ...}) = 0",
        '1 open("a", O_WRONLY|O_CREAT|O_EXCL|O_APPEND, 0666) = 4',
        '1 write(4, ""..., 3) = 3',
        "1 close(3) = 0",
    )
    assert got.said == [
        "create a",
        "unlink a",
        "write a 0+10 = 10",
        "create a",
        "write a 0+3 = 3",
        "close a",
    ]
    assert got.slots[3] != got.slots[0]
    assert got.slots[5] == got.slots[0]
    assert got.header.unseen == {"fstat of a file without a name": 1}


UNSEEN = {
    "mmap": "mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000000000",
    "splice": "splice(9, NULL, 3, NULL, 10, 0) = 10",
    "link": 'link("/other", "new") = 0',
    "symlinkat": 'symlinkat("a", AT_FDCWD, "new") = 0',
    "readlink": 'readlink("a", 0x1, 10) = -1 EINVAL (Invalid argument)',
    "fchmod": "fchmod(3, 0600) = 0",
    "chmod": 'chmod("a", 0600) = 0',
    "setxattr": 'setxattr("a", "user.x", ""..., 3, 0) = 0',
    "utimensat": "utimensat(3, NULL, NULL, 0) = 0",
    "io_uring_enter": "io_uring_enter(4, 8, 0, 0, NULL, 8) = 8",
    "io_submit": "io_submit(0x7f, 1, [{aio_fildes=3}]) = 1",
    "flock": "flock(3, LOCK_EX) = 0",
    "FICLONE": "ioctl(3, FICLONE, 4) = 0",
    "execve": 'execve("/r/program", [...], 0x7ffc /* 3 vars */) = 0',
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_no_operation_stands_for_is_counted(tmp_path: Path, name: str) -> None:
    elsewhere = UNSEEN[name].replace("(3", "(7").replace(", 3,", ", 7,").replace('"a"', '"/a"')
    elsewhere = elsewhere.replace('"new"', '"/new"').replace("/r/", "/q/")
    got = read(tmp_path, OPEN, f"1 {UNSEEN[name]}")
    assert got.header.unseen == {name: 1}
    assert got.said[0] == "create a"
    if not name.startswith("io_"):  # of these nobody can tell
        assert name not in read(tmp_path, OPEN, f"1 {elsewhere}").header.unseen


def test_links_are_files_of_the_same_length(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 write(3, ""..., 10) = 10',
        '1 mkdir("d", 0777) = 0',
        '1 link("a", "d/b") = 0 <0.000004>',
        '1 unlink("a") = 0',
        '1 symlinkat("b", AT_FDCWD, "d/c") = 0',
        '1 lstat("d/c", {st_mode=S_IFLNK|0777, st_size=1, ...}) = 0',
        '1 link("/other", "d/b") = -1 EEXIST (File exists)',
        '1 rename("/other", "d/e") = 0',
    )
    assert got.said == [
        *("create a", "write a 0+10 = 10", "mkdir d"),
        *("create d/b", "truncate d/b 10", "close d/b"),
        *("unlink a", "create d/c", "truncate d/c 10", "close d/c", "stat d/c"),
    ]
    assert got.latencies[3:6] == [4000, -1, -1]
    assert got.header.unseen == {
        "link": 2,
        "symlinkat": 1,
        "a rename over the border of the roots": 1,
    }
    assert got.names == {}
