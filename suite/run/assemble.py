"""From what the steps of a run gave to its record."""

from __future__ import annotations

import datetime
import math
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.player.ops import Kind
from fsmatrix.backends.player.player import Implementation
from fsmatrix.results import histogram
from fsmatrix.results.evidence.evidence import (
    CacheState,
    Counters,
    CpuShares,
    EngineOutput,
    Evidence,
    Interception,
    Limits,
    Load,
    Note,
    Rank,
)
from fsmatrix.results.evidence.stored import Json, JsonObject, inside
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case, Floats, Latency, Monitor, Phase, RunRecord, Status, digest
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.launchers.launcher import LauncherError
from fsmatrix.suite.nodes.node_watch import Asked
from fsmatrix.suite.session.client import SessionError
from fsmatrix.suite.session.messages import (
    TIMELINE,
    KernelUse,
    Merged,
    OperationError,
    RankOutput,
    SampledKernel,
)
from fsmatrix.suite.session.wire import Arrays
from fsmatrix.suite.workloads.workload import Output, Step, Workload

# What the steps of a run gave: outputs, the texts that are kept, and why a program failed.


KEPT_TEXT = 1 << 20  # characters kept of the beginning, and as many of the end, of one text
TAIL_LINES = 3
TRACEBACK = "unexpected/traceback"  # name of a run's text


class RunFailed(Exception):
    """A step failed; the session lives on."""

    def __init__(self, reason: str, status: Status = "failed", **facts: Json) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.facts = facts


def reason_of(error: Exception) -> str:
    """An error for a run's record: with its type, where its text is not made for readers."""
    worded = isinstance(
        error, RunFailed | BackendError | ResultError | SessionError | LauncherError
    )
    if worded or (isinstance(error, OSError) and error.errno is not None):
        return str(error)
    return f"{type(error).__name__}: {error}"


def outputs_of(step: Step, answers: Sequence[RankOutput]) -> list[Output]:
    """The answers of a step as outputs, on the common clock."""
    return [_output(step, answer) for answer in answers]


def _output(step: Step, answer: RankOutput) -> Output:
    done, correction = answer.done, answer.clock_correction
    return Output(
        step=step.name,
        host=answer.host,
        rank=answer.rank,
        returncode=done.returncode,
        stdout=done.stdout,
        stderr=done.stderr,
        files=done.files,
        value=inside(answer.value),
        began=done.began + correction,
        ended=done.ended + correction,
        clock_correction=correction,
        clock_uncertainty=answer.clock_uncertainty,
    )


def texts_of(outputs: Sequence[Output], index: int) -> dict[str, str]:
    """What programs printed and wrote, by a name: index of the step, its name, host, which.

    The rank is told too where a host has several.
    """
    texts = {}
    several = len({output.host for output in outputs}) < len(outputs)
    for output in outputs:
        where = f"{index:02d}-{output.step}" + (f"/{output.host}" if output.host else "")
        where += f"-{output.rank}" if several else ""
        for name, text in {
            "stdout": output.stdout,
            "stderr": output.stderr,
            **output.files,
        }.items():
            if text.strip():
                texts[f"{where}/{name}"] = shortened(text)
    return texts


def shortened(text: str) -> str:
    """The text, or its beginning and its end with a line that says what is missing."""
    left_out = len(text) - 2 * KEPT_TEXT
    if left_out <= 0:
        return text
    return f"{text[:KEPT_TEXT]}\n[{left_out} characters left out here]\n{text[-KEPT_TEXT:]}"


def check(
    workload: Workload, step: Step, answers: Sequence[RankOutput], outputs: Sequence[Output]
) -> None:
    """RunFailed with the first reason if a step failed anywhere."""
    for answer, output in zip(answers, outputs, strict=True):
        where = f"{step.name} on {output.host}" if output.host else step.name
        if answer.error is not None:
            raise RunFailed(f"{where} raised {answer.error}", rank=output.rank, host=output.host)
        if answer.done.timed_out:
            raise RunFailed(
                f"{where}: the program passed its deadline", "timeout", host=output.host
            )
        if output.returncode:
            reason = workload.explain(output) or _tail(output)
            raise RunFailed(
                f"{where}: the program {_ending(output.returncode)}: {reason}",
                host=output.host,
                returncode=output.returncode,
            )
        if answer.done.dropped:
            raise RunFailed(
                f"{where}: the program printed too much: {answer.done.dropped} bytes in the middle "
                "could not be kept",
                host=output.host,
            )


