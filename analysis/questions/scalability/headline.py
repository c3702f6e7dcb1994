"""What the end points of curves do not say: the worst point, and first points that are in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsmatrix.analysis.data.doubts import listed
from fsmatrix.analysis.data.study import Study
from fsmatrix.analysis.units import brief

if TYPE_CHECKING:
    from fsmatrix.analysis.questions.scalability.series import NodePoint, NodeSeries

NO_GROWTH = 1.0  # a rate below that of the fewest nodes has lost by more nodes


def worst(of: Study, several: Sequence[NodeSeries]) -> list[str]:
    """The point of the smallest efficiency (of a latency: of the largest ratio), and losses."""
    rate = of.metric.more_is_better
    points = [(node_series, step) for node_series in several for step in node_series.steps[1:]]
    series, step = min(points, key=lambda p: p[1].efficiency if rate else -p[1].ratio)
    value = f"{brief(step.ratio)} times the fewest nodes"
    value += f", efficiency {brief(100 * step.efficiency)} %" if rate else ""
    sentences = [f"Worst point: {value}, at {_place(of, series, step)}."]
    lost = [p for p in points if p[1].ratio < NO_GROWTH] if rate else []
    if len(lost) > 1:
        sentences.append(f"{len(lost)} of {len(points)} points are slower than the fewest nodes.")
    return sentences


def bases(of: Study, several: Sequence[NodeSeries]) -> list[str]:
    """First points in doubt: every ratio of their series hangs on them."""
    weak = [node_series for node_series in several if node_series.steps[0].doubts]
    if not weak:
        return []
    names = listed([_place(of, line, line.steps[0]) for line in weak])
    return [f"All ratios of {len(weak)} series hang on a first point in doubt: {names}."]


def _place(of: Study, series: NodeSeries, step: NodePoint) -> str:
    where = f" ({of.describe(series.key)})" if series.key else ""
    doubt = f", in doubt: {', '.join(step.doubts)}" if step.doubts else ""
    return f"{step.nodes:g} storage nodes{where}{doubt}"
