"""How a doubtful number is shown in summaries: audits that warn, and values far off, are named.

Which runs are invalid, doubtful or far off, and what becomes of them: docs/audits.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.columns import Codes, coded, combined, plain
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.units import Metric

if TYPE_CHECKING:
    from fsmatrix.analysis.data.cells import Cell

MOST_NAMED = 3  # cells that a sentence names


def audits_of(
    ds: xr.Dataset, kept: Codes, group_of: Codes, severities: Sequence[str] = ()
) -> dict[int, set[str]]:
    """Group of the kept rows -> names of the audits that found something (so grave) there."""
    audits_by_group: dict[int, set[str]] = {}
    if "finding_run" in ds:
        group = np.full(ds.sizes["run"], -1, dtype=np.int64)
        group[kept] = group_of
        names, audits = coded(ds["finding_audit"].values)
        groups = group[ds["finding_run"].values]
        if severities:
            grave = np.isin(plain(ds["finding_severity"].values), severities)
            groups = np.where(grave, groups, -1)
        for row in combined([groups + 1, audits], groups.size)[0].tolist():
            if groups[row] >= 0:
                audits_by_group.setdefault(int(groups[row]), set()).add(str(names[audits[row]]))
    return audits_by_group


def doubt_sentences(cells: Sequence[tuple[str, Cell, Median]], metric: Metric) -> list[str]:
    """Sentences about (name, cell, median): which audits warn, which values are far off."""
    warned = warning_sentences([(name, cell) for name, cell, _ in cells])
    return warned + far_sentences([(name, median) for name, _, median in cells], metric)


def doubts_of(cell: Cell, median: Median, metric: Metric) -> tuple[str, ...]:
    """Audits that warn of a cell, and that a value of its median is far off."""
    far = far_text(median, metric)
    return (*cell.doubts, *([f"a value far off ({far})"] if far else []))


def warning_sentences(cells: Sequence[tuple[str, Cell]]) -> list[str]:
    """One sentence with the audits that warn in (name, cell), the most frequent first."""
    where: dict[str, list[str]] = {}
    for name, cell in cells:
        for audit in cell.doubts:
            where.setdefault(audit, []).append(name)
    parts = [
        f"{audit} in {_of(names, len(cells))}"
        for audit, names in sorted(where.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return [f"In doubt: {'; '.join(parts)}."] if parts else []


def _of(names: Sequence[str], count: int) -> str:
    if len(names) == count:
        return "all cells" if count > 1 else "the only cell"
    which = f" ({'; '.join(names)})" if len(names) <= MOST_NAMED else ""
    return f"{len(names)} of {count} cells{which}"


def listed(names: Sequence[str]) -> str:
    """The first of many names."""
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def far_text(median: Median, metric: Metric) -> str:
    """A median's values that are far off: "0.344 MiB/s against a median of 450 MiB/s"; or ""."""
    if not median.far:
        return ""
    shown = []
    for value in (*median.far, median.median):
        unit = units.fitting(metric.quantity, [value])
        shown.append(f"{units.text(value, unit)} {unit.label}".rstrip())
    return f"{', '.join(shown[:-1])} against a median of {shown[-1]}"


def far_sentences(cells: Iterable[tuple[str, Median]], metric: Metric) -> list[str]:
    """One sentence with the values that are far off in (name, median)."""
    parts = [f"{name}: {far_text(median, metric)}" for name, median in cells if median.far]
    return [f"Far from all others of their cell: {listed(parts)}."] if parts else []
