"""Processes, threads and their descriptors, in texts of strace."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.traces.capture import system
from fsmatrix.traces.capture.processes import OpenFile, Table
from tests.traces.capture.texts import read

OPEN = '1 openat(AT_FDCWD, "a", O_RDWR|O_CREAT|O_EXCL, 0666) = 3'


def test_copies_of_descriptors_share_an_offset(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        "1 dup(3) = 4",
        "1 dup2(3, 5) = 5",
        "1 dup3(3, 6, O_CLOEXEC) = 6",
        "1 fcntl(3, F_DUPFD, 10) = 10",
        "1 fcntl(3, F_DUPFD_CLOEXEC, 11) = 11",
        '1 write(3, ""..., 1) = 1',
        '1 write(4, ""..., 2) = 2',
        '1 write(5, ""..., 4) = 4',
        '1 write(6, ""..., 8) = 8',
        '1 write(10, ""..., 16) = 16',
        '1 write(11, ""..., 32) = 32',
        *(f"1 close({number}) = 0" for number in (3, 4, 5, 6, 10)),
        '1 write(11, ""..., 64) = 64',
        "1 close(11) = 0",
    )
    assert got.said == [
        "create a",
        "write a 0+1 = 1",
        "write a 1+2 = 2",
        "write a 3+4 = 4",
        "write a 7+8 = 8",
        "write a 15+16 = 16",
        "write a 31+32 = 32",
        "write a 63+64 = 64",
        "close a",
    ]
    assert got.header.facts["closes_of_copies"] == 5


def test_dup2_closes_what_was_there(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 open("b", O_RDONLY) = 4',
        "1 dup2(3, 4) = 4",
        '1 write(4, ""..., 1) = 1',
        "1 dup2(4, 4) = 4",
        "1 dup2(99, 3) = -1 EBADF (Bad file descriptor)",
        "1 dup2(1, 4) = 4",
        '1 write(4, ""..., 1) = 1',
        "1 close(3) = 0",
    )
    assert got.said == ["create a", "open b", "close b = ?", "write a 0+1 = 1", "close a"]


def test_a_fork_shares_offsets_and_has_descriptors_of_its_own(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        '1 write(3, ""..., 10) = 10',
        "1 fork() = 2",
        '2 write(3, ""..., 5) = 5',
        '1 write(3, ""..., 1) = 1',
        '2 chdir("sub") = 0',
        "2 close(3) = 0",
        '2 open("b", O_RDONLY) = 3',
        '1 write(3, ""..., 1) = 1',
        "2 +++ exited with 0 +++",
        '1 stat("b", 0x1) = -1 ENOENT (No such file or directory)',
        "1 exit_group(0) = ?",
        "1 +++ exited with 0 +++",
    )
    assert got.said == [
        "create a",
        "write a 0+10 = 10",
        "write a 10+5 = 5",
        "write a 15+1 = 1",
        "open sub/b",
        "write a 16+1 = 1",
        "close sub/b = ?",
        "stat b = -2",
        "close a = ?",
    ]
    assert got.threads == [(1, 1, 0), (2, 2, 0)]
    assert got.thread == [0, 0, 1, 0, 1, 0, 1, 0, 0]


def test_threads_share_their_descriptors_and_their_directory(tmp_path: Path) -> None:
    shared = "CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD"
    got = read(
        tmp_path,
        f"1 clone(child_stack=0x7f, flags={shared}, parent_tid=[2], tls=0x7f) = 2",
        f"1 clone3({{flags={shared}, exit_signal=0}} => {{parent_tid=[3]}}, 88) = 3",
        '2 open("a", O_RDWR|O_CREAT|O_EXCL, 0666) = 5',
        '2 chdir("sub") = 0',
        '3 write(5, ""..., 3) = 3',
        "2 +++ exited with 0 +++",
        '1 write(5, ""..., 3) = 3',
        '1 mkdir("d", 0777) = 0',
        "3 close(5) = 0",
    )
    assert got.said == ["create a", "write a 0+3 = 3", "write a 3+3 = 3", "mkdir sub/d", "close a"]
    assert got.threads == [(1, 2, 0), (1, 3, 0), (1, 1, 0)]  # by their first operations


def test_threads_without_operations_are_not_in_the_trace(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        "1 fork() = 2",
        "2 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 3",
        '2 open("/elsewhere", O_RDONLY) = 3',
        '3 stat("a", 0x1) = -1 ENOENT (No such file or directory)',
        "3 +++ exited with 0 +++",
        "2 +++ exited with 0 +++",
        "1 +++ exited with 0 +++",
    )
    assert got.said == ["stat a = -2"]
    assert got.threads == [(2, 3, 0)]


def test_exec_closes_what_is_marked(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 open("a", O_RDWR|O_CLOEXEC) = 3',
        '1 open("b", O_RDWR) = 4',
        '1 open("c", O_RDWR) = 5',
        "1 fcntl(5, F_SETFD, FD_CLOEXEC) = 0",
        '1 execve("/bin/none", [...], 0x7f) = -1 ENOENT (No such file or directory)',
        '1 read(3, ""..., 1) = 1',
        '1 execve("/bin/x", [...], 0x7f /* 3 vars */) = 0',
        '1 read(3, ""..., 1) = 1',
        '1 read(4, ""..., 1) = 1',
    )
    assert got.said == [
        *("open a", "open b", "open c", "read a 0+1 = 1"),
        *("close a = ?", "close c = ?", "read b 0+1 = 1"),
    ]


def test_a_thread_that_executes_takes_the_process_over(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        "1 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2",
        '2 open("a", O_RDWR) = 3',
        '2 execve("/bin/x", [...], 0x7f /* 3 vars */ <unfinished ...>',
        "1 +++ superseded by execve in pid 2 +++",
        "1 <... execve resumed>) = 0",
        '1 read(3, ""..., 1) = 1',
    )
    assert got.said == ["open a", "read a 0+1 = 1"]
    assert got.thread == [0, 1]


def test_close_range(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        *(f'1 open("{name}", O_RDWR) = {3 + at}' for at, name in enumerate("abc")),
        "1 close_range(3, 3, CLOSE_RANGE_CLOEXEC) = 0",
        "1 close_range(4, 4, 0) = 0",
        '1 read(3, ""..., 1) = 1',
        '1 execve("/bin/x", [...], 0x7f) = 0',
        "1 close_range(3, 4294967295, 0) = 0",
    )
    assert got.said[3:] == ["close b", "read a 0+1 = 1", "close a = ?", "close c"]


def test_calls_that_are_interrupted_by_others(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        "1 fork() = 2",
        '1 write(3, ""..., 100 <unfinished ...>',
        '2 stat("b", 0x1) = -1 ENOENT (No such file or directory) <0.000002>',
        "2 mkdir( <unfinished ...>",
        "1 <... write resumed>) = 100 <0.000005>",
        '2 <... mkdir resumed>"d", 0777) = 0 <0.000003>',
        '1 write(3, ""..., 1) = 1',
    )
    assert got.said == [
        "create a",
        "write a 0+100 = 100",
        "stat b = -2",
        "mkdir d",
        "write a 100+1 = 1",
    ]
    assert got.times == [0, 2000, 3000, 4000, 7000]
    assert got.latencies == [-1, 5000, 2000, 3000, -1]


def test_a_number_is_free_as_soon_as_its_close_begins(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        "1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2",
        "1 close(3 <unfinished ...>",
        '2 open("b", O_RDWR) = 3',
        "1 <... close resumed>) = 0",
        '2 read(3, ""..., 1) = 1',
    )
    assert got.said == ["create a", "close a", "open b", "read b 0+1 = 1"]


def test_a_slot_is_not_opened_before_it_is_closed(tmp_path: Path) -> None:
    """The second open is issued before the close, but ends after it."""
    got = read(
        tmp_path,
        OPEN,
        "1 clone(flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD) = 2",
        '2 open("a", O_RDWR <unfinished ...>',
        "1 close(3) = 0",
        "2 <... open resumed>) = 4",
        '2 open("a", O_RDWR) = 5',
    )
    assert got.said == ["create a", "open a", "close a", "open a"]
    assert got.slots[1] != got.slots[0] == got.slots[2] == got.slots[3]


def test_children_are_seen_before_their_maker_knows_them(tmp_path: Path) -> None:
    """Two forks are under way: whose child is whose says only the end of the calls."""
    got = read(
        tmp_path,
        '1 open("a", O_RDWR) = 3',
        "1 fork() = 2",
        "2 close(3) = 0",
        '2 open("b", O_RDWR) = 3',
        "1 vfork( <unfinished ...>",
        "2 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>",
        '10 read(3, ""..., 7) = 7',
        '20 read(3, ""..., 8) = 8',
        "20 +++ exited with 0 +++",
        "2 <... clone resumed>, child_tidptr=0x7f) = 20",
        "10 +++ exited with 0 +++",
        "1 <... vfork resumed>) = 10",
    )
    assert got.said == ["open a", "open b", "read a 0+7 = 7", "read b 0+8 = 8"]


def test_processes_that_die_in_a_call(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        "1 fork() = 2",
        '1 write(3, ""..., 10 <unfinished ...>',
        '2 write(3, ""..., 20 <unfinished ...>',
        "2 <... write resumed> <unfinished ...>) = ?",
        "1 +++ killed by SIGKILL +++",
        "2 +++ killed by SIGKILL (core dumped) +++",
    )
    assert got.said == ["create a", "write a 0+10 = ?", "write a 0+20 = ?", "close a = ?"]
    assert got.latencies[1:] == [-1, -1, -1]


def test_calls_that_signals_interrupt(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 open("a", O_RDWR) = 3',
        "1 read(3, 0x7f, 10) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)",
        "1 --- SIGALRM {si_signo=SIGALRM, si_code=SI_KERNEL} ---",
        "1 read(3, 0x7f, 10) = -1 EINTR (Interrupted system call)",
        '1 read(3, ""..., 10) = 10',
    )
    assert got.said == ["open a", "read a 0+10 = -4", "read a 0+10 = 10"]
    assert got.header.unseen == {"interrupted and begun again": 1}


def test_what_lasts_elsewhere_keeps_nothing_back(tmp_path: Path) -> None:
    """A read of a pipe that never ends; the trace is written meanwhile."""
    lines = ["1 fork() = 2", "1 read(0,  <unfinished ...>", '2 open("a", O_RDWR) = 3']
    lines += ['2 read(3, ""..., 1) = 1'] * 140_000
    got = read(tmp_path, *lines)
    assert len(got.said) == 140_001
    assert got.said[-1] == "read a 139999+1 = 1"
    assert got.header.unseen == {"cut off by the end of its process": 1}


def test_numbers_of_processes_are_used_again(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 open("a", O_RDWR) = 3',
        "1 fork() = 2",
        '2 open("b", O_RDWR) = 4',
        "1 fork() = 2",
        '2 read(4, ""..., 1) = 1',
        '2 read(3, ""..., 1) = 1',
    )
    assert got.said == ["open a", "open b", "close b = ?", "read a 0+1 = 1"]


def test_both_parts_of_a_call_that_lasted_keep_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations are written while others of the same call are still to come."""
    monkeypatch.setattr(system, "BLOCK", 4)
    got = read(
        tmp_path,
        OPEN,
        '1 open("b", O_RDONLY) = 4',
        "1 fork() = 2",
        "1 sendfile(3, 4, NULL, 10 <unfinished ...>",
        '2 mkdir("c", 0777) = 0',
        "1 <... sendfile resumed>) = 10",
    )
    assert got.said[2:] == ["read b 0+10 = 10", "write a 0+10 = 10", "mkdir c"]
    assert got.times == [0, 1000, 3000, 3000, 4000]
    assert got.header.facts["issue_times_moved"] == 0


