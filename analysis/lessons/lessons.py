"""Lessons: what a campaign says to somebody who must choose, and what it does not say.

Which target for which pattern, the best chunk size (under a bound of latency), the processes at
which growth ends and why, the storage nodes that a bandwidth needs; each with number, interval and
attachments, and how sure it is.  Everything comes from valid runs by the analyses that exist:
`compare`, `bottleneck`, `scalability`, `study`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from fsmatrix.analysis.comparison.advice import extension_of
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.comparison.options import TOLERANCE, ComparisonOptions
from fsmatrix.analysis.data import summary
from fsmatrix.analysis.data.cluster import ONE_MACHINE
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.roles import ROLES
from fsmatrix.analysis.data.study import Study, study
from fsmatrix.analysis.lessons import figure
from fsmatrix.analysis.lessons import limits as evidence
from fsmatrix.analysis.lessons.backend import backend_lessons, only_one, pairs_compared
from fsmatrix.analysis.lessons.chunk import Setting, chunk_lessons
from fsmatrix.analysis.lessons.nodes import node_lessons
from fsmatrix.analysis.lessons.processes import process_lessons
from fsmatrix.analysis.lessons.ranking import ranked
from fsmatrix.analysis.lessons.result import Lessons
from fsmatrix.analysis.lessons.words import Bound, Lesson, unanswerable
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.stats.testing.tests import ALPHA
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.units import Level


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
    options = ComparisonOptions(tolerance=tolerance, alpha=alpha)
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
    options = replace(options, where=factors)
    apart = few and not of.cluster.one_machine
    compared, refused = pairs_compared(ds, targets if apart else (), options)
    if of.cluster.one_machine:
        answers = [unanswerable("backend", ONE_MACHINE)]
    elif not few:
        answers = ranked(of, targets)
    elif len(targets) < 2:
        answers = [only_one(targets, lost)]
    else:
        answers, refused = backend_lessons(targets, compared, refused)
    latencies: dict[int, Median] = {}
    if of.metric.name == "bandwidth":
        latencies = {id(cell): cell.cell.metrics[name] for cell in of.cells}
        step("lessons: chunk sizes, processes, storage nodes")
        answers += chunk_lessons(Setting(of, latency_bound, latencies, tolerance, alpha))
        answers += process_lessons(of, ds, only)
        answers += node_lessons(of, ds, bandwidth, only)
    limits = evidence.limits(of, whole, ds, latency_bound)
    if record_of(ds).imported:
        answers = [_without_more(lesson) for lesson in answers]
    return Lessons(
        lessons=tuple(answers),
        limits=(*refused, *limits),
        excluded=tuple(evidence.excluded(of, ds, lost)),
        study=of,
        bound=latency_bound,
        bandwidth=bandwidth,
        tolerance=tolerance,
        alpha=alpha,
        latencies=latencies,
        compared=tuple(compared),
        extension=extension_of(compared) if compared else None,
        chart=figure,
    )


def _without_more(lesson: Lesson) -> Lesson:
    """Of imported runs: without how many attachments an open answer takes."""
    open_ = lesson.question != "backend" and lesson.certainty is Certainty.UNDECIDED
    return replace(lesson, why="") if open_ else lesson


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
    factors = rows(ds).factors
    levels = {}
    for name, level in where.items():
        choices = (name, *ROLES.get(name, ()))
        levels[next((n for n in choices if n in factors or n in ("engine", "phase")), name)] = level
    return levels
