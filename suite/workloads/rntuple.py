"""The workload `rntuple`: CERN's LHCb benchmark of columnar I/O, by ROOT or by uproot.

Each process writes one file (on DAOS: one ntuple of the run's container) in the phase `write`, and
reads the columns of the analysis back in the phase `read`: the benchmark's gen_lhcb and lhcb.  What
is found must be what was written (docs/hep.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from fsmatrix.backends.access import Access, DaosAccess
from fsmatrix.results.audits.audit import STORED
from fsmatrix.results.evidence.stored import Json, read
from fsmatrix.results.evidence.workloads import CUTS, LHCB, Analysed, Selection
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError
from fsmatrix.results.record import Case, Phase
from fsmatrix.results.units import PositiveSize
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.engines.python import answer, words
from fsmatrix.suite.session import programs
from fsmatrix.suite.workloads.streams.lhcb.analysis import (
    EVENT_BYTES,
    EVENTS,
    READ_BYTES,
    TREE,
    share,
)
from fsmatrix.suite.workloads.streams.lhcb.program import Request
from fsmatrix.suite.workloads.workload import (
    Argv,
    ContentFile,
    Footprint,
    Output,
    Step,
    Workload,
    WorkloadOptions,
    stored_digest,
)

# Options of the workload `rntuple`, and the user's file that may stand for its generator.


CLUSTER = 52_428_800  # bytes, as in the study
LEAST_PAGE, MOST_PAGE = 1 << 10, 1 << 30
WILD = re.compile(r"[*?\[\]{}#]")
MOST_EVENTS = 1 << 40


def _source(value: object) -> ContentFile | None:
    if value is None or isinstance(value, ContentFile):
        return value
    if not isinstance(value, str):
        raise ValueError(f"source is the path of a file, not {value!r}")
    if digest := stored_digest(value, "file of ROOT"):
        return ContentFile(digest)
    if not Path(value).is_absolute():
        raise ValueError(f"{value!r} must be an absolute path, the same on all client nodes")
    if WILD.search(value):
        raise ValueError(
            f"{value!r}: ROOT would take {WILD.pattern} for wildcards; link or move it"
        )
    try:
        state = Path(value).stat()
        return ContentFile(_digest(value, state.st_mtime_ns, state.st_size), value)
    except OSError as error:
        raise ValueError(f"the source {value!r} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=16)
def _digest(path: str, modified: int, size: int) -> str:  # noqa: ARG001
    """`modified` and `size` make a changed file be read again."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Source = Annotated[
    ContentFile | None,
    BeforeValidator(_source),
    PlainSerializer(lambda value: value and str(value), return_type=str | None),
]


class RntupleOptions(WorkloadOptions):
    """How many events of which kind, and how they are stored.  Sizes in bytes."""

    events: Annotated[int, Field(strict=True, ge=1, le=MOST_EVENTS)] = Field(
        default=EVENTS, description="of all processes together; with source: at most this many"
    )
    event_seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = Field(
        default=18, description="of the generator: the same seed, the same events everywhere"
    )
    source: Source = Field(
        default=None,
        description="instead of the generator, a ROOT file with the 26 columns: absolute path, "
        "the same on all client nodes; identified by its SHA-256",
    )
    tree: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,128}$")] = Field(
        default=TREE, description="source: name of its TTree or RNTuple"
    )
    compression: Literal["none", "zstd", "lz4", "zlib"] = Field(
        default="zstd", description="at ROOT's own level: zstd 5, lz4 4, zlib 1"
    )
    page_size: PositiveSize = Field(
        default=1 << 20, description="largest page of one column, uncompressed"
    )
    cluster_size: PositiveSize = Field(
        default=CLUSTER, description="approximate, of a cluster, compressed; not used by uproot"
    )
    fsync: bool = Field(default=True, description="at the end of writing, inside the window")

    @model_validator(mode="after")
    def _sizes(self) -> RntupleOptions:
        if not LEAST_PAGE <= self.page_size <= MOST_PAGE:
            raise ValueError(f"page_size is from {LEAST_PAGE} to {MOST_PAGE}, not {self.page_size}")
        if self.page_size > self.cluster_size:
            raise ValueError(
                f"page_size {self.page_size} is larger than cluster_size {self.cluster_size}"
            )
        if self.source is not None and "event_seed" in self.model_fields_set:
            raise ValueError("event_seed belongs to the generator; source is read as it is")
        return self

    def labels(self) -> dict[str, str]:
        """The source by its name, and enough of its digest that two of one name differ."""
        if self.source is None:
            return {}
        return {"source": f"{Path(self.source.path).name} {self.source.sha256[:8]}".strip()}


