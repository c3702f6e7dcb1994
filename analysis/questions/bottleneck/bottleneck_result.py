"""Where growth ends and what is full there: as sentences, a table, plain data and pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fsmatrix.analysis.data.factors import Key
from fsmatrix.analysis.data.metric_cells import Study
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.units import Unit
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd

AXES = ("chunk", "processes")
# of the storage nodes, where they were watched: of the fullest one
STORAGE = {"storage link": 0.85, "storage drive": 0.90, "storage CPU": 0.90}
# share of a limit from which a resource is called full: a link's payload is below its bit rate,
# a device is never busy all the time between two looks, a CPU's rest is rounding; of busy time
# (a device without a given limit): share below which it cannot be full
FULL = {"network": 0.85, "device": 0.90, "client CPU": 0.95, **STORAGE}
Growth = Literal["grows", "stopped", "cannot tell"]
State = Literal[
    "at its limit", "below its limit", "always busy, limit not known", "cannot tell", "not measured"
]
BUSY: State = "always busy, limit not known"
CERTAINTY: dict[str, Certainty] = {
    "cannot tell": Certainty.UNDECIDED,
    BUSY: Certainty.UNDECIDED,
    "not measured": Certainty.INVALID,
}


def certainty(answer: Growth | State) -> Certainty:
    """How sure it is whether growth stopped, or a resource is full."""
    return CERTAINTY.get(answer, Certainty.PROVEN)


@dataclass(frozen=True)
class Resource:
    """The share of its limit that a resource had in a cell."""

    name: str
    share: Median  # over attachments; of 1
    state: State


@dataclass(frozen=True)
class GrowthStep:
    """From one level to the next."""

    axis: str
    key: Key
    before: float
    after: float
    gain: float  # 0.1: ten per cent more; for a doubling where the step is shorter than one
    low: float
    high: float
    growth: Growth


@dataclass(frozen=True)
class GrowthVerdict:
    """One series along an axis: where growth stops, and what is full there."""

    axis: str
    key: Key
    steps: tuple[GrowthStep, ...]
    knee: float  # level from which there is no more growth; NaN if it goes on or is unknown
    resources: tuple[Resource, ...]  # at the levels beyond the knee: of the largest one

    @property
    def full(self) -> tuple[str, ...]:
        """Resources at their limit."""
        return tuple(r.name for r in self.resources if r.state == "at its limit")

    @property
    def cause(self) -> str:
        """What limits, in words; empty where nothing stops."""
        if self.knee != self.knee:
            return ""
        if self.full:
            return " and ".join(self.full)
        states = {r.name: r.state for r in self.resources}
        unknown = [name for name, state in states.items() if state != "below its limit"]
        if unknown:
            return f"unknown ({'; '.join(f'{name}: {states[name]}' for name in unknown)})"
        *first, last = states
        return f"none of {', '.join(first)} and {last}: servers, locks or the queue depth"


@dataclass(frozen=True)
class Bottleneck(Drawn):
    """Verdicts of all series of a campaign along chunk size and processes."""

    study: Study
    unit: Unit
    threshold: float
    verdicts: tuple[GrowthVerdict, ...]
    shares: Mapping[int, tuple[Resource, ...]]  # by index of a cell in study.valued
    left_out: tuple[str, ...] = ()  # run files that could not be used, and why

    @property
    def says(self) -> list[str]:
        """Where growth ends and why, and what evidence is missing."""
        sentences = []
        for axis in AXES:
            verdicts = [v for v in self.verdicts if v.axis == axis]
            title = self.study.title(axis)
            if not verdicts:
                sentences.append(
                    f"{title}: one level only, so whether more would help is not known."
                )
                continue
            stops = [v for v in verdicts if v.knee == v.knee]
            states = Counter(step.growth for v in verdicts for step in v.steps)
            sentences.append(
                f"{title[0].upper()}{title[1:]}: bandwidth stops growing in {len(stops)} "
                f"of {len(verdicts)} series (the next level gives less than {self.threshold:.0%} "
                "more). "
                f"Of {plural(sum(states.values()), 'step')} {states['grows']} still grow, "
                f"{states['stopped']} do not, {states['cannot tell']} are undecided."
            )
            for (knee, cause), number in Counter((v.knee, v.cause) for v in stops).items():
                sentences.append(
                    f"No more from {self.study.label(axis, knee)} on in {number} "
                    f"series; at the limit: {cause}."
                )
        return (
            sentences
            + self._always_busy()
            + self._missing()
            + [*self.left_out]
            + self.study.remarks
        )

    def _always_busy(self) -> list[str]:
        if not any(share.state == BUSY for shares in self.shares.values() for share in shares):
            return []
        return [
            "A device that is always busy is not shown to be at its limit: an SSD works on many "
            "requests at once. Measure what it can do in this pattern and chunk size (fio with a "
            "deep queue) and give it: --limit device=BYTES_PER_SECOND."
        ]

    def _missing(self) -> list[str]:
        states: dict[str, set[str]] = {}
        for resources in self.shares.values():
            for resource in resources:
                states.setdefault(resource.name, set()).add(resource.state)
        missing = [name for name, of_resource in states.items() if of_resource == {"not measured"}]
        if not missing:
            return []
        return [
            f"No evidence of {', '.join(missing)}: the campaign file has no counters, or no limit "
            "to hold them against. Give the directory with the run files, and the limits: "
            "--limit network=1.25GB --limit device=500MB (bytes per second)."
        ]

    def table(self) -> pd.DataFrame:
        """One row per step; the verdict of its series in each."""
        import pandas as pd

        frame = pd.DataFrame(
            [
                {
                    **dict(v.key),
                    "axis": v.axis,
                    "from": s.before,
                    "to": s.after,
                    "growth of the step": s.gain,
                    "low": s.low,
                    "high": s.high,
                    "growth": s.growth,
                    "stops at": v.knee,
                    "at the limit": v.cause,
                    **{f"{r.name}, share": r.share.median for r in v.resources},
                }
                for v in self.verdicts
                for s in v.steps
            ]
        )
        frame.attrs |= {"threshold": self.threshold, "full": dict(FULL)}
        return frame

    def to_dict(self) -> dict[str, Json]:
        """What --json prints."""
        verdicts = [
            {
                "axis": v.axis,
                "levels": dict(v.key),
                "knee": v.knee,
                "cause": v.cause,
                "steps": [
                    {**vars(s), "key": dict(s.key), "certainty": certainty(s.growth)}
                    for s in v.steps
                ],
                "resources": [{**vars(r), "certainty": certainty(r.state)} for r in v.resources],
            }
            for v in self.verdicts
        ]
        data: dict[str, Json] = plain(
            {"threshold": self.threshold, "full": FULL, "verdicts": verdicts, "says": self.says}
        )
        return data
