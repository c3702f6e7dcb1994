"""A collection described: as sentences, a table, plain data and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.studies.io500 import phases, words
from fsmatrix.analysis.studies.io500.ranges import SCORES, Row, ValueRange
from fsmatrix.analysis.studies.io500.standing import RunStanding
from fsmatrix.analysis.studies.io500.submissions import (
    CLASSES,
    NO_CLASS,
    Checks,
    LeftOut,
    Submission,
)
from fsmatrix.analysis.studies.io500.words import MARK
from fsmatrix.analysis.units import MISSING, number
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd


ALL = "all"
# of SCORES; the words of the workload io500's own facts
JSON_NAMES = {
    "bandwidth score, GiB/s": "bandwidth_score_gib_s",
    "metadata score, kIOPS": "rate_score_kiops",
}


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
    pairs: tuple[phases.PhasePair, ...]
    standings: tuple[RunStanding, ...] = ()

    @property
    def says(self) -> list[str]:
        """What it is, the checks, the families, the phases; one's own run."""
        return [
            words.CAVEAT,
            *self.facts,
            *words.ratios(self.ratios),
            *words.correlated(self.pairs),
            *(line for run_standing in self.standings for line in words.standing(run_standing)),
        ]

    @property
    def facts(self) -> list[str]:
        """What was read, and what is wrong with it."""
        return [
            words.counted(self.submissions, self.places, self.checks, self.left_out),
            *words.checked(self.checks),
            *words.lost(self.without, self.unread),
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
                "caveat": words.CAVEAT,
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
