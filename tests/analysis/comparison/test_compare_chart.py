"""The figure of a comparison: every cell, sorted, on pages, with few ticks."""

from __future__ import annotations

import json
import math

import pytest

from fsmatrix.analysis.comparison.compare import compare
from fsmatrix.analysis.comparison.comparison_chart import MOST_ROWS, ratio_ticks
from tests.analysis.comparison.compared_campaigns import Row, made


def test_the_figure_shows_every_cell_sorted_with_interval_and_symbol() -> None:
    found = compare(made({"a": 1.5, "b": 1.0}), "a", "b")
    ax = found.figure().axes[0]
    assert ax.get_xscale() == "log"
    labels = [text.get_text() for text in ax.get_yticklabels()]
    ordered = sorted(found.cells, key=lambda cell: -cell.ratio.ratio)
    assert labels == ["geometric mean", *(cell.named for cell in ordered)]
    lines = {tuple(line.get_xdata()) for line in ax.lines}
    assert {(cell.ratio.low, cell.ratio.high) for cell in found.cells} <= lines
    markers = [line for line in ax.lines if line.get_marker() == "^"]
    assert [float(line.get_xdata()[0]) for line in markers] == [c.ratio.ratio for c in ordered]


def test_many_cells_go_to_pages() -> None:
    def many(row: Row) -> Row:
        return row | {
            "depth": row["block"] // 2,
            "work_id": f"{row['work_id']}-{row['block'] // 2}",
        }

    ds = made({"a": 1.5, "b": 1.0}, blocks=40, change=many)
    ds.attrs["factors"] = json.dumps(json.loads(ds.attrs["factors"]) | {"depth": "depth"})
    found = compare(ds, "a", "b")
    assert len(found.cells) == 80
    assert found.pages == math.ceil(80 / MOST_ROWS)
    shown = [len(found.figure(page).axes[0].get_yticks()) - 1 for page in range(found.pages)]
    assert sum(shown) == 80
    with pytest.raises(ValueError, match="pages 0 to 2"):
        found.figure(3)


@pytest.mark.parametrize("ends", [(0.97, 1.04), (0.8, 2.4), (0.5, 30), (1e-4, 1e5), (1.0, 1.0)])
def test_ticks_are_few_and_inside(ends: tuple[float, float]) -> None:
    ticks = ratio_ticks(*ends)
    assert 1 <= len(ticks) <= 9
    assert all(ends[0] <= tick <= ends[1] for tick in ticks)


def test_formulas_in_names_are_only_text() -> None:
    found = compare(made({r"$\frac": 1.5, "b": 1.0}), r"$\frac", "b")
    figure = found.figure()
    figure.canvas.draw()  # type: ignore[no-untyped-call, unused-ignore]
    assert r"\$\frac" in figure.get_suptitle()
