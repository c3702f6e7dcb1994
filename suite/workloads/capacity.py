"""The search for a capacity: the highest rate of arrivals that keeps a limit of latency.

Which rate is tried next follows from which were kept alone, so that the same code searches a real
system, a stored run and a simulated queue.  The rates are the points of a grid of equal ratios up
to what the closed loop reached.  Six steps bisect it as if no outcome were luck.  Then luck is
looked for on both sides.  A rate well above must not keep the limit: one stall at the beginning
leads a bisection far too low.  The rate found must keep it once more: where it does not, the points
below may, in the steps that are left.  Otherwise nothing was found, and there is no number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsmatrix.results.evidence.workloads import Capacity, Probe, open_loop
from fsmatrix.results.files.run_rows import PERCENTILES, latencies
from fsmatrix.results.record import Phase
from fsmatrix.results.units import DURATION_UNITS, UnitError, parse_duration

STEPS = 10  # of one search, at most
BISECTED = 6  # of these; the others look for luck
POINTS = (1 << BISECTED) - 1  # so many outcomes and one more, that none is kept, are told apart
ABOVE = 5  # points between what was found and what must not keep the limit: a quarter more
LEAST_SHARE = 0.05  # of the closed loop's rate: the lowest point
FEWEST = 12.0  # operations beyond the percentile at the lowest rate; its histogram needs 10
# as the option has it -> as the columns of the results have it
NAMES = {"mean": "mean", **{name.replace("_", "."): name for name in PERCENTILES}}
SHOWN_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class Standing:
    """What a search knows: the rate to try next (None: it is over), or what it found."""

    rate: float | None
    found: float | None = None
    highest: bool = False  # what was found is the highest of all: it may be more


@dataclass(frozen=True)
class Search:
    """Between two rates, operations per second."""

    lowest: float
    highest: float

    def rate(self, point: int) -> float:
        """Of a point of the grid, 0 to POINTS - 1."""
        share = point / (POINTS - 1)
        return float(self.lowest ** (1 - share) * self.highest**share)

    def after(self, kept: Sequence[bool]) -> Standing:
        """Where the search stands after these outcomes, each of the rate that it asked for."""
        below, above = -1, POINTS  # kept, not kept
        for outcome in kept[:BISECTED]:
            middle = (below + above) // 2
            below, above = (middle, above) if outcome else (below, middle)
        if len(kept) < BISECTED:
            return Standing(self.rate((below + above) // 2))
        if below < 0:
            return Standing(None)
        later = list(kept[BISECTED:])
        if below + ABOVE < POINTS:
            if not later:
                return Standing(self.rate(below + ABOVE))
            if later.pop(0):
                return Standing(None)
        for outcome in later:
            if outcome:
                return Standing(None, found=self.rate(below), highest=below == POINTS - 1)
            below -= 1
        is_over = below < 0 or len(kept) == STEPS
        return Standing(None if is_over else self.rate(below))


@dataclass(frozen=True)
class Limit:
    """A latency that a percentile (or the mean) may have at most, seconds."""

    percentile: str  # as the option has it
    seconds: float

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Limit:
        """From the option, as `normal` made it."""
        ((percentile, text),) = given.items()
        return cls(percentile, parse_duration(text))

    def search(self, maximum: float, seconds: float) -> Search | None:
        """Below the closed loop's rate, in steps of so many seconds; None if these are too short.

        No rate of it has too few operations to tell the percentile.
        """
        share = PERCENTILES.get(NAMES[self.percentile], 0.0)
        lowest = max(LEAST_SHARE * maximum, FEWEST / (1 - share) / seconds)
        return Search(lowest, maximum) if lowest < maximum else None

    def probe(self, rate: float, phase: Phase) -> Probe:
        """What came of a step at that rate; the phase has its open loop told."""
        loop = open_loop(phase.facts)
        latency = latencies(phase).get(f"latency_{NAMES[self.percentile]}", math.nan)
        saturated = loop is None or loop.saturated
        return Probe(
            rate=rate,
            latency=latency if math.isfinite(latency) else None,
            saturated=saturated,
            kept=not saturated and latency <= self.seconds,
        )

    def outcome(self, search: Search, probes: Sequence[Probe]) -> Capacity:
        """What the search came to, to be stored."""
        standing = search.after([probe.kept for probe in probes])
        return Capacity(
            percentile=self.percentile,
            limit=self.seconds,
            probes=tuple(probes),
            rate=None if standing.highest else standing.found,
            at_least=standing.found if standing.highest else None,
        )

    def failure(self, probes: Sequence[Probe]) -> str:
        """Why a search that is over found nothing; one sentence."""
        last = probes[-1]
        if unknown(last):
            return (
                f"capacity: {self.percentile} is not known of {last.rate:.4g} operations per "
                "second in one step, which has too few: give it more seconds"
            )
        lowest = min(probes, key=lambda probe: probe.rate)
        seen = (
            f"{self.percentile} was {1e3 * lowest.latency:.3g} ms"
            if lowest.latency
            else "saturated"
        )
        return (
            f"capacity: no rate keeps {self.percentile} within {1e3 * self.seconds:.3g} ms; the "
            f"lowest tried, {lowest.rate:.4g} operations per second: {seen}"
        )


def unknown(probe: Probe) -> bool:
    """Whether it has too few operations to be judged."""
    return not probe.saturated and probe.latency is None


def normal(value: Any) -> Any:
    """The option `capacity` as it is stored: {"p99": "2ms"}; ValueError if it is none."""
    allowed = ", ".join(NAMES)
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError(f"one percentile and its limit, such as {{p99: 2ms}}, not {value!r}")
    ((name, limit),) = value.items()
    if name not in NAMES:
        raise ValueError(f"no percentile {name!r}: one of {allowed}")
    if not isinstance(limit, str) or not limit.strip()[-1:].isalpha():
        raise ValueError(f"{name}: a time with its unit, such as 2ms, not {limit!r}")
    try:
        ns = round(parse_duration(limit) * 1e9)
    except UnitError as error:
        raise ValueError(f"{name}: {error}") from None
    if ns < 1:
        raise ValueError(f"{name}: a limit of at least 1ns, not {limit!r}")
    sizes = {unit: int(DURATION_UNITS[unit] * 10**9) for unit in SHOWN_UNITS}
    unit = next(unit for unit, size in sizes.items() if ns % size == 0)
    return {name: f"{ns // sizes[unit]}{unit}"}
