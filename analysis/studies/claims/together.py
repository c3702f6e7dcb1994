"""The cells of a claim together: the mean of their logs in each block, against the claimed range.

If every cell lies in a range, so does their geometric mean.  Cells of which each needs many blocks
to be shown to lie outside are refuted together by few.  The means of all claims are tested at once,
each against the ends of its range, by max-T over sign flips of whole blocks (stats/signflips.py):
6 blocks can refute, however many cells and claims there are.  As there, the centre of symmetry of a
block's log ratios is tested, not their median.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from fsmatrix.analysis.stats.estimates.intervals import Ratio, from_logs
from fsmatrix.analysis.stats.testing import signflips
from fsmatrix.analysis.studies.claims.cells import ClaimCell

Bounds = tuple[float, float]
Blocks = Mapping[int, float]  # block -> log ratio


def means(cells: Sequence[ClaimCell]) -> dict[Bounds, Ratio]:
    """Bounds of a claim -> the geometric mean of all its cells with these bounds.

    Only of two cells or more that have six blocks in common: no interval from fewer.
    """
    ratios = {
        bounds: from_logs((np.array(list(blocks.values())),))
        for bounds, blocks in _by_bounds(cells).items()
    }
    return {bounds: ratio for bounds, ratio in ratios.items() if ratio.decides}


def refuted(
    claims: Sequence[Sequence[ClaimCell]], alpha: float, ends: Sequence[Bounds | None]
) -> list[float]:
    """For each claim (its cells) p that the means lie inside, corrected over all; NaN: no mean.

    `ends`: of a claim, instead of the bounds of its cells; one for each claim.
    """
    columns: list[Blocks] = []
    owners: list[int] = []
    beyond: list[bool] = []  # whether the mean lies outside this end
    for number, (cells, instead) in enumerate(zip(claims, ends, strict=True)):
        for bounds, blocks in _by_bounds(cells).items():
            for end, sign in zip(instead or bounds, (-1, 1), strict=True):
                if 0 < end < math.inf:
                    column = {block: value - math.log(end) for block, value in blocks.items()}
                    columns.append(column)
                    owners.append(number)
                    beyond.append(sign * float(np.mean(list(column.values()))) > 0)
    if not columns:
        return [math.nan] * len(claims)
    every = sorted(set().union(*columns))
    matrix = np.array([[column.get(block, math.nan) for column in columns] for block in every])
    p = np.where(beyond, signflips.max_t(matrix, alpha).p, 1.0)
    owner = np.array(owners)
    return [
        float(np.nanmin(p[owner == n], initial=1.0)) if n in owners else math.nan
        for n in range(len(claims))
    ]


def _by_bounds(cells: Sequence[ClaimCell]) -> dict[Bounds, Blocks]:
    """Bounds -> the mean of all cells with these bounds, in each block that all of them have."""
    groups: dict[Bounds, list[ClaimCell]] = defaultdict(list)
    for cell in cells:
        groups[cell.bounds].append(cell)
    mean_blocks = {bounds: _mean(members) for bounds, members in groups.items() if len(members) > 1}
    return {bounds: blocks for bounds, blocks in mean_blocks.items() if len(blocks) > 1}


def _mean(cells: Sequence[ClaimCell]) -> Blocks:
    """Of cells that are paired by block; nothing if one is not."""
    if any(len(cell.parts) != 1 or not cell.blocks for cell in cells):
        return {}
    columns = [_by_block(cell) for cell in cells]
    common = sorted(set(columns[0]).intersection(*columns[1:]))
    return {block: float(np.mean([column[block] for column in columns])) for block in common}


def _by_block(cell: ClaimCell) -> Blocks:
    """Block -> its log ratio, the median of its attachments."""
    values: dict[int, list[float]] = defaultdict(list)
    for block, value in zip(cell.blocks, cell.parts[0].tolist(), strict=True):
        values[block].append(value)
    return {block: float(np.median(logs)) for block, logs in values.items()}
