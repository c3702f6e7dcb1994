"""What a campaign cannot say, and which of its runs are in no answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from fsmatrix.analysis.comparison.counted_rows import at_levels, own_values
from fsmatrix.analysis.comparison.extension import record_of
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.doubts import far_sentences
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.matrices import factor_columns
from fsmatrix.analysis.data.metric_cells import Study, why_no_value
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.analysis.lessons.lessons_words import Bound, cell_metric, constant, names
from fsmatrix.analysis.questions.findings import finding_groups
from fsmatrix.analysis.stats.estimates.medians import SMALLEST
from fsmatrix.analysis.stats.words import IMPORTED
from fsmatrix.analysis.units import Level, factor_title
from fsmatrix.results.files.run_rows import USAGE_COLUMNS
from fsmatrix.results.units import plural

CACHES = ("cold", "warm", "bypass")
GROWTH = {
    "chunk": "how chunk size matters",
    "processes": "how processes matter",
    "storage_nodes": "growth with storage nodes",
    "nodes": "what several client nodes get together",
    "interface": "what another interface would give",
}


def valueless(ds: xr.Dataset, where: Mapping[str, Level]) -> dict[str, str]:
    """Targets of these levels without any run that counts, and why; no references."""
    data = rows(ds)
    factors = factor_columns(ds, data.factors)
    kept = data.current & ~data.reference & at_levels(factors, where, len(data))
    values = own_values(data)[1]
    counting = kept & ~data.failed & ~data.invalid & np.isfinite(values)
    axis = factors["target"]
    lost = np.setdiff1d(axis.codes[kept], axis.codes[counting])
    return {str(axis.levels[code]): why_no_value(ds, kept & (axis.codes == code)) for code in lost}


def excluded(of: Study, ds: xr.Dataset, lost_targets: Mapping[str, str]) -> list[str]:
    """Targets and runs that are in no answer, and why."""
    sentences = [f"target {name}: {why}" for name, why in lost_targets.items()]
    cells = [cell for cell in of.cells if cell.cell.target not in lost_targets]
    invalid = sum(cell.cell.invalid for cell in cells)
    failed: dict[tuple[str, ...], int] = {}  # phases of a run fail together
    for cell in cells:
        levels = cell.cell.levels
        key = tuple(repr(v) for n, v in levels.items() if n not in ("phase", "engine"))
        failed[key] = cell.cell.failed
    lost = sum(failed.values())
    if invalid:
        why = [g.audit for g in finding_groups(ds, rows(ds)) if g.severity == "invalid"]
        sentences.append(
            f"{plural(invalid, 'value')} of invalid runs" + (f" ({names(why)})" if why else "")
        )
    if lost:
        sentences.append(f"{plural(lost, 'run')} that failed")
    name = of.metric.name  # cells of another metric are in the answers of that one
    empty = [cell for cell in cells if not cell.values.size and cell_metric(cell) == name]
    if given := sum(cell.cell.open_loop for cell in empty):
        sentences.append(f"{plural(given, 'cell')} whose rate was given (`fsmatrix response`)")
    if empty := [cell for cell in empty if not cell.cell.open_loop]:
        first = ", ".join(_described(of, cell) for cell in empty[:2])
        sentences.append(
            f"{plural(len(empty), 'cell')} without {of.metric.title.lower()}: {first}"
            f"{' and others' if len(empty) > 2 else ''}"
        )
    return sentences


def limits(of: Study, summary: Summary, ds: xr.Dataset, bound: Bound | None) -> list[str]:
    """Sentences without a full stop, the weightiest first."""
    sentences = [IMPORTED] if record_of(ds).imported else _attachments(of)
    sentences += [*_emulated(of), *_levels(of), *_mixed(of, summary)]
    sentences += _caches(of)
    sentences += _gaps(of)
    sentences += _evidence(ds)
    sentences += _findings(of)
    sentences += _far(of)
    same = [cell for cell in of.valued if constant(cell.values)]
    if same:
        count = plural(len(same), "cell")
        sentences.append(
            f"{count} with the same value in every attachment: not measured, or rounded"
        )
    if bound is None:
        sentences.append("no latency limit was given: chunk sizes are judged by bandwidth alone")
    return sentences


def _attachments(of: Study) -> list[str]:
    counts = Counter(cell.median.independent for cell in of.valued)
    few = sum(number for have, number in counts.items() if have < SMALLEST)
    if not few:
        return []
    alone = sum(cell.median.kind == "one session" for cell in of.valued)
    total = len(of.valued)
    if alone == total:
        single = max(cell.median.runs for cell in of.valued) == 1
        what = "one value per cell" if single else "one attachment per cell"
        return [f"{what}: chance cannot be told from a difference; {SMALLEST} attachments can"]
    return [
        f"{few} of {plural(total, 'cell')} with fewer than {SMALLEST} attachments: nothing can "
        "be proven of them"
    ]


def _emulated(of: Study) -> list[str]:
    made_up = [of.title(name) for name in of.cluster.emulated]
    if not made_up:
        return []
    return [f"{', '.join(made_up)}: levels compared with each other, not the speed of hardware"]


def _levels(of: Study) -> list[str]:
    """Factors of one level, or of none."""
    sentences = []
    for name, question in GROWTH.items():
        levels = of.levels(name, of.valued)
        if len(levels) == 1:
            sentences.append(f"{question}: one level ({of.label(name, levels[0])})")
        elif not levels and name in ("chunk", "processes"):
            sentences.append(f"{question}: not recorded")
    if len(of.levels("target")) == 1:  # not: one that gave a value
        sentences.append("which target is better: one target")
    return sentences


def _mixed(of: Study, summary: Summary) -> list[str]:
    sentences = []
    engines = of.levels("engine", of.valued)
    if len(engines) > 1:
        sentences.append(f"engines {', '.join(map(str, engines))}: never compared with each other")
    sentences += [
        f"{factor_title(factor)} changes with {role}: their effects cannot be told apart"
        for factor, role in of.confounded.items()
    ]
    if summary.attributes and len(summary.targets) > 1:
        shown = ", ".join(factor_title(name) for name in summary.attributes)
        sentences.append(f"{shown}: each target has its own, part of what is compared")
    return sentences


def _caches(of: Study) -> list[str]:
    there = of.levels("cache", of.valued)
    if not there:
        return ["the cache state was not recorded"]
    lacking = [name for name in CACHES if name not in there]
    sentences = [f"cache state {', '.join(lacking)}: not measured"] if lacking else []
    if len(there) > 1:
        sentences.append(f"cache states {', '.join(map(str, there))}: kept apart in every answer")
    return sentences


def _gaps(of: Study) -> list[str]:
    """Combinations of levels that were never planned, or gave nothing."""
    several = [n for n in of.varying if n not in ("phase", "workload", "engine")]
    levels = [len(of.levels(name)) for name in several]
    whole = math.prod(levels)
    there = len({tuple(cell.level(n) for n in several) for cell in of.valued})
    if len(several) < 2 or there >= whole:
        return []
    return [
        f"{there} of the {whole} combinations of {', '.join(of.title(n) for n in several)} "
        "have a value"
    ]


def _evidence(ds: xr.Dataset) -> list[str]:
    blank = [
        name
        for name in USAGE_COLUMNS
        if name not in ds.variables or not (ds[name].values == ds[name].values).any()
    ]
    if not blank:
        return []
    return [
        f"no counters of {', '.join(name.replace('_', ' ') for name in blank)}: what is at "
        "its limit is known in part only"
        if len(blank) < len(USAGE_COLUMNS)
        else "no counters of network, devices or CPUs: what is at its limit is not known"
    ]


def _findings(of: Study) -> list[str]:
    cells_by_audit = Counter(audit for cell in of.valued for audit in cell.cell.doubts)
    if not cells_by_audit:
        return []
    shown = ", ".join(f"{audit} in {number}" for audit, number in cells_by_audit.most_common())
    return [f"audits warn about some of {len(of.valued)} cells: {shown}"]


def _far(of: Study) -> list[str]:
    named = [(of.named(cell), cell.median) for cell in of.valued]
    return [text.rstrip(".") for text in far_sentences(named, of.metric)]


def _described(of: Study, cell: Values) -> str:
    key = tuple((name, cell.level(name)) for name in of.varying)
    return of.describe(key)


def least_attachments(cells: Sequence[Values]) -> tuple[int, int]:
    """The fewest and the most attachments of cells with a value."""
    counts = [cell.median.independent for cell in cells]
    return min(counts), max(counts)
