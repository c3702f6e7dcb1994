"""From what mdtest printed to phases: what was done to how many files, in which window, how fast.

mdtest's rate of a phase is the number of items that it counts over the time between the
barriers around the phase, of the slowest rank (before 3.3: of the fastest; -v then tells
rank 0's).  With several iterations only the extremes and the mean of the rates are printed: up
to three iterations follow from them, of more only the mean is known.  Its "time" is in seconds,
whatever the heading of 4.1 says ("ms/op").

With `-x` mdtest writes how many files the stonewall let it create into a status file, and later
invocations that stat, read or remove them read it there: their own output may not repeat it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from fsmatrix.results import iterations
from fsmatrix.results.evidence.stored import Json, Scalar
from fsmatrix.results.formats.mdtest.argv import UNREADABLE, Tree
from fsmatrix.results.formats.mdtest.mdtest_text import (
    HALF_DIGIT,
    NAMES,
    Row,
    Run,
    Table,
    Test,
    contradiction_of,
)
from fsmatrix.results.formats.parsed import Note, agrees, is_older, totals
from fsmatrix.results.record import Phase

# mdtest's own file of all ranks (`--saveRankPerformanceDetails`, 4.0 and later).
HEAD = ("rank", "items")
TREE_CELLS = 4  # rates and times of trees stand in the line of all tasks only

TREES = frozenset({"mkdir-tree", "rmdir-tree"})
DIRECTORIES = frozenset({"mkdir", "stat-directories", "rename-directories", "rmdir"})
FILES = frozenset({"create", "stat", "read", "remove"})
WINDOW = "from the barrier before the phase to the barrier after it; files are opened and closed"
LARGEST_RATE = 1e12  # operations per second that nothing does
FINE = 0.001  # share: what the digits of a printed time should be good to
ERRORS: dict[str, tuple[str, ...]] = {  # phase -> what mdtest says that it was unable to
    "mkdir-tree": ("create tree directory",),
    "mkdir": ("create directory",),
    "stat-directories": ("stat directory",),
    "rename-directories": ("rename directory",),
    "rmdir": ("remove directory",),
    "create": ("create file", "write file", "mknode file"),
    "stat": ("stat file",),
    "read": ("open file", "read file"),
}


@dataclass(frozen=True)
class Ranks:
    """One iteration, phase by phase.

    `seconds`: from barrier to barrier, of the slowest rank.  `finished`: of each rank its
    operations and the seconds until its last one was over, without the closing barrier.
    """

    items: int  # of one task
    seconds: Mapping[str, float]
    finished: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)


def read_ranks(text: str, tasks: int) -> Ranks:
    """The file of one iteration of `tasks` tasks; ValueError says what is wrong with it."""
    lines = text.splitlines()
    if len(lines) != tasks + 2 or not text.endswith("\n"):
        raise ValueError(f"it has {len(lines)} lines, not a heading, a total and {tasks} ranks")
    if UNREADABLE in text:
        raise ValueError("it has characters that are no text")
    heading, total, *ranks = csv.reader(lines, strict=True)
    columns = _columns(heading)
    if len(total) != len(heading) or total[0] != "all" or not total[1].isdecimal():
        raise ValueError("its second line is not that of all tasks")
    seconds = {}
    for name, column in columns.items():
        if pair := _pair(total, column):
            seconds[name] = pair[1]
    finished: dict[str, list[tuple[int, float]]] = {}
    for number, row in enumerate(ranks):
        if not row or row[0] != str(number) or len(row) + TREE_CELLS != len(heading):
            raise ValueError(f"line {number + 3} is not that of rank {number}")
        for name in seconds:
            if pair := _pair(row, columns[name]):
                finished.setdefault(name, []).append((round(pair[0] * pair[1]), pair[1]))
    return Ranks(int(total[1]), seconds, finished)


def _columns(heading: list[str]) -> dict[str, int]:
    """Phase -> column of its rate; that of its time follows."""
    if tuple(heading[: len(HEAD)]) != HEAD:
        raise ValueError("it has another heading")
    columns = {}
    for index, title in enumerate(heading):
        name = NAMES.get(title.removeprefix("rate-")) if title.startswith("rate-") else None
        if name and heading[index + 1 : index + 2] == [title.replace("rate-", "time-", 1)]:
            columns[name] = index
    return columns


def _pair(row: list[str], column: int) -> tuple[float, float] | None:
    """Rate and seconds; None for a phase that was not run, or took no time at all."""
    cells = row[column : column + 2]
    if len(cells) < 2 or not all(cells):
        return None
    rate, seconds = float(cells[0]), float(cells[1])
    if math.isinf(rate) and seconds == 0.0:
        return None
    if not (0 < rate < 1e12 and 0 < seconds < 1e9):
        raise ValueError(f"no rate and time: {cells[0][:30]!r}, {cells[1][:30]!r}")
    return rate, seconds


SELECTING = ("stat_only", "read_only", "remove_only", "rename")  # phases that create nothing
COARSE = 0.01  # share: what the digits of a printed value must at least be good to
OF_ALL = "3.3"  # version: its summary is of all ranks, those before it of one rank


class Unknown(Exception):
    """A number cannot be known; the text says why."""


def creating(options: Mapping[str, Scalar]) -> bool:
    """Whether mdtest creates the files that it works on."""
    return bool(options.get("create_only")) or not any(options.get(option) for option in SELECTING)


def status_lost(run: Run, ranks: Ranks | None) -> bool:
    """Whether the number of files stands in the stonewall status file alone."""
    options = run.options or {}
    if creating(options) or not options.get("stonewall_status") or run.status_items:
        return False
    if ranks is not None and ranks.items is not None:
        return False
    return not any("stonewall status file" in problem.text for problem in run.problems.values())


def derived(
    created: int | None, rate: Row | None, time: Row | None, iterations: int
) -> tuple[int, str]:
    """(files of all tasks, how that is known); Unknown without either source.

    `created`: files that the run before created; else the rate (per second) times the time (-P,
    seconds), whose digits make it inexact: the rate stays the printed one.
    """
    if created:
        return created, f"{created} files, as many as were created by the run before"
    if rate and time and iterations == 1 and time.is_good_to(COARSE):
        count = max(1, round(rate.mean * time.mean))
        return count, f"{count} files are the printed rate x the printed time; the rate is exact"
    raise Unknown("how many files there are stands in the stonewall status file (-x)")


def of_one_rank(run: Run, rate: Row | None, iterations: int) -> bool:
    """Whether a summary may tell of one rank only: the largest rate or time of any (mdtest < 3.3).

    Not without barriers (-B), nor the time of one iteration, which is the slowest rank's.  Builds
    of early 2019 have extremes over ranks under the same version: then the smallest rate differs.
    Source: summarize_results in src/mdtest.c of the tags 3.2.0 to 3.3.0 of hpc/ior.
    """
    if not is_older(run.version, OF_ALL) or (run.options or {}).get("no_barriers"):
        return False
    return iterations > 1 or (rate is not None and rate.maximum == rate.minimum)


def of_rank0(
    told: Sequence[tuple[float, float]], rate: Row | None, counted: int
) -> tuple[tuple[float, ...], str]:
    """(seconds of each iteration in order, how the summary differs) of what -v tells of rank 0.

    `told`: its seconds and rates, before mdtest 3.3 from barrier to barrier and of all ranks'
    items.  Unknown if they contradict themselves or the summary, whose largest rate is that of
    the fastest rank.
    """
    speeds = [speed for _, speed in told]
    if not all(speeds):
        raise Unknown("an iteration has the rate 0")
    for seconds, speed in told:
        one = Row(speed, speed, speed, 0.0), Row(seconds, seconds, seconds, 0.0)
        if reason := contradiction_of(*one, counted):
            raise Unknown(reason)
    windows = tuple(counted / speed for speed in speeds)
    own = max(speeds), min(speeds), fmean(speeds)
    if rate is None or all(map(agrees, (rate.maximum, rate.minimum, rate.mean), own)):
        return windows, ""
    if own[0] > rate.maximum + 2 * rate.half_digit:
        raise Unknown(f"rank 0 did {own[0]} per second, the fastest rank {rate.maximum}")
    text = f"the summary ({rate.mean} per second) is of the fastest rank: rank 0's times (-v) count"
    return windows, text


def uncertain(version: str, rate: Row | None, iterations: int) -> str:
    """What is wrong with a summary that may be of one rank."""
    fastest = "prints the fastest rank's rate, which may be several times that of all"
    mixed = "may mix iterations in its summary"
    parts = [fastest] * bool(rate) + [mixed] * (iterations > 1)
    return f"mdtest {version} {', and '.join(parts)}"


def each_rate(row: Row, iterations: int) -> tuple[float, ...]:
    """The rates of up to three iterations, the largest first; empty if they do not follow.

    One: the smallest, of the slowest rank.  Three: the third is what the mean leaves, if the
    printed standard deviation (4.x: of a sample, 3.2: of a population) says so too.
    """
    if iterations == 1:
        return (row.minimum,)
    if iterations == 2:
        return (row.maximum, row.minimum)
    if iterations != 3:
        return ()
    third = 3 * row.mean - row.maximum - row.minimum
    rates = (row.maximum, third, row.minimum)
    squares = sum((rate - row.mean) ** 2 for rate in rates)
    tolerance = 20 * row.half_digit + 1e-6 * row.maximum
    fits = row.deviation is None or any(
        abs(math.sqrt(squares / n) - row.deviation) <= tolerance for n in (2, 3)
    )
    slack = 10 * row.half_digit
    inside = row.minimum - slack <= third <= row.maximum + slack
    return rates if fits and inside and third > 0 else ()


def own_summary(rate: Row | None, iterations: int) -> dict[str, float]:
    """iterations.SUMMARY as the rates' row prints it; empty where only times are printed (-Z)."""
    if rate is None:
        return {}
    own = {
        "iterations": iterations,
        "iops_max": rate.maximum,
        "iops_min": rate.minimum,
        "iops_mean": rate.mean,
    }
    return own if rate.deviation is None else {**own, "iops_stddev": rate.deviation}


