"""Lines of strace: their forms, what is none of them, and texts that lie."""

from __future__ import annotations

import json
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fsmatrix.traces.capture import strace, system
from fsmatrix.traces.trace_model import TraceError
from fsmatrix.traces.tracefile import opened, writing
from tests.traces.capture.texts import Read, read, read_all, text, words
from tests.traces.importing.imported import imported_files

OPEN = '1 openat(AT_FDCWD, "a", O_RDWR|O_CREAT|O_EXCL, 0666) = 3'
FORMS = {
    "-f -ttt -T": ('7  1700000000.000001 mkdir("a", 0777) = 0 <0.000005>', [7], 5000),
    "to a terminal": ('[pid    7] 1700000000.000001 mkdir("a", 0777) = 0 <0.000005>', [7], 5000),
    "of one process": ('1700000000.000001 mkdir("a", 0777) = 0 <0.5>', [0], 500_000_000),
    "nanoseconds": ('7 1700000000.000000001 mkdir("a", 0777) = 0 <0.000000005>', [7], 5),
    "-tt": ('7 23:59:59.999999 mkdir("a", 0777) = 0', [7], -1),
    "-t": ('7 23:59:59 mkdir("a", 0777) = 0', [7], -1),
    "-t -T": ('7 23:59:59 mkdir("a", 0777) = 0 <0.000005>', [7], 5000),
    "-r": ('7      0.000012 mkdir("a", 0777) = 0', [7], -1),
    "-r of one process": ('     0.000012 mkdir("a", 0777) = 0', [0], -1),
    "-r -t": ('7 23:59:59 (+     0.000012) mkdir("a", 0777) = 0', [7], -1),
    "-r -ttt": ('7 1700000000.000001 (+     0.000012) mkdir("a", 0777) = 0', [7], -1),
    "unix seconds": ('7 1700000000 mkdir("a", 0777) = 0', [7], -1),
    "-i": ('7 23:59:59.9 [00007f645c61a86a] mkdir("a", 0777) = 0', [7], -1),
    "-n": ('7 23:59:59.9 [  83] mkdir("a", 0777) = 0', [7], -1),
    "-n -i": ('7 23:59:59.9 [  83] [????????????????] mkdir("a", 0777) = 0', [7], -1),
    "-Y": ('7<sh> 23:59:59.9 mkdir("a", 0777) = 0', [7], -1),
    "-Y to a terminal": ('[pid     7<a b>] 23:59:59.9 mkdir("a", 0777) = 0', [7], -1),
    "whole seconds of -T": ('7 23:59:59.9 mkdir("a", 0777) = 0 <0>', [7], -1),
    "indented": ('   7 23:59:59.9 mkdir("a", 0777) = 0', [7], -1),
    "no times": ('7 mkdir("a", 0777)                       = 0', [7], -1),
    "-x": ('7 mkdir("\\x61", 0777) = 0', [7], -1),
    "-y": ('7 mkdirat(AT_FDCWD</r>, "a", 0777) = 0', [7], -1),
    "-X verbose": ('7 mkdirat(-100 /* AT_FDCWD */, "a", 0777) = 0', [7], -1),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path: Path, form: str) -> None:
    line, processes, latency = FORMS[form]
    (tmp_path / "text").write_text(f"{line}\n")
    got = read_all(tmp_path, [tmp_path / "text"], ["/r"])
    assert got.said == ["mkdir a"]
    assert [row[0] for row in got.threads] == processes
    assert got.latencies == [latency]
    coarse = ("-t", "-t -T", "unix seconds")
    without = ("no times", "-x", "-y", "-X verbose")
    assert got.header.timed == (form not in (*coarse, *without))
    assert ("no_times" in got.header.facts) == (form in coarse)


def test_times_of_the_day_go_on_at_midnight(tmp_path: Path) -> None:
    lines = [f'1 {time} mkdir("a", 0777) = 0' for time in ("23:59:59.5", "00:00:01.25", "00:00:02")]
    assert read(tmp_path, *lines).times == [0, 1_750_000_000, 2_500_000_000]


def test_decorated_descriptors_and_results(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 openat(AT_FDCWD</r>, "a", O_RDWR) = 3</r/a = ) (b>',
        '1 read(3</r/a, b>, ""..., 10) = 10',
        '1 newfstatat(3</r/a>, "", {st_mode=S_IFREG|0644, st_size=12, ...}, AT_EMPTY_PATH) = 0',
        "1 lseek(3</r/a>, 5, SEEK_SET) = 5",
        "1 close(3</r/a>) = 0",
    )
    assert got.said == ["open a", "read a 0+10 = 10", "stat a", "close a"]


