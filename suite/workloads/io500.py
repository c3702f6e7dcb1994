"""The workload `io500`: the phases, the stonewall and the score of IO500.

Twelve phases in IO500's order: large sequential and small interleaved transfers (ior-easy,
ior-hard), empty files in directories of each process's own and files of 3901 bytes in one
directory of all (mdtest-easy, mdtest-hard), and find; and at the end, outside the score, 4 KiB
reads at random offsets of ior-easy's files (ior-rnd4K-easy-read).  The writing phases and the
random reads stop at the stonewall; then every process does as much as the busiest has done.
IOR and mdtest do it where they are, with the io500 program's own arguments; the built-in player
elsewhere, whose random reads meet no block twice.  Neither is a submission to the IO500 list:
that is made by the io500 program itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from fsmatrix.backends.access import Access
from fsmatrix.results import record
from fsmatrix.results.evidence.stored import Json, JsonObject, read
from fsmatrix.results.formats.io500_text import GIB, KILO, score
from fsmatrix.results.formats.io500_text import PHASES as SCORED
from fsmatrix.results.formats.ior import failure_of
from fsmatrix.results.formats.parsed import Note, Parsed
from fsmatrix.results.record import Case, Phase
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.engines.ior_mdtest import NAME as PROGRAMS
from fsmatrix.suite.workloads.io500_phases import (
    BY_NAME,
    OFFICIAL_STONEWALL,
    PHASES,
    RANDOM_NODES,
    Io500Options,
    PhaseOf,
    lacking,
    of_items,
    parsed,
    player_steps,
    program_steps,
    shift_of,
)
from fsmatrix.suite.workloads.streams.io500 import Walk
from fsmatrix.suite.workloads.workload import Footprint, Output, Step, Workload, WorkloadOptions

__all__ = ["Io500", "Io500Options"]

PLAYER = "player"
TEN_NODES = 10  # client nodes of a list of its own
NO_RANDOM = Note(
    "left-out",
    "ior-rnd4K-easy-read, which has no part in the score, was not run: it needs an ior that reads "
    "at random offsets (-z -z, since December 2024)",
)
_SCORED_IN_ORDER = tuple(phase.io500 for phase in PHASES if phase.io500 in SCORED)
FIND = "a walk in Python in every process: the first three levels are listed by all"
KINDS = frozenset({"create", "open", "write", "read", "fsync", "close", "stat", "unlink"})


class Io500(Workload):
    """What IO500 does, by IOR and mdtest or by the built-in player."""

    name: ClassVar[str] = "io500"
    Options: ClassVar[type[WorkloadOptions]] = Io500Options
    accesses: ClassVar[frozenset[str]] = frozenset({"path"})
    engines: ClassVar[tuple[str, ...]] = (PROGRAMS, PLAYER)
    cold_metadata: ClassVar[bool] = True
    options: Io500Options

    @classmethod
    def default_engine(cls, usable: Callable[[str], bool]) -> str:
        """IOR and mdtest where both can be used, otherwise the player."""
        return PROGRAMS if usable(PROGRAMS) else PLAYER

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:  # noqa: ARG002
        """Directories, then the phases in IO500's order."""
        if engine.name == PROGRAMS:
            return program_steps(self.options, case, engine)
        return player_steps(self.options, case.geometry)

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The phases, the score, and why it is no submission; also of a run that broke off."""
        built_in = any(output.phase is not None for output in outputs)
        runs = self._played(case, outputs) if built_in else self._programs(case, outputs)
        walks = [output for output in outputs if output.step == "find"]
        walked = [Parsed(phases=(_find(walks),))] if walks else []
        by_name = {phase.name: phase for run in [*runs, *walked] for phase in run.phases}
        phases = [
            self._told(case, by_name[item.name], built_in)
            for item in PHASES
            if item.name in by_name
        ]
        values = {BY_NAME[phase.name].io500: _value(phase) for phase in phases}
        why_not = self._why_not(phases, values, built_in)
        reason = "; ".join(why_not) or "it is made by the io500 program itself"
        first = runs[0] if runs else Parsed()
        return Parsed(
            engine=PLAYER if built_in else PROGRAMS,
            version="" if built_in else first.version,
            phases=tuple(phases),
            nodes=first.nodes,
            processes=first.processes,
            failure=next((run.failure for run in runs if run.failure), ""),
            notes=(
                *(note for run in runs for note in run.notes),
                Note("not-a-submission", f"no submission to the IO500 list: {reason}"),
            ),
            facts={"io500": _score(case, values, why_not)},
        )

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        if case.cache == "bypass":
            return (
                "ior-hard moves 47008 bytes and mdtest-hard 3901 at a time, which O_DIRECT cannot: "
                "use the cache state cold or warm"
            )
        if case.geometry.threads != 1:
            return "IO500 knows no threads: use more processes per node"
        return ""

    def explain(self, output: Output) -> str:
        """Why IOR or mdtest failed, from what it and its launcher printed."""
        return failure_of(f"{output.stdout}\n{output.stderr}")

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this engine cannot do the case on that type of access (empty: it can)."""
        del case, access
        return lacking(engine) if engine.name == PROGRAMS else ""

    def footprint(self, case: Case) -> Footprint:
        """The most that the bounds allow; the stonewall ends a writing phase before."""
        options, ranks = self.options, case.geometry.processes
        files = options.mdtest_easy_n + options.mdtest_hard_n + 2  # data and directory
        return Footprint(
            space=options.bytes_per_process * ranks,
            written=options.bytes_per_process * ranks,
            files=files * ranks + 10,
            kinds=KINDS,
        )

    # -- parts -----------------------------------------------------------------------------
    def _played(self, case: Case, outputs: Sequence[Output]) -> list[Parsed]:
        phases = [output.phase for output in outputs if output.phase is not None]
        geometry = case.geometry
        return [Parsed(phases=tuple(of_items(phase, self.options, geometry) for phase in phases))]

    def _programs(self, case: Case, outputs: Sequence[Output]) -> list[Parsed]:
        printed = [output for output in outputs if output.step in BY_NAME and output.step != "find"]
        runs = [parsed(case, output, self.options) for output in printed]
        if printed and printed[-1].step == PHASES[-2].name:  # all but the random reads
            runs[-1] = replace(runs[-1], notes=(*runs[-1].notes, NO_RANDOM))
        return runs

    def _told(self, case: Case, phase: Phase, built_in: bool) -> Phase:
        """The phase with IO500's name for it, and whose data it met."""
        which = BY_NAME[phase.name]
        facts: dict[str, Json] = {"io500_phase": which.io500}
        if which.kind != "find" and not which.writes:
            facts["shift"] = _shift(case, which, built_in)
        if built_in and which.kind in ("write", "create"):
            facts["synced"] = which.kind == "write"
            facts["window"] = "open to close"
        return replace(phase, facts={**phase.facts, **facts})

    def _why_not(
        self, phases: Sequence[Phase], values: Mapping[str, float], built_in: bool
    ) -> list[str]:
        """What breaks the rules, as far as it can be seen here."""
        reasons = []
        if built_in:
            reasons.append("done by the built-in player instead of IOR and mdtest")
        if self.options.stonewall != OFFICIAL_STONEWALL:
            reasons.append(
                f"a stonewall of {self.options.stonewall} s, the rules want {OFFICIAL_STONEWALL} s"
            )
        for phase in phases:
            lasted = record.window(phase)
            if BY_NAME[phase.name].writes and not lasted >= self.options.stonewall:
                reasons.append(
                    f"{BY_NAME[phase.name].io500} ended after {lasted:.1f} s, before the "
                    "stonewall: let it write more"
                )
            if phase.errors.sum():
                reasons.append(f"{int(phase.errors.sum())} errors in {BY_NAME[phase.name].io500}")
        reasons += _unequal(phases)
        missing = [name for name in _SCORED_IN_ORDER if not values.get(name, 0.0) > 0]
        if missing:
            reasons.append(f"no value of {', '.join(missing)}")
        if any(phase.name == "find" and not phase.facts["found"] for phase in phases):
            reasons.append("find found nothing")
        return reasons


