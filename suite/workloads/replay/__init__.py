"""The workload `replay`: the file operations of a program, captured before, played again.

The tree that the operations expect is made by the player in setup steps and looked at; the timed
phase is `replay`.  What could not be played, or went otherwise than captured, is counted by kind
and makes the run's fidelity (docs/traces.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fsmatrix.backends.access import Access
from fsmatrix.backends.player.ops import DRIVERS, Kind
from fsmatrix.results.evidence.replay import FACT
from fsmatrix.results.evidence.stored import inside
from fsmatrix.results.formats.base import Parsed
from fsmatrix.results.record import Case, Phase
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.workloads.base import (
    Footprint,
    Function,
    Output,
    Step,
    Stream,
    Workload,
    WorkloadOptions,
)
from fsmatrix.suite.workloads.replay.facts import facts_of
from fsmatrix.suite.workloads.replay.options import ReplayOptions
from fsmatrix.suite.workloads.streams.replay.outcomes import Counts
from fsmatrix.suite.workloads.streams.replay.survey import (
    ALIGNMENT,
    LARGEST,
    MOST_TIME,
    PIECE,
    ReplayParams,
)
from fsmatrix.suite.workloads.streams.replay.tree import NAMES, exact_sum, prepared

PHASE = "replay"
STREAMS = "fsmatrix.suite.workloads.streams.replay"
TRACE_STEP = "trace"
DRIVER_OF = {"path": "posix", "paths": "posix"}  # access -> driver, where the names differ
NEEDED = frozenset({"open", "create", "read", "write", "close", "truncate"})


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
