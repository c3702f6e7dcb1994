"""Every figure and table that a campaign allows, each in a file of its own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from fsmatrix.analysis import catalogue
from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.draw import pictures, tables
from fsmatrix.analysis.report import sections


@dataclass(frozen=True)
class Wanted:
    """A directory and the suffixes of its files (`pictures.FORMATS` or `tables.FORMATS`)."""

    directory: Path
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Exported:
    """Files written, and what could not be made: (name, why)."""

    files: tuple[Path, ...]
    missing: tuple[tuple[str, str], ...]


def export(ds: xr.Dataset, figures: Wanted | None, tabled: Wanted | None) -> Exported:
    """Write them; a directory is made if it is not there, other files in it stay.

    Each file is written aside and renamed.  OSError as the system gives it.
    """
    files: list[Path] = []
    missing: list[tuple[str, str]] = []
    for wanted in (figures, tabled):
        if wanted is not None:
            wanted.directory.mkdir(exist_ok=True)
    for name, result in results(ds):
        if isinstance(result, ValueError):
            missing.append((name, str(result)))
            continue
        if figures is not None:
            try:
                out = figures.directory / f"{name}.pdf"
                files += pictures.save_as([result], out, figures.formats)
            except ValueError as error:  # a table, and nothing to draw
                missing.append((f"figure {name}", str(error)))
        if tabled is not None:
            made: list[Path] = []
            for suffix in tabled.formats:
                made += tables.save([result], tabled.directory / f"{name}{suffix}")
            files += made
            if not made:
                missing.append((f"table {name}", tables.EMPTY))
    return Exported(tuple(files), tuple(missing))


def results(ds: xr.Dataset) -> Iterator[tuple[str, Any]]:
    """(name of a file, result, or the ValueError why there is none)."""
    summary = summarise(ds)
    targets = [name for name in summary.targets if name not in summary.references]
    for metric in sections.metrics_of(summary) if len(targets) > 1 else ():
        yield from _compared(ds, metric, targets)
    for name, analysis in catalogue.possible(
        rows(ds), catalogue.EVERY | catalogue.outside()
    ).items():
        try:
            yield name, analysis.run(ds)
        except ValueError as error:
            yield name, error


def _compared(ds: xr.Dataset, metric: str, targets: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Every pair of targets."""
    pairs = len(list(itertools.combinations(targets, 2)))
    if pairs > sections.MOST_PAIRS:
        yield (
            f"compare-{metric or 'own'}",
            ValueError(
                f"{pairs} pairs of targets are too many: `fsmatrix compare --targets A,B` takes two"
            ),
        )
        return
    try:
        compared = comparisons(ds, metric, sides=targets)
    except ValueError as error:
        yield f"compare-{metric or 'own'}", error
        return
    taken: set[str] = set()
    for comparison in compared:
        name = f"compare-{comparison.metric.name}-{_plain(comparison.a)}-{_plain(comparison.b)}"
        name += f"-{_plain(comparison.part)}" if comparison.part else ""
        while name in taken:
            name += "-again"  # two targets whose names differ in what a file name cannot hold
        taken.add(name)
        yield name, comparison


def _plain(name: str) -> str:
    """A target's name as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_+-]+", "_", name)[:60]
