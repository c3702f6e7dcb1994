"""Results drawn: to files, and as images that stand inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
DPI = 150


def figures(result: Any) -> Iterator[Figure]:
    """Every page of a result; `pages` is their number, or one key for each."""
    pages = getattr(result, "pages", 1)
    count = pages if isinstance(pages, int) else len(pages)
    if count == 1:
        yield result.figure()
        return
    for page in range(count):
        yield result.figure(page)


def save(results: list[Any], out: Path) -> list[Path]:
    """Every page of every result: out.png, out-2.png, ...  OSError as the system gives it."""
    written = []
    for number, figure in enumerate((f for result in results for f in figures(result)), 1):
        path = out if number == 1 else out.with_stem(f"{out.stem}-{number}")
        figure.savefig(path, dpi=DPI)
        written.append(path)
    return written


def data_uri(figure: Figure) -> str:
    """A figure as the address of an image; nothing in an image can run or load anything."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
