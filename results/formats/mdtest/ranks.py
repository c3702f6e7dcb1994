"""mdtest's own file of all ranks (`--saveRankPerformanceDetails`, 4.0 and later)."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fsmatrix.results.formats.mdtest.argv import UNREADABLE
from fsmatrix.results.formats.mdtest.text import NAMES

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
