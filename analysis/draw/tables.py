"""Tables of results as files: CSV for programs, LaTeX (booktabs) and Markdown for people.

CSV holds every digit and sizes in bytes; the others hold what a reader sees in the report.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsmatrix
from fsmatrix.analysis import units
from fsmatrix.analysis.draw.pictures import numbered
from fsmatrix.results.files.safefile import replacing
from fsmatrix.results.units import printable

if TYPE_CHECKING:
    import pandas as pd

    from fsmatrix.analysis.result import Result

EMPTY = "nothing would stand in it"
_FORMULA = tuple("=+-@＝＋－＠")  # what follows is one, to spreadsheets
_NUMBER = re.compile(r"[+-]?[\d.,\u202f]+([eE][+-]?\d+)?([ \u202f]?[%\w/µ]+)?")
_MARKUP = re.compile(r"[\\|\[]|<(?=[A-Za-z/!?])")  # what is not shown as it stands in Markdown
# what LaTeX's own fonts and input encoding lack
LATEX = {
    "\u202f": r"\,", units.MISSING: "--", "µ": r"\textmu{}", "†": r"\textdagger{}",
    "×": r"$\times$", "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}",
    "…": r"\dots{}", "→": r"$\rightarrow$",
}  # fmt: skip


def text(frame: pd.DataFrame) -> pd.DataFrame:
    """Every value as a reader sees it: three digits, sizes with their unit, a dash for none.

    The column names are those of `frame`, made printable; see `_filled` for which are kept.
    """
    import pandas as pd

    shown = [[_shown(str(name), value) for value in frame[name].tolist()] for name in frame.columns]
    names = [printable(str(name)) for name in frame.columns]
    return pd.DataFrame(dict(zip(names, shown, strict=True)), columns=names, dtype=object)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return units.MISSING
    if not isinstance(value, int | float):
        return " ".join(printable(str(value)).split("\n"))
    if math.isfinite(value) and units.is_size(name):
        return units.size(value)
    if name == "p" or name.startswith(("p ", "p,")) or name.endswith(" p"):
        return units.p_number(value) if math.isfinite(value) else units.MISSING
    return str(int(value)) if float(value).is_integer() else units.number(value)


def csv(result: Result) -> str:
    """Every digit; sizes in bytes, which their heading says.  No text is a formula."""
    import pandas as pd

    frame = result.table()
    columns = {}
    for number, name in enumerate(map(str, frame.columns)):
        column = frame.iloc[:, number]
        if column.dtype.kind == "O":
            column = pd.Series([_inert(value, "'") for value in column], frame.index, object)
        columns[_inert(f"{name}, B" if units.is_size(name) else name, "'")] = column
    return str(pd.DataFrame(columns).to_csv(index=False, lineterminator="\n"))


def markdown(result: Result) -> str:
    """A table of GitHub's Markdown, numbers to the right."""
    frame = _filled(result.table())
    shown = text(frame)
    right = _numeric(frame)
    lines = [[_cell(cell) for cell in line] for line in shown.to_numpy().tolist()]
    heading = [_cell(name) for name in shown.columns]
    lines = [heading, ["---:" if each else "---" for each in right], *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(text: str) -> str:
    """A cell of Markdown that shows just this text."""
    return str(_inert(_MARKUP.sub(r"\\\g<0>", text), "\\"))


def _inert(value: Any, escape: str) -> Any:
    """A text in one line that a spreadsheet takes for text: `escape` before what begins a formula.

    A negative number, also with a unit, stays one.
    """
    if not isinstance(value, str):
        return value
    line = " ".join(printable(value).replace("\t", " ").split("\n"))
    begins = line.lstrip()[:1] in _FORMULA and not _NUMBER.fullmatch(line)
    return escape + line if begins else line


def latex(result: Result) -> str:
    """A tabular with the rules of the package booktabs; everything from a campaign is escaped."""
    frame = _filled(result.table())
    shown = text(frame)
    style = shown.style.hide(axis="index").format(escape="latex")
    style = style.format_index(escape="latex", axis=1)
    columns = "".join("r" if right else "l" for right in _numeric(frame))
    tabular = str(style.to_latex(hrules=True, column_format=columns))
    for character, command in LATEX.items():
        tabular = tabular.replace(character, command)
    sentence = " ".join(printable(result.says[0]).split("\n")) if result.says else ""
    return (
        f"% fsmatrix {fsmatrix.__version__}; needs \\usepackage{{booktabs}}\n% {sentence}\n"
        + tabular
    )


def _filled(frame: pd.DataFrame) -> pd.DataFrame:
    """Without columns that are empty in every row."""
    empty = frame.isna() | (frame == "")
    return frame.loc[:, ~empty.all().to_numpy(dtype=bool)] if len(frame) else frame


def _numeric(frame: pd.DataFrame) -> list[bool]:
    return [frame[name].dtype.kind in "iuf" for name in frame.columns]


FORMATS: dict[str, Callable[[Result], str]] = {".csv": csv, ".tex": latex, ".md": markdown}


def save(results: Sequence[Result], out: Path) -> list[Path]:
    """The table of every result: out.csv, out-2.csv, ...  OSError as the system gives it.

    None of a result whose table has no columns.
    """
    written = []
    for number, result in enumerate(results, 1):
        if result.table().columns.empty:
            continue
        path = numbered(out, number)
        text = FORMATS[out.suffix.lower()](result)
        with replacing(path) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
        written.append(path)
    return written