# From the answers of the programs of all processes to the phases `write` and `read`.


WRITE, READ = "write", "read"
EVENT = {WRITE: EVENT_BYTES, READ: READ_BYTES}
TOGETHER = 0.8  # of the window, in which all processes worked


@dataclass(frozen=True)
class RankAnswer:
    """What the program of one process answered; times on the common clock."""

    rank: int
    engine: str
    version: str
    start: float
    began: float
    opened: float
    moved: float
    ended: float
    stored: int
    selected: Selection
    uncertain: float


def rank_answer(output: Output) -> RankAnswer:
    """ParseError if it is no answer."""
    where = f"{output.step} of rank {output.rank} on {output.host}"
    data = answer(output.stdout)
    if data is None:
        raise ParseError(where, 0, "the program gave no answer")
    try:
        times, selected = data["times"], data["selected"]
        assert isinstance(times, Mapping)
        assert isinstance(selected, Mapping)
        moments = {
            name: float(times[name]) + output.clock_correction
            for name in ("began", "opened", "moved", "ended")
        }
        return RankAnswer(
            rank=output.rank,
            engine=str(data["engine"]),
            version=str(data["version"]),
            start=output.began,
            stored=int(str(data["stored"])),
            selected=read(Selection, {key: selected[key] for key in (*CUTS, "counts")}, "selected"),
            uncertain=output.clock_uncertainty,
            **moments,
        )
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise ParseError(where, 0, f"its answer lacks or garbles {error}") from error


def parsed(outputs: Sequence[Output], data: str, processes: int, synced: bool) -> Parsed:
    """The run; its failure says which process did something else than was asked for."""
    answers = {
        step: sorted(
            (rank_answer(o) for o in outputs if o.step == step), key=lambda part: part.rank
        )
        for step in (WRITE, READ)
    }
    phases, notes, wanted = [], [], None
    for step, of_step in answers.items():
        if not of_step:
            continue
        phase = _phase(step, of_step, data, wanted, synced)
        wanted = together([part.selected for part in of_step]) if step == WRITE else wanted
        phases.append(phase)
        notes += _overlap(phase)
    every = [part for of_step in answers.values() for part in of_step]
    return Parsed(
        engine=every[0].engine if every else "",
        version=every[0].version if every else "",
        phases=tuple(phases),
        processes=processes,
        failure="; ".join(_unlike(answers, processes)),
        notes=tuple(notes),
    )


def together(selections: Sequence[Selection]) -> Selection:
    """Of several processes."""
    counts = np.sum([part.counts for part in selections], axis=0)
    sums = {name: sum(getattr(part, name) for part in selections) for name in CUTS}
    return read(Selection, {**sums, "counts": counts.tolist()}, "selected")


