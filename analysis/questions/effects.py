"""What the factors do: main effects and interactions over all cells of a campaign.

The medians of attachments are analysed on logs, so effects are ratios and interactions are
departures from ratios that multiply.  How a factor is tested: stats/effects.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.metric_cells import Study, metric_for, study
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.testing import effects as split_plot
from fsmatrix.analysis.stats.testing.tests import ALPHA
from fsmatrix.analysis.units import OWN, Level, brief
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_DRAWN = 20  # terms in the figure, the largest
MOST_COLUMNS = 600  # of the design: least squares take a time of columns squared
ORDERS = (1, 2, 3)


@dataclass(frozen=True)
class Influences:
    """Effects of a campaign's factors on one metric."""

    study: Study
    anova: split_plot.Effects
    left_out: tuple[str, ...]  # factors that were not asked for and are averaged over

    @property
    def ordered(self) -> tuple[split_plot.FactorEffect, ...]:
        """The terms, largest share of the variation first."""
        return tuple(sorted(self.anova.effects, key=lambda e: -e.share))

    @property
    def says(self) -> list[str]:
        """The terms with an effect, what could not be estimated, and what is in doubt."""
        shown = [e for e in self.ordered if e.p_holm <= ALPHA]
        sentences = (
            [f"What changes {self.study.metric.title.lower()}, the most first:"] if shown else []
        )
        sentences += [f"  {self._term(e)}." for e in shown]
        if self.anova.effects and not shown:
            sentences.append(f"{self.study.metric.title}: no factor is shown to change it.")
        quiet = [self.title(e.term) for e in self.ordered if e.p_holm > ALPHA]
        if shown and quiet:
            sentences.append(f"Not shown to change it: {', '.join(quiet)}.")
        sentences += [f"{self.title(name)}: not known: {why}." for name, why in self.anova.missing]
        if self.anova.effects and all(cell.values.size < 2 for cell in self.study.valued):
            sentences.append(
                "One value per cell: how values scatter is taken from how the factors' "
                "effects fail to multiply."
            )
        if self.left_out:
            sentences.append(f"All levels of {', '.join(self.left_out)} are taken together.")
        return sentences + self.study.remarks

    def _term(self, effect: split_plot.FactorEffect) -> str:
        """ "chunk size: up to 13 times between its levels"; the shares stand in the table."""
        size = f"up to {brief(effect.span)} times between its levels"
        if ":" in effect.term:
            size = "what one of them does depends on the level of the other"
        elif not math.isfinite(effect.span):
            size = "it matters; by how much is not known, since not all combinations were run"
        return f"{self.title(effect.term)}: {size}"

    def title(self, term: str) -> str:
        """A term in words: "chunk size x pattern"."""
        return " x ".join(self.study.title(name) for name in term.split(":"))

    def table(self) -> pd.DataFrame:
        """One row per term: degrees of freedom, F, p, share (partial eta squared), span."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "term": self.title(e.term),
                    "tested": e.stratum,
                    "df": e.df,
                    "df error": e.df_error,
                    "F": e.f,
                    "p": e.p,
                    "p corrected": e.p_holm,
                    "share": e.share,
                    "span": e.span,
                    "effect": "yes" if e.p_holm <= ALPHA else "not shown",
                }
                for e in self.ordered
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """What --json prints."""
        data: dict[str, Json] = plain(
            {
                "metric": self.study.metric.name,
                **self.anova.to_dict(),
                "left_out": self.left_out,
                "says": self.says,
            }
        )
        return data

    def figure(self) -> Figure:
        """The share of every term; filled where there is an effect.  ValueError without a term."""
        from fsmatrix.analysis.draw import drawing

        terms = self.ordered[:MOST_DRAWN]
        if not terms:
            raise ValueError("no term could be estimated: nothing to draw")
        more = len(self.ordered) - len(terms)
        notes = [
            "Share: of the variation that the other terms leave (partial eta squared). "
            f"Filled: an effect at {ALPHA:.0%}, corrected over the terms. "
            "Number: the highest level over the lowest."
        ]
        notes += [f"{more} smaller terms are not drawn."] * (more > 0) + self.study.remarks
        figure, ax = drawing.panel(
            title=f"Effects on {self.study.metric.title.lower()}",
            notes=notes,
            width=6.8,
            height=0.7 + 0.25 * len(terms),
        )
        for place, effect in enumerate(terms):
            between = effect.stratum == "between attachments"
            shade = drawing.colour(1 if between else 0)
            filled = effect.p_holm <= ALPHA
            ax.barh(
                place,
                effect.share,
                height=0.65,
                edgecolor=shade,
                linewidth=1.2,
                color=shade if filled else "white",
                label=f"tested {effect.stratum}",
            )
            if math.isfinite(effect.span):
                size = f"{brief(effect.span)} x"
                ax.text(effect.share + 0.01, place, size, va="center", fontsize=7)
        ax.set_yticks(range(len(terms)), [self.title(e.term) for e in terms], fontsize=7.5)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set_xlim(0, 1.1)
        ax.set_xlabel("share of the variation", fontsize=8)
        drawing.legend(figure, [[ax]])
        return figure


def effects(
    ds: xr.Dataset,
    metric: str = OWN,
    *,
    factors: Sequence[str] = (),
    order: int = 2,
    where: Mapping[str, Level] | None = None,
) -> Influences:
    """Effects of `factors` (roles or names; default: all that vary) and their interactions.

    `metric`: a name; OWN: bandwidth, or iops where no run has bytes.
    `order`: of the largest interaction, 1 to 3.  ValueError for a factor that does not vary, an
    order that is not there, values that are not positive, and a design with more than
    MOST_COLUMNS columns.
    """
    if order not in ORDERS:
        raise ValueError(f"interactions of order {order}; there are {', '.join(map(str, ORDERS))}")
    of = study(ds, metric_for(ds, metric), where)
    unknown = [name for name in factors if name not in of.varying]
    if unknown:
        there = ", ".join(of.varying) or "none"
        raise ValueError(f"no factor {unknown[0]!r} that varies; there are: {there}")
    if not of.varying:
        raise ValueError("no factor varies: there is nothing to explain")
    names = tuple(factors) or of.varying
    _bounded(of, names, order)
    cells = of.valued
    labels = {name: _spread(cells, [str(cell.level(name)) for cell in cells]) for name in names}
    analysed = split_plot.effects(
        np.concatenate([cell.values for cell in cells]),
        np.concatenate([np.array(cell.attachments, dtype=object) for cell in cells]).astype(str),
        labels,
        np.concatenate([np.array(cell.blocks) for cell in cells]),
        order,
    )
    left = tuple(of.title(name) for name in of.varying if name not in names)
    return Influences(of, analysed, left)


def _spread(cells: Sequence[Values], levels: Sequence[str]) -> np.ndarray[Any, Any]:
    """A level of each cell, repeated for each of its attachments."""
    return np.repeat(np.array(levels), [cell.values.size for cell in cells])


def _bounded(of: Study, names: Sequence[str], order: int) -> None:
    """ValueError for a design that is too large to be solved."""
    sizes = [len(of.levels(name, of.valued)) - 1 for name in names]
    sums = np.zeros(order + 1)  # elementary symmetric sums: columns of the terms of each order
    sums[0] = 1
    for size in sizes:
        sums[1:] += size * sums[:-1].copy()
    columns = int(sums[1:].sum())
    if columns > MOST_COLUMNS:
        raise ValueError(
            f"{len(names)} factors up to order {order} make {columns} columns, more than "
            f"{MOST_COLUMNS}: name fewer factors, or a lower order"
        )
