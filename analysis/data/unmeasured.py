"""Why runs gave no value: how many failed and of what, are invalid by which audit, or lack it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import xarray as xr

from fsmatrix.analysis.data import summary
from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.columns import coded, combined
from fsmatrix.analysis.data.doubts import audits_of
from fsmatrix.analysis.data.factors import OF_PHASES, Mask
from fsmatrix.analysis.data.load import rows, runs_of
from fsmatrix.analysis.units import OWN
from fsmatrix.results.units import plural

MOST_CHARACTERS = 160  # of an error's text


def why_no_value(ds: xr.Dataset, among: Mask) -> str:
    """Of these rows (shape [row]), none of which gave a value: what became of their runs.

    "12 runs failed (9 of them: ENOSPC); 4 runs are invalid (read-served-by-cache)".
    """
    data = rows(ds)
    failed = among & (data["status"] != "ok")
    invalid = among & summary.invalid(data)
    rest = among & ~failed & ~invalid
    run = runs_of(data)

    def number(mask: Mask) -> int:
        return int(np.unique(run[mask]).size)

    sentences = []
    if failed.any():
        sentences.append(f"{plural(number(failed), 'run')} failed{_errors(ds, failed)}")
    if invalid.any():
        where = np.flatnonzero(invalid)
        audits_by_row = audits_of(ds, where, np.zeros(where.size, dtype=np.int64), ("invalid",))
        audits = ", ".join(sorted(audits_by_row.get(0, ())))
        be = "is" if number(invalid) == 1 else "are"
        why = f" ({audits})" if audits else ""
        sentences.append(f"{plural(number(invalid), 'run')} {be} invalid{why}")
    if rest.any():
        sentences.append(f"{plural(number(rest), 'run')} ended well without it")
    return "; ".join(sentences) or "there is no run of it"


def rows_of(ds: xr.Dataset, cells: Sequence[Cell]) -> Mask:
    """Rows of the newest attempts at these cells, also of runs that failed before a phase."""
    data = rows(ds)
    names = [name for name in cells[0].levels if name not in OF_PHASES] if cells else []
    columns = [data.factor(name) for name in names]
    first, group = combined([coded(column)[1] for column in columns], len(data))
    wanted = {tuple(repr(cell.levels[name]) for name in names) for cell in cells}
    wanted_rows = [tuple(repr(column[row].item()) for column in columns) in wanted for row in first]
    inside: Mask = np.array(wanted_rows, dtype=bool)[group]
    return inside & summary.current(data)


def _errors(ds: xr.Dataset, failed: Mask) -> str:
    """The most frequent error of these rows' runs, with its number where there are others."""
    data = rows(ds)
    first = np.flatnonzero(failed)
    first = first[np.unique(runs_of(data)[first], return_index=True)[1]]
    texts = Counter(text for text in data["error"][first].tolist() if text)
    if not texts:
        return ""
    text, number = texts.most_common(1)[0]
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS].rstrip()} ..."
    return f" ({text})" if number == first.size else f" ({number} of them: {text})"


def metric_for(ds: xr.Dataset, metric: str = OWN) -> str:
    """`metric`; for OWN bandwidth, and where no run has any bytes (transactions, names), iops."""
    if metric != OWN:
        return metric
    data = rows(ds)
    some = [n for n in ("bandwidth", "iops") if np.isfinite(summary.values_of(data, n)).any()]
    return some[0] if some else "bandwidth"
