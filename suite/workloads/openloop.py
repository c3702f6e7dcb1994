"""Open loops of `pattern` and `metadata`: options, the arrivals they mean, what came of them.

A rate is given, or is a share (`load`) of what the same work does in a closed loop: that run comes
before, in the same block, and the rates of its phases are then given to this work (`measured`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from fsmatrix.results.evidence.stored import inside, number
from fsmatrix.results.evidence.workloads import BEGUN, DUE, OPEN_LOOP, PLAYED, SPAN, OpenLoop
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case, Phase
from fsmatrix.suite.workloads.streams.chunks import LEAD_NS, Arrivals
from fsmatrix.suite.workloads.workload import Stream, Workload, WorkloadOptions

MOST_RATE = 1e9  # operations per second of all workers
MOST_OF_THREAD = 1e7  # a thread of the C player begins no more, on a driver that does nothing
LONGEST = 1e6  # seconds of arrivals: twelve days
LATE_SHARE, LATE_SECONDS = 0.1, 5.0  # what is late is played so long after the arrivals' end
LEAST_LOAD, MOST_LOAD = 5.0, 100.0  # percent; a share that is written as a fraction is refused


def _percent(value: Any) -> Any:
    """A number of percent from "50%" or 50; ValueError for one that is no share."""
    if isinstance(value, str):
        text = value.strip().removesuffix("%")
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"a number of percent such as 50 or 50%, not {value!r}") from None
    wrong = isinstance(value, bool) or not isinstance(value, int | float)
    if not wrong and not LEAST_LOAD <= value <= MOST_LOAD:
        raise ValueError(
            f"a share of the closed loop's rate from {LEAST_LOAD:g} to {MOST_LOAD:g} (percent), "
            f"not {value:g}"
        )
    return value


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

    load: Annotated[float, BeforeValidator(_percent), Field(strict=True)] | None = Field(
        default=None,
        description="instead of a rate, percent (5 to 100) of the operations per second of the "
        "same case in a closed loop, which is run before it in each block",
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
        if self.rate is not None and self.load is not None:
            raise ValueError("give load or rate, not both")
        given = [name for name in ("rate_per", "arrivals") if name in self.model_fields_set]
        given = [name for name in given if getattr(self, name) is not None]
        if not self.is_open and given:
            raise ValueError(f"{' and '.join(given)}: only with a rate")
        if self.needs_maximum and self.rate_per is not None:
            raise ValueError("rate_per: a load is a share of what all processes do together")
        return self

    @property
    def is_open(self) -> bool:
        """Whether operations are due at a rate."""
        return self.rate is not None or self.needs_maximum

    @property
    def needs_maximum(self) -> bool:
        """Whether its rate is known only when its closed loop has been run."""
        return self.load is not None


class OpenLoopWorkload(Workload):
    """A workload whose timed phases may have a rate.  Operations are what a phase counts."""

    options: OpenLoopOptions
    _maxima: Mapping[str, float] = {}  # phase -> operations per second in a closed loop

    @property
    def closed_loop(self) -> Self | None:
        """The same as fast as possible, which the rate depends on; None where it does not."""
        if not self.options.needs_maximum:
            return None
        given = {"load", "capacity", "arrivals"} & set(type(self.options).model_fields)
        return type(self)(self.options.model_copy(update=dict.fromkeys(given)))

    def measured(self, maxima: Mapping[str, float]) -> Self:
        """With what the closed loop did in the same block: phase -> operations per second."""
        work = copy.copy(self)
        work._maxima = maxima
        return work

    def require_rate(self) -> None:
        """ValueError if the closed loop was not measured: this would be one."""
        if self.options.needs_maximum and not self._maxima:
            raise ValueError("load or capacity: what the closed loop reached is not known")

    def of_process(self, case: Case, phase: str) -> float:
        """Operations per second of each process; 0 without a rate, or before it is known."""
        options = self.options
        if options.load is not None:
            return self._maxima.get(phase, 0.0) * options.load / 100 / case.geometry.processes
        return (options.rate or 0.0) / (1 if options.rate_per else case.geometry.processes)

    def arrivals_of(self, case: Case, phase: str, seconds: float) -> Arrivals | None:
        """Those of a phase in which operations are due for so long; None without a rate."""
        rate = self.of_process(case, phase)
        if not rate:
            return None
        until = LEAD_NS + round(seconds * 1e9)
        return Arrivals(rate=rate, poisson=self.options.arrivals == "poisson", until=until)

    def misfit_of_rate(self, case: Case, phase: str, seconds: float) -> str:
        """Why a phase whose arrivals take so long cannot be (empty: it can)."""
        each = self.of_process(case, phase) / case.geometry.threads
        if not each:
            return ""
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

    def told(self, parsed: Parsed, case: Case) -> Parsed:
        """The phases, with what their ranks counted of the open loop put into a fact."""
        phases = tuple(self._told(phase, case) for phase in parsed.phases)
        return replace(parsed, phases=phases) if self.options.is_open else parsed

    def _told(self, phase: Phase, case: Case) -> Phase:
        facts = dict(phase.facts)
        counts = inside(facts.pop("tallies", {}))
        if DUE not in counts:
            return phase
        # opening files, which is over when the first operation may be due, is not in the window
        start = np.maximum(phase.start, LEAD_NS / 1e9)
        due, span, begun, played = (int(number(counts[n])) for n in (DUE, SPAN, BEGUN, PLAYED))
        facts[OPEN_LOOP] = OpenLoop(
            rate=self.of_process(case, phase.name) * case.geometry.processes,
            arrivals=self.options.arrivals or "constant",
            seconds=span / 1e9 / case.geometry.processes,
            due=due,
            backlog=max(due - begun, 0),
            unplayed=max(due - played, 0),
            closed_loop_rate=self._maxima.get(phase.name),
        ).document()
        return replace(phase, start=start, facts=facts)


def paced(stream: Stream, arrivals: Arrivals | None, *, endless: bool) -> Stream:
    """The stream as an open loop; of an endless one what is late is played for a bounded time."""
    if arrivals is None:
        return stream
    end = arrivals.until / 1e9
    limit = end + max(LATE_SECONDS, LATE_SHARE * end) if endless else 0.0
    return replace(stream, arrivals_end=end, seconds=limit, wear_out=0.0)
