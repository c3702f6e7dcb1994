"""What a lesson is, and the words of its numbers; bounds as people write them."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fsmatrix.analysis import units
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.doubts import doubts_of as cell_doubts
from fsmatrix.analysis.data.factors import ROLES, Key, pattern_of
from fsmatrix.analysis.data.matrices import DECIMAL
from fsmatrix.analysis.data.metric_cells import Study
from fsmatrix.analysis.stats import repetitions
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.estimates.medians import Floats, Median, of_independent
from fsmatrix.analysis.stats.testing.verdict import more
from fsmatrix.analysis.stats.words import few
from fsmatrix.analysis.units import (
    METRICS,
    SHORT_TITLES,
    UNITS,
    Level,
    Metric,
    brief,
    factor_title,
    labelled,
    metric_of,
    own_metric,
)
from fsmatrix.results.units import UnitError, parse_duration, plural

Question = Literal["backend", "chunk", "processes", "nodes"]
TITLES: dict[Question, str] = {
    "backend": "Which target for which pattern",
    "chunk": "Best chunk size",
    "processes": "Processes per client node where growth ends",
    "nodes": "Storage nodes for a bandwidth",
}
MOST_NAMES = 3
IN_PART, NO_DATA, NOT_ASKED = "proven in part", "without data", "not asked"
STATES = (
    Certainty.PROVEN, IN_PART, Certainty.EQUAL, Certainty.UNDECIDED, NO_DATA, NOT_ASKED
)  # fmt: skip
LATENCIES = {
    name.removeprefix("latency_").replace("_", "."): name
    for name, metric in METRICS.items()
    if metric.quantity == "time"
}
_BOUND = re.compile(r"(?:(?P<name>[a-z0-9._]+)\s*<\s*)?(?P<time>[^<>=]+)", re.ASCII)
_RATE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]+/s)", re.ASCII)


@dataclass(frozen=True)
class Bound:
    """A latency that must stay below `seconds`."""

    metric: str  # latency_p99
    seconds: float

    @property
    def name(self) -> str:
        """Of the metric: p99."""
        return SHORT_TITLES[self.metric]

    @property
    def says(self) -> str:
        """As people write it."""
        unit = units.fitting("time", [self.seconds])
        return f"{self.name} < {self.seconds / unit.divisor:g} {unit.label}"


@dataclass(frozen=True)
class Lesson:
    """One answer.  `levels`, `choice`: machine-readable; the rest for readers.

    `proven`, `equal`: every claim of the answer has its interval or corrected p; `partly`: what is
    said holds, but something beside it is open (`why`).  `undecided`: only ranges, or intervals
    that leave it open.  `invalid`: the data cannot answer at all.
    """

    question: Question
    where: str  # "seq-read, 8 processes"
    levels: Key
    short: str  # a few words; equal in lessons that agree
    answer: str  # with number, interval, attachments; no full stop
    certainty: Certainty | None  # None: not asked
    why: str = ""  # what decides, or why not
    choice: tuple[Level, ...] = ()  # chunk sizes, processes, nodes or targets; none if open
    cells: tuple[str, ...] = ()  # what it stands on
    doubts: tuple[str, ...] = ()
    estimate: Median | None = field(default=None, compare=False)  # of the choice, SI units
    partly: bool = False

    @property
    def settled(self) -> bool:
        """Whether the whole answer holds."""
        return self.certainty is not None and self.certainty.settled and not self.partly

    @property
    def state(self) -> str:
        """How sure it is, in words: one of STATES."""
        if self.certainty is None:
            return NOT_ASKED
        word = {Certainty.INVALID: NO_DATA}.get(self.certainty, self.certainty.value)
        return IN_PART if self.partly else word

    @property
    def says(self) -> str:
        """It in one or two sentences."""
        start = f"{self.where}: " if self.where else ""
        more_said = f"; {self.why}" if self.why else ""
        doubt = f" In doubt: {', '.join(self.doubts)}." if self.doubts else ""
        return f"{start}{self.answer}{more_said}.{doubt}"


def unanswerable(
    question: Question, answer: str, where: str = "", levels: Key = (), **more: Any
) -> Lesson:
    """The lesson where the data cannot answer, for this reason."""
    return Lesson(question, where, levels, "cannot be said", answer, Certainty.INVALID, **more)


def bound_of(text: str) -> Bound:
    """`p99 < 10ms`, `mean < 1ms`, or `10ms` (p99); UnitError with what is allowed."""
    match = _BOUND.fullmatch(text.strip())
    name = (match["name"] or "p99") if match else ""
    if match is None or name not in LATENCIES:
        raise UnitError(
            f"{text!r} is not a latency limit: write 'p99 < 10ms', with one of "
            f"{', '.join(LATENCIES)}"
        )
    return Bound(LATENCIES[name], parse_duration(match["time"].strip(), positive=True))


def rate_of(text: str) -> float:
    """Bytes per second of `500MB/s`, `4 Gb/s` (bits), `1.5GiB/s`; UnitError for all else."""
    units_by_label = {
        unit.label: unit for unit in (*DECIMAL["bandwidth"], *(u for _, u in UNITS["bandwidth"]))
    }
    match = _RATE.fullmatch(text.strip())
    if match is None or match["unit"] not in units_by_label:
        allowed = ", ".join(units_by_label)
        raise UnitError(f"{text!r} is not a bandwidth: write '500MB/s'; units are {allowed}")
    rate = float(match["number"]) * units_by_label[match["unit"]].divisor
    if not 0 < rate < math.inf:
        raise UnitError(f"bandwidth {text!r} must be more than zero")
    return rate


def rate_text(rate: float) -> str:
    """Bytes per second in the shortest words that say it: "500 MB/s", "2 GiB/s"."""
    choices = (*(u for _, u in UNITS["bandwidth"]), *DECIMAL["bandwidth"])
    shown = [
        f"{rate / u.divisor:g} {u.label}"
        for u in choices
        if not u.label.endswith("b/s") and rate >= u.divisor
    ]
    return min(shown, key=len, default=f"{rate:g} B/s")


def measured(median: Median, metric: Metric) -> str:
    """A median with what is known of it: "540 MiB/s [530, 550]"."""
    if median.kind == "none":
        return "no value"
    unit = units.fitting(metric.quantity, [median.median])
    middle, low, high = (units.text(x, unit) for x in (median.median, median.low, median.high))
    if median.runs == 1:
        return f"{middle} {unit.label} (one value)"
    if median.kind == "one session":
        return f"{middle} {unit.label} (one attachment)"
    if median.kind == "range":
        return f"{middle} {unit.label} (range {low} to {high})"
    return f"{middle} {unit.label} [{low}, {high}]"


def times(ratio: Ratio) -> str:
    """A ratio: "1.4 [1.3, 1.5]"; without an interval "1.4 (range 1.2 to 1.6)" or bare."""
    if ratio.kind == "interval":
        return f"{brief(ratio.ratio)} [{brief(ratio.low)}, {brief(ratio.high)}]"
    if ratio.kind == "range":
        return f"{brief(ratio.ratio)} (range {brief(ratio.low)} to {brief(ratio.high)})"
    return f"{brief(ratio.ratio)} (no interval)"


def attachments(cells: Iterable[Values]) -> str:
    """ "8 attachments", or "6 to 8 attachments" where cells differ."""
    counts = sorted({cell.median.independent for cell in cells})
    if counts[0] == counts[-1]:
        return plural(counts[0], "attachment")
    return f"{counts[0]} to {counts[-1]} attachments"


def names(all_names: Sequence[str], most: int = MOST_NAMES) -> str:
    """The first names, and how many more there are."""
    shown = "; ".join(all_names[:most])
    return f"{shown}; and {len(all_names) - most} more" if len(all_names) > most else shown


def share_of(alpha: float, rivals: int) -> float:
    """Two-sided alpha of each of `rivals` comparisons with the best one.

    So that what is not shown to be worse holds the true best with probability 1 - alpha:
    only comparisons with the true best can wrongly exclude it, each to one side (subset
    selection: Gupta, Technometrics 7, 1965; Hsu, "Multiple Comparisons", 1996, with Bonferroni's
    bound).  Never above alpha, so that of two equal ones neither wins more often than that.
    """
    return alpha if rivals < 2 else 2 * alpha / rivals


def too_few(ratio: Ratio, tolerance: float, share: float) -> str:
    """How many attachments it would take, in words."""
    least = repetitions.smallest(1 - share)
    have = min(ratio.units)
    if have < least:
        return few(have, least)
    needed = more(ratio, tolerance, share)
    if needed is None:
        return "it is not known how many attachments would decide"
    if needed.more == 0:
        return (
            f"the difference is about the {100 * tolerance:.3g} % that do not matter: more "
            "attachments may not tell either"
        )
    return f"to tell: {needed.says}"


def doubts_of(cells: Iterable[Values], metric: Metric = METRICS["bandwidth"]) -> tuple[str, ...]:
    """Audits that warn in these cells, and that a value of one is far off."""
    every = (doubt for c in cells for doubt in cell_doubts(c.cell, c.median, metric))
    return tuple(dict.fromkeys(sorted(every)))


def cell_metric(cell: Values) -> str:
    """What a cell's phase is judged by."""
    levels = cell.cell.levels
    return own_metric(str(levels.get("engine", "")), str(levels.get("phase", "")))


