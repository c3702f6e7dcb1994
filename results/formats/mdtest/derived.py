"""What follows from what mdtest printed: how many files a phase met, the rate of each iteration.

With `-x` mdtest writes how many files the stonewall let it create into a status file, and later
invocations that stat, read or remove them read it there: their own output may not repeat it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from fsmatrix.results.evidence.values import Scalar
from fsmatrix.results.formats.base import agrees, is_older
from fsmatrix.results.formats.mdtest.argv import UNREADABLE
from fsmatrix.results.formats.mdtest.text import NAMES, Row, Run, contradiction_of

# mdtest's own file of all ranks (`--saveRankPerformanceDetails`, 4.0 and later).


HEAD = ("rank", "items")
TREE_CELLS = 4  # rates and times of trees stand in the line of all tasks only


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
