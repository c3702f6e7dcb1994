"""What holds over all cells of a comparison: the geometric mean of ratios, effects of factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fsmatrix.analysis.comparison.cells import Match
from fsmatrix.analysis.comparison.rows import Table
from fsmatrix.analysis.data.columns import Codes
from fsmatrix.analysis.stats.estimates.intervals import Ratio
from fsmatrix.analysis.stats.estimates.means import GeometricMean, geometric_mean
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.testing.effects import Effects, effects

MOST_EFFORT = 100_000_000  # operations of a fit; there are some tens of fits
TOO_MANY = "too many levels and values: select some with --where"


def whole_mean(
    of: Table, matches: Sequence[Match], unit: Codes, ratios: Sequence[Ratio], level: float
) -> tuple[GeometricMean | None, str]:
    """The geometric mean over cells with its interval; or None, and why there is no interval.

    Its independent units (`unit`, of each row) are blocks in which all cells of a side were run;
    blocks that share an attachment are one.  Paired if the cells are.
    """
    if all(min(m.a.size, m.b.size) == 1 for m in matches):
        return None, "one value per cell"
    sides = [_matrix(of, unit, [m.a for m in matches]), _matrix(of, unit, [m.b for m in matches])]
    if all(r.design == "paired by block" for r in ratios):
        both = sorted(set(sides[0].index) & set(sides[1].index))
        sides = [sides[0].loc[both] - sides[1].loc[both]]
    mean = geometric_mean([side.to_numpy(dtype=np.float64) for side in sides], level)
    if mean.mean.kind == "none":
        return None, "no block has all cells"
    if mean.mean.kind == "one session":
        return None, "one block has all cells"
    return mean, ""


def differences_of(of: Table, pairs: Sequence[Sequence[Match]]) -> tuple[Floats, Codes]:
    """(log ratios [block, cell] of the cells of all pairs of sides, the block's highest number).

    In the order of pairs and matches; NaN: not both.  Blocks that share an attachment are one.
    """
    unit = units_of(of, [match for matches in pairs for match in matches])
    columns = []
    for matches in pairs:
        a, b = (_matrix(of, unit, [getattr(m, side) for m in matches]) for side in ("a", "b"))
        columns.append(a - b)
    whole = pd.concat(columns, axis=1)
    numbers = pd.Series(of.numbers).groupby(unit).max().reindex(whole.index)
    logs: Floats = whole.to_numpy(dtype=np.float64)
    return logs, numbers.to_numpy(dtype=np.int64)


def units_of(of: Table, matches: Sequence[Match]) -> Codes:
    """For each row of the table the number of its group of blocks that share attachments."""
    use = np.unique(np.concatenate([where for m in matches for where in (m.a, m.b)]))
    blocks, owners = of.blocks, of.attachments + int(of.blocks.max()) + 1
    size = int(owners.max()) + 1
    links = coo_array((np.ones(use.size), (blocks[use], owners[use])), shape=(size, size))
    groups: npt.NDArray[np.int32] = connected_components(links, directed=False)[1]
    return groups[blocks].astype(np.int64)


def _matrix(of: Table, unit: Codes, cells: Sequence[npt.NDArray[np.int64]]) -> pd.DataFrame:
    """Logs [unit, cell]: the median over attachments of their medians; NaN: not measured."""
    frame = _long(of, cells)
    frame["unit"] = unit[frame["row"]]
    each = frame.groupby(["unit", "cell", "attachment"])["log"].median()
    return (
        each.groupby(["unit", "cell"]).median().unstack("cell").reindex(columns=range(len(cells)))
    )


def _long(of: Table, cells: Sequence[npt.NDArray[np.int64]]) -> pd.DataFrame:
    row = np.concatenate(cells)
    return pd.DataFrame(
        {
            "row": row,
            "cell": np.repeat(np.arange(len(cells)), [c.size for c in cells]),
            "attachment": of.attachments[row],
            "block": of.blocks[row],
            "log": np.log(of.values[row]),
        }
    )


def factor_effects(
    of: Table, matches: Sequence[Match], sides: tuple[str, str], varying: Sequence[str]
) -> Effects:
    """Main effects and two-factor interactions of the compared factor and those that vary."""
    frames = []
    for side, cells in zip(sides, ([m.a for m in matches], [m.b for m in matches]), strict=True):
        groups = _long(of, cells).groupby(["cell", "attachment", "block"])["log"].median()
        frames.append(groups.reset_index().assign(side=side))
    frame = pd.concat(frames, ignore_index=True)
    labels: dict[str, npt.NDArray[np.str_]] = {" and ".join(of.by): frame["side"].to_numpy(str)}
    for name in varying:
        levels = np.array([str(m.levels.get(name, "")) for m in matches])
        labels[name] = levels[frame["cell"]]
    if all(min(m.a.size, m.b.size) == 1 for m in matches) or len(frame) < 3:
        return Effects((), tuple((name, "one value per cell") for name in labels))
    values: Floats = np.exp(frame["log"].to_numpy(dtype=np.float64))
    owners, blocks = frame["attachment"].to_numpy(), frame["block"].to_numpy()
    order = next((o for o in (2, 1) if _effort(labels, len(frame), o) <= MOST_EFFORT), 0)
    if not order:
        return Effects((), tuple((name, TOO_MANY) for name in labels))
    analysed = effects(values, owners, labels, blocks, order)
    if order == 2 or len(labels) < 2:
        return analysed
    return replace(analysed, missing=(*analysed.missing, ("interactions", TOO_MANY)))


def _effort(labels: dict[str, npt.NDArray[np.str_]], size: int, order: int) -> int:
    """Values x columns squared of the largest fit, in the order of its operations."""
    levels = [np.unique(column).size - 1 for column in labels.values()]
    columns = sum(levels)
    if order == 2:
        columns += (sum(levels) ** 2 - sum(n * n for n in levels)) // 2
    return size * columns**2