def _score(case: Case, values: Mapping[str, float], why_not: Sequence[str]) -> JsonObject:
    """facts["io500"]: the score (GiB/s, 1000/s), and whether the rules were kept."""
    result = score(values)
    return {
        "bandwidth_score_gib_s": result.bandwidth,
        "rate_score_kiops": result.rate,
        "score": result.total,
        "valid": not why_not,
        "why_not": why_not,
        "phases": {name: value if np.isfinite(value) else None for name, value in values.items()},
        "client_nodes": case.geometry.nodes,
        "ten_node_list": case.geometry.nodes == TEN_NODES,
    }


def _unequal(phases: Sequence[Phase]) -> list[str]:
    """Phases that met another amount of data or files than had been made.

    A file that the stonewall cut short is none that was made, but may be there: one a process.
    """
    by_name = {phase.name: phase for phase in phases}
    reasons = []
    for phase in phases:
        which = BY_NAME[phase.name]
        first = by_name.get(f"{'write' if which.home.startswith('ior') else 'create'}-{which.home}")
        if first is None or first is phase:
            continue
        if which.random:
            continue  # it reads what it has the time for
        data = which.home.startswith("ior")
        written, met = (
            int((side.bytes if data else side.operations).sum()) for side in (first, phase)
        )
        if not written <= met <= written + (0 if data else first.operations.size):
            what = "bytes" if data else "files"
            reasons.append(f"{which.io500} met {met} {what}, {written} were made")
    return reasons


def _value(phase: Phase) -> float:
    """GiB/s or thousands of operations per second, by the kind of phase."""
    if BY_NAME[phase.name].home.startswith("ior"):
        return record.bandwidth(phase) / GIB
    return record.iops(phase) / KILO


def _shift(case: Case, which: PhaseOf, built_in: bool) -> str:
    """Whose data or files a phase meets that looks at them or removes them."""
    if built_in:
        return shift_of(case.geometry)
    nodes = case.geometry.nodes
    if which.random:
        return "none" if RANDOM_NODES % nodes == 0 else f"{RANDOM_NODES} nodes"
    if which.home.startswith("ior"):  # -C -Q 1 shifts by a node, which on a single one is nothing
        return "node" if nodes > 1 else "none"
    phase = {"stat": 1, "read": 2, "remove": 3}[which.kind]  # -N 1 shifts by so many ranks
    ranks = phase % case.geometry.processes
    return ("none", "rank")[ranks] if ranks < 2 else f"{ranks} ranks"


def _find(walks: Sequence[Output]) -> Phase:
    """The find phase: each process's window is on its own clock, from a common barrier."""
    ranks = sorted(walks, key=lambda output: output.rank)
    answers = [read(Walk, rank.value, "find") for rank in ranks]
    seconds = np.array([answer.seconds for answer in answers], dtype=np.float64)
    matched = sum(answer.found for answer in answers)
    return Phase(
        name="find",
        start=np.zeros(len(ranks)),
        end=seconds,
        bytes=np.zeros(len(ranks), dtype=np.int64),
        operations=np.array([answer.entries for answer in answers], dtype=np.int64),
        errors=np.zeros(len(ranks), dtype=np.int64),
        began=min(rank.began for rank in ranks),
        facts={"found": matched, "window": "the slowest process's walk", "walk": FIND},
    )
