"""The study `io500` in sentences."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from fsmatrix.analysis.studies.io500.families import NOT_TOLD
from fsmatrix.analysis.studies.io500.phases import TEN, PhasePair
from fsmatrix.analysis.studies.io500.ranges import HARD_OVER_EASY, Row
from fsmatrix.analysis.studies.io500.standing import RankedPlace, RunStanding
from fsmatrix.analysis.studies.io500.submissions import BESIDE, SAME, Checks, LeftOut, Submission
from fsmatrix.analysis.units import brief
from fsmatrix.results.formats.io500_text import PHASES

MARK = "different hardware: descriptive only"
CAVEAT = (
    f"{MARK.capitalize()}. Every submission chose its own machines, size and "
    "tuning: this says what was submitted, not which file system is faster."
)
ENOUGH = 5  # submissions of a family that sentences and small tables name
MOST_FILES = 20
FEW_PEERS = 10  # submissions: below them a percentile is coarse, which is said


def counted(
    submissions: Sequence[Submission], places: int, checks: Checks, left: Sequence[LeftOut]
) -> str:
    """How many there are of what, and what does not count."""
    systems = len({submission.system for submission in submissions})
    years = sorted({submission.year for submission in submissions if submission.year})
    nodes = sorted({submission.nodes for submission in submissions if submission.nodes})
    when = f", {_span(years)}" if years else ""
    size = f", with {_span(nodes)} client nodes" if nodes else ""
    why = "; ".join(f"{count} {text}" for text, count in reasons(left).most_common())
    return (
        f"Counted: {_count(len(submissions), 'submission')} of {_count(systems, 'system')}"
        f"{when}{size}. Places with results: {places}, {checks.results} of them different"
        + (f"; not counted: {len(left)} ({why})." if left else ".")
    )


def reasons(left: Sequence[LeftOut]) -> Counter[str]:
    """Why places do not count, in few words, and how many."""
    kinds = {
        SAME: "hold a text that is there already",
        BESIDE: "lie beside a submission's result",
        "one of": "are several results in one submission",
        "IO500 calls it invalid": "are called invalid by IO500",
        "failed": "failed (errors in IOR's or mdtest's output)",
    }
    return Counter(
        next(
            (text for start, text in kinds.items() if left_out.why.startswith(start)), left_out.why
        )
        for left_out in left
    )


def checked(checks: Checks) -> Iterator[str]:
    """Printed scores against phases, and phases against outputs."""
    what = f"{checks.scores} printed scores (bandwidth, metadata, total)"
    if checks.scores_differ:
        yield f"{len(checks.scores_differ)} of {what} are not what their phases give:"
        for score in checks.scores_differ[:MOST_FILES]:
            yield (
                f"  {score.file}: {score.part} printed {score.printed:g}, "
                f"recomputed {score.recomputed:.6g}"
            )
        if len(checks.scores_differ) > MOST_FILES:
            yield f"  and {len(checks.scores_differ) - MOST_FILES} more: --json has all."
    elif checks.scores:
        yield f"All {what} are what their phases give, to the digits that are printed."
    if checks.products:
        yield (
            "The product of both scores was printed as the total, whose root is taken, in "
            f"{_count(len(checks.products), 'result')}: {', '.join(checks.products[:MOST_FILES])}."
        )
    if checks.without_score:
        yield f"Without a score: {', '.join(checks.without_score[:MOST_FILES])}."
    yield from _phases(checks)


def _phases(checks: Checks) -> Iterator[str]:
    if not checks.phases:
        yield "No phase could be held against the outputs of IOR and mdtest: none are there."
        return
    by_file: dict[str, list[str]] = defaultdict(list)
    for phase in checks.phases_differ:
        by_file[phase.file].append(phase.phase)
    wrong = len(checks.phases_differ)
    yield f"{checks.phases} printed phases have IOR's or mdtest's own output beside them: " + (
        f"{wrong} in {_count(len(by_file), 'result')} contradict it by more than rounding, and "
        "neither they nor a score made of them are in any figure below:"
        if wrong
        else "all agree."
    )
    for file, names in list(by_file.items())[:MOST_FILES]:
        yield f"  {file}: {', '.join(names)}"


def lost(without: Sequence[str], unread: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Submissions without a result, and files that cannot be read."""
    if without:
        yield f"{_count(len(without), 'submission')} without a summary: {', '.join(without)}."
    for file, why in unread[:MOST_FILES]:
        yield f"Not read: {file}: {why}."


def ratios(rows: Sequence[Row]) -> Iterator[str]:
    """Hard over easy of the families that have enough."""
    for name in HARD_OVER_EASY:
        ratios_shown = [
            f"{row.key[0]} {brief(r.median)} ({brief(r.low or 0)} to {brief(r.high or 0)})"
            for row in rows
            if (r := row.ranges[name]).median is not None
            and r.submissions >= ENOUGH
            and row.key[0] != NOT_TOLD
        ]
        if ratios_shown:
            yield f"Hard over easy, {name}, median (range): {', '.join(ratios_shown)}."


def correlated(pairs: Sequence[PhasePair]) -> Iterator[str]:
    """How the scored phases go together: over all sizes, and at one."""
    scored = [
        pair for pair in pairs if pair.a in PHASES and pair.b in PHASES and pair.r is not None
    ]
    if not scored:
        return
    count = max(pair.submissions for pair in scored)
    yield _spread(
        f"Spearman's r of {len(scored)} pairs of phases over {count} submissions",
        [(pair.r or 0.0, pair) for pair in scored],
    )
    tens = [(pair.r_ten, pair) for pair in scored if pair.r_ten is not None]
    if tens:
        systems = max(pair.tens for _, pair in tens)
        what = f"The same with {TEN} client nodes, one submission of each of {systems} systems"
        yield _spread(what, tens)


def _spread(what: str, valued_pairs: Sequence[tuple[float, PhasePair]]) -> str:
    low, high = (pick(valued_pairs, key=lambda pair: pair[0]) for pick in (min, max))
    middle = statistics.median(value for value, _ in valued_pairs)
    return (
        f"{what}: {low[0]:.2f} ({low[1].a} and {low[1].b}) to {high[0]:.2f} ({high[1].a} and "
        f"{high[1].b}), median {middle:.2f}."
    )


def standing(run: RunStanding) -> Iterator[str]:
    """One's own run: the score if there is one, then every phase."""
    peers = max((place.submissions for place in run.places), default=0)
    noun = "client node" if run.size == "1" else "client nodes"
    yield (
        f"{run.name}: {_count(run.nodes, 'client node')}, by {run.engine}, among "
        f"{_count(peers, 'submission')} with {run.size} {noun}"
        + (f" (few: a place among {peers} says little)." if peers < FEW_PEERS else ".")
    )
    if not run.by_rules:
        yield "  IO500's rules would not accept it (fsmatrix findings says why): take it as a hint."
    for place in run.places:
        yield f"  {placed(place)}"


def placed(place: RankedPlace) -> str:
    """One value among others."""
    value = f"{place.what} {brief(place.value)}{place.unit and ' ' + place.unit}"
    if place.percentile is None or place.median is None:
        return f"{value}: no submission of this size has one."
    return (
        f"{value}: more than {place.below} of {place.submissions} (percentile "
        f"{100 * place.percentile:.0f}); their median is {brief(place.median)}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _span(values: Sequence[int]) -> str:
    return f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"