@dataclass
class Phases:
    """The phases of one test, and what was odd about them."""

    run: Run
    test: Test
    ranks: Ranks | None = None
    notes: list[Note] = field(default_factory=list)
    created: int | None = None  # files that another run created for this one, of all tasks

    def all(self) -> tuple[Phase, ...]:
        """Every phase that was run and is understood, in mdtest's order."""
        phases = (self._phase(name) for name in NAMES.values())
        return tuple(phase for phase in phases if phase is not None)

    @property
    def options(self) -> Mapping[str, Scalar]:
        """Options of the command line, by name."""
        return self.run.options or {}

    @property
    def iterations(self) -> int:
        """As the first summary says."""
        return next((table.iterations for table in self.test.tables.values()), 1)

    def _phase(self, name: str) -> Phase | None:
        try:
            rate, time = self._row("rate", name), self._row("time", name)
            if rate is None and time is None:
                return None
            if any(not table.rows.get(name) for table in self.test.tables.values()):
                raise Unknown("it is in one of the two summaries only, and may belong to the other")
            counted, done = self._counts(name)
            window = self._window(name, rate, time, counted)
        except Unknown as why:
            self.notes.append(Note("left-out", f"{name} is left out: {why}", phase=name))
            return None
        return self._build(name, counted, done, window)

    # -- what was printed ------------------------------------------------------------------
    def _row(self, kind: str, name: str) -> Row | None:
        """The row of a summary; None if the phase was not run; Unknown if it is damaged."""
        table: Table | None = self.test.tables.get(kind)
        rows = table.rows.get(name, []) if table else []
        if not rows:
            return None
        row = rows[0]
        if row is None or any(other != row for other in rows):
            raise Unknown(f"its {kind} cannot be read or is there twice and differs")
        if not any((row.maximum, row.minimum, row.mean, row.deviation)):
            return None
        spread, slack = row.maximum - row.minimum, 2 * row.half_digit
        ordered = row.minimum - slack <= row.mean <= row.maximum + slack
        if spread > 2 * slack and row.deviation is not None and row.deviation < row.half_digit:
            ordered = False  # a deviation of 0 without equal values: a digit is wrong
        if not ordered or row.minimum < 0 or not row.maximum <= LARGEST_RATE:
            raise Unknown(
                f"{row.maximum}, {row.minimum}, {row.mean} and {row.deviation} are no maximum, "
                f"minimum, mean and deviation of a {kind}"
            )
        return row

    # -- what was done ---------------------------------------------------------------------
    def _counts(self, name: str) -> tuple[int, int]:
        """Operations of all tasks in one iteration: as mdtest counts them, and as done."""
        options, tasks = self.options, self.test.tasks
        tree = Tree.of(options)
        both = bool(options.get("items") and options.get("items_per_directory"))
        if name in TREES:
            trees = tasks if options.get("unique_dir") else 1
            if both and not options.get("unique_dir"):
                trees = int(options["items"]) // int(options["items_per_directory"])
            return tree.directories, tree.directories * trees
        if both and tree.directories > 1:
            raise Unknown("with -n, -I and -z together mdtest counts other items than it makes")
        if name in DIRECTORIES:
            if options.get("stonewall"):
                raise Unknown("mdtest counts directories that the stonewall (-W) may have cut off")
            if name == "rename-directories" and self._counted_in_vain():
                raise Unknown("mdtest counts renames that this back end or a single item has not")
            return self.test.count, self.test.count
        if status_lost(self.run, self.ranks):
            rate, time = self._row("rate", name), self._row("time", name)
            count, how = derived(self.created, rate, time, self.iterations)
            self.notes.append(Note("derived-amount", how, self.test.line, name))
            return count, count
        each = self._items(tree)
        done = each if name == "remove" and self.test.kind == "file" else each * tasks
        return each * tasks, done

    def _counted_in_vain(self) -> bool:
        in_loop = (
            self.options.get("items_per_directory") == 1 and int(self.options.get("items", 0)) > 1
        )
        missing = any("support rename" in problem.text for problem in self.run.problems.values())
        return missing or in_loop

    def _items(self, tree: Tree) -> int:
        """Files of one task in one iteration."""
        options, tasks = self.options, self.test.tasks
        planned = tree.items if self.test.kind == "file" else self.test.count // tasks
        if self.test.kind != "file" and planned * tasks != self.test.count:
            raise Unknown(f"{self.test.count} items are no multiple of {tasks} tasks")
        of_ranks = self.ranks.items if self.ranks else None
        creates = creating(options)
        counts: set[int] = set()
        if creates and options.get("stonewall"):
            counts = self.test.continued
            if self.iterations > 1 and counts:
                raise Unknown("the stonewall was hit: each iteration made another number of files")
            if (self.test.damaged or self.run.stray) and of_ranks is None:
                raise Unknown("a line that may tell how far the stonewall let it come is damaged")
        elif not creates and options.get("stonewall_status"):
            counts = self.run.status_items
        elif of_ranks is not None:
            counts = {planned}
        if len(counts | ({of_ranks} if of_ranks is not None else set())) > 1:
            raise Unknown(f"it is said to be of {sorted(counts)} and of {of_ranks} items per task")
        return next(iter(counts), planned if of_ranks is None else of_ranks)

    # -- how long it took ------------------------------------------------------------------
    def _window(self, name: str, rate: Row | None, time: Row | None, counted: int) -> Window:
        ranks = self.ranks if self.iterations == 1 and name not in TREES else None
        if ranks is not None and name in ranks.seconds:  # of trees rank 0's time is printed
            seconds = ranks.seconds[name]
            if rate is None or agrees(rate.minimum, counted / seconds, 2 * rate.half_digit):
                return Window(seconds, (seconds,))
            message = f"{counted} items in {seconds:.6f} s are not {rate.minimum} per second"
            raise Unknown(f"the ranks' file contradicts the summary: {message}")
        one_rank = of_one_rank(self.run, rate, self.iterations)
        if one_rank and (own := self._told(name, rate, counted)):
            return own
        if rate is None:
            assert time is not None
            return self._timed(name, time)
        if rate.minimum <= 0:
            raise Unknown("an iteration has the rate 0")
        if rate.half_digit > HALF_DIGIT and not rate.is_good_to(COARSE):
            raise Unknown(f"its rate, {rate.mean} per second, has too few digits")
        if time is not None and (reason := contradiction_of(rate, time, counted)):
            raise Unknown(reason)
        return self._rated(name, rate, time, counted)

    def _told(self, name: str, rate: Row | None, counted: int) -> Window | None:
        """Of rank 0 (-v), where the summary may be of one rank; None where that is all there is."""
        told, windows = self.test.each.get(name, []), None
        key, text = "fastest-rank", uncertain(self.run.version, rate, self.iterations)
        if len(told) == self.iterations:
            windows, text = of_rank0(told, rate, counted)
            key = "rank-extremes"
        if text and self.test.tasks > 1 and name not in TREES:  # of trees rank 0's is printed
            self.notes.append(Note(key, text, self.test.line, name))
        return Window(sum(windows), windows) if windows else None

    def _rated(self, name: str, rate: Row, time: Row | None, counted: int) -> Window:
        count = self.iterations
        rates = each_rate(rate, count)
        if rates:
            windows = tuple(counted / rate for rate in rates)
            if count == 2 and abs(sum(rates) / 2 - rate.mean) > 2 * rate.half_digit:
                message = (
                    "this version's extremes are over ranks and iterations: windows are approximate"
                )
                self.notes.append(Note("rank-extremes", message, self.test.line, name))
                return Window(sum(windows))
            return Window(sum(windows), windows)
        if time is not None and time.is_good_to(COARSE):
            return self._timed(name, time)
        if time is None and self.options.get("print_rate_and_time"):
            raise Unknown("its time (-P) is missing, and the rates do not tell that of all")
        message = (
            f"of {count} iterations only extremes and the mean of the rates are known: the time "
            "of all is estimated from the mean, which fast iterations dominate"
        )
        self.notes.append(Note("mean-of-rates", message, self.test.line, name))
        return Window(count * counted / rate.mean)

    def _timed(self, name: str, time: Row) -> Window:
        """From seconds alone (-Z)."""
        if not time.is_good_to(COARSE):
            raise Unknown(f"its time, {time.mean} s, has too few digits")
        if not time.is_good_to(FINE):
            message = f"the time {time.mean} s has few digits: rates are good to 1 %"
            self.notes.append(Note("coarse-time", message, self.test.line, name))
        return Window(self.iterations * time.mean)

    # -- together --------------------------------------------------------------------------
    def _build(self, name: str, counted: int, done: int, window: Window) -> Phase:
        options, count = self.options, self.iterations
        size = {"create": "write_bytes", "read": "read_bytes"}.get(name)
        each = int(options.get(size, 0)) if size else 0
        errors = sum(self.run.counts[kind] for kind in ERRORS.get(name, ()))
        facts: dict[str, Json] = {"window": WINDOW}
        if name == "create" or (options.get("call_sync") and name not in TREES):
            facts["synced"] = bool(options.get("call_sync") or (options.get("sync") and each))
        if name == "create" and options.get("stonewall"):
            facts["stonewall_seconds"] = float(options["stonewall"])
        if counted != done:
            facts["counted"] = counted  # by mdtest, for its own rate
        if count > 1:
            facts["number_of_iterations"] = count
        operations = max(0, done * count - errors)
        attributable = not errors or count == 1  # whose errors they are is not told
        rows = [
            {
                "seconds": seconds,
                "operations": operations // count,
                "bytes": operations // count * each,
                "iops": counted / seconds,
            }
            for seconds in (window.each if attributable else ())
        ]
        whole = totals(
            name,
            window.total,
            operations * each,
            operations,
            errors,
            facts=facts,
            iterations=iterations.columns(rows),
            summary=own_summary(self._row("rate", name), count),
        )
        if self.ranks is None or count > 1 or errors or name not in self.ranks.finished:
            return whole
        return self._with_ranks(whole, each, self.ranks.finished[name])

    def _with_ranks(self, whole: Phase, each: int, finished: list[tuple[int, float]]) -> Phase:
        """Arrays [rank]; `io_end`: when the last operation of the rank was over."""
        operations = np.array([items for items, _ in finished], dtype=np.int64)
        seconds = np.array([time for _, time in finished])
        window = float(whole.end[0])
        same = int(operations.sum()) == int(whole.operations[0])
        if len(finished) != self.test.tasks or not same or seconds.max() > window * (1 + 1e-9):
            return whole
        ranks = len(finished)
        return Phase(
            name=whole.name,
            start=np.zeros(ranks),
            end=np.full(ranks, window),
            bytes=operations * each,
            operations=operations,
            errors=np.zeros(ranks, dtype=np.int64),
            io_start=np.zeros(ranks),
            io_end=seconds,
            facts=whole.facts,
            iterations=whole.iterations,
            summary=whole.summary,
        )


@dataclass(frozen=True)
class Window:
    """Seconds of all iterations together, and of each where they are known.

    In order where -v tells them, otherwise the fastest first.
    """

    total: float
    each: tuple[float, ...] = ()
