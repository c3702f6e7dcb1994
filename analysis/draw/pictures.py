"""Results drawn: to files, and as images that stand inside a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsmatrix.results.files.safefile import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Names of the files of figures and tables.


def numbered(out: Path, number: int) -> Path:
    """out.png, out-2.png, out-3.png... for 1, 2, 3..."""
    return out if number == 1 else out.with_stem(f"{out.stem}-{number}")


FORMATS = (".png", ".svg", ".pdf")
DPI = 150
# the same picture gives the same file
UNDATED = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


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
    return save_as(results, out, (out.suffix,))


def save_as(results: list[Any], out: Path, formats: Sequence[str]) -> list[Path]:
    """As `save`, each page in every one of some FORMATS: out.pdf, out.png, out-2.pdf, ..."""
    import matplotlib as mpl

    written = []
    for number, figure in enumerate((f for result in results for f in figures(result)), 1):
        for suffix in formats:
            path = numbered(out, number).with_suffix(suffix)
            with (
                replacing(path) as part,
                mpl.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "fsmatrix"}),
            ):
                figure.savefig(
                    part, format=suffix[1:].lower(), dpi=DPI, metadata=UNDATED[suffix.lower()]
                )
            written.append(path)
    return written


def data_uri(figure: Figure) -> str:
    """A figure as the address of an image; nothing in an image can run or load anything."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
