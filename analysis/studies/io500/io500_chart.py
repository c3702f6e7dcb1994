"""The study `io500` drawn: scores over client nodes, hard over easy, correlations of phases."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import fsmatrix
from fsmatrix.analysis.draw import drawing, page, pictures
from fsmatrix.analysis.draw.drawing import MARKERS, SMALL
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.studies.io500 import io500_result
from fsmatrix.analysis.studies.io500.io500_result import CAVEAT, ENOUGH, Io500Study
from fsmatrix.analysis.studies.io500.ranges import HARD_OVER_EASY, NAMES, PhasePair, hard_over_easy
from fsmatrix.analysis.studies.io500.submissions import NOT_TOLD
from fsmatrix.analysis.units import MISSING, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


# The study `io500` as one HTML file that opens offline.  Nothing of a submission is trusted.


TEMPLATE = "io500.html.j2"
SUFFIX = ".html"
DETAIL = "  "  # before lines that are lists of files: the page has those below


def write(study: Io500Study, out: Path) -> Path:
    """Write the page, aside and renamed.  OSError as the system gives it."""
    return page.write(render(study), out)


def render(study: Io500Study) -> str:
    """The page as text."""
    step("io500: the page")
    return page.rendered(
        TEMPLATE,
        study=study,
        caveat=io500_result.CAVEAT,
        says=[line for line in study.facts if not line.startswith(DETAIL)],
        together=list(io500_result.correlated(study.pairs)),
        systems=len({submission.system for submission in study.submissions}),
        images=[
            (figure.get_suptitle(), pictures.data_uri(figure)) for figure in pictures.figures(study)
        ],
        grids=[*io500_result.grids(study), io500_result.ratios(study)],
        number=_number,
        version=fsmatrix.__version__,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _number(value: float | None) -> str:
    return MISSING if value is None else number(value)


GREY = "#b8bec5"
SPREAD = 0.16  # of a family's points beside its line
SIDEWAYS = 0.025  # of the client nodes, from family to family
MOST = 9  # families with a colour; the others are grey


def pages(study: Io500Study) -> int:
    """Scores over client nodes, hard over easy, and correlations if there are any."""
    return 3 if any(pair.r is not None for pair in study.pairs) else 2


def draw(study: Io500Study, page: int) -> Figure:
    """One of the pages."""
    return (over_nodes, hard_against_easy, correlations)[page](study)


def shown(study: Io500Study) -> list[str]:
    """Families that have a colour, the largest first: those with enough submissions, or all."""
    rows = [row for row in study.families if row.key[0] != NOT_TOLD]
    enough = [row for row in rows if row.submissions >= ENOUGH]
    return [row.key[0] for row in enough or rows or study.families][:MOST]


def over_nodes(study: Io500Study) -> Figure:
    """A point per submission: its score over its client nodes."""
    figure, ax = drawing.panel(
        title="IO500 score over client nodes",
        width=7.6,
        height=4.2,
        notes=["Families with the same number of client nodes stand beside each other.", CAVEAT],
    )
    names = shown(study)
    for place, name in [(-1, ""), *enumerate(names)]:
        points = [
            (submission.nodes, submission.score.total)
            for submission in study.submissions
            if submission.nodes
            and submission.score.total
            and (submission.family == name if name else submission.family not in names)
        ]
        if points:
            ax.scatter(
                _beside([nodes for nodes, _ in points], place),
                [total for _, total in points],
                s=16,
                alpha=0.8,
                linewidths=0,
                marker=MARKERS[place % len(MARKERS)] if name else "o",
                color=drawing.colour(place) if name else GREY,
                label=f"{name or 'others'} ({len(points)})",
            )
    for run_standing in study.standings:
        own_score = next(
            (place.value for place in run_standing.places if place.what == "score"), None
        )
        if own_score:
            ax.scatter(
                [run_standing.nodes],
                [own_score],
                s=90,
                marker="*",
                color="black",
                label=run_standing.name,
            )
    ax.set(xscale="log", yscale="log")
    ax.set_xlabel("client nodes", fontsize=SMALL)
    ax.set_ylabel("score (geometric mean of GiB/s and kIOPS)", fontsize=SMALL)
    drawing.legend(figure, [[ax]])
    return figure


def _beside(nodes: list[int], place: int) -> list[float]:
    """A little to the left or right by family, that families at one number are seen."""
    return [count * (1 + SIDEWAYS * (place - MOST / 2)) for count in nodes]


def hard_against_easy(study: Io500Study) -> Figure:
    """A point per submission and family; a line at the median; one: hard is as fast as easy."""
    names = shown(study)
    rows = {row.key[0]: row for row in study.ratios}
    figure, axes = drawing.frame(
        1,
        len(HARD_OVER_EASY),
        title="Hard over easy",
        width=2.5,
        height=0.3 * len(names) + 1,
        notes=[
            "A point is a submission, the line its family's median; at 1 hard work is as fast "
            "as easy work.",
            CAVEAT,
        ],
    )
    for ax, what in zip(axes[0], HARD_OVER_EASY, strict=True):
        for place, name in enumerate(names):
            values = [
                value
                for submission in study.submissions
                if submission.family == name
                and (value := hard_over_easy(submission, what)) is not None
            ]
            beside = place + SPREAD * np.cos(2.4 * np.arange(len(values)))
            ax.scatter(values, beside, s=7, alpha=0.7, linewidths=0, color=drawing.colour(place))
            if (middle := rows[name].ranges[what].median) is not None:
                ax.plot([middle] * 2, [place - 0.36, place + 0.36], color="black", linewidth=1.4)
        _ratio_axis(ax, what, names if ax is axes[0][0] else [""] * len(names))
    return figure


def _ratio_axis(ax: Axes, what: str, labels: list[str]) -> None:
    ax.axvline(1.0, color=GREY, linewidth=0.8)
    ax.set(xscale="log", ylim=(len(labels) - 0.4, -0.6))
    ax.set_yticks(range(len(labels)), labels, fontsize=SMALL)
    ax.set_title(what, fontsize=9)


def correlations(study: Io500Study) -> Figure:
    """Spearman's r of every two phases: over all submissions, and with ten client nodes."""
    kept = [
        name
        for name in NAMES
        if any(pair.r is not None for pair in study.pairs if name in (pair.a, pair.b))
    ]
    figure, axes = drawing.frame(
        1,
        2,
        title="How phases go together (Spearman's r)",
        width=5.2,
        height=4.4,
        notes=[
            "Left: all submissions. Right: ten client nodes, one submission of each "
            "system. Grey: too few have both.",
            CAVEAT,
        ],
    )
    left, right = axes[0]
    _heat(left, study.pairs, kept, "r", kept)
    image = _heat(right, study.pairs, kept, "r_ten", [""] * len(kept))
    figure.colorbar(image, ax=[left, right], shrink=0.8, pad=0.01)
    return figure


def _heat(
    ax: Axes, pairs: tuple[PhasePair, ...], names: list[str], column: str, labels: list[str]
) -> AxesImage:
    grid = np.full((len(names), len(names)), np.nan)
    for pair in pairs:
        value = getattr(pair, column)
        if value is None or pair.a not in names or pair.b not in names:
            continue
        for a, b in ((pair.a, pair.b), (pair.b, pair.a)):
            place = names.index(a), names.index(b)
            grid[place] = value
            ax.annotate(
                f"{value:.2f}",
                place[::-1],
                ha="center",
                va="center",
                fontsize=5.4,
                color="white" if abs(value) > 0.7 else "black",
            )
    ax.set_facecolor("#d9dce0")
    ax.grid(visible=False)
    ax.set_xticks(range(len(names)), names, fontsize=6, rotation=90)
    ax.set_yticks(range(len(names)), labels, fontsize=6)
    return ax.imshow(grid, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