def test_a_call_whose_end_is_lost(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        OPEN,
        "1 fsync(3 <unfinished ...>",
        '1 write(3, ""..., 1) = 1',
        '1 write(3, ""..., 1) = 1',
    )
    assert got.said == ["create a", "fsync a = ?", "write a 0+1 = 1", "write a 1+1 = 1"]
    assert got.header.unseen == {"a line that is malformed": 1}


@pytest.mark.parametrize("flags", ["O_RDWR", "O_RDWR|O_CLOEXEC"])
def test_forks_of_a_process_with_many_descriptors_cost_little(tmp_path: Path, flags: str) -> None:
    """Each child has all of them; tables of their own would hold two million entries."""
    descriptors, children = 4000, 500
    lines = [f'1 open("f{n % 10}", {flags}) = {n + 3}' for n in range(descriptors)]
    for child in range(2, children + 2):
        lines += [
            f"1 fork() = {child}",
            f'1 open("g", O_RDWR) = {descriptors + child + 3}',
            f"{child} close({child + 1}) = 0",
            f'{child} execve("/bin/x", [...], 0x7f) = 0',
            f"{child} close_range(3, {descriptors // 2}, 0) = 0",
            f"{child} +++ exited with 0 +++",
        ]
    tracemalloc.start()
    got = read(tmp_path, *lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    assert sum(said.startswith("close") for said in got.said) == 0  # process 1 has all of them
    closed = 1 if "CLOEXEC" in flags else descriptors // 2 - 2
    assert got.header.facts["closes_of_copies"] == children * closed


NUMBERS = st.sampled_from([0, 1, 2, 255, 256, 257, 65535, 65536, 1 << 24, (1 << 31) - 1])
Step = tuple[str, int, int, int, bool]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["put", "pop", "mark", "mark_all", "cut", "fork", "end", "exec"]),
        st.integers(0, 5),
        NUMBERS,
        NUMBERS,
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_shared_tables_are_like_tables_of_their_own(
    steps: list[tuple[str, int, int, int, bool]],
) -> None:
    """What ends with a table is what no other table has, by number."""
    tables, plain = [Table()], [dict[int, tuple[OpenFile, bool]]()]
    for what, which, number, last, flag in steps:
        which %= len(tables)
        table, own = tables[which], plain[which]
        ended = None
        if what == "put" and number not in own:
            own[number] = (OpenFile(b"", users=1), flag)
            table.put(number, own[number][0], flag)
        elif what == "pop":
            file = table.pop(number)
            assert file is (own.pop(number, (None, False))[0])
            if file is not None:
                file.users -= 1
        elif what == "mark" and number in own:
            table.mark(number, flag)
            own[number] = (own[number][0], flag)
        elif what == "mark_all":
            table.mark_all(number, last)
            own.update({n: (file, True) for n, (file, _) in own.items() if number <= n <= last})
        elif what == "cut":
            ended = table.cut(number, last), [n for n in own if number <= n <= last]
        elif what == "exec":
            kept, table.cloexec = table.cloexec, type(table.cloexec)()
            ended = kept, [n for n in own if own[n][1]]
        elif what == "fork" and len(tables) < 6:
            tables.append(table.copy())
            plain.append(dict(own))
        elif what == "end" and len(tables) > 1:
            ended = table.cut(), list(own)
            del tables[which], plain[which]
        if ended is not None:
            gone = [own.pop(n)[0] for n in sorted(ended[1])]
            released = list(ended[0].release())
            for file in released:
                file.users -= 1
            left = Counter(id(file) for each in plain for file, _ in each.values())
            assert [file for file in released if not file.users] == [
                file for file in gone if not left[id(file)]
            ]
        for table, own in zip(tables, plain, strict=True):
            for n in (0, 1, 2, 255, 256, 257, 65535, 65536, 1 << 24, (1 << 31) - 1, 1 << 40, -1):
                assert table.get(n) is own.get(n, (None, False))[0]
