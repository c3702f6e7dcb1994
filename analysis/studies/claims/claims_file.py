"""What a study claims, as data: the schema of results/published/studies/*.yaml (docs/claims.md).

A claim is about the medians of cells (combinations of levels): a ratio of two cells, a correlation
over cells, or growth on both sides of a knee.  Each has a claimed range and says for how many
cells it is claimed.  Factors have one name here, whatever the workload calls them.

Some studies come with fsmatrix; `faults` finds what is wrong with one beyond its schema.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

import fsmatrix.results
from fsmatrix.analysis.data.factors import NUMERIC, ROLES
from fsmatrix.analysis.units import METRICS, Level, is_size
from fsmatrix.results.files import safefile
from fsmatrix.results.files.run_rows import USAGE_COLUMNS
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.units import parse_size

PATTERNS: dict[str, tuple[Level, ...]] = {
    "rand-read": ("randread",), "seq-read": ("read",),
    "rand-write": ("randwrite",), "seq-write": ("write",),
}  # fmt: skip

FOLDER = Path(fsmatrix.results.__file__).parent / "published" / "studies"
Fault = tuple[tuple[str | int, ...], str, str, tuple[str, ...]]  # path, message, wrong, allowed


def _level(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("a level is text or a number")
    return value


def _levels(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


One = Annotated[Any, BeforeValidator(_level)]
Several = Annotated[tuple[One, ...], BeforeValidator(_levels)]
Names = Annotated[tuple[str, ...], BeforeValidator(_levels)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StudySource(_Model):
    """Where the study was printed."""

    paper: str
    where: str = ""
    year: int | None = None


class Factor(_Model):
    """A factor of the study."""

    names: Names = ()  # what campaigns call it; the first that a run has counts
    levels: tuple[One, ...] = ()  # those of the study: others are outside every scope
    same: dict[str, Several] = {}  # level -> other words for it


_NO_FACTOR = Factor()


class Compare(_Model):
    """What is compared; one of `of` with `over`, `steps`, `knee`, `correlation`."""

    of: dict[str, One] = {}  # levels of the numerator
    over: dict[str, One] = {}  # of the denominator
    pairs: tuple[tuple[dict[str, One], dict[str, One]], ...] = ()  # several (of, over)
    steps: str = ""  # a factor: later over earlier level
    which: Literal["neighbours", "all"] = "neighbours"  # pairs of levels
    knee: str = ""  # a numeric factor
    at: One = ""
    correlation: str = ""  # a numeric factor, with the metric
    coding: Literal["raw", "log2"] = "raw"

    @model_validator(mode="after")
    def _one(self) -> Compare:
        kinds = [self.of or self.over, self.pairs, self.steps, self.knee, self.correlation]
        if sum(bool(kind) for kind in kinds) != 1:
            raise ValueError("give one of: of with over; pairs; steps; knee with at; correlation")
        if bool(self.of) != bool(self.over) or bool(self.knee) != (self.at != ""):
            raise ValueError("of needs over, knee needs at")
        for of, over in self.both:
            if set(of) != set(over):
                raise ValueError("of and over must name the same factors")
        return self

    @property
    def both(self) -> tuple[tuple[dict[str, Level], dict[str, Level]], ...]:
        """(of, over) of every pair that is written out."""
        return self.pairs or (((self.of, self.over),) if self.of else ())

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of what is compared."""
        written = [name for of, _ in self.both for name in of]
        single = (self.steps, self.knee, self.correlation)
        return tuple(dict.fromkeys([*written, *(name for name in single if name)]))


class ClaimedRange(_Model):
    """The claimed range of a ratio, or of r; `slack` is how much "about" allows (ours, declared).

    Of a ratio slack is a share, of r a difference; growth at a knee is per doubling (1.1: 10 %).
    """

    low: float | None = None
    high: float | None = None
    slack: float = Field(default=0.0, ge=0.0)

    @model_validator(mode="after")
    def _ordered(self) -> ClaimedRange:
        if self.low is None and self.high is None:
            raise ValueError("give low, high or both")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self


