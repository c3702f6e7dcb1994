"""The scores that IO500 prints, computed again from the phases that it prints."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from fsmatrix.results.evidence.stored import Stored
from fsmatrix.results.formats.io500.declared import BANDWIDTHS, RATES
from fsmatrix.results.formats.io500.text import Entry, Scores

HALF_DIGIT = 5e-7  # of scores as they are printed now: six decimals
PARTS = ("bandwidth", "rate", "total")


@dataclass(frozen=True)
class Difference(Stored):
    """A printed score that its phases do not give.  GiB/s, thousands per second, or the total."""

    part: str  # of PARTS
    printed: float
    recomputed: float


@dataclass(frozen=True, kw_only=True)
class PrintedScores(Stored):
    """GiB/s, thousands per second, and the total."""

    bandwidth: float
    rate: float
    total: float
    invalid: bool
    product: bool  # the total is the product of both, not its root


@dataclass(frozen=True, kw_only=True)
class RunFacts(Stored):
    """The facts of a run; scores where they were printed."""

    mode: str
    scores: PrintedScores | None = None
    scores_recomputed: Mapping[str, float] | None = None  # by PARTS
    scores_differ: tuple[Difference, ...] | None = None
    configuration: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PhaseFacts(Stored):
    """The facts of a phase that are IO500's own."""

    score: float
    unit: str
    scored: bool
    seconds_of_all: float
    own_output: bool  # IOR's or mdtest's own output was understood


def recomputed(entries: Mapping[str, Entry]) -> Scores:
    """By IO500's rule (main.c, calc_score): geometric means over what is above zero."""
    means = []
    for names in (BANDWIDTHS, RATES):
        positive = [entry.score for entry in _positive(entries, names)]
        means.append(statistics.geometric_mean(positive) if positive else 0.0)
    return Scores(means[0], means[1], (means[0] * means[1]) ** 0.5, invalid=False)


def differences(entries: Mapping[str, Entry], printed: Scores) -> list[Difference]:
    """Printed scores that differ by more than the digits lost in print explain.

    A geometric mean of n values is off, relatively, by the mean of what they are off: by half of
    the last digit of each at most.  The total is off by the mean of both.
    """
    again = recomputed(entries)
    lost = [_lost(entries, names) for names in (BANDWIDTHS, RATES)]
    differing = []
    for part, share in zip(PARTS, (*lost, sum(lost) / 2), strict=True):
        score, own = getattr(printed, part), getattr(again, part)
        if score == 0 and any(entry.scored and entry.score == 0 for entry in entries.values()):
            continue  # the first versions multiplied all phases, also those that are 0
        if abs(score - own) > score * (share + printed.precision) + 2 * HALF_DIGIT:
            differing.append(Difference(part, score, own))
    return differing


def _positive(entries: Mapping[str, Entry], names: tuple[str, ...]) -> list[Entry]:
    return [entries[name] for name in names if name in entries and entries[name].score > 0]


def _lost(entries: Mapping[str, Entry], names: tuple[str, ...]) -> float:
    """How far the mean of these phases may be off for the digits that were not printed."""
    shares = [entry.half_digit / entry.score for entry in _positive(entries, names)]
    return statistics.fmean(shares) if shares else 0.0
