"""What every result of an analysis can do, so that CLI and report need not know it.

A result is a frozen dataclass.  `plain` makes what it holds fit for JSON.  Where a drawing takes a
module of its own, the result is `Drawn`: the chart imports the result, and the function that makes
the result gives it its chart.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

R = TypeVar("R", contravariant=True)


@runtime_checkable
class Result(Protocol):
    """A result: a table, a picture, plain data and sentences."""

    @property
    def says(self) -> list[str]:
        """The result in sentences, the most important one first; with numbers and units."""
        ...

    def table(self) -> pd.DataFrame:
        """One row per value or comparison; units stand in the names of columns or in `attrs`."""
        ...

    def figure(self) -> Figure:
        """The result drawn, with labelled units and intervals; the caller closes or saves it."""
        ...

    def to_dict(self) -> dict[str, Json]:
        """The result as JSON-able data: SI units, None where there is no number."""
        ...


class ChartModule(Protocol[R]):
    """How results of one type are drawn: a module with these two functions."""

    def pages(self, result: R, /) -> int:
        """Number of figures."""
        ...

    def draw(self, result: R, page: int, /) -> Figure:
        """The figure of a page, from 0; ValueError for what cannot be drawn."""
        ...


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A result that a module of its own draws."""

    chart: ChartModule[Self] = field(repr=False, compare=False)

    @property
    def pages(self: Self) -> int:
        """Number of figures: `figure(page)`, from 0."""
        return self.chart.pages(self)

    def figure(self: Self, page: int = 0) -> Figure:
        """One page drawn by `chart`; ValueError for one that is not there."""
        if not 0 <= page < self.pages:
            raise ValueError(f"there are pages 0 to {self.pages - 1}, not {page}")
        return self.chart.draw(self, page)


def plain(value: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """`value` as JSON-able data: dataclasses and mappings as dicts, NaN and infinities as None.

    Fields of a dataclass that its repr leaves out are left out here too.
    What has no such form is given to `other`; TypeError without one.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {
            field.name: plain(getattr(value, field.name), other) for field in fields if field.repr
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item, other) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), other)
    if isinstance(value, list | tuple):
        return [plain(item, other) for item in value]
    if isinstance(value, set | frozenset):
        return [plain(item, other) for item in sorted(value)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if other is not None:
        return other(value)
    raise TypeError(f"{type(value).__name__} is not JSON-able: {value!r:.80}")
