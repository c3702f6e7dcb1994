"""Options of the workload `replay`: which operations are played again, when and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from fsmatrix.results.units import Duration
from fsmatrix.suite.workloads.base import WorkloadOptions
from fsmatrix.suite.workloads.replay.tracefile import TraceFile, trace_file
from fsmatrix.traces.generators.page_cache import MOST_SCALE, NAMES

KindName = Literal[
    "open", "create", "read", "write", "fsync", "close", "stat", "unlink", "mkdir", "rmdir",
    "rename", "truncate", "readdir",
]  # fmt: skip
DATA_NAMES = frozenset({"read", "write"})
MOST_PATTERN = 4095


def _trace(value: object) -> TraceFile | None:
    return None if value is None else trace_file(value)


TraceOption = Annotated[
    TraceFile | None,
    BeforeValidator(_trace),
    PlainSerializer(lambda value: value and str(value), return_type=str | None),
]
Pattern = Annotated[str, Field(min_length=1, max_length=MOST_PATTERN)]


class ReplayOptions(WorkloadOptions):
    """A trace, or what makes one; what of it is played; and how."""

    trace: TraceOption = Field(
        default=None,
        description="absolute path of a trace file, the same on all client nodes, or "
        "`example:NAME` for one that comes with fsmatrix; identified by its SHA-256",
    )
    generator: str | None = Field(
        default=None, description=f"instead of a trace, a published workload: {', '.join(NAMES)}"
    )
    scale: Annotated[float, Field(gt=0, le=MOST_SCALE)] = Field(
        default=1.0,
        description="generator: numbers of operations and pages, relative to the published",
    )
    mode: Literal["closed", "queue", "timed"] = Field(
        default="closed",
        description="each captured thread's operations one after the other; reads and writes from "
        "a queue as fast as possible; or at the captured times",
    )
    time_scale: Annotated[float, Field(ge=0, le=1000)] | None = Field(
        default=None,
        description="timed: factor of the issue times, 1 if absent; closed: factor of the think "
        "times, without which there are none",
    )
    window: tuple[Duration, Duration] | None = Field(
        default=None,
        description="only operations issued from the first time up to the second, counted from "
        "the trace's start; all if absent",
    )
    files: tuple[Pattern, ...] = Field(
        default=(), description="patterns (`*`, `?`, `[...]`) of paths in the trace; all if empty"
    )
    kinds: tuple[KindName, ...] = Field(
        default=(),
        description="kinds of operations; opens and closes that they need are added; all if empty",
    )
    clients: Literal["shared", "private"] = Field(
        default="shared",
        description="processes share the trace on one tree, or each plays all of it on its own",
    )
    direct: bool | None = Field(
        default=None,
        description="O_DIRECT; as captured if absent; cache state bypass means true",
    )
    unaligned: Literal["widened", "buffered"] = Field(
        default="widened",
        description="direct: an operation not aligned to 4096 bytes moves all blocks that it "
        "touches, or goes through a second, buffered handle",
    )
    fill: Literal["filled", "sparse"] = Field(
        default="filled",
        description="files of the tree are written, or only extended to their length: no device "
        "is read for holes",
    )
    read_ahead: bool = Field(
        default=True,
        description="on paths: whether the kernel may read ahead of what is asked for "
        "(false: POSIX_FADV_RANDOM after each open, included in its latency)",
    )
    fidelity: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.99, description="share of operations as captured, below which there is a finding"
    )

    @model_validator(mode="after")
    def _consistent(self) -> ReplayOptions:
        if (self.trace is None) == (self.generator is None):
            raise ValueError("give trace (a file) or generator (a published workload), one of them")
        if self.generator is not None and self.generator not in NAMES:
            raise ValueError(
                f"no workload {self.generator!r} is published; there are: {', '.join(NAMES)}"
            )
        if self.trace is not None and "scale" in self.model_fields_set:
            raise ValueError("scale belongs to generator; a trace is played as it is")
        if self.mode == "queue":
            if self.time_scale is not None:
                raise ValueError("mode: queue has no times: leave time_scale out")
            if other := set(self.kinds) - DATA_NAMES:
                raise ValueError(
                    f"mode: queue plays reads and writes only, not {', '.join(sorted(other))}"
                )
        if self.mode == "timed" and self.time_scale == 0:
            raise ValueError("mode: timed with time_scale: 0 is mode: queue or closed")
        if len(set(self.kinds)) != len(self.kinds):
            raise ValueError(f"kinds names one twice: {', '.join(self.kinds)}")
        if self.window is not None and self.window[0] >= self.window[1]:
            raise ValueError(
                f"the window ends at {self.window[1]:g} s, not after its begin at "
                f"{self.window[0]:g} s"
            )
        return self

    def labels(self) -> dict[str, str]:
        """The trace by its name, and enough of its digest that two of one name differ."""
        return {} if self.trace is None else {"trace": self.trace.label}

    @property
    def scale_of_times(self) -> float:
        """Of issue times or think times; 0 where there are none."""
        if self.time_scale is not None:
            return self.time_scale
        return 1.0 if self.mode == "timed" else 0.0
