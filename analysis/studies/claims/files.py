"""Studies that come with fsmatrix, and what is wrong with a study beyond its schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsmatrix.results
from fsmatrix.analysis.data.roles import NUMERIC, ROLES
from fsmatrix.analysis.questions.bottleneck.usage import USAGE_COLUMNS
from fsmatrix.analysis.studies.claims.study import Claim, StudyFile
from fsmatrix.analysis.units import METRICS, Level
from fsmatrix.results.files import safefile
from fsmatrix.results.files.safefile import ResultError

FOLDER = Path(fsmatrix.results.__file__).parent / "published" / "studies"
Fault = tuple[tuple[str | int, ...], str, str, tuple[str, ...]]  # path, message, wrong, allowed


def names() -> list[str]:
    """Names of the studies that come with fsmatrix, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str) -> StudyFile:
    """A study that comes with fsmatrix; ValueError for an unknown name, ResultError if faulty."""
    if name not in names():
        raise ValueError(f"no study {name!r}: there are {', '.join(names())}")
    path = FOLDER / f"{name}.yaml"
    study = safefile.load(path, StudyFile, "is no study")
    wrong = [f"{'.'.join(map(str, path_))}: {message}" for path_, message, _, _ in faults(study)]
    if wrong:
        raise ResultError(path, f"is no study: {'; '.join(wrong)}")
    return study


def faults(study: StudyFile) -> Iterator[Fault]:
    """What the schema cannot see: metrics, factors and levels that the study does not know."""
    metrics = (*METRICS, *USAGE_COLUMNS, *study.metrics)
    factors = tuple(dict.fromkeys([*ROLES, *study.factors]))
    seen: set[str] = set()
    for i, claim in enumerate(study.claims):
        at = ("claims", i)
        if claim.id in seen:
            yield (*at, "id"), f"the claim {claim.id!r} is there twice", "", ()
        seen.add(claim.id)
        for key in ("metric", "over_metric"):
            metrics_named = claim.metric if key == "metric" else (claim.over_metric,)
            for wrong in (m for m in metrics_named if m and m not in metrics):
                yield (*at, key), f"no metric {wrong!r}", wrong, metrics
        for place, factor, levels in _named_levels(claim):
            if factor not in factors:
                yield (*at, *place), f"no factor {factor!r}", factor, factors
            else:
                yield from _wrong_levels(study, (*at, *place), factor, levels)
        for key in ("knee", "correlation"):
            numeric = getattr(claim.compare, key, "")
            if numeric in factors and numeric not in NUMERIC:
                yield (*at, "compare", key), f"{numeric!r} is no number", numeric, NUMERIC


def _wrong_levels(
    study: StudyFile, path: tuple[str | int, ...], factor: str, levels: tuple[Level, ...]
) -> Iterator[Fault]:
    allowed = study.levels(factor)
    for level in levels:
        try:
            word = study.canonical(factor, level)
        except ValueError as error:
            yield path, str(error), str(level), ()
            continue
        if allowed and word not in allowed:
            choices = tuple(map(str, study.factors[factor].levels))
            yield path, f"{factor} has no level {level!r}", str(level), choices


def _named_levels(claim: Claim) -> Iterator[tuple[tuple[str | int, ...], str, tuple[Level, ...]]]:
    """(path, factor, levels) of all that a claim names."""
    for name, levels in claim.where.items():
        yield ("where", name), name, levels
    for i, exception in enumerate(claim.unless):
        for name, level in exception.items():
            yield ("unless", i, name), name, (level,)
    for name in claim.about:
        yield ("about",), name, ()
    compare = claim.compare
    if compare is None:
        return
    for side in ("of", "over"):
        for name, level in getattr(compare, side).items():
            yield ("compare", side, name), name, (level,)
    for i, pair in enumerate(compare.pairs):
        for j, levels_of in enumerate(pair):
            for name, level in levels_of.items():
                yield ("compare", "pairs", i, j, name), name, (level,)
    for key in ("steps", "knee", "correlation"):
        if name := getattr(compare, key):
            at = (compare.at,) if key == "knee" else ()
            yield ("compare", "at") if at else ("compare", key), name, at
