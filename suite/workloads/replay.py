"""The workload `replay`: the file operations of a program, captured before, played again.

Options say which operations are played, when and how.  The tree that they expect is made by the
player in setup steps and looked at; the timed phase is `replay`.  What could not be played, or went
otherwise than captured, is counted by kind and makes the run's fidelity (docs/traces.md); that and
more a phase tells beside its rates, from the tallies of its ranks and the trace.
"""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from fsmatrix.backends.access import Access
from fsmatrix.backends.player.ops import DRIVERS, Kind
from fsmatrix.results import histogram
from fsmatrix.results.evidence.replay import (
    FACT,
    Amount,
    CapturedKind,
    FileClass,
    IssueError,
    PlayedKind,
    Replayed,
)
from fsmatrix.results.evidence.stored import inside
from fsmatrix.results.evidence.trace import TraceSummary
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case, Phase
from fsmatrix.results.units import Duration
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.streams.replay.outcomes import ERRNOS, Counts, Skipped, kinds
from fsmatrix.suite.workloads.streams.replay.survey import (
    ALIGNMENT,
    LARGEST,
    MOST_TIME,
    PIECE,
    Integers,
    ReplayParams,
    Survey,
    opened_trace,
)
from fsmatrix.suite.workloads.streams.replay.tree import KEPT, NAMES, exact_sum, prepared
from fsmatrix.suite.workloads.workload import (
    ContentFile,
    Footprint,
    Function,
    Output,
    Step,
    Stream,
    Workload,
    WorkloadOptions,
    stored_digest,
)
from fsmatrix.traces import page_cache
from fsmatrix.traces.page_cache import MOST_SCALE
from fsmatrix.traces.statistics import survey
from fsmatrix.traces.trace_model import Header
from fsmatrix.traces.tracefile import opened

# Traces as options: known by the SHA-256 of their bytes, never by their path.


EXAMPLE = "example:"  # traces that come with fsmatrix, beside its ready campaigns
EXAMPLES = Path("traces")
SUFFIX = ".h5"

MOST_OPERATIONS, MOST_BYTES = 10**8, 1 << 46  # of a trace whose pages are looked at: minutes
SOON_NS = 100_000  # an issue that is later than that is late
REASONS = {
    Skipped.MODE: "the mode plays reads and writes only",
    Skipped.DRIVER: "the driver has no such operation",
    Skipped.SIZE: "larger, or further behind in its file, than the player does",
    Skipped.NAME: "a path that is too long for the target",
}