def test_names_of_any_bytes(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        r'1 mkdir("\377\1x\n\t\"\\", 0777) = 0',
        r'1 mkdir("\303\244) = 0 <0.1>, (", 0777) = 0',
        r'1 mkdir("\x41\0101", 0777) = 0',
        '1 mkdir("\xe4", 0777) = 0',
    )
    assert [line.removeprefix("mkdir ") for line in got.said] == [
        '\xff\x01x\n\t"\\',
        "\xc3\xa4) = 0 <0.1>, (",
        "A\x081",
        "\xe4",
    ]


def test_what_is_no_call_is_passed_over(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        "strace: Process 2 attached",
        "",
        "1 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=2} ---",
        "1 --- stopped by SIGTSTP ---",
        "1 futex(0x7f, FUTEX_WAIT_PRIVATE, 0, NULL) = 0",
        "1 poll([{fd=3, events=POLLIN}], 1, 0) = 0 (Timeout)",
        "1 select(4, [3], NULL, NULL, NULL) = 1 (in [3])",
        "1 fcntl(3, F_GETFD) = 0x1 (flags FD_CLOEXEC)",
        "1 brk(NULL) = 0xffff5f7a1000",
        "1 <... read resumed>, 10) = 3",
        "1 exit_group(0) = ?",
        "1 +++ exited with 0 +++",
    )
    assert got.said == []
    assert got.header.unseen == {"a call that began before the trace": 1}