class Quantifier(_Model):
    """For how many cells: `at_least` n of m."""

    at_least: int = Field(ge=1)
    of: int = Field(ge=1)


class Claim(_Model):
    """A statement of a study that a campaign can bear out or contradict."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    says: str  # in our words
    number: str  # as printed
    place: str  # section, figure, table
    metric: Names
    over_metric: str = ""  # ratio of two metrics of one cell, instead of `compare`
    where: dict[str, Several] = {}
    unless: tuple[dict[str, One], ...] = ()
    compare: Compare | None = None
    claimed: ClaimedRange
    quantifier: Literal["every", "range", "median"] | Quantifier = "every"
    about: Names = ()  # factors that must be real; empty: those compared and those of `where`

    @model_validator(mode="after")
    def _whole(self) -> Claim:
        if (self.compare is None) == (not self.over_metric):
            raise ValueError("give either compare or over_metric")
        low, high = self.claimed.low, self.claimed.high
        if self.scale == "ratio" and any(end is not None and end <= 0 for end in (low, high)):
            raise ValueError("a ratio is above 0")
        if self.scale == "r" and any(end is not None and abs(end) >= 1 for end in (low, high)):
            raise ValueError("r lies between -1 and 1")
        if self.compare and self.compare.knee and low is None:
            raise ValueError("a knee needs low: growth per doubling before it; after it less")
        return self

    @property
    def scale(self) -> Literal["ratio", "r"]:
        """What is claimed: a ratio, or a correlation coefficient."""
        return "r" if self.compare and self.compare.correlation else "ratio"

    @property
    def compared(self) -> tuple[str, ...]:
        """Factors that are compared."""
        return self.compare.factors if self.compare else ()

    @property
    def bounds(self) -> tuple[float, float]:
        """The claimed range with its slack; infinite where it has no end."""
        low, high, slack = self.claimed.low, self.claimed.high, self.claimed.slack
        if self.scale == "r":
            return (
                -math.inf if low is None else low - slack,
                math.inf if high is None else high + slack,
            )
        return (
            0.0 if low is None else low / (1 + slack),
            math.inf if high is None else high * (1 + slack),
        )

    @property
    def direction(self) -> Literal["higher", "lower", "none"]:
        """On which side of 1 (of 0 for r) the whole printed range lies."""
        nothing = 0.0 if self.scale == "r" else 1.0
        if self.compare and self.compare.knee:
            return "none"
        if self.claimed.low is not None and self.claimed.low >= nothing:
            return "none" if self.claimed.high == nothing else "higher"
        if self.claimed.high is not None and self.claimed.high <= nothing:
            return "lower"
        return "none"


class StudyFile(_Model):
    """A study: its source, its factors, its claims."""

    study: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    source: StudySource
    factors: dict[str, Factor] = {}
    metrics: dict[str, str] = {}  # metrics that campaigns do not have -> meaning
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _some(self) -> StudyFile:
        if not self.claims:
            raise ValueError("a study needs at least one claim")
        return self

    def names(self, factor: str) -> tuple[str, ...]:
        """What campaigns call a factor.  A phase is no pattern: it does not say random."""
        names = self.factors.get(factor, _NO_FACTOR).names or ROLES.get(factor, (factor,))
        return names if factor != "pattern" else tuple(n for n in names if n != "phase")

    def canonical(self, factor: str, level: Level) -> Level:
        """The study's word for a level; sizes as bytes."""
        if factor == "chunk" or is_size(factor):
            return parse_size(level) if isinstance(level, str) and level[:1].isdigit() else level
        same: Mapping[str, tuple[Level, ...]] = PATTERNS if factor == "pattern" else {}
        for word, others in (*same.items(), *self._same(factor).items()):
            if level == word or level in others:
                return word
        return level

    def levels(self, factor: str) -> tuple[Level, ...]:
        """Levels that the study had; empty if it does not say."""
        declared = self.factors.get(factor, _NO_FACTOR).levels
        return tuple(self.canonical(factor, level) for level in declared)

    def _same(self, factor: str) -> Mapping[str, tuple[Level, ...]]:
        return self.factors.get(factor, _NO_FACTOR).same


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
