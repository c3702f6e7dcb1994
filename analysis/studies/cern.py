"""The CERN study: two installations cell by cell, IOR over tasks, RNTuple's parameters.

What the report says of its own numbers is data: the claims of the study `cern` (docs/claims.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from fsmatrix.analysis.comparison.compare import compare
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.questions.curves import Curves, curves
from fsmatrix.analysis.units import Level, level_text

TASKS = ("tasks", "processes_per_node", "processes")


def installations(
    ds: xr.Dataset,
    of: Mapping[str, Level],
    over: Mapping[str, Level],
    *,
    metric: str = "bandwidth",
    where: Mapping[str, Level] | None = None,
) -> Comparison:
    """Cells with the levels `of` against those with `over`, all else being equal, by `compare`.

    `of`, `over`: such as {"target": "a", "trial": 1}.  ValueError where no cell has both.
    """
    a, b = (" / ".join(level_text(name, side[name]) for name in of) for side in (of, over))
    return compare(ds, a, b, metric, by=tuple(of), options=ComparisonOptions(where=where))


def tasks(ds: xr.Dataset, metric: str = "bandwidth") -> Curves:
    """Bandwidth over the number of tasks, a line for each block size and what else varies."""
    return curves(ds, metric, TASKS, panel=("phase", "pattern"))


def parameters(ds: xr.Dataset, metric: str = "bandwidth") -> Curves:
    """RNTuple over page sizes: lines by installation, trial, compression and object class."""
    return curves(ds, metric, ("page_size",), panel=("phase", "compression"))
