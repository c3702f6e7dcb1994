"""dbench's loadfiles: small ones whose trace is known, dbench's own, and dbench's own calls."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.importing.importer import import_traces
from fsmatrix.traces.trace_model import ABSENT, TraceError
from fsmatrix.traces.tracefile import opened
from tests.traces.importing.imported import imported
from tests.waiting import until

CLIENT_TXT = Path("/usr/share/dbench/client.txt")
OK = "NT_STATUS_OK"
LOAD = r"""Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 1 NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 9 NT_STATUS_OK
QUERY_FILE_INFORMATION 9 258 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\clients\client1\a" 0x40 0x1 2 NT_STATUS_OBJECT_NAME_NOT_FOUND
QUERY_PATH_INFORMATION "\clients\client1\a" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\clients\client1\File" 0x40 0x2 3 NT_STATUS_OK
QUERY_FS_INFORMATION 1 NT_STATUS_OK
WriteX 3 65534 1 1 NT_STATUS_OK
ReadX 3 60000 20000 5535 NT_STATUS_OK
QUERY_FILE_INFORMATION 3 258 NT_STATUS_OK
Flush 3 NT_STATUS_OK
LockX 3 10 20 NT_STATUS_OK
Close 3 NT_STATUS_OK
NTCreateX "\clients\client1\File" 0x40 0x5 4 NT_STATUS_OK
Close 4 NT_STATUS_OK
NTCreateX "\clients\client1\File" 0x40 0x1 4 NT_STATUS_OK
Close 4 NT_STATUS_OK
FIND_FIRST "\clients\client1\x*" 260 1366 0 NT_STATUS_NO_SUCH_FILE
Rename "\clients\client1\File" "\clients\client1\b" NT_STATUS_OK
Unlink "\clients\client1\b" 0x6 NT_STATUS_OK
NTCreateX "\clients\client1\c" 0x40 0x2 5 NT_STATUS_OK
Close 5 NT_STATUS_OK
Deltree "\clients\client1" NT_STATUS_OK
"""
HOME, FILE = b"clients/client1", b"clients/client1/File"


def test_a_loadfile_is_what_dbench_does_on_posix(tmp_path: Path) -> None:
    trace = imported(tmp_path, LOAD)
    assert trace.did("kind", "name", "result") == [
        (Kind.MKDIR, b"clients", 0),
        (Kind.MKDIR, HOME, 0),
        (Kind.MKDIR, HOME, -errno.EEXIST),
        (Kind.STAT, HOME, 0),
        (Kind.OPEN, HOME + b"/a", -errno.ENOENT),
        (Kind.STAT, HOME + b"/a", -errno.ENOENT),
        (Kind.CREATE, FILE, 0),
        (Kind.WRITE, FILE, 1),
        (Kind.READ, FILE, 5535),
        (Kind.STAT, FILE, 0),
        (Kind.FSYNC, FILE, 0),
        (Kind.CLOSE, FILE, 0),
        (Kind.CREATE, FILE, 0),
        (Kind.CLOSE, FILE, 0),
        (Kind.OPEN, FILE, 0),
        (Kind.CLOSE, FILE, 0),
        (Kind.READDIR, HOME, 0),
        (Kind.RENAME, FILE, 0),
        (Kind.UNLINK, HOME + b"/b", 0),
        (Kind.CREATE, HOME + b"/c", 0),
        (Kind.CLOSE, HOME + b"/c", 0),
        (Kind.UNLINK, HOME + b"/c", 0),
        (Kind.READDIR, HOME, 0),
    ]
    assert [row.flags for row in trace.rows if row.kind == Kind.CREATE] == [0, Flag.TRUNCATE, 0]
    assert trace.header.unseen == {"QUERY_FS_INFORMATION": 1, "LockX": 1}
    assert not trace.header.timed
    assert set(trace.files.values()) == {(ABSENT, False)}  # all of it is made by the trace


def test_files_that_are_opened_were_there_as_long_as_their_reads_need(tmp_path: Path) -> None:
    load = f"""NTCreateX "\\d\\a" 0x40 0x1 1 {OK}
