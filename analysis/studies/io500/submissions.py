"""The runs of a collection as submissions: each once, and those that cannot count, with why.

Texts lie in a collection more than once, and beside a result lie results of others.  A text counts
once.  Of several in one submission the one with the outputs of IOR and mdtest is its own; where
that leaves several, none is.

Families of file systems go by the words with which submissions name theirs.  A product counts to
the file system that it is made of: EXAScaler is Lustre, SUSE Enterprise Storage is Ceph, Elastic
Storage System is Spectrum Scale.  A name of a mount ("scratch") tells no family.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.results.evidence.stored import read
from fsmatrix.results.formats.io500_text import (
    PARTS,
    PHASES,
    RANDOM_READ,
    Collected,
    PhaseFacts,
    RunFacts,
    Score,
    score,
)

NOT_TOLD = "other, or not told"
# family -> what its names have in them; the first that is met counts
FAMILIES: dict[str, re.Pattern[str]] = {
    name: re.compile(words, re.IGNORECASE)
    for name, words in {
        "DAOS": r"\bdaos",
        "Ceph": r"ceph|suse enterprise storage",
        "BeeGFS": r"bee ?gfs",
        "Spectrum Scale": r"gpfs|(spectrum|storage) ?scale|elastic storage|\bess\b",
        "WekaIO": r"weka",
        "IME": r"(\b|-)ime(\d|\b)|infinite memory engine",
        "GekkoFS": r"gekko",
        "VAST": r"\bvast(data)?\b|\bvast ?test\b",
        "Qumulo": r"qumulo",
        "Panasas": r"panfs|panasas",
        "OrangeFS": r"orangefs",
        "Quobyte": r"quobyte",
        "OceanStor": r"oceanstor|oceanfs",
        "CHFS": r"\bchfs",
        "Hammerspace": r"hammerspace",
        "MadFS": r"madfs",
        "SuperFS": r"superfs",
        "Expand": r"^expand$",
        "DataWarp": r"datawarp",
        "YRCloudFile": r"yrcloudfile",
        "Lustre": r"lustre|exascaler",
    }.items()
}

# classes of client nodes; ten is a list of IO500 of its own
CLASSES: tuple[tuple[int, int, str], ...] = (
    (1, 1, "1"), (2, 9, "2 to 9"), (10, 10, "10"), (11, 99, "11 to 99"),
    (100, 999, "100 to 999"), (1000, 10**9, "1000 and more"),
)  # fmt: skip
NO_CLASS = "not told"
SAME, BESIDE = "the same text as", "lies beside the result of"


def family(names: Iterable[str]) -> str:
    """The family that the first telling name is of; NOT_TOLD if none tells one."""
    for name in names:
        for named, words in FAMILIES.items():
            if words.search(name):
                return named
    return NOT_TOLD


@dataclass(frozen=True)
class Submission:
    """One that counts.  Values in IO500's units: GiB/s, thousands of operations per second."""

    name: str
    file: str
    system: str  # institution/system: its submissions are not independent
    filesystem: str  # as the collection names it
    family: str
    year: int | None
    nodes: int | None  # client nodes
    processes: int | None
    values: Mapping[str, float]  # phase -> value; without phases that contradict their output
    score: Score

    @property
    def size(self) -> str:
        """Its class of client nodes."""
        return size_class(self.nodes)


@dataclass(frozen=True)
class LeftOut:
    """A place whose run does not count."""

    file: str
    why: str


def size_class(nodes: int | None) -> str:
    """The class of a number of client nodes."""
    return next((name for low, high, name in CLASSES if nodes and low <= nodes <= high), NO_CLASS)


def distinct(runs: Iterable[Collected]) -> list[Collected]:
    """Each text once, as the place tells it that tells most."""
    best: dict[str, Collected] = {}
    for run in runs:
        earlier = best.get(run.sha256)
        if earlier is None or own_outputs(run) > own_outputs(earlier):
            best[run.sha256] = run
    return list(best.values())


def submissions(runs: Sequence[Collected]) -> tuple[tuple[Submission, ...], tuple[LeftOut, ...]]:
    """(what counts, by name; what does not), of all places in which runs were found."""
    inside: dict[str, list[Collected]] = defaultdict(list)
    for run in runs:
        inside[run.place.submission].append(run)
    left: list[LeftOut] = []
    own = [run for places in inside.values() for run in _own(places, left)]
    own.sort(key=lambda run: (run.place.year or 0, not own_outputs(run), run.file))
    counted: dict[str, Collected] = {}
    for run in own:
        if (first := counted.get(run.sha256)) is not None:
            left.append(LeftOut(run.file, f"{SAME} {first.file}"))
            continue
        counted[run.sha256] = run
        if why := _why_not(run):
            left.append(LeftOut(run.file, why))
    accepted = [_submission(run) for run in counted.values() if not _why_not(run)]
    return (
        tuple(sorted(accepted, key=lambda submission: submission.name)),
        tuple(sorted(left, key=lambda left_out: left_out.file)),
    )


def _own(places: Sequence[Collected], left: list[LeftOut]) -> list[Collected]:
    """The run of one submission: one or none; the others are left out."""
    texts = distinct(places)
    whole = [run for run in texts if own_outputs(run)] or texts
    if len(whole) > 1:
        why = f"one of {len(texts)} results in this submission: which is its own is not told"
        left += [LeftOut(run.file, why) for run in places]
        return []
    newest = whole[0]
    for run in places:
        if run is not newest:
            same = run.sha256 == newest.sha256
            left.append(LeftOut(run.file, f"{SAME if same else BESIDE} {newest.file}"))
    return whole


def own_outputs(run: Collected) -> int:
    """Phases of which IOR's or mdtest's own output is there."""
    return sum(read(PhaseFacts, phase.facts, "facts").own_output for phase in run.parsed.phases)


def _why_not(run: Collected) -> str:
    invalid = [note.message for note in run.parsed.notes if note.key == "invalid-run"]
    if invalid:
        return f"IO500 calls it invalid: {invalid[0]}"
    return f"failed: {run.parsed.failure}" if run.parsed.failure else ""


def _submission(run: Collected) -> Submission:
    place, parsed = run.place, run.parsed
    values = {
        phase.name: read(PhaseFacts, phase.facts, "facts").score
        for phase in parsed.phases
        if phase.name in PHASES or phase.name == RANDOM_READ
    }
    names = (*run.declared.filesystem, place.filesystem, place.system)
    started = parsed.started[:4]
    return Submission(
        name=place.submission,
        file=run.file,
        system=place.system,
        filesystem=place.filesystem,
        family=family(names),
        year=place.year or (int(started) if started.isdecimal() else None),
        nodes=parsed.nodes or run.declared.nodes,
        processes=parsed.processes,
        values=values,
        score=score(values),
    )


# What a collection prints, against what its own parts give.


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
