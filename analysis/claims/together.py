"""The cells of a claim together: the mean of their logs in each block, against the claimed range.

If every cell lies in a range, so does their geometric mean.  Cells of which each needs many blocks
to be shown to lie outside are refuted together by few, without a correction over the cells.  The
value of a block is the mean of its cells' log ratios, and the interval is that of the median of
these values (stats.intervals).  Where the values of single cells are skewed on the log scale the
mean tells of their centre of symmetry, as max-T does (docs/statistics.md), not of their medians.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from fsmatrix.analysis.claims.cells import Found
from fsmatrix.analysis.stats.intervals import Ratio, from_logs

Bounds = tuple[float, float]


def means(cells: Sequence[Found]) -> Mapping[Bounds, Ratio]:
    """Bounds of a claim -> the geometric mean of all its cells with these bounds.

    Only of two cells or more that have six blocks in common: no interval from fewer.
    """
    groups: dict[Bounds, list[Found]] = defaultdict(list)
    for cell in cells:
        groups[cell.bounds].append(cell)
    found = {bounds: mean(mine) for bounds, mine in groups.items() if len(mine) > 1}
    return {bounds: one for bounds, one in found.items() if one is not None and one.decides}


def mean(cells: Sequence[Found]) -> Ratio | None:
    """The geometric mean of cells that are paired by block, over blocks that all of them have."""
    if any(len(cell.parts) != 1 or not cell.blocks for cell in cells):
        return None
    columns = [_by_block(cell) for cell in cells]
    common = sorted(set(columns[0]).intersection(*columns[1:]))
    if len(common) < 2:
        return None
    return from_logs((np.array([np.mean([one[b] for one in columns]) for b in common]),))


def _by_block(cell: Found) -> dict[int, float]:
    """Block -> its log ratio, the median of its attachments."""
    values: dict[int, list[float]] = defaultdict(list)
    for block, value in zip(cell.blocks, cell.parts[0].tolist(), strict=True):
        values[block].append(value)
    return {block: float(np.median(mine)) for block, mine in values.items()}


def p_outside(bounds: Bounds, found: Ratio) -> float:
    """p that the geometric mean lies inside `bounds`; twice the one-sided p if both ends count."""
    low, high = (math.log(end) if 0 < end < math.inf else math.nan for end in bounds)
    curve = found.curve
    beyond = (curve.high < low) | (curve.low > high)
    places = np.flatnonzero(beyond)
    if not places.size:
        return 1.0
    one_sided = math.isnan(low) or math.isnan(high)
    return float(curve.alphas[places[0]]) / (2 if one_sided else 1)
