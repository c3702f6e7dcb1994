"""Open loops of `pattern` and `metadata`: options, the arrivals they mean, what came of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from fsmatrix.results.evidence.openloop import BEGUN, DUE, FACT, PLAYED, SPAN, OpenLoop
from fsmatrix.results.evidence.values import inside, number
from fsmatrix.results.formats.base import Parsed
from fsmatrix.results.record import Case, Phase
from fsmatrix.suite.workloads.base import Stream, WorkloadOptions
from fsmatrix.suite.workloads.streams.arrivals import LEAD_NS, Arrivals

MOST_RATE = 1e9  # operations per second of all workers
MOST_OF_THREAD = 1e7  # a thread of the C player begins no more, on a driver that does nothing
LONGEST = 1e6  # seconds of arrivals: twelve days
LATE_SHARE, LATE_SECONDS = 0.1, 5.0  # what is late is played so long after the arrivals' end


class OpenLoopOptions(WorkloadOptions):
    """When operations begin: as fast as possible, or at a rate whatever becomes of them."""

    rate: Annotated[float, Field(gt=0, le=MOST_RATE)] | None = Field(
        default=None,
        description="operations per second (open loop): each begins when it is due, and its "
        "latency counts from then; as fast as possible if absent",
    )
    rate_per: Literal["total", "process"] | None = Field(
        default=None,
        description="what has that rate: all processes together (total, if absent), or each",
    )
    arrivals: Literal["constant", "poisson"] | None = Field(
        default=None,
        description="evenly spaced (constant, if absent), or independent of each other, from the "
        "campaign's seed",
    )

    @field_validator("rate_per")
    @classmethod
    def _total(cls, value: Literal["total", "process"] | None) -> Literal["process"] | None:
        """The derived value, written out, is the same case: None stands for it."""
        return None if value == "total" else value

    @field_validator("arrivals")
    @classmethod
    def _constant(cls, value: Literal["constant", "poisson"] | None) -> Literal["poisson"] | None:
        return None if value == "constant" else value

    @model_validator(mode="after")
    def _only_with_a_rate(self) -> OpenLoopOptions:
        given = [name for name in ("rate_per", "arrivals") if name in self.model_fields_set]
        if self.rate is None and any(getattr(self, name) is not None for name in given):
            raise ValueError(f"{' and '.join(given)}: only with a rate")
        return self

    def of_process(self, case: Case) -> float:
        """Operations per second of each process; 0 without a rate."""
        return (self.rate or 0.0) / (1 if self.rate_per else case.geometry.processes)

    def arrivals_of(self, case: Case, seconds: float) -> Arrivals | None:
        """Those of a phase in which operations are due for so long; None without a rate."""
        if self.rate is None:
            return None
        until = LEAD_NS + round(seconds * 1e9)
        poisson = self.arrivals == "poisson"
        return Arrivals(rate=self.of_process(case), poisson=poisson, until=until)

    def misfit_of_rate(self, case: Case, seconds: float) -> str:
        """Why a phase whose arrivals take so long cannot be (empty: it can)."""
        if self.rate is None:
            return ""
        threads = case.geometry.threads
        each = self.of_process(case) / threads
        if each > MOST_OF_THREAD:
            return (
                f"rate: {each:g} operations per second of each thread are more than the player can "
                f"begin, at most {MOST_OF_THREAD:g}"
            )
        if each * seconds < 1:
            return (
                f"rate: at {each:g} operations per second of each thread some have nothing to do "
                f"in {seconds:g} s: offer more, or give it more time"
            )
        if seconds > LONGEST:
            return f"rate: the operations would be due for {seconds:.3g} s; at most {LONGEST:g} s"
        return ""


def paced(stream: Stream, arrivals: Arrivals | None, *, endless: bool) -> Stream:
    """The stream as an open loop; of an endless one what is late is played for a bounded time."""
    if arrivals is None:
        return stream
    end = arrivals.until / 1e9
    limit = end + max(LATE_SECONDS, LATE_SHARE * end) if endless else 0.0
    return replace(stream, arrivals_end=end, seconds=limit, wear_out=0.0)


def told(parsed: Parsed, case: Case, options: OpenLoopOptions) -> Parsed:
    """The phases, with what their ranks counted of the open loop put into a fact."""
    phases = tuple(_told(phase, case, options) for phase in parsed.phases)
    return replace(parsed, phases=phases) if options.rate is not None else parsed


def _told(phase: Phase, case: Case, options: OpenLoopOptions) -> Phase:
    facts = dict(phase.facts)
    counts = inside(facts.pop("tallies", {}))
    if DUE not in counts or options.rate is None:
        return phase
    # opening files, which is over when the first operation may be due, is no part of the window
    start = np.maximum(phase.start, LEAD_NS / 1e9)
    due, span, begun, played = (int(number(counts[n])) for n in (DUE, SPAN, BEGUN, PLAYED))
    facts[FACT] = OpenLoop(
        rate=options.of_process(case) * case.geometry.processes,
        arrivals=options.arrivals or "constant",
        seconds=span / 1e9 / case.geometry.processes,
        due=due,
        backlog=max(due - begun, 0),
        unplayed=max(due - played, 0),
    ).document()
    return replace(phase, start=start, facts=facts)
