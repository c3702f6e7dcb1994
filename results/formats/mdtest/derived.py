"""What follows from what mdtest printed: how many files a phase met, the rate of each iteration.

With `-x` mdtest writes how many files the stonewall let it create into a status file, and later
invocations that stat, read or remove them read it there: their own output may not repeat it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fsmatrix.results.evidence.values import Scalar
from fsmatrix.results.formats.mdtest.ranks import Ranks
from fsmatrix.results.formats.mdtest.text import Row, Run

SELECTING = ("stat_only", "read_only", "remove_only", "rename")  # phases that create nothing
COARSE = 0.01  # share: what the digits of a printed value must at least be good to


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