def _ending(returncode: int) -> str:
    if returncode > 0:
        return f"ended with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


def _tail(output: Output) -> str:
    text = output.stderr.strip() or output.stdout.strip()
    return " | ".join(text.splitlines()[-TAIL_LINES:]) or "it printed nothing"


def engine_output(parsed: Parsed, engine: Engine) -> EngineOutput:
    """What the engine's output tells beside numbers, for the audits."""
    notes = parsed.notes
    if parsed.version and engine.version and parsed.version != engine.version:
        text = f"its output is of version {parsed.version}, found before was {engine.version}"
        notes = (*notes, Note("versions-differ", text))
    return EngineOutput(
        name=parsed.engine or engine.name,
        version=parsed.version or engine.version,
        nodes=parsed.nodes,
        processes=parsed.processes,
        notes=notes,
        facts=parsed.facts,
    )


# What is to be run, how, and the record of what could not be.


@dataclass(frozen=True)
class RunSpec:
    """What is to be run, and the facts of its place in the campaign."""

    case: Case
    workload: Workload
    engine: Engine
    coordinates: JsonObject
    repetition: int
    attempt: int
    block: int
    attachment: str
    campaign_seed: int
    realised: Mapping[str, str] = field(default_factory=dict)  # factor -> hardware, emulated
    limits: Limits | None = None  # of suite/plan/estimate.py
    engine_before: str = ""  # the engine's version when the campaign began, if it was another
    closed_loop: str = ""  # id of the case that its rate is a share of
    batch_job: str = ""  # id of the batch system's job that this is part of

    @property
    def name(self) -> str:
        """Name of the run and of its directory on the target."""
        return f"{self.case.case_id}-r{self.repetition:04d}-a{self.attempt}"

    def written(self, record: RunRecord) -> int:
        """Bytes that the run wrote: as planned, or more if its time was fixed."""
        measured = sum(
            int(phase.bytes.sum()) for phase in record.phases if "write" in phase.latency
        )
        try:
            planned = self.workload.footprint(self.case).written
        except Exception:  # noqa: BLE001 - what it was planned by may have gone
            planned = 0
        return max(planned, measured)

    @property
    def seed(self) -> int:
        """63 bits that differ between runs: of what is written and of random orders."""
        return int(digest([self.campaign_seed, self.name]), 16) >> 1

    def record(self, started: str, **outcome: Any) -> RunRecord:
        """The record of this run; `outcome`: the fields of RunRecord that say what came of it."""
        return RunRecord(
            case=self.case.canonical,
            case_id=self.case.case_id,
            work_id=self.case.work_id,
            repetition=self.repetition,
            attempt=self.attempt,
            block=self.block,
            attachment=self.attachment,
            job=self.batch_job,
            engine=self.engine.name,
            engine_version=self.engine.version,
            coordinates=self.coordinates,
            started=started,
            **outcome,
        )

    def not_begun(self, reason: str) -> RunRecord:
        """The record of a run that could not even be begun."""
        return self.record(now(), session="", status="failed", error=reason)


@dataclass(frozen=True)
class Settings:
    """How runs are carried out, the same for all of a campaign."""

    time_per_run: float
    settle_timeout: float
    time_without_progress: float = 10.0
    cache_method: str = "auto"
    affinity: str = "none"
    client_ceiling: bool = False  # measured too
    sources: tuple[str, ...] = ()  # that watch storage nodes
    monitor: Asked = field(default_factory=lambda: Asked(1.0))  # what they are asked
    implementation: Implementation = "auto"  # of the player
    bytes_limit: int | None = None  # all runs together may write so much
    out: Path = field(default_factory=Path)
    in_job: bool = False  # of a batch system
    retry_failed: bool = False  # runs that failed are not done
    refused: Callable[[str], str] = lambda _path: ""  # why a path must not be used


