"""IOR's JSON, 3.2 to 4.1, which is often not JSON: read line by line, by IOR's own layout.

IOR prints one key in a line (only StartTime shares its line with the file system), so that
results are recovered from files that are cut, overwritten at their head (3.2 opens its
summary file twice) or mixed with messages (stonewalling).  A result counts only if all its
keys stand between one `{` and the next `}`.  What a program wrote anew (jq, Python) is whole, and
is put into that layout first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import inside
from fsmatrix.results.formats.ior.as_text import BANNER, MUST, RankTimes, put_option
from fsmatrix.results.formats.ior.ior_tests import (
    Log,
    Number,
    Output,
    Row,
    Setting,
    Test,
    number,
    numbered_lines,
    whole,
)
from fsmatrix.results.formats.parsed import Note, ParseError, shared_facts, totals
from fsmatrix.results.record import Phase, window

# Phases of IOR put together: iterations of several invocations, and the times of ranks.


# what rounding may add to the window: rates above 3600 MiB/s are printed without decimals
ROUNDING = 2e-4
TICK = 1e-6  # s, last digit of the times
# of the window: IOR takes the ranks' times and the window from clock readings of their own, and a
# clock that is being corrected runs up to 500 ppm fast or slow (adjtimex(2)); seen: 0.036 %
CLOCK = 1e-3


def join(phases: Sequence[Phase]) -> Phase:
    """One phase of the iterations of several invocations of the same kind, in their order.

    Bytes, operations, errors and windows add up: the rate is total / total.
    """
    if len(phases) == 1:
        return phases[0]
    rows = [row for phase in phases for row in iterations.rows_of(phase.iterations)]
    numbered = [{**row, "number": index} for index, row in enumerate(rows)]
    return totals(
        phases[0].name,
        sum(window(phase) for phase in phases),
        sum(int(phase.bytes.sum()) for phase in phases),
        sum(int(phase.operations.sum()) for phase in phases),
        sum(int(phase.errors.sum()) for phase in phases),
        facts=shared_facts(phases),
        iterations=iterations.columns(numbered),
        summary=iterations.summary(rows, "bandwidth"),
    )


def with_ranks(
    phase: Phase, times: Sequence[RankTimes], processes: int, even: bool
) -> tuple[Phase, tuple[Note, ...]]:
    """A phase of one invocation with what its ranks' times add; notes if they do not fit.

    `even`: every rank did the same share of the work.  Then a phase of a single iteration
    gets arrays [rank].  IOR writes how long each rank took, not when it began: all are taken
    to begin together (a barrier is before).  What the window is longer than the longest rank
    is added to each end, so that the window stays exactly IOR's.
    """
    parts = iterations.rows_of(phase.iterations)
    if len(times) != len(parts) or any(len(t.seconds) != processes for t in times):
        text = f"the file of ranks does not hold {processes} ranks of {len(parts)} iterations"
        return phase, (Note("recovered", f"{text}: it is not used", 0, phase.name),)
    for part, ranks in zip(parts, times, strict=True):
        longest = float(ranks.seconds.max())
        if longest > part["seconds"] * (1 + ROUNDING + CLOCK) + TICK:
            text = f"a rank took {longest:.6g} s of a window of {part['seconds']:.6g} s"
            return phase, (Note("contradiction", text, 0, phase.name),)
        part["slowest_rank"] = int(ranks.seconds.argmax())
        part["rank_min"] = float(ranks.seconds.min())
        part["rank_median"] = float(np.median(ranks.seconds))
        part["rank_max"] = longest
    phase = replace(phase, iterations=iterations.columns(parts))
    return _per_rank(phase, times, processes, even), ()


def _per_rank(phase: Phase, times: Sequence[RankTimes], processes: int, even: bool) -> Phase:
    """Arrays [rank] where bytes and times of each rank are known, otherwise as it was."""
    bytes_, operations = int(phase.bytes.sum()), int(phase.operations.sum())
    shares = bytes_ % processes == 0 and operations % processes == 0
    if len(times) != 1 or not even or not shares or phase.errors.any():
        return phase
    seconds = np.minimum(times[0].seconds, window(phase))
    return replace(
        phase,
        start=np.zeros(processes),
        end=seconds + (window(phase) - seconds.max()),
        bytes=np.full(processes, bytes_ // processes, dtype=np.int64),
        operations=np.full(processes, operations // processes, dtype=np.int64),
        errors=np.zeros(processes, dtype=np.int64),
        facts={
            **phase.facts,
            "ranks": "seconds of each rank as IOR wrote them, taken to begin together; bytes "
            "are equal shares of fixed work",
        },
    )


_PAIR = re.compile(r'"([^"]{1,64})" {0,2}: {0,2}(?:"([^"]*)"|([^\s",{}\[\]]+))')
_CONTINUED = re.compile(r"[-+.0-9eE]")
_COMMAND = re.compile(r'"(Command line)": "(.*)",?')
_SECTION = re.compile(r'"(tests|Parameters|Options|Results|max|summary)": [\[{]')
_LOCALE = re.compile(r'"bwMiB": [0-9]+,[0-9]+')
KEYS = {
    "bwMiB": "bandwidth",
    "blockKiB": "block",
    "xferKiB": "transfer_size",
    "iops": "iops",
    "latency": "latency",
    "openTime": "open",
    "wrRdTime": "transfer",
    "closeTime": "close",
    "totalTime": "total",
}


def _flag(value: str) -> bool | None:
    number = whole(value)
    return None if number is None else number > 0


def _positive(value: str) -> int | None:
    return whole(value) or None


PARAMETERS: Mapping[str, tuple[str, Callable[[str], Setting]]] = {
    "deadlineForStonewall": ("stonewall", _positive),
    "stoneWallingWearOut": ("stonewall_wear_out", _flag),
    "nodes": ("nodes", _positive),
    "tasksPerNode": ("tasks_per_node", _positive),
    "repetitions": ("iterations", _positive),
    "maxTimeDuration": ("limited", _flag),
    "fsync": ("fsync", _flag),
    "fsyncperwrite": ("fsync_per_write", _flag),
    "readFile": ("read_file", _flag),
    "writeFile": ("write", _flag),
    "filePerProc": ("file_per_process", _flag),
    "reorderTasks": ("reorder_tasks", _flag),
    "reorderTasksRandom": ("reorder_random", _flag),
    "randomOffset": ("random_offset", _flag),
    "checkWrite": ("check_write", _flag),
    "checkRead": ("check_read", _flag),
    "useO_DIRECT": ("direct", _flag),
    "keepFile": ("keep", _flag),
    "collective": ("collective", _flag),
    "segmentCount": ("segments", _positive),
    "transferSize": ("transfer_size", _positive),
    "blockSize": ("block_size", _positive),
}
FACTS = {
    "StartTime": "started",
    "Path": "path",
    "Capacity": "size",
    "Used Capacity": "used",
    "Inodes": "inodes",
    "Used Inodes": "inodes_used",
}
SUMMARY = {
    "numTasks": "tasks",
    "tasksPerNode": "tasks_per_node",
    "repetitions": "iterations",
    "segmentCount": "segments",
    "blockSize": "block_size",
    "transferSize": "transfer_size",
    "API": "api",
    "filePerProc": "file_per_process",
}


# in IOR's order, before others: the reader has to know what a key belongs to
FIRST = ("Version", "TestID", "tests", "Parameters", "Options", "Results", "max")


class _Number(str):
    """As the file has it, with all its digits."""

    __slots__ = ()


def as_printed(text: str) -> str:
    """In IOR's own layout, if it is JSON in another one: in a line, or with its keys sorted."""
    try:
        whole_ = json.loads(text, parse_float=_Number, parse_int=_Number)
    except (ValueError, RecursionError):
        return text
    lines = list(_lines(whole_))
    pairs = sum(line.startswith('"') for line in lines)
    if "".join("".join(lines).split()) == "".join(text.split()) and 2 * text.count("\n") > pairs:
        return text
    return "\n".join(lines)


