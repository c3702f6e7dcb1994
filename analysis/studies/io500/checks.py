"""What a collection prints, against what its own parts give."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fsmatrix.analysis.studies.io500.submissions import own_outputs
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.formats.io500.check import PARTS, RunFacts
from fsmatrix.results.formats.io500.collected import Collected


@dataclass(frozen=True)
class ScoreDiffers:
    """A printed score that the printed phases do not give."""

    file: str
    part: str  # bandwidth (GiB/s), rate (thousands per second), total
    printed: float
    recomputed: float


@dataclass(frozen=True)
class PhaseDiffers:
    """A printed phase that the outputs beside it contradict."""

    file: str
    phase: str
    message: str


@dataclass(frozen=True)
class Checks:
    """Of every different result: scores recomputed, phases held against their outputs."""

    results: int
    without_score: tuple[str, ...]  # files
    scores: int  # printed values: three of each result
    scores_differ: tuple[ScoreDiffers, ...]
    products: tuple[str, ...]  # files in which the total is the product of both, not its root
    phases: int  # of which IOR's or mdtest's own output is there and was understood
    phases_differ: tuple[PhaseDiffers, ...]


def checks(results: Iterable[Collected]) -> Checks:
    """Of results that are each another text."""
    every = list(results)
    facts = [(run.file, read(RunFacts, run.parsed.facts, "facts")) for run in every]
    scored = {file: of.scores for file, of in facts if of.scores is not None}
    differ = [
        ScoreDiffers(file, differs.part, differs.printed, differs.recomputed)
        for file, of in facts
        for differs in of.scores_differ or ()
    ]
    contradicted = [
        PhaseDiffers(run.file, note.phase, note.message)
        for run in every
        for note in run.parsed.notes
        if note.key == "contradiction" and note.phase
    ]
    agree = sum(map(own_outputs, every))
    return Checks(
        results=len(every),
        without_score=tuple(run.file for run in every if run.file not in scored),
        scores=len(PARTS) * len(scored),
        scores_differ=tuple(differ),
        products=tuple(file for file, scores in scored.items() if scores.product),
        phases=agree + len(contradicted),
        phases_differ=tuple(contradicted),
    )
