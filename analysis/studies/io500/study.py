"""The study `io500`: what a collection of submissions says, and where one's own run stands in it.

Submissions choose their hardware, their size and their tuning, and only some are submitted: all
of it describes the collection, and nothing of it compares file systems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from fsmatrix.analysis.result import plain
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.studies.io500 import phases, ranges, words
from fsmatrix.analysis.studies.io500.checks import Checks, checks
from fsmatrix.analysis.studies.io500.ranges import SCORES, Row
from fsmatrix.analysis.studies.io500.standing import Standing, standings
from fsmatrix.analysis.studies.io500.submissions import LeftOut, Submission, distinct, submissions
from fsmatrix.results.formats.io500.collected import Collection

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ALL = "all"
# of SCORES; the words of the workload io500's own facts
JSON_NAMES = {
    "bandwidth score, GiB/s": "bandwidth_score_gib_s", "metadata score, kIOPS": "rate_score_kiops",
}  # fmt: skip


@dataclass(frozen=True)
class Io500Study:
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
    pairs: tuple[phases.Pair, ...]
    standings: tuple[Standing, ...] = ()

    @property
    def says(self) -> list[str]:
        """What it is, the checks, the families, the phases; one's own run."""
        return [
            words.CAVEAT,
            *self.facts,
            *words.ratios(self.ratios),
            *words.correlated(self.pairs),
            *(line for one in self.standings for line in words.standing(one)),
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

        found = [(row.key[0], ALL, ALL, row) for row in self.families]
        found += [(row.key[0], row.key[1], ALL, row) for row in self.years]
        found += [(row.key[0], ALL, row.key[1], row) for row in self.sizes]
        return pd.DataFrame([
            {"family": family, "year": year, "client nodes": size,
             "submissions": row.submissions, "systems": row.systems}
            | {f"{name}: {what}": getattr(one, what)
               for name, one in row.ranges.items() for what in ("median", "low", "high")}
            for family, year, size, row in found
        ])  # fmt: skip

    @property
    def pages(self) -> int:
        """Figures: scores over client nodes, hard over easy, and correlations if there are any."""
        return 3 if any(one.r is not None for one in self.pairs) else 2

    def figure(self, page: int = 0) -> Figure:
        """One of the pages; ValueError for another number."""
        from fsmatrix.analysis.studies.io500 import chart

        if not 0 <= page < self.pages:
            raise ValueError(f"there are pages 0 to {self.pages - 1}, not {page}")
        return (chart.over_nodes, chart.hard_against_easy, chart.correlations)[page](self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; every submission, every pair of phases, everything that does not count."""
        facts: dict[str, Any] = plain({
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
            "submissions": [{**vars(one), "client_nodes_class": one.size}
                            for one in self.submissions],
            "left_out": self.left_out,
            "without_results": self.without,
            "unread": [{"file": file, "why": why} for file, why in self.unread],
            "says": self.says,
        })  # fmt: skip
        return facts


def _row(row: Row, names: Sequence[str]) -> dict[str, Any]:
    key: Mapping[str, str] = dict(zip(names, row.key, strict=True))
    facts = {name: value for name, value in vars(row).items() if name not in ("key", "ranges")}
    described = {JSON_NAMES.get(k, k.replace(" ", "_")): one for k, one in row.ranges.items()}
    return {**key, **facts, **described}


def io500(collection: Collection, directory: str, mine: xr.Dataset | None = None) -> Io500Study:
    """The study of a collection; `mine`: a campaign whose runs of IO500 are placed in it.

    ValueError if nothing in it counts, or if `mine` cannot be placed.
    """
    step("io500: scores and submissions")
    counted, left = submissions(collection.runs)
    if not counted:
        why = f": {left[0].file}: {left[0].why}" if left else ""
        raise ValueError(f"no result counts{why}")
    step("io500: families and phases")
    return Io500Study(
        directory=directory,
        places=len(collection.runs),
        checks=checks(distinct(collection.runs)),
        submissions=counted,
        left_out=left,
        without=collection.without,
        unread=collection.unread,
        families=ranges.rows(counted, lambda one: (one.family,), SCORES),
        years=ranges.rows(counted, lambda one: (one.family, _year(one)), SCORES),
        sizes=ranges.rows(counted, lambda one: (one.family, one.size), SCORES),
        ratios=ranges.rows(counted, lambda one: (one.family,), ranges.of_ratios()),
        pairs=phases.pairs(counted),
        standings=standings(mine, counted) if mine is not None else (),
    )


def _year(one: Submission) -> str:
    return str(one.year) if one.year else "not told"
