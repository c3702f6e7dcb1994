"""The runs of one cell, and their reduction to independent values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fsmatrix.analysis.stats.estimates import medians
from fsmatrix.analysis.stats.estimates.medians import Floats

Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class Runs:
    """One positive value (rate or time) per run, with the labels of what it belongs to.

    All of shape [run].  Make it with `runs`, which leaves out NaN and refuses the rest.
    """

    values: Floats
    attachments: Labels
    blocks: Labels | None

    @property
    def logs(self) -> Floats:
        """The median of the logarithms in each attachment, shape [attachment]."""
        return medians.per_attachment(np.log(self.values), self.attachments)


def runs(
    values: npt.ArrayLike, attachments: npt.ArrayLike, blocks: npt.ArrayLike | None = None
) -> Runs:
    """The runs with a number; ValueError for other shapes, for values <= 0 or infinite."""
    array = np.asarray(values, dtype=np.float64)
    owner = np.asarray(attachments)
    block = None if blocks is None else np.asarray(blocks)
    for labels in (owner, block):
        if labels is not None and (array.ndim != 1 or labels.shape != array.shape):
            raise ValueError(f"values {array.shape} and labels {labels.shape} must match, 1-d")
    valued = ~np.isnan(array)
    array = array[valued]
    if np.any(array <= 0) or np.any(np.isinf(array)):
        bad = array[(array <= 0) | np.isinf(array)][0]
        raise ValueError(f"ratios need positive finite values, not {bad}")
    return Runs(array, owner[valued], None if block is None else block[valued])


def independent(blocks: Labels, attachments: Labels) -> npt.NDArray[np.int64]:
    """For each run the number of its independent unit, from 0; labels of shape [run].

    A unit is a block, or the blocks that share an attachment: these are not independent.
    """
    block = np.unique(blocks, return_inverse=True)[1]
    owners = np.unique(attachments, return_inverse=True)[1]
    first, attached = int(block.max()) + 1, int(owners.max()) + 1
    if np.unique(owners * first + block).size == attached:  # each attachment in one block
        return np.asarray(block, dtype=np.int64)
    size = first + attached
    links = coo_array((np.ones(block.size), (block, owners + first)), shape=(size, size))
    unit = connected_components(links, directed=False)[1][block]
    return np.asarray(np.unique(unit, return_inverse=True)[1], dtype=np.int64)


def _components(a: Runs, b: Runs) -> tuple[Labels, Labels]:
    """For each run of `a` and of `b` the number of its independent unit."""
    assert a.blocks is not None
    assert b.blocks is not None
    owners_a = np.unique(a.attachments, return_inverse=True)[1]
    owners_b = np.unique(b.attachments, return_inverse=True)[1] + int(owners_a.max()) + 1
    unit = independent(np.concatenate([a.blocks, b.blocks]), np.concatenate([owners_a, owners_b]))
    return unit[: a.values.size], unit[a.values.size :]


def paired(a: Runs, b: Runs) -> Floats:
    """log(a / b) of each block that both have, shape [block]; empty without blocks.

    A block's value is the median of its attachments' medians of logarithms.
    """
    if a.blocks is None or b.blocks is None or not a.values.size or not b.values.size:
        return np.empty(0)
    groups_a, groups_b = _components(a, b)
    (of_a, levels_a), (of_b, levels_b) = _levels(a, groups_a), _levels(b, groups_b)
    difference: Floats = levels_a[np.isin(of_a, of_b)] - levels_b[np.isin(of_b, of_a)]
    return difference


def _levels(side: Runs, groups: Labels) -> tuple[Labels, Floats]:
    """(groups, ascending; the median over attachments of the logarithms of their runs)."""
    owners = np.unique(side.attachments, return_inverse=True)[1]
    many = int(owners.max()) + 1
    pairs = groups.astype(np.int64) * many + owners
    of_pairs = np.unique(pairs) // many
    logs = medians.per_attachment(np.log(side.values), pairs)
    return np.unique(of_pairs), medians.per_attachment(logs, of_pairs)
