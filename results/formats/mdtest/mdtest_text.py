"""The text that mdtest 1.9.3 to 4.1 prints, taken apart line by line; nothing is judged here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fsmatrix.results.evidence.stored import Scalar
from fsmatrix.results.formats.mdtest.argv import UNREADABLE, parse_command
from fsmatrix.results.formats.parsed import ParseError, agrees, apart

HALF_DIGIT = 0.0005  # rates and times have three decimals; fewer if somebody rounded them
NAMES: dict[str, str] = {  # mdtest's name of a phase -> ours
    "Tree creation": "mkdir-tree",
    "Directory creation": "mkdir",
    "Directory stat": "stat-directories",
    "Directory rename": "rename-directories",
    "Directory removal": "rmdir",
    "File creation": "create",
    "File stat": "stat",
    "File read": "read",
    "File removal": "remove",
    "Tree removal": "rmdir-tree",
}
NUMBER = r"(\d{1,18})"
LAUNCHED = re.compile(
    rf"\s*mdtest-(\S{{1,80}}) was launched with {NUMBER} total task\(s\) on {NUMBER} "
    r"nodes?(?:\(s\))?",
    re.ASCII,
)
_EDGE = re.compile(r"\s*-- (started|finished) at (.{1,80}) --")
_BANNER = re.compile("-- started at ")
_COMMAND = "Command line used: "
_PATH = re.compile(r"Path *: (.+)")
_TASKS = re.compile(
    rf"{NUMBER} tasks, {NUMBER} (files/directories|files|directories|file)", re.ASCII
)
_SUMMARY = re.compile(  # "SUMMARY: (of ...)", of rates: mdtest 1.9.3 before it came to IOR
    rf"SUMMARY(?: (rate|time)\b.{{0,40}}|: )\(of {NUMBER} iterations\)", re.ASCII
)
_ROW = re.compile(rf" {{3}}({'|'.join(NAMES)}) *:? +(.+)")
_HEADING = "   Operation "
_TITLE = re.compile("Max|Min|Mean|Std Dev")
_SECONDS, _RATE = (rf"(\d{{1,18}}\.\d{{3}}) {unit}" for unit in ("sec", "ops/sec"))
_ITERATION = re.compile(  # of -v
    rf"V-1: +(?:main:? +)?({'|'.join(NAMES)}) *: +{_SECONDS}, +{_RATE}", re.ASCII
)
_CELL = re.compile(r"-?\d{1,300}(?:\.(\d{1,3}))?", re.ASCII)
_COMMA = re.compile(r"-?\d{1,300},\d{3}", re.ASCII)
_CONTINUE = re.compile(
    rf"Continue stonewall hit min: {NUMBER} max: {NUMBER} avg: \d+\.\d", re.ASCII
)
_STATUS = re.compile(rf"Read stonewall status; items: {NUMBER}$", re.ASCII)
_UNABLE = re.compile(r"[Uu]nable to (\w+) ((?:tree |test )?\w+)")
_TROUBLE = re.compile(r"(WARNING|ERROR|FAILED in|[Ee]rror could not)\b:?")
_WALL = "stonewall hit m"
MOST_KINDS = 200  # of warnings that are told apart


@dataclass(frozen=True)
class Columns:
    """What a summary's heading says of the numbers below it."""

    others: int = 0  # columns before those over iterations: of 3.4.0+dev and 4, over ranks
    titles: tuple[str, ...] = ("Max", "Min", "Mean", "Std Dev")  # over iterations

    @classmethod
    def of(cls, heading: str) -> Columns:
        """From the heading: those of 3.4.0+dev and of 4 differ in order and number."""
        others, _, own = heading.rpartition("per Iteration:")
        return cls(len(_TITLE.findall(others)), tuple(_TITLE.findall(own)))


@dataclass(frozen=True)
class Row:
    """One line of a summary: over iterations, as printed (operations per second, or seconds)."""

    maximum: float
    minimum: float
    mean: float
    deviation: float | None  # None: the summary has no such column
    half_digit: float = field(default=HALF_DIGIT, compare=False)  # of the last one printed

    @classmethod
    def of(cls, cells: Sequence[str], columns: Columns) -> Row | None:
        """From its cells; None unless all of them are numbers of as many decimals, at most three.

        What lost a digit in a single cell, or a cell, is damaged: which one is not known.
        """
        matches = [_CELL.fullmatch(cell) for cell in cells]
        decimals = {len(match[1] or "") for match in matches if match}
        if len(cells) != columns.others + len(columns.titles) or None in matches:
            return None
        own = dict(zip(columns.titles, map(float, cells[columns.others :]), strict=True))
        if len(decimals) != 1 or not {"Max", "Min", "Mean"} <= own.keys():
            return None
        half_digit = 0.5 / 10 ** decimals.pop()
        return cls(own["Max"], own["Min"], own["Mean"], own.get("Std Dev"), half_digit)

    def is_good_to(self, share: float) -> bool:
        """Whether the digits of the mean are good to that share of it."""
        return self.half_digit <= share * self.mean