def _lines(value: object, before: str = "", after: str = "") -> Iterator[str]:
    """One key in a line, brackets at the end of one or alone."""
    if isinstance(value, dict):
        yield f"{before}{{"
        keys = sorted(value, key=lambda k: (isinstance(value[k], dict | list), _place(k)))
        for key in keys:
            yield from _lines(value[key], f'"{key}": ', "," * (key != keys[-1]))
        yield f"}}{after}"
    elif isinstance(value, list):
        yield f"{before}["
        for number_, one in enumerate(value, 1):
            yield from _lines(one, "", "," * (number_ < len(value)))
        yield f"]{after}"
    else:
        plain = value if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
        yield f"{before}{plain}{after}"


def _place(key: str) -> int:
    return FIRST.index(key) if key in FIRST else len(FIRST)


class JsonReader:
    """Reads line by line; `section` is the named part that the line stands in."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.output = Output()
        self.log = Log(lambda: self.output.test)
        self.section = "head"
        self._record: dict[str, str] | None = None
        self._spoiled = ""
        self._open = False  # the line before ended in a number, without a comma

    def line(self, line: str, at: int) -> None:
        """Take one line, whatever it is."""
        bare = line.strip()
        if self.log.reads(bare, at):
            return
        if match := BANNER.fullmatch(bare):
            self.output.version = match[1]
            return
        if _LOCALE.search(bare):
            raise ParseError(self.source, at, "numbers have decimal commas: run IOR with LC_ALL=C")
        if match := _SECTION.search(bare):
            self._close(at, whole_=False)
            self.section = match[1]
            bare = bare[match.end() :]
        if match := _COMMAND.search(bare):
            self._pair(match[1], match[2], at)
            return
        if self._open and _CONTINUED.match(bare):
            self._spoiled = self._spoiled or "a number is broken in two"
        self._open = False
        for match in _PAIR.finditer(bare):
            self._pair(match[1], match[3] if match[2] is None else match[2], at)
            self._open = match[2] is None and match.end() == len(bare)
        if bare.endswith("{"):
            self._close(at, whole_=False)
            self._record = {} if self.section in ("Results", "summary") else None
        elif bare.startswith("}"):
            self._close(at, whole_=True)

    def end(self, at: int) -> None:
        """Take note that the text is over: what is open ends here."""
        self._close(at, whole_=False)

    def _pair(self, key: str, value: str, at: int) -> None:
        output = self.output
        if key == "TestID" and self.section not in ("summary", "Parameters"):
            self._begin(value, at)
        elif key == "Finished":
            output.finished = True
            output.head.setdefault(key, value)
        elif key == "StartTime":
            self._fact(key, value)
        elif self.section in ("Results", "summary"):
            self._collect(key, value)
        elif self.section == "Parameters" and output.tests:
            if key == "testID":
                return
            name, read = PARAMETERS.get(key, ("", str))
            if name:
                output.test.put(name, read(value), at)
            elif key == "api":
                output.test.put("api", value, at)
            elif key == "platform":
                output.test.facts.setdefault("platform", value)
        elif self.section == "Options" and output.tests:
            put_option(output.test, key, value, at)
        elif key == "Version":
            output.version = output.version or value
        elif key in ("Began", "Command line", "Machine"):
            output.head.setdefault(key, value)
        elif key in FACTS:
            self._fact(key, value)

    def _begin(self, value: str, at: int) -> None:
        identity = whole(value)
        if self.output.tests and self.output.test.settings.get("test") == identity:
            self.output.test.note("the head of the test stands there twice", at)
            return
        self._close(at, whole_=False)
        self.log.take()
        self.section = "tests"
        self.output.tests.append(Test(at, {"test": identity}))

    def _fact(self, key: str, value: str) -> None:
        facts = self.output.test.facts
        name = FACTS[key]
        if name == "started":
            facts.setdefault(name, value)
        elif name != "path":
            seen = inside(facts, "file_system")
            facts["file_system"] = {**seen, name: seen.get(name, value)}

    def _collect(self, key: str, value: str) -> None:
        """A key of a result or of a summary row."""
        if self._record is None:
            # without its brace, what follows cannot be told from the next result
            self._record = {}
            self._spoiled = "a result without its beginning"
        if self._record.setdefault(key, value) != value:
            self._spoiled = f"two values of {key} in one result"

    def _close(self, at: int, whole_: bool) -> None:
        """End of a result: `whole_` if its closing brace was seen."""
        record, self._record = self._record, None
        spoiled, self._spoiled = self._spoiled, ""
        if not record:
            return
        if self.section == "summary":
            if whole_ and not spoiled:
                self._summary(record)
        elif record.get("access") == "remove":
            seconds = number(record.get("totalTime", ""))
            if whole_ and seconds is not None and seconds.value >= 0:
                self.output.test.removals.append(seconds.value)
        else:
            self._result(record, spoiled if spoiled or whole_ else "a result is cut", at)

    def _result(self, record: Mapping[str, str], spoiled: str, at: int) -> None:
        if not self.output.tests:
            self.output.tests.append(Test(at))
            self.output.test.note("the head of the output is missing", at)
        pending = self.log.take()
        test = self.output.test
        access = record.get("access", "")
        numbers = self._numbers(record)
        if spoiled or access not in ("write", "read"):
            test.lose(spoiled or "a result without its access", at)
        elif numbers is None:
            test.lose(f"a result of {access} holds missing or impossible numbers", at)
        else:
            test.add(Row(access, numbers, None, at, **pending))

    def _numbers(self, record: Mapping[str, str]) -> dict[str, Number] | None:
        numbers: dict[str, Number] = {}
        for key, name in KEYS.items():
            value = number(record.get(key, ""))
            if value is not None and value.value >= 0:
                numbers[name] = value
        sound = all(
            name in numbers and (name == "total" or numbers[name].value > 0) for name in MUST
        )
        return numbers if sound and {"open", "transfer", "close"} <= set(numbers) else None

    def _summary(self, record: Mapping[str, str]) -> None:
        for test in self.output.tests:
            if str(test.settings.get("test")) == record.get("TestID"):
                values = {name: record[key] for key, name in SUMMARY.items() if key in record}
                test.summary.setdefault(record.get("operation", ""), values)


def read_json(text: str, source: str) -> Output:
    """The one output in a text."""
    reader = JsonReader(source)
    at = 0
    for at, line in numbered_lines(as_printed(text)):
        if line:
            reader.line(line, at)
    reader.end(at)
    return reader.output
