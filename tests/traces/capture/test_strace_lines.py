"""Lines of strace: their forms, what is none of them, and texts that lie."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fsmatrix.traces.capture import order, strace
from fsmatrix.traces.model import TraceError
from fsmatrix.traces.reader import opened
from fsmatrix.traces.writer import writing
from tests.traces.capture.texts import read, read_all, text

OPEN = '1 openat(AT_FDCWD, "a", O_RDWR|O_CREAT|O_EXCL, 0666) = 3'
FORMS = {
    "-f -ttt -T": ('7  1700000000.000001 mkdir("a", 0777) = 0 <0.000005>', [7], 5000),
    "to a terminal": ('[pid    7] 1700000000.000001 mkdir("a", 0777) = 0 <0.000005>', [7], 5000),
    "of one process": ('1700000000.000001 mkdir("a", 0777) = 0 <0.5>', [0], 500_000_000),
    "nanoseconds": ('7 1700000000.000000001 mkdir("a", 0777) = 0 <0.000000005>', [7], 5),
    "-tt": ('7 23:59:59.999999 mkdir("a", 0777) = 0', [7], -1),
    "-t": ('7 23:59:59 mkdir("a", 0777) = 0', [7], -1),
    "no times": ('7 mkdir("a", 0777)                       = 0', [7], -1),
    "-x": ('7 mkdir("\\x61", 0777) = 0', [7], -1),
    "-y": ('7 mkdirat(AT_FDCWD</r, (\\74dir>, "a", 0777) = 0', [7], -1),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(tmp_path: Path, form: str) -> None:
    line, processes, latency = FORMS[form]
    (tmp_path / "text").write_text(f"{line}\n")
    got = read_all(tmp_path, [tmp_path / "text"], ["/r"])
    assert got.said == ["mkdir a"]
    assert [row[0] for row in got.threads] == processes
    assert got.latencies == [latency]
    assert got.header.timed == (" 1700" in f" {line}" or ":59" in line)


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
    "times of -r": ('1 0.000012 mkdir("a", 0777) = 0', "not a time of the clock"),
    "without its time": (
        '[pid  1] mkdir("a", 0777) = 0',
        "some lines have a time and some have none",
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
def test_what_cannot_be_names_file_and_line(tmp_path: Path, what: str) -> None:
    line, reason = BAD[what]
    lines = [OPEN, "", line]
    if "in a call" in what or "another call" in what:
        lines[1] = "1 read(3,  <unfinished ...>"
    with pytest.raises(TraceError, match=r".") as caught:
        read(tmp_path, *lines)
    assert str(caught.value).startswith(f"{tmp_path / 'text'}: line 3: ")
    assert reason in caught.value.reason
    assert not (tmp_path / "t.h5").exists()
    got = read(tmp_path, *lines, lenient=True)
    assert got.said[0] == "create a"
    assert got.header.unseen["a line that is malformed"] == 1


def test_a_line_that_is_not_whole(tmp_path: Path) -> None:
    path = text(tmp_path / "text", [OPEN, '1 read(3, ""..., 10) = 10'])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(TraceError, match="line 2: no call of strace"):
        read_all(tmp_path, [path], ["/r"])


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
    monkeypatch.setattr(order, "BLOCK", 2)
    seconds = (10, 12, 13, 14, 11, 15)
    got = read(tmp_path, *(f'1 17000000{at}.0 mkdir("{at}", 0777) = 0' for at in seconds))
    assert got.said == [f"mkdir {at}" for at in (10, 12, 13, 14, 11, 15)]
    assert got.times == [at * 10**9 for at in (0, 2, 3, 4, 4, 5)]
    assert got.header.facts["issue_times_moved"] == 1


def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text four times as long needs no more."""
    monkeypatch.setattr(order, "BLOCK", 1024)
    part = ['1 pread64(3, ""..., 10, 100) = 10', '1 stat("b", 0x1) = -1 ENOENT (No such file)']
    peaks = []
    for count in (5_000, 20_000):
        path = text(tmp_path / "text", [OPEN, *part * count])
        tracemalloc.start()
        with writing(tmp_path / "t.h5") as writer:
            writer.finish(strace.read([path], writer, ["/r"]))
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
    with pytest.raises(TraceError, match="without times"):
        read_all(tmp_path, [tmp_path / "a", tmp_path / "b"], ["/r"])


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
    lenient=st.booleans(),
)
def test_any_text_is_a_trace_or_an_error_that_names_the_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], lenient: bool
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / "text"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    made = folder / "t.h5"
    try:
        with writing(made) as writer:
            writer.finish(strace.read([path], writer, ["/r"], lenient=lenient))
    except TraceError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert not lenient
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
        writer.finish(strace.read([folder / "text"], writer, ["/r"], lenient=True))
        assert writer.operations == 0
