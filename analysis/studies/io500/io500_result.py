"""A collection of submissions described: in sentences, a table, plain data and pictures."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.studies.io500.ranges import (
    HARD_OVER_EASY,
    SCORES,
    TEN,
    PhasePair,
    Row,
    ValueRange,
)
from fsmatrix.analysis.studies.io500.standing import RankedPlace, RunStanding
from fsmatrix.analysis.studies.io500.submissions import (
    BESIDE,
    CLASSES,
    NO_CLASS,
    NOT_TOLD,
    SAME,
    Checks,
    LeftOut,
    Submission,
)
from fsmatrix.analysis.units import MISSING, brief, number
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.formats.io500_text import PHASES

if TYPE_CHECKING:
    import pandas as pd

MARK = "different hardware: descriptive only"
CAVEAT = (
    f"{MARK.capitalize()}. Every submission chose its own machines, size and "
    "tuning: this says what was submitted, not which file system is faster."
)
ENOUGH = 5  # submissions of a family that sentences and small tables name
MOST_FILES = 20
FEW_PEERS = 10  # submissions: below them a percentile is coarse, which is said

ALL = "all"
# of SCORES; the words of the workload io500's own facts
JSON_NAMES = {
    "bandwidth score, GiB/s": "bandwidth_score_gib_s",
    "metadata score, kIOPS": "rate_score_kiops",
}


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


def ratio_sentences(rows: Sequence[Row]) -> Iterator[str]:
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


@dataclass(frozen=True)
class Io500Study(Drawn):
    """A collection described.  Values in IO500's units: GiB/s, thousands of operations a second."""

    directory: str
    places: int  # directories with the result of a run
    checks: Checks
    submissions: tuple[Submission, ...]
    left_out: tuple[LeftOut, ...]
    without: tuple[str, ...]  # submissions without a summary
    unread: tuple[tuple[str, str], ...]
    families: tuple[Row, ...]  # keys: family
    years: tuple[Row, ...]  # keys: family, year
    sizes: tuple[Row, ...]  # keys: family, class of client nodes
    ratios: tuple[Row, ...]  # keys: family; hard over easy
    pairs: tuple[PhasePair, ...]
    standings: tuple[RunStanding, ...] = ()

    @property
    def says(self) -> list[str]:
        """What it is, the checks, the families, the phases; one's own run."""
        return [
            CAVEAT,
            *self.facts,
            *ratio_sentences(self.ratios),
            *correlated(self.pairs),
            *(line for run_standing in self.standings for line in standing(run_standing)),
        ]

    @property
    def facts(self) -> list[str]:
        """What was read, and what is wrong with it."""
        return [
            counted(self.submissions, self.places, self.checks, self.left_out),
            *checked(self.checks),
            *lost(self.without, self.unread),
        ]

    def table(self) -> pd.DataFrame:
        """Families as a whole, by year, and by client nodes, one row each."""
        import pandas as pd

        rows = [(row.key[0], ALL, ALL, row) for row in self.families]
        rows += [(row.key[0], row.key[1], ALL, row) for row in self.years]
        rows += [(row.key[0], ALL, row.key[1], row) for row in self.sizes]
        return pd.DataFrame(
            [
                {
                    "family": family,
                    "year": year,
                    "client nodes": size,
                    "submissions": row.submissions,
                    "systems": row.systems,
                }
                | {
                    f"{name}: {what}": getattr(measured, what)
                    for name, measured in row.ranges.items()
                    for what in ("median", "low", "high")
                }
                for family, year, size, row in rows
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """JSON-able; every submission, every pair of phases, everything that does not count."""
        facts: dict[str, Json] = plain(
            {
                "study": "io500",
                "directory": self.directory,
                "caveat": CAVEAT,
                "places": self.places,
                "checks": self.checks,
                "families": [_row(row, ("family",)) for row in self.families],
                "by_year": [_row(row, ("family", "year")) for row in self.years],
                "by_client_nodes": [_row(row, ("family", "client_nodes")) for row in self.sizes],
                "hard_over_easy": [_row(row, ("family",)) for row in self.ratios],
                "correlations": self.pairs,
                "mine": self.standings,
                "submissions": [
                    {**vars(submission), "client_nodes_class": submission.size}
                    for submission in self.submissions
                ],
                "left_out": self.left_out,
                "without_results": self.without,
                "unread": [{"file": file, "why": why} for file, why in self.unread],
                "says": self.says,
            }
        )
        return facts


def _row(row: Row, names: Sequence[str]) -> dict[str, Json]:
    key: Mapping[str, str] = dict(zip(names, row.key, strict=True))
    facts = {name: value for name, value in vars(row).items() if name not in ("key", "ranges")}
    described = {JSON_NAMES.get(k, k.replace(" ", "_")): r for k, r in row.ranges.items()}
    return {**key, **facts, **described}


# The study's tables as text, for the page and the terminal: families against years or sizes.


MEASURE = "score"  # that is shown by year and by client nodes


@dataclass(frozen=True)
class Grid:
    """A table: a heading, columns, lines of text; the first column names the family."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def grids(study: Io500Study, fewest: int = 1, ranges: bool = True) -> list[Grid]:
    """Families with at least `fewest` submissions; `ranges`: smallest and largest too."""
    names = [row.key[0] for row in study.families if row.submissions >= fewest]
    sizes = [name for _, _, name in CLASSES] + [NO_CLASS]
    years = sorted({row.key[1] for row in study.years})
    what = "median [smallest–largest] (submissions)" if ranges else "median (submissions)"

    def text(value_range: ValueRange) -> str:
        return _range(value_range, ranges)

    return [
        _families(study, fewest),
        _crossed(f"Score by year, {what}; {MARK}", study.years, names, years, text),
        _crossed(f"Score by client nodes, {what}; {MARK}", study.sizes, names, sizes, text),
    ]


def _families(study: Io500Study, fewest: int) -> Grid:
    head = ("family", "submissions", "systems", "years", "client nodes")
    return Grid(
        f"Families, median [smallest–largest]; {MARK}",
        (*head, *SCORES),
        tuple(
            (
                row.key[0],
                str(row.submissions),
                str(row.systems),
                _ends(row.years),
                _ends(row.nodes),
                *(_range(row.ranges[name], True, False) for name in SCORES),
            )
            for row in study.families
            if row.submissions >= fewest
        ),
    )


def ratios(study: Io500Study, fewest: int = 1) -> Grid:
    """Hard over easy of the families."""
    chosen = [row for row in study.ratios if row.submissions >= fewest]
    names = tuple(chosen[0].ranges) if chosen else ()
    return Grid(
        f"Hard over easy, median [smallest–largest] (submissions); {MARK}",
        ("family", *names),
        tuple((row.key[0], *(_range(row.ranges[name], True) for name in names)) for row in chosen),
    )


def _crossed(
    title: str,
    rows: Sequence[Row],
    names: Sequence[str],
    columns: Sequence[str],
    text: Callable[[ValueRange], str],
) -> Grid:
    texts = {row.key: text(row.ranges[MEASURE]) for row in rows}
    kept = [column for column in columns if any((name, column) in texts for name in names)]
    lines = [(name, *(texts.get((name, column), "") for column in kept)) for name in names]
    return Grid(title, ("family", *kept), tuple(lines))


def _range(value_range: ValueRange, ends: bool, count: bool = True) -> str:
    if value_range.median is None or value_range.low is None or value_range.high is None:
        return MISSING
    spread = (
        f" [{number(value_range.low)}–{number(value_range.high)}]"
        if ends and value_range.submissions > 1
        else ""
    )
    return f"{number(value_range.median)}{spread}" + (
        f" ({value_range.submissions})" if count else ""
    )


def _ends(ends: tuple[int, int] | None) -> str:
    if ends is None:
        return MISSING
    return f"{ends[0]}" if ends[0] == ends[1] else f"{ends[0]}–{ends[1]}"
