"""Sections of the report that analyses make: comparison of targets, and the studies' figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from fsmatrix.analysis import catalogue, pictures
from fsmatrix.analysis.compare import comparisons
from fsmatrix.analysis.compare_result import Comparison
from fsmatrix.analysis.load import Rows, rows
from fsmatrix.analysis.summary import Summary
from fsmatrix.analysis.units import METRICS, text

MOST_PAIRS = 6
MOST_LINES = 60  # cells in a table of the page
MOST_RUNS = 100_000  # above which comparison and studies are left to their commands
COMPARED = ("bandwidth", "iops", "latency_p99")


@dataclass(frozen=True)
class Line:
    """One cell of a comparison, as text."""

    cell: str
    a: str
    b: str
    ratio: str
    p: str
    kind: str
    verdict: str
    doubts: str


@dataclass(frozen=True)
class Block:
    """One result: a heading, sentences, images, perhaps a table."""

    heading: str
    says: tuple[str, ...]
    images: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    more_lines: int = 0
    opened: bool = False


@dataclass(frozen=True)
class Section:
    """One heading of the report."""

    id: str
    title: str
    blocks: tuple[Block, ...]


def sections(ds: xr.Dataset, summary: Summary) -> tuple[Section, ...]:
    """What this campaign's factors allow."""
    data = rows(ds)
    found = [Section("comparison", "Comparison", tuple(_comparison(ds, summary)))]
    found += [Section("studies", "Studies of factors", tuple(_studies(ds, data)))]
    return tuple(section for section in found if section.blocks)


def _comparison(ds: xr.Dataset, summary: Summary) -> Iterator[Block]:
    targets = [name for name in summary.targets if name not in summary.references]
    if len(targets) < 2:
        return
    pairs = list(itertools.combinations(targets, 2))
    runs = ds.sizes["run"]
    if len(pairs) > MOST_PAIRS or runs > MOST_RUNS:
        many = f"{len(pairs)} pairs" if len(pairs) > MOST_PAIRS else f"{runs} runs"
        command = f"fsmatrix compare FILE --targets {targets[0]},{targets[1]}"
        yield Block(f"{len(targets)} targets", (
            f"{many} are too many for this page: `{command}` compares two of them.",
        ), opened=True)  # fmt: skip
        return
    drawn = False
    for metric in metrics_of(summary):
        try:
            found: Sequence[Comparison] = comparisons(ds, metric, sides=targets)
        except ValueError as error:
            yield Block(METRICS[metric].title, (f"Not compared: {error}.",), opened=True)
            continue
        for one in found:
            yield _compared(one, not drawn)
        drawn = True


def metrics_of(summary: Summary) -> list[str]:
    """Metrics with values; operations per second only where some cells have no bandwidth."""
    valued = {
        name: {i for i, cell in enumerate(summary.cells) if cell.metrics[name].runs}
        for name in COMPARED
    }
    return [
        name
        for name in COMPARED
        if valued[name] and not (name == "iops" and valued["iops"] <= valued["bandwidth"])
    ]


def _compared(one: Comparison, draw: bool) -> Block:
    lines = [
        Line(
            cell.named or "the only case", text(cell.a.median, one.unit),
            text(cell.b.median, one.unit),
            f"{cell.ratio.ratio:.3g}"
            + ("" if cell.ratio.low != cell.ratio.low
               else f" [{cell.ratio.low:.3g}, {cell.ratio.high:.3g}]"),
            "" if cell.verdict.p != cell.verdict.p else f"{cell.verdict.p:.2g}",
            cell.kind.replace(" ", "-"), one.word(cell.kind), "; ".join(cell.doubts),
        )
        for cell in one.cells
    ]  # fmt: skip
    return Block(
        heading=f"{one.metric.title}: {one.a} against {one.b}",
        says=tuple(one.says),
        images=_image(one) if draw else (),
        columns=("cell", f"{one.a}, {one.unit.label}", f"{one.b}, {one.unit.label}",
                 f"ratio {one.a} / {one.b}", "p, corrected", "verdict", "in doubt"),
        lines=tuple(lines[:MOST_LINES]),
        more_lines=max(len(lines) - MOST_LINES, 0),
        opened=draw,
    )  # fmt: skip


def _image(result: Any) -> tuple[str, ...]:
    """The first page of a result's figures."""
    return (pictures.data_uri(next(pictures.figures(result))),)


def _studies(ds: xr.Dataset, data: Rows) -> Iterator[Block]:
    """The SSD-cluster study's figures, for factors of several levels."""
    if len(data) > MOST_RUNS:
        return
    for name, one in catalogue.possible(data, catalogue.STUDIES).items():
        try:
            result = one.run(ds)
        except ValueError as error:
            yield Block(one.title, (f"Not shown: {error}.",))
            continue
        more = f"`fsmatrix {name} FILE --out figure.pdf` draws it."
        yield Block(one.title, (*result.says, more), _image(result) if one.drawn else ())