def contradiction_of(rate: Row, time: Row, counted: int) -> str:
    """How a rate and a time of `counted` items do not fit (empty: they do)."""
    for speed, printed in ((rate.minimum, time.maximum), (rate.maximum, time.minimum)):
        seconds = counted / speed
        digits = 2 * time.half_digit + seconds * 2 * (rate.half_digit - HALF_DIGIT) / speed
        if not agrees(printed, seconds, digits):
            took = f"{counted} items at {speed} per second take {seconds:.3f} s"
            return f"{took}, and {printed} s are printed"
    return ""


@dataclass
class Table:
    """One summary.  A row that could not be read is None; one printed twice is there twice."""

    iterations: int
    columns: Columns = Columns()
    rows: dict[str, list[Row | None]] = field(default_factory=dict)


@dataclass
class Test:
    """The phases with one number of tasks: what follows a line "2 tasks, 600 files"."""

    line: int
    tasks: int
    count: int
    kind: str  # files/directories, files, directories; file: one that all share
    tables: dict[str, Table] = field(default_factory=dict)  # rate, time
    each: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Phase -> seconds and rate of rank 0 in each iteration, as -v tells them."""
    continued: set[int] = field(default_factory=set)  # items of a task once the stonewall was hit
    damaged: bool = False  # a line between here and the first summary cannot be read


@dataclass(frozen=True)
class Problem:
    """The first warning or error of its kind."""

    text: str
    line: int
    kind: str  # "stat file", ...: mdtest says that it was unable to; otherwise the text
    severity: str  # WARNING, ERROR, FAILED


@dataclass
class Run:
    """What one start of mdtest printed, with its tests."""

    line: int
    version: str
    tasks: int
    nodes: int
    started: str = ""
    finished: str = ""
    argv: tuple[str, ...] = ()
    options: dict[str, Scalar] | None = None
    command_line: int = 0
    command_error: str = ""
    path: str = ""  # as its head says; 3.2 and 3.3 print the parent of a directory that is new
    status_items: set[int] = field(default_factory=set)
    tests: list[Test] = field(default_factory=list)
    problems: dict[str, Problem] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    oddities: list[tuple[str, int]] = field(default_factory=list)  # damage seen, where
    overlaps: bool = False  # began before the one before it had shown a result or its end
    mixed: bool = False  # results of another run are among its lines
    stray: bool = False  # a line on the stonewall is where none should be, here or elsewhere


class Scanner:
    """Reads a text line by line and collects the runs in it."""

    def __init__(self, source: str) -> None:
        """`source`: name of the text for errors."""
        self._source = source
        self.runs: list[Run] = []
        self._run: Run | None = None
        self._table: Table | None = None
        self._started = ""
        self._stray = False
        self._early: list[tuple[str, int]] = []  # warnings before the first run

    def scan(self, text: str) -> list[Run]:
        """All runs in the text, in order."""
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            for part in apart(line, _BANNER):
                self._line(part.rstrip(), number, whole=number < len(lines))
        for early, number in self._early if self.runs else ():
            self._problem(self.runs[0], early, number)
        for run in self.runs:
            run.stray = self._stray
        return self.runs

    def _line(self, line: str, number: int, whole: bool) -> None:
        if not line or line.startswith("V-3"):
            return
        if edge := _EDGE.fullmatch(line):
            self._edge(edge[1], edge[2])
        elif launched := LAUNCHED.fullmatch(line):
            self._launched(launched, number)
        elif self._run is None:
            self._outside(line, number)
        elif line.startswith(_COMMAND):
            self._command(self._run, line.removeprefix(_COMMAND), number)
        elif tasks := _TASKS.fullmatch(line):
            self._tasks(self._run, tasks, number)
        elif not self._run.tests and (path := _PATH.fullmatch(line)):
            self._run.path = self._run.path or path[1].strip()
        elif self._run.tests and (summary := _SUMMARY.fullmatch(line)):
            self._summary(self._run, summary, number)
        elif self._table is not None and line.startswith(_HEADING):
            self._table.columns = Columns.of(line)
        elif self._table is not None and (row := _ROW.fullmatch(line)):
            self._row(self._run, row, number, whole)
        else:
            self._other(self._run, line, number)

    def _edge(self, which: str, when: str) -> None:
        if which == "started":
            self._started = when
        elif self._run is not None:
            self._run.finished = when
            self._run, self._table = None, None
        elif self.runs and self.runs[-1].finished != when:
            self.runs[-1].mixed = True

    def _launched(self, match: re.Match[str], number: int) -> None:
        version, tasks, nodes = match[1], int(match[2]), int(match[3])
        run = self._run
        same = run is not None and (run.version, run.tasks, run.nodes) == (version, tasks, nodes)
        if run is not None and same and not run.command_line:
            run.oddities.append(("a line is doubled", number))
            return
        overlaps = run is not None and not any(test.tables for test in run.tests)
        self._run = Run(number, version, tasks, nodes, self._started, overlaps=overlaps)
        self.runs.append(self._run)
        self._table, self._started = None, ""

    def _outside(self, line: str, number: int) -> None:
        """A line before the first run, or after the end of one."""
        self._stray = self._stray or _WALL in line
        if self.runs and (_TASKS.fullmatch(line) or _SUMMARY.fullmatch(line)):
            self.runs[-1].mixed = True
        elif _TROUBLE.search(line):
            if self.runs:
                self._problem(self.runs[-1], line, number)
            elif len(self._early) < MOST_KINDS:
                self._early.append((line, number))

    def _command(self, run: Run, text: str, number: int) -> None:
        try:
            argv, options = parse_command(text)
        except ValueError as error:
            run.command_error, run.command_line = str(error), number
            return
        if run.options is not None and run.options != options:
            run.command_error = "it is there twice, and differs"
        run.argv, run.options, run.command_line = argv, options, number

    def _tasks(self, run: Run, match: re.Match[str], number: int) -> None:
        test = Test(number, int(match[1]), int(match[2]), match[3])
        if any(test.tasks == other.tasks for other in run.tests):
            same = any(
                (test.tasks, test.count) == (other.tasks, other.count) for other in run.tests
            )
            run.oddities.append(("a line is doubled", number))
            run.mixed = run.mixed or not same
            return
        run.tests.append(test)
        self._table = None

    def _summary(self, run: Run, match: re.Match[str], number: int) -> None:
        tables = run.tests[-1].tables
        kind, iterations = match[1] or "rate", int(match[2])
        if kind in tables:
            run.oddities.append(("a summary is doubled", number))
            run.mixed = run.mixed or run.overlaps or tables[kind].iterations != iterations
        elif kind == "rate" and tables:  # each could be the other: rate x time = items
            run.oddities.append(("times stand before rates", number))
            run.mixed = True
        self._table = tables.setdefault(kind, Table(iterations))

    def _row(self, run: Run, match: re.Match[str], number: int, whole: bool) -> None:
        assert self._table is not None
        rows = self._table.rows.setdefault(NAMES[match[1]], [])
        cells = match[2].split()
        if any(_COMMA.fullmatch(cell) for cell in cells):
            raise ParseError(
                self._source,
                number,
                f"decimal commas ({match[2].strip()[:60]!r}): mdtest ran with the numbers of "
                "another locale; run it with LC_ALL=C",
            )
        columns = self._table.columns
        rows.append(Row.of(cells, columns) if whole else None)
        if rows[-1] is None:
            headed = columns.others + len(columns.titles)
            fits = "" if len(cells) == headed else f": {len(cells)} numbers under {headed} titles"
            run.oddities.append((f"the line of {match[1]!r} cannot be read{fits}", number))

    def _other(self, run: Run, line: str, number: int) -> None:
        test = run.tests[-1] if run.tests else None
        if test is not None and not test.tables:
            if hit := _CONTINUE.match(line):
                test.continued.add(int(hit[2]))
                return
            if told := _ITERATION.fullmatch(line):
                pair = float(told[2]), float(told[3])
                test.each.setdefault(NAMES[told[1]], []).append(pair)
                return
            if _WALL in line or (UNREADABLE in line and "WARNING" not in line):
                test.damaged = True
        else:
            self._stray = self._stray or _WALL in line
        if status := _STATUS.search(line):
            run.status_items.add(int(status[1]))
        elif _TROUBLE.search(line):
            self._problem(run, line, number)

    def _problem(self, run: Run, line: str, number: int) -> None:
        word = _TROUBLE.search(line)
        assert word is not None
        unable = _UNABLE.search(line)
        kind = f"{unable[1]} {unable[2]}" if unable else line[:200]
        severity = {"WARNING": "WARNING", "FAILED in": "FAILED"}.get(word[1], "ERROR")
        if kind in run.problems or len(run.problems) < MOST_KINDS:
            run.counts[kind] += 1
            run.problems.setdefault(kind, Problem(line.strip()[:300], number, kind, severity))


def runs_of(text: str, source: str) -> Iterator[Run]:
    """Every start of mdtest whose output is in the text; ParseError for decimal commas."""
    yield from Scanner(source).scan(text)