def _phase(
    step: str, answers: Sequence[RankAnswer], data: str, wanted: Selection | None, synced: bool
) -> Phase:
    """Writing counts from opening to closing, reading is the event loop alone."""
    starts = np.array([part.began if step == WRITE else part.opened for part in answers])
    ends = np.array([part.ended if step == WRITE else part.moved for part in answers])
    events = np.array([part.selected.events for part in answers], np.int64)
    began, stored = float(starts.min()), sum(part.stored for part in answers)
    seen = Analysed(
        data=data,
        found=together([part.selected for part in answers]),
        wanted=wanted,
        uncompressed=int(events.sum()) * EVENT[step],
        stored=stored,
        initialisation=max(part.opened - part.began for part in answers),
        loop=max(part.moved - part.opened for part in answers),
        closing=max(part.ended - part.moved for part in answers),
        start=max(part.began - part.start for part in answers),
        files=len(answers),
    )
    facts: dict[str, Json] = {LHCB: seen.document(), "synced": synced and step == WRITE}
    return Phase(
        name=step,
        start=starts - began,
        end=ends - began,
        bytes=events * EVENT[step],
        operations=events,
        errors=np.zeros(len(answers), np.int64),
        io_start=np.array([part.opened for part in answers]) - began,
        io_end=np.array([part.moved for part in answers]) - began,
        began=began,
        clock_uncertainty=max(part.uncertain for part in answers),
        facts=facts | ({STORED: stored} if stored else {}),
    )


def _overlap(phase: Phase) -> list[Note]:
    """Processes load their libraries before they begin: not all take the same time for that."""
    window = float(phase.end.max() - phase.start.min())
    common = float(phase.end.min() - phase.start.max())
    if phase.start.size < 2 or common >= TOGETHER * window:
        return []
    share_of = max(common, 0.0) / window if window else 0.0
    text = f"the {phase.start.size} processes worked together in {share_of:.0%} of the window"
    return [Note("nodes-overlap", text, phase=phase.name)]


def _unlike(answers: Mapping[str, Sequence[RankAnswer]], processes: int) -> list[str]:
    reasons = []
    events = sum(part.selected.events for part in answers[WRITE])
    for step, of_step in answers.items():
        if not of_step and step == READ:
            continue
        if len(of_step) != processes:
            reasons.append(f"{step}: {len(of_step)} processes answered, not {processes}")
        for part in of_step:
            first, last = share(events, part.rank, processes)
            if part.selected.events != last - first:
                reasons.append(
                    f"{step} of rank {part.rank}: {part.selected.events} events, not {last - first}"
                )
    return reasons


ROOT, UPROOT = "root", "uproot"
SOURCE_STEP = "source"
DIGEST = re.compile(r"^\\?([0-9a-f]{64}) ", re.MULTILINE)
DESCRIBE_SECONDS = 300.0