ReadX 1 0 100 100 {OK}
ReadX 1 100 100 20 {OK}
WriteX 1 500 500 500 {OK}
ReadX 1 900 100 100 {OK}
NTCreateX "\\d\\b" 0x40 0x4 2 {OK}
WriteX 2 0 10 10 {OK}
"""
    trace = imported(tmp_path, load)
    assert trace.files == {b"d/a": (120, False), b"d": (0, True), b"d/b": (ABSENT, False)}


def test_times_are_seconds(tmp_path: Path) -> None:
    load = f'0.000 Mkdir "\\a" {OK}\n0.25 Mkdir "\\b" {OK}\n1 Mkdir "\\c" {OK}\n'
    trace = imported(tmp_path, load)
    assert trace.header.timed
    assert [row.time for row in trace.rows] == [0, 250_000_000, 1_000_000_000]


def test_times_that_repeat_are_none(tmp_path: Path) -> None:
    trace = imported(tmp_path, "".join(f'{at // 4} Mkdir "\\{at}" {OK}\n' for at in range(12)))
    assert not trace.header.timed
    assert "that of the operation before" in str(trace.header.facts["no_times"])


def test_several_loadfiles_are_clients_that_take_turns(tmp_path: Path) -> None:
    trace = imported(tmp_path, f'Mkdir "\\a" {OK}\nRmdir "\\a" {OK}\n', f'Mkdir "\\b" {OK}\n')
    assert trace.did("thread", "kind", "name") == [
        (0, Kind.MKDIR, b"a"),
        (1, Kind.MKDIR, b"b"),
        (0, Kind.RMDIR, b"a"),
    ]


def test_a_status_that_posix_does_not_have_is_counted(tmp_path: Path) -> None:
    trace = imported(tmp_path, f'Mkdir "\\a" {OK}\nUnlink "\\a" 6 NT_STATUS_SHARING_VIOLATION\n')
    assert trace.header.unseen == {"Unlink with the status NT_STATUS_SHARING_VIOLATION": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Frob 1 NT_STATUS_OK", "unknown operation 'Frob'; known: Close, Deltree"),
        ("Frob", "no 'VERB PARAMETER... STATUS'"),
        ("WriteX 1 0 1 NT_STATUS_OK", "WriteX has 4 parameters"),
        ("WriteX 2 0 1 1 NT_STATUS_OK", "handle 2 is not open"),
        ("WriteX 1 -1 1 1 NT_STATUS_OK", "no whole number"),
        (f"WriteX 1 {1 << 63} 1 1 NT_STATUS_OK", "2\\^63"),
        (f"ReadX 1 {(1 << 63) - 1} 1 1 NT_STATUS_OK", "2\\^63"),
        ("ReadX 1 0 1 2 NT_STATUS_OK", "2 bytes moved of 1"),
        ("ReadX 3 0 1 1 NT_STATUS_OK", "which is a directory"),
        ('NTCreateX "\\d\\b" 0 1 1 NT_STATUS_OK', "handle 1 is open"),
        ('NTCreateX "\\d\\b" 0 1 7 NT_STATUS_OK', "'d/b' is not there"),
        ('Unlink "\\d\\b" 0 NT_STATUS_OK', "not there"),
        ('Unlink "\\d" 0 NT_STATUS_OK', "cannot have succeeded"),
        ('Rmdir "\\d" NT_STATUS_OK', "cannot have succeeded"),
        ('Rename "\\d" "\\d\\e" NT_STATUS_OK', "cannot have succeeded"),
        (
            'Rename "\\d" "\\e\\" NT_STATUS_OK\nClose 1 X\nUnlink "\\d\\a" 0 NT_STATUS_OK',
            "not there",
        ),
        ('0.5 Mkdir "\\q" NT_STATUS_OK', "some have none"),
    ],
)
def test_what_cannot_be_is_an_error_with_file_and_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    head = f'Mkdir "\\d" {OK}\nNTCreateX "\\d\\a" 0 2 1 {OK}\nNTCreateX "\\d" 1 2 3 {OK}\n'
    with pytest.raises(TraceError, match=rf"in-0: line [46]: .*{reason}"):
        imported(tmp_path, f"{head}{line}\n", format="dbench")
    assert not (tmp_path / "t.h5").exists()


@pytest.mark.parametrize("time", ["1e400", "nan", "0x5", "99999999999999999999", "1e18"])
def test_a_time_that_is_none_is_an_error(tmp_path: Path, time: str) -> None:
    with pytest.raises(TraceError, match=r"in-0: line 1: the time"):
        imported(tmp_path, f'{time} Mkdir "\\a" {OK}\n'.replace("nan", "1nan"), format="dbench")


def test_no_name_leads_above_the_root(tmp_path: Path) -> None:
    trace = imported(tmp_path, f'Mkdir "\\..\\..\\etc" {OK}\nMkdir "/a/../b" {OK}\n')
    assert [row.name for row in trace.rows] == [b"etc", b"b"]


@pytest.mark.skipif(not CLIENT_TXT.exists(), reason="no client.txt of Debian's package dbench")
def test_dbenchs_own_loadfile_is_imported_line_by_line(tmp_path: Path) -> None:
    import_traces([CLIENT_TXT], tmp_path / "t.h5")
    verbs: Counter[str] = Counter()
    read = wrote = opens = closes = 0
    for line in CLIENT_TXT.read_text(encoding="latin-1").splitlines():
        words = re.sub(r'"[^"]*"', "NAME", line).split()
        verbs[words[0]] += 1
        read += int(words[4]) if words[0] == "ReadX" else 0
        wrote += int(words[4]) if words[0] == "WriteX" else 0
        opens += words[0] == "NTCreateX" and (words[2] != "0x1" or words[-1] != OK)
        closes += words[0] == "Close" and words[-1] == OK
    directories = verbs["NTCreateX"] - opens
    kinds: Counter[int] = Counter()
    moved: Counter[int] = Counter()
    with opened(tmp_path / "t.h5") as trace:
        assert (trace.files.size == ABSENT).all()  # a loadfile makes all that it uses
        for block in trace.blocks():
            kinds.update(block["kind"].tolist())
            for kind in (Kind.READ, Kind.WRITE):
                moved[kind] += int(block["result"][block["kind"] == kind].sum())
        unseen = trace.header.unseen
    assert (kinds[Kind.READ], kinds[Kind.WRITE]) == (verbs["ReadX"], verbs["WriteX"])
    assert (moved[Kind.READ], moved[Kind.WRITE]) == (read, wrote)
    assert kinds[Kind.STAT] == verbs["QUERY_PATH_INFORMATION"] + verbs["QUERY_FILE_INFORMATION"]
    assert kinds[Kind.RENAME] == verbs["Rename"]
    assert kinds[Kind.MKDIR] == verbs["Mkdir"] + directories
    assert unseen == {
        verb: verbs[verb]
        for verb in ("QUERY_FS_INFORMATION", "SET_FILE_INFORMATION", "LockX", "UnlockX")
    }
    assert kinds[Kind.OPEN] + kinds[Kind.CREATE] + kinds[Kind.CLOSE] < opens + closes + 1


REWOUND = " lseek("  # to the begin of the loadfile: a pass has ended
CALLS = {
    "mkdir": Kind.MKDIR,
    "rename": Kind.RENAME,
    "unlink": Kind.UNLINK,
    "pread64": Kind.READ,
    "pwrite64": Kind.WRITE,
    "fsync": Kind.FSYNC,
    "openat": Kind.OPEN,
}


@pytest.mark.needs("dbench")
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace: apt-get install strace")
def test_a_trace_has_the_calls_that_dbench_makes(tmp_path: Path) -> None:
    """The first pass of dbench under strace; directories that it only opens are left out."""
    (tmp_path / "load").write_text(LOAD, encoding="ascii")
    calls = tmp_path / "calls"
    words = ["strace", "-f", "-o", str(calls), "dbench", "-t", "600"]
    words += ["-c", str(tmp_path / "load"), "-D", str(tmp_path), "1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True) as dbench:
        try:
            until(lambda: calls.exists() and REWOUND in _after_setup(calls.read_text("ascii")))
        finally:
            os.killpg(dbench.pid, signal.SIGKILL)
    rows = imported(tmp_path, LOAD).rows
    assert _calls(calls.read_text(encoding="ascii")) == [
        (Kind.OPEN if row.kind == Kind.CREATE else row.kind, row.result)
        for row in rows
        if row.kind in {*CALLS.values(), Kind.CREATE}
    ]


def _after_setup(text: str) -> str:
    """What strace wrote from the first call of the loadfile on; empty before it."""
    before, mkdir, after = text.partition(" mkdir(")
    return before[before.rfind("\n") + 1 :] + mkdir + after if mkdir else ""


def _calls(text: str) -> list[tuple[Kind, int]]:
    """Kind and result of the calls of the first pass; an open's result is 0 or -errno."""
    calls: list[tuple[Kind, int]] = []
    pattern = re.compile(rf"\d* +({'|'.join(CALLS)})\(.*= (-?\d+)(?: (E\w+))?")
    for line in _after_setup(text).splitlines():
        if REWOUND in line:
            break
        match = pattern.match(line)
        if match and "O_DIRECTORY" not in line:
            result = -getattr(errno, match[3]) if match[3] else int(match[2])
            calls.append((CALLS[match[1]], 0 if match[1] == "openat" and result > 0 else result))
    return calls
