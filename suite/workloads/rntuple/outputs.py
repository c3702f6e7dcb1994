"""From the answers of the programs of all processes to the phases `write` and `read`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fsmatrix.results.audits.base import STORED
from fsmatrix.results.evidence.lhcb import CUTS, FACT, Analysed, Selection
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.formats.base import Note, Parsed, ParseError
from fsmatrix.results.record import Phase
from fsmatrix.suite.engines.python import answer
from fsmatrix.suite.workloads.base import Output
from fsmatrix.suite.workloads.streams.lhcb.columns import EVENT_BYTES, READ_BYTES, share

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
    facts: dict[str, Json] = {FACT: seen.document(), "synced": synced and step == WRITE}
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
