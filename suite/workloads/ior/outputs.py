"""One run from the outputs of all invocations of IOR, checked against what was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fsmatrix.results import iterations
from fsmatrix.results.formats.base import Note, Parsed, ParseError
from fsmatrix.results.formats.ior import failure_of, parse, parse_ranks
from fsmatrix.results.formats.ior.nest import join, with_ranks
from fsmatrix.results.record import Phase
from fsmatrix.suite.workloads.base import Output
from fsmatrix.suite.workloads.ior.argv import RANKS

STEPS = ("write", "read", "write+read")  # timed ones
EXPECTED_WARNING = "exists already and will be"  # a later iteration finds the earlier one's file
MOST_NOTES = 50
OTHER_MPI = (
    "the launcher belongs to another MPI than the one that ior was built with, so that each "
    "process was a world of its own: use that MPI's mpirun or srun --mpi=pmix, or load an ior "
    "built with this one"
)


@dataclass(frozen=True)
class Expected:
    """What a run must show."""

    nodes: int
    processes: int
    iterations: int
    phases: tuple[str, ...]  # write, read
    bytes: int | None  # of one access of one iteration; None: not fixed
    even: bool  # every rank does the same share


def combine(expected: Expected, outputs: Sequence[Output]) -> Parsed:
    """The run; ParseError if an output cannot be understood."""
    timed = [output for output in outputs if output.step in STEPS]
    if not timed:
        reason = failure_of("\n".join(o.stdout + "\n" + o.stderr for o in outputs))
        raise ParseError("ior", 0, reason or "no timed invocation of ior gave any output")
    runs = [_invocation(expected, output, index) for index, output in enumerate(timed)]
    phases: dict[str, list[Phase]] = {}
    for run in runs:
        for phase in run.phases:
            phases.setdefault(phase.name, []).append(phase)
    joined = tuple(join(phases[name]) for name in ("write", "read") if name in phases)
    failures = [run.failure for run in runs if run.failure]
    failures += _missing(expected, joined, bool(failures))
    first = runs[0]
    return replace(
        first,
        phases=joined,
        options={**first.options, "iterations": expected.iterations},
        failure="; ".join(dict.fromkeys(failures)),
        notes=_notes(runs),
    )


def _invocation(expected: Expected, output: Output, index: int) -> Parsed:
    """What one invocation gave; its failure if its world was another one."""
    source = f"ior ({output.step}, invocation {index})"
    try:
        runs = parse(output.stdout, source)
    except ParseError as error:
        if reason := failure_of(f"{output.stdout}\n{output.stderr}"):
            raise ParseError(source, error.line, reason) from error
        raise
    run = runs[0]
    failure = _world(expected, runs) or run.failure
    run = replace(run, failure=f"{output.step}: {failure}" if failure else "")
    return run if failure else _ranks(expected, output, run, source)


def _world(expected: Expected, runs: Sequence[Parsed]) -> str:
    """Whether IOR ran in the world that was asked for (empty: it did)."""
    alone = [run for run in runs if run.processes == 1]
    if expected.processes > 1 and (len(runs) > 1 or runs[0].facts.get("banners")) and alone:
        return f"ior ran as worlds of 1 task instead of one of {expected.processes}: {OTHER_MPI}"
    if len(runs) > 1:
        return f"one run of ior gave {len(runs)} outputs"
    run = runs[0]
    if run.processes is not None and run.processes != expected.processes:
        cure = f": {OTHER_MPI}" if run.processes == 1 else ""
        return f"ior saw {run.processes} tasks, {expected.processes} were started{cure}"
    if run.nodes is not None and run.nodes != expected.nodes:
        return f"ior saw {run.nodes} client nodes, {expected.nodes} were asked for"
    return ""


def _ranks(expected: Expected, output: Output, run: Parsed, source: str) -> Parsed:
    """The run with the times of its ranks, where the version writes them."""
    text = output.files.get(RANKS)
    if text is None:
        return run
    try:
        times = parse_ranks(text, f"{source}: {RANKS}")
    except ParseError as error:
        note = Note("recovered", f"the file of ranks is not used: {error}")
        return replace(run, notes=(*run.notes, note))
    phases: list[Phase] = []
    notes = list(run.notes)
    for phase in run.phases:
        own = [part for part in times if part.access == phase.name]
        # arrays [rank] only where no other invocation is added to them
        even = expected.even and expected.iterations == 1
        with_values, odd = with_ranks(phase, own, expected.processes, even)
        phases.append(with_values)
        notes += odd
    return replace(run, phases=tuple(phases), notes=tuple(notes))


def _missing(expected: Expected, phases: Sequence[Phase], failed: bool) -> list[str]:
    """What is not there, or not as much as was asked for."""
    problems = []
    by_name = {phase.name: phase for phase in phases}
    for name in expected.phases:
        parts = iterations.rows_of(by_name[name].iterations) if name in by_name else []
        if len(parts) != expected.iterations and not failed:
            problems.append(f"{name} has {len(parts)} of {expected.iterations} iterations")
        wrong = [part for part in parts if expected.bytes not in (None, part["bytes"])]
        if wrong:
            problems.append(
                f"{name}, iteration {wrong[0]['number']}: moved {wrong[0]['bytes']} of "
                f"{expected.bytes} bytes"
            )
    return problems


def _notes(runs: Iterable[Parsed]) -> tuple[Note, ...]:
    """Notes of all invocations, each once."""
    kept: dict[tuple[str, str, str], Note] = {}
    for index, run in enumerate(runs):
        for note in run.notes:
            if index and EXPECTED_WARNING in note.message:
                continue
            kept.setdefault((note.key, note.message, note.phase), note)
    return tuple(kept.values())[:MOST_NOTES]
