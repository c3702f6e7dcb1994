"""Lessons: what a campaign says to somebody who must choose, and what it does not say.

Which target for which pattern, the best chunk size (under a bound of latency), the processes at
which growth ends and why, the storage nodes that a bandwidth needs; each with number, interval and
attachments, and how sure it is.  Everything comes from valid runs by the analyses that exist:
`compare`, `bottleneck`, `scalability`, `study`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.comparison.advice import extension_of
from fsmatrix.analysis.comparison.result import Comparison
from fsmatrix.analysis.data import summary
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.study import ROLES, Study, study
from fsmatrix.analysis.lessons import limits as evidence
from fsmatrix.analysis.lessons.answer import answer
from fsmatrix.analysis.lessons.backend import backend_lessons, only_one, pairs_compared
from fsmatrix.analysis.lessons.chunk import Setting, chunk_lessons
from fsmatrix.analysis.lessons.lines import counted, lines
from fsmatrix.analysis.lessons.nodes import node_lessons
from fsmatrix.analysis.lessons.processes import process_lessons
from fsmatrix.analysis.lessons.ranking import ranked
from fsmatrix.analysis.lessons.words import TITLES, Bound, Lesson, Question, rate_text
from fsmatrix.analysis.planning.extension import Extension
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Median, of_independent
from fsmatrix.analysis.stats.testing.tests import ALPHA
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.units import Level

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TOLERANCE = 0.05


@dataclass(frozen=True)
class Group:
    """All lessons of one question, for a page: title, summary, lines, lessons."""

    question: Question
    title: str
    summary: str
    lines: tuple[str, ...]  # each lesson, or groups of lessons that agree
    lessons: tuple[Lesson, ...]


@dataclass(frozen=True)
class Lessons:
    """All lessons of a campaign."""

    lessons: tuple[Lesson, ...]
    limits: tuple[str, ...]  # what the data cannot say
    excluded: tuple[str, ...]  # runs and cells that are in no answer
    study: Study
    bound: Bound | None
    bandwidth: float | None  # B/s
    tolerance: float
    alpha: float
    latencies: Mapping[int, Median]  # by id of a cell of the study: its median
    extension: Extension | None = None  # more blocks, for targets that are not told apart
    compared: tuple[Comparison, ...] = ()  # pairs of targets, if there are few

    @property
    def answer(self) -> str:
        """Which target, where, how sure, what is invalid or in doubt, what would decide more."""
        said = answer(self.lessons, self.study, self.bound, self.excluded)
        return f"{said} {self.extension.says}".rstrip() if self.extension else said

    @property
    def groups(self) -> tuple[Group, ...]:
        """The lessons by question, those of an answer first; for a template."""
        made = []
        for question, title in TITLES.items():
            mine = tuple(one for one in self.lessons if one.question == question)
            if mine:
                made.append(Group(question, self._title(question, title), counted(mine),
                                  tuple(lines(mine, self.study)), mine))  # fmt: skip
        return tuple(made)

    def _title(self, question: Question, title: str) -> str:
        if question == "chunk" and self.bound:
            return f"{title} for {self.bound.says}"
        if question == "nodes" and self.bandwidth:
            return f"{title.removesuffix(' a bandwidth')} {rate_text(self.bandwidth)}"
        return title

    @property
    def says(self) -> list[str]:
        """The answer, the lessons of each question, what the data cannot say."""
        said = [self.answer]
        for group in self.groups:
            said.append(f"{group.title}: {group.summary}")
            said += [f"  {line}" for line in group.lines]
        said += ["What the data cannot say:"] if self.limits else []
        said += [f"  {text}." for text in self.limits]
        look = self.extension.record.says(self.alpha) if self.extension else ""
        said += [look] if look else []
        said.append(
            "In brackets: 95 % sure that the value lies in there. How this was tested: targets "
            "over all cells together, other answers each for itself; docs/statistics.md. p: "
            "fsmatrix compare --json."
        )
        return said

    def table(self) -> pd.DataFrame:
        """One row per lesson with the bandwidth of its choice (NaN without one)."""
        import pandas as pd

        unit, blank = self.study.fitting(), of_independent([])
        frame = pd.DataFrame([
            {"question": one.question, "where": one.where or "all", "answer": one.short,
             "sure": one.sure, f"median, {unit.label}": m.median / unit.divisor,
             f"low, {unit.label}": m.low / unit.divisor,
             f"high, {unit.label}": m.high / unit.divisor, "attachments": m.independent}
            for one in self.lessons
            for m in (one.estimate or blank,)
        ])  # fmt: skip
        frame.attrs |= {"unit": unit.label}
        return frame

    def to_dict(self) -> dict[str, Any]:
        """SI units."""
        made: dict[str, Any] = plain({
            "answer": self.answer,
            "latency_bound": self.bound, "bandwidth": self.bandwidth,
            "tolerance": self.tolerance, "alpha": self.alpha,
            "lessons": [
                {**vars(one), "levels": dict(one.levels), "says": one.says}
                for one in self.lessons
            ],
            "limits": self.limits, "excluded": self.excluded, "says": self.says,
            "extension": self.extension.to_dict() if self.extension else None,
        })  # fmt: skip
        return made

    @property
    def drawable(self) -> str:
        """Why there is no figure; "" if there is one."""
        return "" if "chunk" in self.study.varying else "one chunk size: there is nothing to draw"

    @property
    def pages(self) -> int:
        """Number of figures."""
        from fsmatrix.analysis.lessons import figure

        return figure.pages(self)

    def figure(self, page: int = 0) -> Figure:
        """Bandwidth against latency (or chunk size), the chosen chunk sizes marked."""
        from fsmatrix.analysis.lessons import figure

        return figure.draw(self, page)


def lessons(
    ds: xr.Dataset,
    *,
    latency_bound: Bound | None = None,
    bandwidth: float | None = None,
    tolerance: float = TOLERANCE,
    alpha: float = ALPHA,
    where: Mapping[str, Level] | None = None,
) -> Lessons:
    """The lessons of a campaign, of those runs whose levels are as `where` says.

    `bandwidth` in bytes per second.  `tolerance`: the share that is no difference that matters.
    ValueError if no run has a value, for unknown names and levels, and for a tolerance, alpha
    or bandwidth that makes no sense.
    """
    if not 0 < tolerance < np.inf:
        raise ValueError(f"the tolerance must be positive, such as 0.05, not {tolerance}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, such as 0.05, not {alpha}")
    if bandwidth is not None and not 0 < bandwidth < np.inf:
        raise ValueError(f"a bandwidth must be positive and finite, not {bandwidth}")
    only = dict(where or {})
    name = latency_bound.metric if latency_bound else "latency_p99"
    step("lessons: medians of every cell")
    of = _study(ds, only, name)
    whole = summary.summarise(ds)
    targets = [str(name) for name in of.levels("target", of.valued)]
    step(f"lessons: {len(targets)} targets")
    few = len(targets) <= summary.MOST_TARGETS
    factors = _by_factor(ds, only)
    lost = evidence.valueless(ds, factors)
    compared, refused = pairs_compared(ds, targets if few else (), factors, tolerance, alpha)
    if not few:
        found = ranked(of, targets)
    elif len(targets) < 2:
        found = [only_one(targets, lost)]
    else:
        found, refused = backend_lessons(targets, compared, refused)
    latencies: dict[int, Median] = {}
    if of.metric.name == "bandwidth":
        latencies = {id(cell): cell.cell.metrics[name] for cell in of.cells}
        step("lessons: chunk sizes, processes, storage nodes")
        found += chunk_lessons(Setting(of, latency_bound, latencies, tolerance, alpha))
        found += process_lessons(of, ds, only)
        found += node_lessons(of, ds, bandwidth, only)
    limits = evidence.limits(of, whole, ds, latency_bound)
    return Lessons(
        lessons=tuple(found), limits=(*refused, *limits),
        excluded=tuple(evidence.excluded(of, ds, lost)), study=of, bound=latency_bound,
        bandwidth=bandwidth, tolerance=tolerance, alpha=alpha, latencies=latencies,
        compared=tuple(compared), extension=extension_of(compared) if compared else None,
    )  # fmt: skip


def _study(ds: xr.Dataset, where: Mapping[str, Level], latency: str) -> Study:
    """By bandwidth; by operations per second where nothing moved bytes (metadata)."""
    try:
        return study(ds, "bandwidth", where, (latency, "iops"))
    except ValueError as error:
        try:
            return study(ds, "iops", where)
        except ValueError:
            raise error from None


def _by_factor(ds: xr.Dataset, where: Mapping[str, Level]) -> dict[str, Level]:
    """Names of roles as the factors that a campaign has."""
    known = rows(ds).factors
    found = {}
    for name, level in where.items():
        choices = (name, *ROLES.get(name, ()))
        found[next((n for n in choices if n in known or n in ("engine", "phase")), name)] = level
    return found