class Rntuple(Workload):
    """The LHCb analysis on RNTuple."""

    name: ClassVar[str] = "rntuple"
    Options: ClassVar[type[WorkloadOptions]] = RntupleOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path", "daos"})
    engines: ClassVar[tuple[str, ...]] = (ROOT, UPROOT)
    options: RntupleOptions

    @classmethod
    def default_engine(cls, usable: Callable[[str], bool]) -> str:
        """ROOT where it can be used; uproot where only that can."""
        return UPROOT if not usable(ROOT) and usable(UPROOT) else ROOT

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """The source is that of the plan; write; read."""
        options = self.options
        request = Request(
            events=self._events(engine),
            seed=options.event_seed,
            parts=case.geometry.processes,
            source=options.source.path if options.source else "",
            tree=options.tree,
            compression=options.compression,
            page_size=options.page_size,
            cluster_size=options.cluster_size,
            object_class=access.oclass if isinstance(access, DaosAccess) else "",
            threads=case.geometry.threads,
            fsync=options.fsync,
        )
        what = [
            Argv(
                (
                    engine.program,
                    *words(engine.name, step, request.text(), _place(access), "{rank}"),
                )
            )
            for step in (WRITE, READ)
        ]
        steps = [
            Step(WRITE, "rank", "timed", what[0]),
            Step(READ, "rank", "timed", what[1], reads=True),
        ]
        if options.source is not None:
            look = Argv(("sha256sum", options.source.path))
            steps.insert(0, Step(SOURCE_STEP, "node", "setup", look))
        return steps

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The phases; a run that is not what was asked for has failed."""
        options, processes = self.options, case.geometry.processes
        data = str(options.source or f"seed {options.event_seed}")
        digests = {
            digest
            for output in outputs
            if output.step == SOURCE_STEP
            for digest in DIGEST.findall(output.stdout)
        }
        timed = [output for output in outputs if output.step in (WRITE, READ)]
        run = parsed(timed, data, processes, options.fsync)
        if options.source is not None and digests - {options.source.sha256}:
            changed = f"the nodes' source is not the one of the plan ({options.source})"
            return Parsed(failure="; ".join(filter(None, (changed, run.failure))))
        return run

    def explain(self, output: Output) -> str:
        """Why a program failed, in its own words."""
        reply = answer(output.stdout) or {}
        return str(reply.get("error", ""))

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        options, processes = self.options, case.geometry.processes
        if options.source is not None and not options.source.path:
            return f"source: where {options.source} lies is not known: give its path"
        if options.source is None and options.events < processes:
            return f"events: {options.events} cannot be divided among {processes} processes"
        if case.cache == "bypass":
            return "rntuple: neither ROOT nor uproot reads with O_DIRECT; say cache: cold or warm"
        return ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this engine cannot do the case on that type of access (empty: it can)."""
        options, threads = self.options, case.geometry.threads
        if engine.name == UPROOT:
            if access == "daos":
                return "uproot has no DAOS: use the engine root, of a ROOT built with DAOS"
            if threads > 1:
                return f"uproot works in one thread, not {threads}: use more processes"
            if options.cluster_size != CLUSTER:
                return "cluster_size: uproot writes one page of each column as a cluster"
        elif engine.version:
            if access == "daos" and "has:daos" not in engine.features:
                return (
                    f"ROOT {engine.version} of {engine.path} was built without DAOS (PyPI's is): "
                    "name the Python of one that has it by FSMATRIX_ROOT"
                )
            if threads > 1 and "has:imt" not in engine.features:
                return f"ROOT {engine.version} was built without implicit multi-threading (imt)"
        if options.source is None or not options.source.path or not engine.version:
            return ""
        try:
            events = self._events(engine)
        except ValueError as error:
            return f"source: {error}"
        processes = case.geometry.processes
        if events < processes:
            return f"source: {events} events cannot be divided among {processes} processes"
        return ""

    def footprint(self, case: Case) -> Footprint:
        """As if nothing were compressed."""
        events = self.options.events
        if self.options.source is not None and self.options.source.path:
            size = Path(self.options.source.path).stat().st_size
            events = min(events, 4 * size // EVENT_BYTES)
        return Footprint(
            space=events * EVENT_BYTES,
            written=events * EVENT_BYTES,
            files=case.geometry.processes,
            read=events * READ_BYTES,
        )

    # -- parts -----------------------------------------------------------------------------
    def _events(self, engine: Engine) -> int:
        """Of all processes together; ValueError for a source that cannot be used."""
        source = self.options.source
        if source is None:
            return self.options.events
        there = _described(engine.name, engine.program, source.path, self.options.tree, str(source))
        return min(there, self.options.events)


def _place(access: Access) -> str:
    """Where a process writes: its file, or the run's container."""
    if isinstance(access, DaosAccess):
        return access.run_root("{run}")
    return "{path}/lhcb-{rank}.root"


@lru_cache(maxsize=64)
def _described(name: str, program: str, path: str, tree: str, digest: str) -> int:  # noqa: ARG001
    """Events of a user's file, whose columns are right; ValueError with what is wrong."""
    argv = [program, *words(name, "describe", path, tree)]
    done = programs.run(argv, "/", DESCRIBE_SECONDS)
    reply = answer(done.stdout) or {}
    if "events" not in reply:
        reason = reply.get("error") or done.stderr.strip()[-300:] or f"status {done.returncode}"
        raise ValueError(str(reason))
    return int(str(reply["events"]))