def now() -> str:
    """This moment, UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


TICK = 0.01  # seconds of /proc/stat (USER_HZ, 100 everywhere)
SECONDS = re.compile(r"^cpu_|_seconds$")
UNITS = {
    "device_read_bytes": "byte",
    "device_written_bytes": "byte",
    "backing_read_bytes": "byte",
    "backing_written_bytes": "byte",
    "network_received_bytes": "byte",
    "network_sent_bytes": "byte",
    "server_device_read_bytes": "byte",
    "server_device_written_bytes": "byte",
}


@dataclass
class RunBuilder:
    """Everything that a run's steps gave, collected as the run goes on."""

    evidence: Evidence = field(default_factory=Evidence)
    kernels: dict[str, list[SampledKernel]] = field(default_factory=dict)  # by timed step
    ranks: tuple[Rank, ...] = ()
    argv: list[tuple[str, ...]] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # what programs printed and wrote
    steps: int = 0  # that gave outputs so far

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that the session made itself."""
        return tuple(output.phase for output in self.outputs if output.phase is not None)

    def next_step(self) -> int:
        """Index of the next step that gives outputs."""
        self.steps += 1
        return self.steps - 1

    def sampled(self, step: Step, kernels: Sequence[SampledKernel]) -> None:
        """Counters, CPU shares and foreign load of a timed step, by sampled kernel.

        What several steps of one name show adds up.  A program that gives several phases
        moves the bytes of each in one direction: its counters count for each of them.
        """
        of_step = self.kernels.setdefault(step.name, [])
        of_step += kernels
        counters = tuple(
            Counters(host=kernel.host, before=kernel.use.before, after=kernel.use.after)
            for kernel in of_step
        )
        phases = step.phases or (step.name,)
        self.evidence = replace(
            self.evidence,
            counters={**self.evidence.counters, **dict.fromkeys(phases, counters)},
            cpu={**self.evidence.cpu, **dict.fromkeys(phases, _shares(of_step))},
        )
        loads = [foreign_load(k.use, k.user) for k in kernels if k.user is not None]
        if self.evidence.load is not None:
            loads.append(self.evidence.load)
        if loads:
            self.evidence = replace(self.evidence, load=max(loads, key=_certain))

    def in_memory(self, step: Step, declared: str) -> None:
        """The files of a timed step that reads none lie in memory, whatever the case declares."""
        state = CacheState(declared=declared, reads=False, state="memory")
        states = dict.fromkeys(step.phases or (step.name,), state)
        self.evidence = replace(self.evidence, cache={**self.evidence.cache, **states})

    def intercepted(self, step: Step, seen: Interception) -> None:
        """Keep what a preloaded library says of a timed step, for each phase that it gives.

        What it says of several steps of one name adds up.
        """
        kept = dict(self.evidence.interception)
        for phase in step.phases or (step.name,):
            kept[phase] = _together(kept[phase], seen) if phase in kept else seen
        self.evidence = replace(self.evidence, interception=kept)

    def spent(self, what: str, seconds: float) -> None:
        """Add to where the run's wall time went."""
        times = self.evidence.seconds
        times = {**times, what: times.get(what, 0.0) + seconds}
        self.evidence = replace(self.evidence, seconds=times)

    def wrote(self, size: int) -> None:
        """Add bytes of results that were written inside a timed step."""
        output = self.evidence.output
        assert output is not None  # known before the first step
        output = replace(output, written=(output.written or 0) + size)
        self.evidence = replace(self.evidence, output=output)


def _together(first: Interception, second: Interception) -> Interception:
    """Of two steps."""
    names = dict.fromkeys((*first.calls, *second.calls))
    return Interception(
        library=first.library,
        summaries=first.summaries + second.summaries,
        calls={name: first.calls.get(name, 0) + second.calls.get(name, 0) for name in names},
    )


@dataclass(frozen=True)
class RunContext:
    """A run that is carried out: what is asked for, until when, where, and what it gave."""

    spec: RunSpec
    deadline: float  # seconds on the monotonic clock
    roots: tuple[str, ...] = ("",)  # its own places, as drivers and programs know them, when made
    builder: RunBuilder = field(default_factory=RunBuilder)

    @property
    def root(self) -> str:
        """The place of a run that has one."""
        return self.roots[0]

    def left(self) -> float:
        """Seconds until the deadline, at least a little."""
        return max(self.deadline - time.monotonic(), 0.1)


def _shares(kernels: Sequence[SampledKernel]) -> dict[str, CpuShares]:
    """CPU shares by host, weighted by time where a host was looked at several times."""
    shares = {}
    for host in dict.fromkeys(kernel.host for kernel in kernels):
        uses = [kernel.use for kernel in kernels if kernel.host == host]
        shares[host] = CpuShares(
            busy=_mean_share(uses, "busy"),
            idle=_mean_share(uses, "idle"),
            iowait=_mean_share(uses, "iowait"),
            steal=_mean_share(uses, "steal"),
        )
    return shares


