"""What holds over several cells: the geometric mean of their ratios as they are shown.

A cell is shown by its median, so the mean is that of the cells' medians, and not the median over
blocks of the blocks' means: those fall with every slow run of one target, although no ratio that is
shown does.  Rows (blocks, or attachments of one side) are what is independent.  The standard error
comes from the rows' mean residuals about the cells' medians, each residual cut at `CUT` scaled
median absolute deviations of its cell, which a slow run lies beyond; the median's variance is
pi / 2 times that of a mean.  Ends by Student's t; sides that are independent by Welch's
approximation.  How often it covers: docs/statistics.md ("All cells together").

Sources: Fleming and Wallace, CACM 29, 1986 (why geometric); Huber, Robust Statistics, 1981.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from fsmatrix.analysis.stats.estimates.intervals import Curve, Ratio, from_logs
from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats
from fsmatrix.results.evidence.values import Json

CUT = 3.0
AS_DEVIATION = 1.4826  # of normal values: their standard deviation over their MAD
ALPHAS = np.geomspace(1e-12, 1.0, 256)


@dataclass(frozen=True)
class GeometricMean:
    """The geometric mean over cells of the ratios a / b, and its interval."""

    mean: Ratio
    cells: int
    left_out: int  # blocks or attachments that lack a cell

    @property
    def says(self) -> str:
        """What it is, in words."""
        lacking = f"; {self.left_out} without all cells left out" if self.left_out else ""
        return f"geometric mean over {self.cells} cells: {self.mean.says}{lacking}"

    def to_dict(self) -> dict[str, Json]:
        """Plain numbers and strings."""
        return self.mean.to_dict() | {
            "cells": self.cells,
            "left_out": self.left_out,
            "says": self.says,
        }


def geometric_mean(sides: Sequence[Floats], level: float = LEVEL) -> GeometricMean:
    """The geometric mean over the cells of a matrix; each of `sides` has the shape [row, cell].

    One side: log ratios, a row for each block.  Two: the logs of a and of b, a row for each
    attachment.  NaN: not measured; such rows are left out.
    """
    if len({side.shape[1] for side in sides}) > 1:
        raise ValueError(f"both sides have the same cells, not {[s.shape[1] for s in sides]}")
    whole = tuple(side[~np.isnan(side).any(axis=1)] for side in sides)
    lost = sum(map(len, sides)) - sum(map(len, whole))
    return GeometricMean(_ratio(whole, level), sides[0].shape[1], lost)


def _ratio(sides: tuple[Floats, ...], level: float) -> Ratio:
    """Of rows that have all cells; as many rows decide as of a single cell."""
    alone = from_logs(tuple(side.mean(axis=1) for side in sides), level)
    if sides[0].shape[1] == 1 or min(alone.units) < 2:
        return alone
    parts = tuple(_typical(side) for side in sides)
    estimate = sum(sign * part[0] for sign, part in zip((1, -1), parts, strict=False))
    error, freedom = _error([part[1] for part in parts])
    level = min(level, alone.coverage)
    half = float(scipy.special.stdtrit(freedom, (1 + level) / 2)) * error
    widths = _quantiles(freedom) * error
    return Ratio(
        ratio=math.exp(estimate),
        low=math.exp(estimate - half),
        high=math.exp(estimate + half),
        coverage=level,
        level=alone.level,
        kind=alone.kind,
        design=alone.design,
        units=alone.units,
        curve=Curve(estimate, ALPHAS, estimate - widths, estimate + widths),
        parts=tuple(centre + rows for centre, rows in parts),
    )


def _typical(logs: Floats) -> tuple[float, Floats]:
    """(mean of the cells' medians, each row's mean residual about them), [row, cell] -> [row]."""
    medians = np.median(logs, axis=0)
    residuals = logs - medians
    cut = CUT * AS_DEVIATION * np.median(np.abs(residuals), axis=0)
    cut[cut == 0] = math.inf  # most of its values are equal: that says nothing of the others
    return float(medians.mean()), np.clip(residuals, -cut, cut).mean(axis=1)


def _error(residuals: Sequence[Floats]) -> tuple[float, float]:
    """(standard error, degrees of freedom) of the difference of such means; rows of each side."""
    squares = [math.pi / 2 * float(rows.var(ddof=1)) / rows.size for rows in residuals]
    total = sum(squares)
    if not total:
        return 0.0, float(sum(rows.size - 1 for rows in residuals))
    each = [square**2 / (rows.size - 1) for square, rows in zip(squares, residuals, strict=True)]
    return math.sqrt(total), total**2 / sum(each)


@functools.lru_cache(maxsize=64)
def _quantiles(freedom: float) -> Floats:
    """Two-sided quantiles of Student's distribution at `ALPHAS`."""
    return np.asarray(scipy.special.stdtrit(freedom, 1 - ALPHAS / 2))