def constant(values: Floats) -> bool:
    """Whether several values are all the same: nothing real is."""
    return values.size > 1 and float(values.min()) == float(values.max())


# Many targets: for each pattern their order by the largest median, and no verdict.
#
# Pairs grow with the square of the targets, and a family of tests that large decides nothing: n
# targets are n(n-1)/2 pairs, over whose cells every p would have to be corrected.  A ranking
# costs one look at each cell.  It is no comparison, since its targets need not have done the same
# work; in what they differ is said, and `compare` compares those that are named.


MOST_SHOWN = 5  # targets of a ranking in its sentence; all of them are in its cells
NOTHING = of_independent([])
APART = "cache"  # states are never in one ranking


def ranked(of: Study, targets: Sequence[str]) -> list[Lesson]:
    """One lesson for each pattern: its targets, the largest median of each first.

    Of each phase's own metric, where the cells of the study hold it.
    """
    pairs = len(targets) * (len(targets) - 1) // 2
    why = (
        f"{len(targets)} targets are {pairs} pairs: `fsmatrix compare FILE --targets A,B` "
        "compares those that are named"
    )
    return [_lesson(of, key, order, why) for key, order in orders(of).items()]


def orders(of: Study) -> dict[Key, list[Values]]:
    """For each pattern the best cell of each target, the largest median first."""
    valued = [cell for cell in of.cells if _own(cell).kind != "none"]
    several = {n for n in ("workload", "phase", "engine", APART) if len(of.levels(n, valued)) > 1}
    groups: dict[Key, dict[str, Values]] = defaultdict(dict)
    for cell in valued:
        best = groups[pattern_of(cell.cell.levels, several) + _apart(cell, several)]
        best_so_far = best.get(cell.cell.target)
        if best_so_far is None or _own(cell).median > _own(best_so_far).median:
            best[cell.cell.target] = cell
    return {
        key: sorted(groups[key].values(), key=lambda cell: -_own(cell).median)
        for key in sorted(groups, key=lambda key: [str(level) for _, level in key])
    }


