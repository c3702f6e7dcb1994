"""IOR's tables: its text output, 3.2 to 4.1, and its CSV of results and of times of each rank.

The text is that of ior-output.c (ShowSetup, PrintReducedResult, ...); CSV exists since 4.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.results.formats.ior.ior_tests import (
    Log,
    Number,
    Output,
    Row,
    Setting,
    Test,
    has_decimal_comma,
    number,
    numbered_lines,
    printed_size,
    whole,
)
from fsmatrix.results.formats.parsed import ParseError, apart
from fsmatrix.results.record import Floats

BANNER = re.compile(r"IOR-([\w.+-]{1,40}): MPI Coordinated Test of Parallel I/O", re.ASCII)
# before 3.2 with "=" too
_KEY = re.compile(
    r"([A-Za-z][A-Za-z ]{1,19}?) *[:=] (.*)|([A-Za-z][A-Za-z ]{1,19}?) *[:=]", re.ASCII
)
_OLD_TEST = re.compile(r"Test (\d{1,9}) started: (.*)")  # before 3.2, and its clients
_OLD_CLIENTS = re.compile(r"clients += (\d{1,9}) \((\d{1,9}) per node\)")
_DATE = re.compile(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", re.ASCII)
_FS = re.compile(r"FS +: (.+?) +Used FS: (\S+) +Inodes: (.+?) +Used Inodes: (\S+)")
_HEADING = re.compile(r"access +bw\(MiB/s\)  (IOPS)?")
ACCESSES = ("write", "read", "writecheck", "readcheck")
COLUMNS = ("bandwidth", "iops", "latency", "block", "transfer_size", "open", "transfer", "close")
COLUMNS_32 = tuple(name for name in COLUMNS if name not in ("iops", "latency"))
MUST = ("bandwidth", "block", "transfer_size", "total")
SUMMARY_TAIL = (
    "test", "tasks", "tasks_per_node", "iterations", "file_per_process", "reorder_tasks",
    "task_offset", "reorder_random", "seed", "segments", "block_size", "transfer_size",
    "aggregate", "api", "refnum",
)  # fmt: skip
SUMMARY_LENGTHS = (21, 25, 27)  # words of a line: before 3.2; since 3.3 about stonewalling too
LONGEST_FS = 300  # characters
HEAD = ("Began", "Command line", "Machine", "Finished")

CSV_HEADER = (
    "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),total(s),"
    "numTasks,iter"
)
CSV_COLUMNS = (
    "bandwidth",
    "iops",
    "latency",
    "block",
    "transfer_size",
    "open",
    "transfer",
    "close",
    "total",
)
RANKS_HEADER = "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput"


def _is(text: str) -> Callable[[str], bool]:
    return lambda value: value == text


def _flag(value: str) -> bool | None:
    return {"0": False, "1": True}.get(value)


def _some(value: str) -> int | None:
    return whole(value) or None


# key of the "Options" block -> settings; sizes are what was printed, maybe rounded
OPTIONS: Mapping[str, tuple[str, Callable[[str], Setting]]] = {
    "api": ("api", str),
    "access": ("file_per_process", _is("file-per-process")),
    "type": ("collective", _is("collective")),
    "segments": ("segments", _some),
    "ordering in a file": ("random_offset", _is("random")),
    "task offset": ("task_offset", whole),
    "nodes": ("nodes", _some),
    "tasks": ("tasks", _some),
    "clients per node": ("tasks_per_node", _some),
    "repetitions": ("iterations", _some),
    "xfersize": ("transfer_size_printed", printed_size),
    "blocksize": ("block_size_printed", printed_size),
    "aggregate filesize": ("aggregate_printed", printed_size),
    "stonewallingTime": ("stonewall", _some),
    "stoneWallingWearOut": ("stonewall_wear_out", _flag),
}


def put_option(test: Test, key: str, value: str, line: int) -> bool:
    """A line of the "Options" block, of text and of JSON; False if it is another one."""
    if key == "ordering inter file":
        test.put("reorder_tasks", value.startswith("constant"), line)
        test.put("reorder_random", value.startswith("random"), line)
    elif key == "test filename":
        test.facts.setdefault("test_file", value)
    elif key in OPTIONS:
        name, read = OPTIONS[key]
        test.put(name, read(value), line)
    else:
        return False
    return True


def numbers_of(names: Sequence[str], words: Sequence[str]) -> dict[str, Number] | None:
    """Columns by name; None if one that must be there is no positive finite number."""
    numbers = {
        name: value
        for name, word in zip(names, words, strict=True)
        if (value := number(word)) is not None and value.value >= 0
    }
    sound = all(name in numbers and numbers[name].value > 0 for name in MUST if name != "total")
    return numbers if sound and "total" in numbers else None


class TextReader:
    """Reads line by line; knows nothing but what the lines say."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.outputs: list[Output] = []
        self.log = Log(lambda: self.output.test)
        self._columns: tuple[str, ...] | None = None  # as the last heading says

    @property
    def output(self) -> Output:
        """The output that is being read."""
        if not self.outputs:
            self.outputs.append(Output())
        return self.outputs[-1]

    def line(self, line: str, at: int) -> None:
        """Take one line, whatever it is."""
        word = line[:11].split(" ", 1)[0]
        if word in ACCESSES:
            self._result(line, at)
        elif word == "access" and (heading := _HEADING.match(line)):
            self._columns = COLUMNS if heading[1] else COLUMNS_32
            self.log.take()  # what stands before all rows is of another stream, and of no row
        elif word == "remove":
            self._removal(line)
        elif self.log.reads(line, at):
            pass
        elif match := BANNER.fullmatch(line):
            self._banner(match[1], at)
        elif line.startswith("FS ") and (match := _FS.fullmatch(line[:LONGEST_FS])):
            names = ("size", "used", "inodes", "inodes_used")
            fact = dict(zip(names, match.groups(), strict=True))
            self.output.test.facts.setdefault("file_system", fact)
        elif match := _OLD_TEST.fullmatch(line):
            self._key("TestID", match[1], at)
            self._key("StartTime", match[2], at)
        elif match := _OLD_CLIENTS.fullmatch(line.lstrip()):
            self._key("tasks", match[1], at)
            self._key("clients per node", match[2], at)
            if int(match[2]) and int(match[1]) % int(match[2]) == 0:
                self._key("nodes", str(int(match[1]) // int(match[2])), at)
        elif match := _KEY.fullmatch(line.lstrip()):
            self._key(match[1] or match[3], (match[2] or "").strip(), at)

    def _banner(self, version: str, at: int) -> None:
        output = self.output
        fresh = not output.head and not output.tests
        if output.banners and fresh:
            output.before.note("the banner stands there twice: outputs of two worlds?", at)
        elif output.banners or not fresh:
            self.log.take()
            self.outputs.append(Output())
        self.output.version = version
        self.output.banners += 1

    def _key(self, key: str, value: str, at: int) -> None:
        output = self.output
        if key == "TestID":
            identity = whole(value)
            if output.tests and output.test.settings.get("test") == identity:
                output.test.note("the head of the test stands there twice", at)
                return
            self.log.take()
            output.tests.append(Test(at, {"test": identity}))
        elif (key := key.removesuffix(" used")) in HEAD:
            if key == "Finished":
                output.finished = output.finished or _DATE.fullmatch(value) is not None
            output.head.setdefault(key, value)
        elif key == "StartTime":
            output.test.facts.setdefault("started", value)
        elif key in OPTIONS or key in ("ordering inter file", "test filename"):
            put_option(self._test(at), key, value, at)

    def _test(self, at: int) -> Test:
        """The test of a result; one is made up when its head is missing."""
        if not self.output.tests:
            self.output.tests.append(Test(at))
            self.output.test.note("the head of the output is missing", at)
        return self.output.test

    def _result(self, line: str, at: int) -> None:
        words = line.split()
        if len(words) in SUMMARY_LENGTHS:
            self._summary(words, at)
            return
        columns = {11: COLUMNS, 9: COLUMNS_32}.get(len(words))
        if self._columns not in (None, columns):  # a longer line that is cut
            columns = None
        iteration = whole(words[-1])
        if any(has_decimal_comma(word) for word in words[1:]):
            raise ParseError(self.source, at, "numbers have decimal commas: run IOR with LC_ALL=C")
        if columns is None or iteration is None:
            if len(words) > 4 and number(words[1]) is not None:
                self._test(at).lose(f"a line of {words[0]} is damaged", at)
            return
        pending = self.log.take()
        numbers = numbers_of((*columns, "total"), words[1:-1])
        if numbers is None:
            self._test(at).lose(f"the line of {words[0]} holds impossible numbers", at)
            return
        self._test(at).add(Row(words[0], numbers, iteration, at, **pending))

    def _removal(self, line: str) -> None:
        words = line.split()
        if len(words) in (9, 11) and (seconds := number(words[-2])) and seconds.value >= 0:
            self.output.test.removals.append(seconds.value)

    def _summary(self, words: Sequence[str], at: int) -> None:
        values = dict(zip(SUMMARY_TAIL, words[-len(SUMMARY_TAIL) :], strict=True))
        if any(whole(values[name]) is None for name in ("test", "tasks", "block_size")):
            return
        tests = [t for t in self.output.tests if t.settings.get("test") == whole(values["test"])]
        if not tests and len(self.output.tests) == 1:
            tests = [t for t in self.output.tests if "test" not in t.settings]
        for test in tests[:1]:
            if test.summary.setdefault(words[0], values) != values:
                test.note(f"two different summaries of {words[0]}", at)
                test.conflicts.add("summary")


def _without_cut_row(text: str) -> str:
    """A row at the end of which no line ends may have been longer: it looks whole by chance."""
    last = text.rfind("\n") + 1
    return text[:last] if text[last:].startswith((*ACCESSES, "remove")) else text


def read_text(text: str, source: str) -> list[Output]:
    """All outputs in a text (a job may have started IOR several times)."""
    reader = TextReader(source)
    for at, line in numbered_lines(_without_cut_row(text)):
        for part in apart(line, BANNER):
            reader.line(part.rstrip(), at)
    return reader.outputs


def read_csv(text: str, source: str) -> Output:
    """The results; of the settings, only block, transfer size and tasks stand in them."""
    output = Output(finished=None, tests=[Test(1)])
    test = output.test
    log = Log(lambda: test)
    seen = False
    for at, line in numbered_lines(text):
        if not line or log.reads(line, at):
            continue
        if line == CSV_HEADER:
            seen = True
            continue
        words = line.split(",")
        if words[0] not in ("write", "read"):
            continue
        row = _row(words, test, at, source)
        if row is not None:
            pending = log.take()
            test.add(Row(row.access, row.numbers, row.iteration, at, tasks=row.tasks, **pending))
    if not seen:
        test.note("the line with the names of the columns is missing")
    _check_sequence(test)
    return output


def _row(words: Sequence[str], test: Test, at: int, source: str) -> Row | None:
    # a decimal comma makes two fields of one number
    if len(words) == 2 * len(CSV_COLUMNS) + 3:
        raise ParseError(source, at, "numbers have decimal commas: run IOR with LC_ALL=C")
    if len(words) != len(CSV_COLUMNS) + 3:
        test.lose(f"a line of {words[0]} is damaged", at)
        return None
    iteration, tasks = whole(words[-1]), whole(words[-2])
    numbers = numbers_of(CSV_COLUMNS, words[1:-2])
    if numbers is None or iteration is None or not tasks:
        test.lose(f"the line of {words[0]} holds impossible numbers", at)
        return None
    return Row(words[0], numbers, iteration, at, tasks=tasks)


def _check_sequence(test: Test) -> None:
    """Iterations count up from 0: a last number that was cut ("1" of "12") does not fit."""
    for access in ("write", "read"):
        rows = [row for row in test.rows if row.access == access]
        for expected, row in enumerate(rows):
            if row.iteration != expected:
                text = f"iteration {row.iteration} of {access} stands in {expected}'s place"
                test.discard(row, text)


@dataclass(frozen=True)
class RankTimes:
    """One access of one iteration: seconds of each rank, in the order in which they ran.

    IOR's own throughputs in this file divide the total by the number of ranks; they are no
    measurement and are left out.
    """

    access: str
    seconds: Floats  # [rank], open to close
    transfer: Floats  # [rank], first to last I/O (fsync included)


def parse_ranks(text: str, source: str) -> list[RankTimes]:
    """`-O saveRankPerformanceDetailsCSV`; ParseError if any of it is missing or damaged."""
    parts: list[tuple[str, list[tuple[float, float]]]] = []
    seen = False
    for at, line in numbered_lines(text):
        if not seen:
            if line != RANKS_HEADER:
                raise ParseError(source, at, "not IOR's file of ranks: the first line is another")
            seen = True
            continue
        words = line.split(",")
        rank = whole(words[1]) if len(words) == 6 else None
        values = [number(word) for word in words[2:]]
        if rank is None or words[0] not in ("write", "read") or None in values:
            raise ParseError(source, at, "not a line of a rank's times")
        first, second = (value.value for value in values[:2] if value is not None)
        if min(first, second) < 0:
            raise ParseError(source, at, "a time below zero")
        if rank == 0:
            parts.append((words[0], []))
        if not parts or parts[-1][0] != words[0] or len(parts[-1][1]) != rank:
            raise ParseError(source, at, f"rank {rank} of {words[0]} stands in the wrong place")
        parts[-1][1].append((first, second))
    if not parts:
        raise ParseError(source, 0, "holds no times of ranks")
    if not text.endswith("\n") or len({len(times) for _, times in parts}) != 1:
        raise ParseError(source, 0, "the last ranks are missing: the file is cut")
    return [
        RankTimes(access, *np.array(times, dtype=np.float64).T.copy()) for access, times in parts
    ]