def _mean_share(uses: Sequence[KernelUse], name: str) -> float:
    whole = sum(use.cpu_seconds for use in uses)
    return sum(use.cpu[name] * use.cpu_seconds for use in uses) / whole if whole else 0.0


def stream_phase(name: str, merged: Merged, arrays: Arrays) -> Phase:
    """The phase of an op-stream step from the session's answer."""
    counts = arrays["counts"]
    latency = {}
    for kind in np.flatnonzero(counts.sum(axis=1)):
        latency[Kind(int(kind) % len(Kind)).name.lower() + _suffix(int(kind))] = Latency(
            counts=counts[kind],
            total=float(arrays["total"][kind]),
            minimum=float(arrays["minimum"][kind]),
            maximum=float(arrays["maximum"][kind]),
        )
    assert counts.shape[1] == histogram.BINS
    return Phase(
        name=name,
        start=arrays["start"],
        end=arrays["end"],
        bytes=arrays["bytes"],
        operations=arrays["operations"],
        errors=arrays["errors"],
        io_start=arrays["io_start"],
        io_end=arrays["io_end"],
        overhead=arrays["overhead"],
        latency=latency,
        interval=float(merged.interval),
        interval_bytes=arrays["interval_bytes"],
        interval_operations=arrays["interval_operations"],
        timeline={
            name.removeprefix(TIMELINE): table
            for name, table in arrays.items()
            if name.startswith(TIMELINE)
        },
        began=float(merged.began),
        clock_uncertainty=float(merged.clock_uncertainty),
        errors_by_errno=merged.errors_by_errno,
        facts=merged.facts,
    )


def _suffix(kind: int) -> str:
    """Service times of an open loop stand behind the kinds, in the same order."""
    return "/service" if kind >= len(Kind) else ""


def foreign_load(use: KernelUse, own: float) -> Load:
    """Share of a kernel's CPUs that went to user time of processes that are not the run's.

    `own`: seconds of user time of the run's processes there.
    The kernel's own work for the run (loop devices, write-back) is system time: not counted.
    Nor are processes that work for the storage: a FUSE client, servers of a test bed.  `noise`:
    what that share may be wrong by.  /proc/stat charges a whole tick to whoever the tick finds,
    so that n ticks of user time stand for n +- sqrt(n); three times that.
    """
    foreign = max(use.user_seconds - own - use.storage_user_seconds, 0.0)
    whole = use.cpu_seconds
    if not whole:
        return Load(foreign=0.0, noise=0.0)
    noise = 3 * math.sqrt(max(use.user_seconds, TICK) * TICK)
    return Load(foreign=float(foreign / whole), noise=float(noise / whole))


def _certain(load: Load) -> float:
    """What is left of it if it is overstated by its noise."""
    return (load.foreign or 0.0) - (load.noise or 0.0)


def monitor(phases: Mapping[str, Sequence[SampledKernel]]) -> Monitor | None:
    """Series of all sampled kernels over all timed phases; shorter ones padded with NaN."""
    merged: dict[str, dict[str, list[float]]] = {}
    for kernels in phases.values():
        for kernel in kernels:
            samples = merged.setdefault(kernel.host, {})
            for name, values in kernel.samples.items():
                samples.setdefault(name, []).extend(values)
    if not merged:
        return None
    longest = max(len(samples["time"]) for samples in merged.values())

    def row(samples: Mapping[str, Sequence[float]], name: str) -> Floats:
        series = np.full(longest, np.nan)
        values = samples.get(name, ())
        series[: len(values)] = values
        return series

    names = sorted({name for samples in merged.values() for name in samples} - {"time"})
    first = max(merged.values(), key=lambda samples: len(samples["time"]))
    return Monitor(
        hosts=tuple(merged),
        time=row(first, "time"),
        series={name: np.stack([row(host, name) for host in merged.values()]) for name in names},
        units={name: UNITS.get(name, "s" if SECONDS.search(name) else "1") for name in names},
    )


def failure_text(failure: OperationError, ranks: Sequence[Rank]) -> str:
    """One sentence: who met what error, doing what, where."""
    text = (
        f"rank {failure.rank} on {ranks[failure.rank].host}: {failure.errno} in "
        f"{failure.kind} of {failure.file} at offset {failure.offset}"
    )
    if failure.wrong_offset is not None:
        text += f": byte {failure.wrong_offset} is {failure.found}, written was {failure.expected}"
    return text