def _own(cell: Values) -> Median:
    """The median by which a cell is judged; none if it was not measured."""
    return cell.cell.metrics.get(cell_metric(cell), NOTHING)


def _apart(cell: Values, several: set[str]) -> Key:
    return ((APART, cell.level(APART)),) if APART in several else ()


def shown(order: Sequence[Values]) -> list[str]:
    """Each target of a ranking with its median."""
    metric = metric_of(cell_metric(order[0]), (cell.cell.levels for cell in order))
    return [f"{cell.cell.target} {measured(_own(cell), metric)}" for cell in order]


def _lesson(of: Study, key: Key, order: Sequence[Values], why: str) -> Lesson:
    every = shown(order)
    answer = (
        f"a ranking of {plural(len(order), 'target')} by the largest median of each, no "
        f"comparison: {', '.join(every[:MOST_SHOWN])}"
    )
    if len(order) > MOST_SHOWN:
        answer += f", ..., {every[-1]}"
    differs = _differing(of, order, key)
    if differs:
        answer += f"; they differ in {names(differs)} too"
    return Lesson(
        "backend",
        ", ".join(labelled(n, v) for n, v in key),
        key,
        Certainty.UNDECIDED.value,
        answer,
        Certainty.UNDECIDED,
        why,
        (),
        tuple(every),
    )


def _differing(of: Study, cells: Sequence[Values], key: Key) -> list[str]:
    """Factors beside the target in which the cells of a ranking differ."""
    ranked_by = {name for name, _ in key} | {"target", "pattern"}
    return [
        of.title(name) if name in ROLES else factor_title(name)
        for name in of.varying
        if name not in ranked_by and len({cell.level(name) for cell in cells}) > 1
    ]