PHASE = "replay"
STREAMS = "fsmatrix.suite.workloads.streams.replay"
TRACE_STEP = "trace"
DRIVER_OF = {"path": "posix", "paths": "posix"}  # access -> driver, where the names differ
NEEDED = frozenset({"open", "create", "read", "write", "close", "truncate"})


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
        default=None,
        description=f"instead of a trace, a published workload: {', '.join(page_cache.NAMES)}",
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
        if self.generator is not None and self.generator not in page_cache.NAMES:
            raise ValueError(
                f"no workload {self.generator!r} is published; "
                f"there are: {', '.join(page_cache.NAMES)}"
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


def facts_of(counts: Counts, work: ReplayParams, clients: int, options: ReplayOptions) -> Replayed:
    """`counts`: of all ranks.  `clients`: how often the trace was played at once.

    Fidelity: operations that were played and had the captured outcome, of those chosen (in mode
    queue: of the reads and writes among them).
    """
    survey = prepared(work).survey
    chosen = survey.captured.operations * clients
    expected = int(chosen.sum() - counts.skipped[Skipped.MODE].sum())
    agreed = int(counts.agreed.sum())
    header = options.trace.header if options.trace else None
    return Replayed(
        trace=options.trace.path.rpartition("/")[2] if options.trace else str(options.generator),
        source=header.source if header else "generator",
        anonymised=header is not None and header.anonymised,
        mode=options.mode,
        time_scale=options.scale_of_times,
        fill=options.fill,
        clients=clients,
        like=_like(work.trace, work.sha256, work.generator, work.scale, work.seed),
        captured_seconds=(
            (survey.end_ns - survey.begin_ns) / 1e9 if header and header.timed else None
        ),
        operations=expected,
        played=int(counts.played.sum()),
        agreed=agreed,
        fidelity=agreed / expected if expected else 0.0,
        declared_fidelity=options.fidelity,
        kinds={
            name: _kind(i, counts, survey, clients) for i, name in enumerate(kinds()) if chosen[i]
        },
        classes=_classes(counts, survey, clients),
        errors_as_captured=_errors(counts.errno[0]),
        errors_otherwise=_errors(counts.errno[1]),
        left_out={name: n for name, n in zip(kinds(), survey.left_out.tolist(), strict=True) if n},
        issue_error=_issue_error(counts) if counts.issue_error.any() else None,
        added=counts.added,
        added_failed=counts.added_failed,
        widened=counts.widened,
        buffered=counts.buffered,
        barriers=counts.barriers,
        threads=counts.threads,
        sharing=counts.sharing,
    )


@lru_cache(maxsize=KEPT)
def _like(path: str, sha256: str, generator: str, scale: float, seed: int) -> TraceSummary | None:
    """What the whole trace is like: one pass over it for all runs that play it.

    None for a trace that this would take too long, or that claims to move absurdly much.
    """
    work = ReplayParams(trace=path, sha256=sha256, generator=generator, scale=scale, seed=seed)
    with opened_trace(work) as trace:
        if trace.operations > MOST_OPERATIONS:
            return None
        if (
            path
            and sum(int(b["size"].sum(dtype=int)) for b in trace.blocks(("size",))) > MOST_BYTES
        ):
            return None
        return survey(trace).summary


def _kind(i: int, counts: Counts, survey: Survey, clients: int) -> PlayedKind:
    captured = survey.captured
    median, tail = _percentiles(captured.latency[i])
    return PlayedKind(
        captured=CapturedKind(
            operations=int(captured.operations[i]) * clients,
            bytes=int(captured.bytes[i]) * clients,
            failed=int(captured.failed[i]) * clients,
            p50=median,
            p99=tail,
        ),
        skipped={
            REASONS[reason]: int(counts.skipped[reason][i])
            for reason in Skipped
            if counts.skipped[reason][i]
        },
        played=int(counts.played[i]),
        agreed=int(counts.agreed[i]),
        failed_as_captured=int(counts.failed_as_captured[i]),
        failed_otherwise=int(counts.failed_otherwise[i]),
        succeeded_otherwise=int(counts.succeeded_otherwise[i]),
        other_bytes=int(counts.other_bytes[i]),
        short=int(counts.short[i]),
        bytes=int(counts.bytes[i]),
    )


def _percentiles(latency: Integers) -> tuple[float | None, float | None]:
    """Median and 99th percentile in seconds; None where too few were counted."""
    median, tail = (histogram.percentile(latency, q) for q in (0.5, 0.99))
    return (median if math.isfinite(median) else None, tail if math.isfinite(tail) else None)


def _classes(counts: Counts, survey: Survey, clients: int) -> dict[str, FileClass]:
    """By name, the one with the most operations first; seconds are sums of latencies."""
    return {
        name: FileClass(
            captured=Amount(
                operations=int(survey.class_operations[i]) * clients,
                bytes=int(survey.class_bytes[i]) * clients,
                seconds=float(survey.class_ns[i]) * clients / 1e9,
            ),
            played=Amount(
                operations=int(counts.class_operations[i]),
                bytes=int(counts.class_bytes[i]),
                seconds=float(counts.class_ns[i]) / 1e9,
            ),
        )
        for i, name in enumerate(survey.classes)
        if survey.class_operations[i]
    }


def _errors(numbers: Integers) -> dict[str, int]:
    return {
        errno.errorcode.get(number, "other"): int(numbers[number])
        for number in range(ERRNOS)
        if numbers[number]
    }


def _issue_error(counts: Counts) -> IssueError:
    late = counts.issue_error
    total = int(late.sum())
    soon = late[: int(histogram.bin_of([SOON_NS])[0])]
    median, tail = _percentiles(late)
    return IssueError(
        operations=total,
        mean=counts.issue_error_ns / total / 1e9,
        longest=counts.issue_error_ns_max / 1e9,
        within_100us=float(soon.sum() / total),
        p50=median,
        p99=tail,
    )


class Replay(Workload):
    """A trace, or a published workload, played by the built-in player."""

    name: ClassVar[str] = "replay"
    Options: ClassVar[type[WorkloadOptions]] = ReplayOptions
    cold_metadata: ClassVar[bool] = True
    accesses: ClassVar[frozenset[str]] = frozenset({"path", "paths", "rados", "cephfs", "dfs"})
    options: ReplayOptions

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:  # noqa: ARG002
        """The trace is the one of the plan; the tree; the replay."""
        work, options = self._work(case, access.type), self.options
        survey = prepared(work).survey
        if (lasts := (survey.end_ns - survey.begin_ns) * work.time_scale) > MOST_TIME:
            raise ValueError(
                f"its last operation would begin {lasts / 1e9:.3g} s after the first, and the "
                f"player waits for at most {MOST_TIME / 1e9:.3g} s: choose a window, or another "
                "time_scale"
            )
        slots = NAMES if work.slots < NAMES else work.slots
        setup = [
            self._setup("directories", "directories", work),
            self._setup("files", "files", work),
            self._setup("verify-tree", "verify", work),
        ]
        if Kind.MKDIR not in work.able:
            del setup[0]
        if work.trace:
            function = Function(f"{STREAMS}.survey:digest", work.document())
            setup.insert(0, Step(TRACE_STEP, "node", "setup", function))
        largest = survey.largest + 2 * ALIGNMENT
        stream = Stream(
            f"{STREAMS}.generate:generate",
            work.document(),
            slots=slots * (2 if work.twins else 1),
            max_op_bytes=max(min(largest, LARGEST + 2 * ALIGNMENT), ALIGNMENT),
            generation=1,
            metadata=work.mode != "queue",
            stop_on_error=False,
            pauses=work.mode == "closed" and work.time_scale > 0,
            read_ahead=options.read_ahead,
            shared_queue=work.mode == "queue" and not work.private,
        )
        return [*setup, Step(PHASE, "rank", "timed", stream, reads=True)]

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The phase, and what became of the operations beside what was captured."""
        parsed = super().parse(case, outputs)
        work = self._work(case, "path")
        clients = case.geometry.processes if self.options.clients == "private" else 1
        phases = []
        for phase in parsed.phases:
            facts = dict(phase.facts)
            counts = Counts.of(inside(facts.pop("tallies", {})))
            facts[FACT] = facts_of(counts, work, clients, self.options).document()
            phases.append(_windowed(replace(phase, facts=facts), self.options.mode == "queue"))
        return replace(parsed, phases=tuple(phases))

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        options = self.options
        if options.trace is not None and not options.trace.path:
            return f"trace: where {options.trace} lies is not known: give its path"
        try:
            survey = prepared(self._work(case, "path")).survey
        except ValueError as error:
            return f"window: {error}"
        if not survey.operations:
            return "no operation of the trace is left by window, files and kinds"
        if options.clients == "shared" and options.mode != "queue":
            threads, ranks = int((survey.thread_count > 0).sum()), case.geometry.processes
            if threads < ranks:
                return (
                    f"clients: {threads} captured threads cannot be divided among {ranks} "
                    "processes; use fewer, or clients: private"
                )
        header = options.trace.header if options.trace else None
        timed = header is not None and header.timed
        if options.mode == "timed" and not timed:
            return "mode: timed needs issue times; of this trace only the order means something"
        if options.window is not None and not timed:
            return "window: needs issue times; of this trace only the order means something"
        if options.mode == "closed" and options.scale_of_times and survey.no_latency:
            return (
                f"time_scale: think times end where operations begin and begin where operations "
                f"end; {survey.no_latency} operations of the trace have no latency"
            )
        return ""

    def misfit(self, case: Case, access: str) -> str:
        """Why this case cannot be run on that type of access (empty: it can)."""
        del case
        if access == "paths" and self.options.clients != "private":
            return (
                "clients: on several devices each process plays on a tree of its own on one of "
                "them: use clients: private"
            )
        if not self.options.read_ahead and access == "cephfs":
            return (
                "read_ahead: false reaches the kernel only; libcephfs reads ahead itself: set the "
                "target's option client_readahead_max_bytes instead"
            )
        return ""

    def footprint(self, case: Case) -> Footprint:
        """Bytes of files at most at one time, if nothing were removed; space of what is written."""
        try:
            work = prepared(self._work(case, "path"))
        except (ValueError, OSError):
            return Footprint(0, 0, 0, kinds=NEEDED)  # `refusal` says why
        survey = work.survey
        clients = case.geometry.processes if self.options.clients == "private" else 1
        filled = self.options.fill == "filled"
        tree = exact_sum(work.tree.sizes) if filled else 0
        grown = work.grown if filled else survey.written
        seconds = None
        if self.options.mode == "timed":
            seconds = (survey.end_ns - survey.begin_ns) / 1e9 * self.options.scale_of_times
        return Footprint(
            space=(tree + grown) * clients,
            written=(tree + survey.written) * clients,
            files=len(work.nameable) * clients,
            seconds=seconds,
            read=survey.read * clients,
            kinds=NEEDED,
        )

    # -- parts -----------------------------------------------------------------------------
    def _work(self, case: Case, access: str) -> ReplayParams:
        options, trace = self.options, self.options.trace
        driver = DRIVERS[DRIVER_OF.get(access, access)]
        return ReplayParams(
            trace=trace.path if trace else "",
            sha256=trace.sha256 if trace else "",
            generator=options.generator or "",
            scale=options.scale,
            mode=options.mode,
            time_scale=options.scale_of_times,
            window=options.window or (0.0, 0.0),
            files=options.files,
            kinds=tuple(sorted(int(Kind[name.upper()]) for name in options.kinds)),
            private=options.clients == "private",
            direct=True if case.cache == "bypass" else options.direct,
            widened=options.unaligned == "widened",
            filled=options.fill == "filled",
            able=tuple(int(kind) for kind in Kind if kind.name.lower() in driver.kinds),
            longest_path=driver.longest_path,
            slots=max(trace.slots, trace.files, 1) if trace else NAMES,
        )

    def _setup(self, name: str, function: str, work: ReplayParams) -> Step:
        stream = Stream(
            f"{STREAMS}.tree:{function}", work.document(), slots=NAMES, max_op_bytes=PIECE
        )
        return Step(name, "rank", "setup", stream)


def _windowed(phase: Phase, queue: bool) -> Phase:
    """The phase with the window that counts.

    A queue's is from the first read or write to the last: its files are opened before and closed
    after.  A rank that had nothing to do begins and ends with the first.
    """
    start, end = phase.start, phase.end
    if queue and phase.io_start is not None and phase.io_end is not None:
        start, end = phase.io_start, phase.io_end
    if not np.isfinite(start).any():
        return phase
    idle = ~np.isfinite(start) | ~np.isfinite(end)
    first = np.min(start[~idle])
    return replace(phase, start=np.where(idle, first, start), end=np.where(idle, first, end))