BAD = {
    "no call": ("1 1700000009.000001 what is this", "no call of strace"),
    "no result": ('1 1700000009.000001 mkdir("a", 0777)', "no call of strace"),
    "cut off": ('1 1700000009.000001 mkdir("a', "no call of strace"),
    "negative time": ('1 -1700000009.000001 mkdir("a", 0777) = 0', "no call of strace"),
    "a time past 2^63": ('1 9999999999.000001 mkdir("a", 0777) = 0', "2^63 or more"),
    "times of -r": ('1 0.000012 mkdir("a", 0777) = 0', "it has the time since"),
    "without its time": (
        '[pid  1] mkdir("a", 0777) = 0',
        "it has no time, the lines before it have seconds since 1970",
    ),
    "a duration past 2^63": ('1 1700000009.1 mkdir("a", 0777) = 0 <9999999999.1>', "2^63 or more"),
    "an offset past 2^63": (
        '1 1700000009.1 pwrite64(3, ""..., 5, 9223372036854775808) = 5',
        "2^63 or more",
    ),
    "an end past 2^63": (
        '1 1700000009.1 pwrite64(3, ""..., 5, 9223372036854775807) = 5',
        "no byte lies at 2^63",
    ),
    "an offset past 2^64": (
        '1 1700000009.1 pwrite64(3, ""..., 5, 99999999999999999999) = 5',
        "64 bits",
    ),
    "a negative offset that works": (
        '1 1700000009.1 pwrite64(3, ""..., 5, -5) = 5',
        "at -5",
    ),
    "more than it asked for": ('1 1700000009.1 read(3, ""..., 5) = 6', "gave 6 of 5 bytes"),
    "no descriptor": ('1 1700000009.1 read(three, "", 5) = 0', "a file descriptor is needed"),
    "no path": ('1 1700000009.1 mkdir("a"b, 0777) = 0', "a path is needed"),
    "half a path": ('1 1700000009.1 mkdir("a"..., 0777) = 0', "was cut off"),
    "no second argument": ("1 1700000009.1 ftruncate(3) = 0", "1 arguments where 2"),
    "a negative descriptor": ('1 1700000009.1 open("b", O_RDWR) = 0xffffffffff', "a descriptor of"),
    "a string without end": ('1 1700000009.1 mkdir("a, 0777) = 0', "does not end"),
    "another call ends": ("1 1700000009.1 <... write resumed>) = 0", "read had begun"),
    "a call in a call": ('1 1700000009.1 mkdir("a", 0777) = 0', "before read has ended"),
    "a very long line": (
        '1 1700000009.1 mkdir("' + "a" * (1 << 20) + '", 0777) = 0',
        "longer than",
    ),
    "NUL": ('1 1700000009.1 mkdir("a\\0b", 0777) = 0', "NUL"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_is_counted_and_the_first_named(tmp_path: Path, what: str) -> None:
    line, reason = BAD[what]
    lines = [OPEN, "", line]
    if "in a call" in what or "another call" in what:
        lines[1] = "1 read(3,  <unfinished ...>"
    got = read(tmp_path, *lines)
    assert got.said[0] == "create a"
    assert got.header.unseen["a line that is malformed"] == 1
    first = str(got.header.facts["first_malformed"])
    assert first.startswith("text, line 3: ")
    assert reason in first


def test_a_line_that_is_not_whole(tmp_path: Path) -> None:
    path = text(tmp_path / "text", [OPEN, '1 read(3, ""..., 10) = 10'])
    path.write_bytes(path.read_bytes()[:-8])
    facts = read_all(tmp_path, [path], ["/r"]).header.facts
    assert str(facts["first_malformed"]).startswith("text, line 2: no call of strace: '1 1700")


def test_times_that_go_back(tmp_path: Path) -> None:
    """The clock was set; the order is that of the calls of one process."""
    lines = [f'1 17000000{second}.0 mkdir("{second}", 0777) = 0' for second in (10, 12, 11, 13)]
    got = read(tmp_path, *lines)
    assert sorted(got.said) == ["mkdir 10", "mkdir 11", "mkdir 12", "mkdir 13"]
    assert got.times == [0, 10**9, 2 * 10**9, 3 * 10**9]
    assert got.header.facts["issue_times_moved"] == 0  # they were brought in order


def test_times_that_go_back_further_than_can_be_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "BLOCK", 2)
    seconds = (10, 12, 13, 14, 11, 15)
    got = read(tmp_path, *(f'1 17000000{at}.0 mkdir("{at}", 0777) = 0' for at in seconds))
    assert got.said == [f"mkdir {at}" for at in (10, 12, 13, 14, 11, 15)]
    assert got.times == [at * 10**9 for at in (0, 2, 3, 4, 4, 5)]
    assert got.header.facts["issue_times_moved"] == 1


def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text four times as long needs no more."""
    monkeypatch.setattr(system, "BLOCK", 1024)
    part = ['1 pread64(3, ""..., 10, 100) = 10', '1 stat("b", 0x1) = -1 ENOENT (No such file)']
    peaks = []
    for count in (5_000, 20_000):
        path = text(tmp_path / "text", [OPEN, *part * count])
        tracemalloc.start()
        with writing(tmp_path / "t.h5") as writer:
            writer.finish(strace.read([path], writer, ["/r"], folder="/r"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# -- several texts -----------------------------------------------------------------------------
def header(**facts: Any) -> str:
    return f"# fsmatrix {json.dumps(facts)}"


def test_one_text_for_each_rank(tmp_path: Path) -> None:
    """Process 1 stands for another process in each of them."""
    facts = {"roots": ["/r"], "command": ["app", "x"]}
    first = text(
        tmp_path / "rank-1.strace",
        [
            header(rank=1, folder="/r/one", **facts),
            '1 mkdir("a", 0777) = 0',
            "",
            '1 rmdir("a") = 0',
        ],
    )
    second = text(
        tmp_path / "rank-0.strace",
        [header(rank=0, folder="/r", **facts), "", '1 mkdir("b", 0777) = 0', '1 rmdir("b") = 0'],
    )
    got = read_all(tmp_path, [first, second], [])
    assert got.said == ["mkdir one/a", "mkdir b", "rmdir one/a", "rmdir b"]
    assert got.times == [0, 1000, 2000, 2000]
    assert got.threads == [(1, 1, 1), (1, 1, 0)]
    assert got.header.command == ("app", "x")
    assert got.header.facts["roots"] == ["/r"]


def test_one_text_for_each_process(tmp_path: Path) -> None:
    """strace -ff: the name of a text ends in the process id."""
    (tmp_path / "t.10").write_text(
        '1700000000.1 open("a", O_RDWR) = 3\n1700000000.2 fork() = 11\n'
        '1700000000.4 read(3, ""..., 5) = 5\n'
    )
    (tmp_path / "t.11").write_text('1700000000.3 read(3, ""..., 7) = 7\n')
    got = read_all(tmp_path, [tmp_path / "t.10", tmp_path / "t.11"], ["/r"])
    assert got.said == ["open a", "read a 0+7 = 7", "read a 7+5 = 5"]
    assert got.threads == [(10, 10, 0), (11, 11, 0)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("# fsmatrix {", "cannot be understood"),
        ("# fsmatrix " + "[" * 100_000, "cannot be understood"),
        ("# fsmatrix []", "no JSON object"),
        (header(rank=-1, roots=["/r"]), "-1 is not a rank"),
        (header(rank="0", roots=["/r"]), "'0' is not a rank"),
        (header(rank=0, roots=["r"]), "not an absolute path"),
        (header(rank=0, roots=[7]), "not an absolute path"),
        (header(rank=0, roots="/r"), "give the root"),
        (header(rank=0, roots=["/r"], folder="x"), "not an absolute path"),
        (header(rank=0, roots=["/r", "/r/s"]), "lies below"),
        (header(), "give the root"),
    ],
)
def test_first_lines_that_lie(tmp_path: Path, line: str, reason: str) -> None:
    path = text(tmp_path / "text", [line, '1 mkdir("a", 0777) = 0'])
    with pytest.raises(TraceError, match="text: ") as caught:
        read_all(tmp_path, [path], [])
    assert reason in caught.value.reason


def test_texts_without_times_have_no_common_order(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text('1 mkdir("a", 0777) = 0\n')
    with pytest.raises(TraceError, match=r"a: its lines have no time, which brings .* -ttt"):
        read_all(tmp_path, [tmp_path / "a", tmp_path / "b"], ["/r"])
    for time, form in (("00:00:01", "a time of whole seconds"), ("  0.0001", "the time since")):
        for name in "ab":
            (tmp_path / name).write_text(f'1 {time} mkdir("a", 0777) = 0\n')
        with pytest.raises(TraceError, match=f"a: its lines have {form}.* -ttt"):
            read_all(tmp_path, [tmp_path / "a", tmp_path / "b"], ["/r"])


def test_times_of_r_add_up(tmp_path: Path) -> None:
    lines = [f'1      0.00000{after} mkdir("{after}", 0777) = 0\n' for after in (0, 5, 7)]
    (tmp_path / "text").write_text("".join(lines))
    assert read_all(tmp_path, [tmp_path / "text"], ["/r"]).times == [0, 5000, 12000]


def test_numbers_for_flags_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"text: line 2: the number '0x241' .* without -X raw"):
        read(tmp_path, OPEN, '1 open("b", 0x241, 0666) = 4')


@pytest.mark.parametrize("stamp", ["1700000000.{:06}", "23:59:59.{:06}"])
def test_a_text_twice_is_an_error(tmp_path: Path, stamp: str) -> None:
    lines = [
        f'{pid} {stamp.format(at)} mkdir("{at}", 0777) = 0' for pid, at in ((1, 5), (2, 3), (1, 7))
    ]
    once = "".join(f"{line}\n" for line in lines)
    (tmp_path / "text").write_text(once)
    assert len(read_all(tmp_path, [tmp_path / "text"], ["/r"]).said) == 3  # strace -z may go back
    (tmp_path / "text").write_text(once * 2)
    with pytest.raises(TraceError, match=r"text: line 4: .* twice, or was the clock set\?"):
        read_all(tmp_path, [tmp_path / "text"], ["/r"])


def test_a_form_that_changes_ends_the_import_where_it_does(tmp_path: Path) -> None:
    first = [f'1 mkdir("{number}", 0777) = 0' for number in range(9)]
    with pytest.raises(TraceError, match="text: line 10: the form changes here: it has no time"):
        read(tmp_path, *first, *(f"[pid  1] {line[2:]}" for line in first))


# -- on a terminal -----------------------------------------------------------------------------
def test_lines_that_messages_of_strace_cut(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '10:00:00.1 openat(AT_FDCWD, "a", O_RDWR) = 3',
        "10:00:00.2 clone(child_stack=NULL, flags=CLONE_FILES|SIGCHLDstrace: Process 8 attached",
        ", child_tidptr=0x7f) = 8",
        '[pid     8] 10:00:00.3 read(3, ""..., 5) = 5',
        "[pid     8] 10:00:00.4 vfork(strace: Process 9 attached",
        " <unfinished ...>",
        '[pid     9] 10:00:00.5 read(3, ""..., 5) = 5',
        "[pid     7] 10:00:00.6 wait4(-1,  <unfinished ...>",
        "[pid     8] 10:00:00.7 <... vfork resumed>) = 9",
        "[pid     9] 10:00:00.8 +++ exited with 0 +++",
        "[pid     8] 10:00:00.8 +++ exited with 0 +++",
        "10:00:00.9 <... wait4 resumed>NULL, 0, NULL) = 8",
        '10:00:01.0 read(3, ""..., 5) = 5',
    )
    assert got.said == ["open a", *(f"read a {at}+5 = 5" for at in (0, 5, 10))]
    assert [got.threads[row][1] for row in got.thread] == [0, 8, 9, 0]
    assert not got.header.unseen


def test_lines_that_the_program_writes_into(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        'mkdir("a", 0777) = 0',
        'write(2, "one\\n two\\n", 9one',
        " two",
        ") = 9",
        'write(1, "x", 1x) = 1',
        "and a line of its own",
        'mkdir("b", 0777) = 0',
        'mkdir("lost',
        'mkdir("c", 0777) = 0',
    )
    assert got.said == ["mkdir a", "mkdir b", "mkdir c"]
    assert got.header.unseen["a line that is malformed"] == 3


def test_what_y_states_is_believed(tmp_path: Path) -> None:
    """The working directory, and what was open before the trace."""
    got = read(
        tmp_path,
        '1 openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a>',
        '1 read(3</w/a>, "", 5) = 5',
        '1 openat(AT_FDCWD</r/sub>, "a", O_RDONLY) = 4</r/sub/a>',
        '1 write(1</r/log>, ""..., 7) = 7',
        "1 dup2(1</r/log>, 9<TCP:[127.0.0.1:1->127.0.0.1:2]>) = 9</r/log>",
        '1 write(9</r/log>, ""..., 7) = 7',
        '1 read(0</dev/null<char 1:3>>, "", 5) = 0',
        '1 read(5</r/gone>(deleted), "", 5) = 0',
        "1 close(6</r/other>) = 0",
        '1 newfstatat(7</r/dir>, "b", {st_mode=S_IFREG|0644, st_size=3}, 0) = 0',
        folder="/r",
    )
    assert got.said == [
        "open sub/a",
        "open log = ?",
        "write log 0+7 = 7",
        "write log 7+7 = 7",
        "stat dir/b",
    ]
    assert got.header.facts["opened_by_import"] == 1


def test_an_older_y_states_the_directory_by_what_it_opened(tmp_path: Path) -> None:
    got = read(
        tmp_path,
        '1 stat("b", 0x1) = -1 ENOENT (No such file or directory)',
        '1 open("sub/a", O_RDONLY) = 3</r/sub/a>',
        '1 stat("b", 0x1) = -1 ENOENT (No such file or directory)',
        folder=None,
    )
    assert got.said == ["open sub/a", "stat b = -2"]
    assert got.header.unseen == {"a path relative to a directory that is not known": 1}


def test_the_root_is_not_taken_for_the_working_directory(tmp_path: Path) -> None:
    lines = ('1 open("a", O_RDONLY) = 3', '1 read(3, ""..., 5) = 5')
    assert not read(tmp_path, *lines, folder=None).said
    getcwd = '1 getcwd("/r/sub", 4096) = 7'
    assert read(tmp_path, getcwd, *lines, folder=None).said == ["open sub/a", "read sub/a 0+5 = 5"]


FORM = "f-tt-T.txt"


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One script under strace 6.1 with different options, in /tmp/w; its root is /tmp/w/d."""
    folder = tmp_path_factory.mktemp("forms")
    with tarfile.open(Path(__file__).parents[2] / "data" / "strace" / "forms.tar.xz") as archive:
        for member in archive:
            stream = archive.extractfile(member)
            assert stream is not None
            (folder / member.name).write_bytes(stream.read())
    return folder


def said(folder: Path, *names: str) -> Read:
    made = imported_files(folder, [folder / name for name in names], roots=[Path("/tmp/w/d")])
    assert made.rows
    with opened(folder / "t.h5") as trace:
        return words(trace)


@pytest.mark.parametrize(
    "form",
    [
        *("f-plain", "f-t", "f-ttt-T", "f-r", "f-i", "f-n", "f-tt-T-y", "f-tt-T-yy"),
        *("stderr-pid-brackets", "ff"),
    ],
)
def test_every_form_gives_the_same_operations(forms: Path, form: str) -> None:
    expected = said(forms, FORM)
    assert len(expected.said) == 17
    assert [line for line in expected.said if line.startswith(("read", "write"))] == [
        *(f"write a {at}+4096 = 4096" for at in (0, 4096, 8192, 12288)),
        *("read a 0+8192 = 8192", "write b 0+8192 = 8192"),
        *("read a 8192+8192 = 8192", "write b 8192+8192 = 8192", "read a 16384+8192 = 0"),
    ]
    names = [f"{form}.txt"] if form != "ff" else [f"ff.{id}" for id in range(22524, 22528)]
    got = said(forms, *names)
    assert (got.said, got.names) == (expected.said, expected.names)
    assert got.header.timed == (form not in ("f-plain", "f-t"))
    assert "a line that is malformed" not in got.header.unseen


def test_one_process_on_a_terminal(forms: Path) -> None:
    """Without dup2: what it reads and writes has descriptors that nothing tells of."""
    got = said(forms, "single-stderr.txt")
    assert got.said == ["open b", "create c", "close b = ?", "close c = ?"]
    assert got.header.unseen["a descriptor that was not opened in the trace"] == 8
    assert got.header.unseen["a line that is malformed"] == 1
    assert got.header.facts["first_malformed"] == (
        "single-stderr.txt, line 64: no call of strace: '2+0 records out'"
    )


def test_calls_that_lack_the_working_directory_are_refused_for_that(forms: Path) -> None:
    """Only openat, read, write and close: the program changed its directory unseen."""
    with pytest.raises(
        TraceError, match=r"directory that is not known.*--folder, or trace with -y"
    ):
        said(forms, "f-only4.txt")


# -- fuzz --------------------------------------------------------------------------------------
CALLS = sorted(strace.NAMES)
WORDS = st.sampled_from(
    [
        *("AT_FDCWD", "3", "4", "-1", "0", "NULL", "[7]", "O_RDWR|O_CREAT", "O_TMPFILE", "O_PATH"),
        *(
            '"a"',
            '"a/b"',
            '"../x"',
            '"/r"',
            '"/r/b"',
            '""...',
            '"',
            "\\",
            '"\\',
            "{",
            "[",
            "(",
            ")",
        ),
        *(
            "18446744073709551615",
            "9223372036854775807",
            "-9223372036854775808",
            "1e5",
            "CLONE_FILES",
        ),
        *("{st_mode=S_IFREG|0644, st_size=5}", "[{iov_base=0, iov_len=5}]", "SEEK_END", "F_DUPFD"),
        *(
            "<unfinished ...>",
            "AT_EMPTY_PATH",
            "AT_REMOVEDIR",
            "{flags=O_RDWR}",
            "F_SETFL",
            "9" * 25,
        ),
    ]
)
RESULTS = st.sampled_from(
    ["0", "3", "4", "5", "-1 ENOENT (No)", "?", "? ERESTARTSYS", "-1", "0x7fffffffffff", "-5", ""]
)
LINES = st.builds(
    lambda pid, time, name, words, result, end: (
        f"{pid} {time}{name}({', '.join(words)}{end}{result}"
    ),
    st.integers(1, 4),
    st.sampled_from(["1700000000.1 ", "1700000000.2 ", "1700000000.15 ", ""]),
    st.sampled_from(CALLS),
    st.lists(WORDS, max_size=6),
    RESULTS,
    st.sampled_from([") = ", ") = ", ") = ", " <unfinished ...>", "= "]),
)
OTHERS = st.builds(
    lambda pid, rest: f"{pid} 1700000000.2 {rest}",
    st.integers(1, 4),
    st.sampled_from(
        [
            *("+++ exited with 0 +++", "+++ killed by SIGKILL +++", "--- SIGHUP ---"),
            "+++ superseded by execve in pid 2 +++",
            *(f"<... {name} resumed>) = 3" for name in ("clone", "read", "openat", "close")),
        ]
    ),
)


@given(
    lines=st.lists(st.one_of(LINES, OTHERS, st.text(max_size=60)), max_size=25),
)
def test_any_text_is_a_trace_or_an_error_that_names_the_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / "text"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    made = folder / "t.h5"
    try:
        with writing(made) as writer:
            writer.finish(strace.read([path], writer, ["/r"]))
    except TraceError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert "the form changes here" in message or "the times go back" in message
        assert message.startswith(f"{path}: line ")
        assert not made.exists()
        return
    with opened(made) as trace:
        assert sum(len(block["kind"]) for block in trace.blocks()) == trace.operations


@given(data=st.binary(max_size=300))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    assume(not data.startswith(b"# fsmatrix "))  # a header must be right
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "text").write_bytes(data)
    with writing(folder / "t.h5") as writer:
        writer.finish(strace.read([folder / "text"], writer, ["/r"]))
        assert writer.operations == 0
