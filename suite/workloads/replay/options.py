"""Options of the workload `replay`: which operations are played again, when and how."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.units import Duration
from fsmatrix.suite.workloads.base import ContentFile, WorkloadOptions, stored_digest
from fsmatrix.traces.model import Header
from fsmatrix.traces.page_cache import MOST_SCALE, NAMES
from fsmatrix.traces.tracefile import opened

# Traces as options: known by the SHA-256 of their bytes, never by their path.


EXAMPLE = "example:"  # traces that come with fsmatrix, beside its ready campaigns
EXAMPLES = Path("traces")
SUFFIX = ".h5"


@dataclass(frozen=True)
class TraceFile(ContentFile):
    """A trace by its content; the rest is known where it can be read."""

    header: Header | None = field(default=None, compare=False)
    slots: int = field(default=0, compare=False)
    files: int = field(default=0, compare=False)

    @property
    def label(self) -> str:
        """What stands in results: `git 1595d119`."""
        return f"{Path(self.path).stem} {self.sha256[:8]}".strip()


def trace_file(value: object) -> TraceFile:
    """The trace at an absolute path, an example, or of a text "sha256:..."; ValueError."""
    if isinstance(value, TraceFile):
        return value
    if not isinstance(value, str):
        raise ValueError(f"a trace is the path of a file, or {EXAMPLE}NAME, not {value!r}")
    if digest := stored_digest(value, "trace"):
        return TraceFile(digest)
    path = _example(value.removeprefix(EXAMPLE)) if value.startswith(EXAMPLE) else Path(value)
    if not path.is_absolute():
        raise ValueError(f"{value!r} must be an absolute path, the same on all client nodes")
    try:
        state = path.stat()
        return _read(str(path), state.st_mtime_ns, state.st_size)
    except ResultError as error:  # its text begins with the path
        raise ValueError(f"the trace {error}") from error
    except OSError as error:
        raise ValueError(f"the trace {value!r} cannot be read: {error.strerror}") from error


def examples() -> list[str]:
    """Names of the traces that come with fsmatrix."""
    folder = Path(str(files("fsmatrix.jobs"))) / EXAMPLES
    return sorted(path.stem for path in folder.glob(f"*{SUFFIX}"))


def _example(name: str) -> Path:
    names = examples()
    if name not in names:
        raise ValueError(
            f"there is no example trace {name!r}; there are: {', '.join(names) or 'none'}"
        )
    return Path(str(files("fsmatrix.jobs"))) / EXAMPLES / f"{name}{SUFFIX}"


@lru_cache(maxsize=64)
def _read(path: str, modified: int, size: int) -> TraceFile:  # noqa: ARG001
    """Digest and tables; `modified` and `size` make a changed file be read again."""
    with opened(path) as trace:
        header, slots, count = trace.header, len(trace.slots), len(trace.files)
        if not trace.operations:
            raise ValueError(
                f"the trace {path!r} has no operations, so there is nothing to play: capture or "
                "import it again with the --root below which the program works"
            )
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return TraceFile(digest, path, header, slots, count)


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
