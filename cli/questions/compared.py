"""Comparisons as a terminal shows them: the answer, a row for each cell, what the signs mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.cli import progress
from fsmatrix.cli.questions import analyse

if TYPE_CHECKING:
    from fsmatrix.analysis.comparison.compared import Compared
    from fsmatrix.analysis.comparison.result import Comparison
    from fsmatrix.analysis.stats.estimates.medians import Median

STYLE = {
    "faster": "green",
    "slower": "red",
    "no difference": "cyan",
    "too few": "dim",
    "single": "dim",
    "no data": "dim",
}
SYMBOL = {
    "faster": "▲",
    "slower": "▼",
    "no difference": Certainty.EQUAL.mark,
    "too few": Certainty.UNDECIDED.mark,
    "single": Certainty.INVALID.mark,
    "no data": Certainty.INVALID.mark,
}

FEW = 8  # cells that are shown without being asked for
PAIRS, MOST_PAIRS = 4, 12  # that stand side by side, and that are shown
MORE = "More: --cells (ratio, interval and verdict of each cell), --json."
SHORT = {"single": "one value", "too few": Certainty.UNDECIDED.value}
LEGEND = {
    "[": "[ ]: {sure} % sure that the ratio lies in this range",
    "*": "*: too few blocks, less sure",
    "†": "†: one attachment or one value",
    "▲": "▲ ▼: proven",
    "?": "?: may be chance",
    " !": "!: an audit warns",
    "(!)": "(!): in doubt, see below",
}


def show(results: Sequence[Comparison], cells: bool) -> None:
    """Each, and once what they share, with what would decide more; every cell if asked, or few."""
    from fsmatrix.analysis.comparison.advice import extension_of
    from fsmatrix.analysis.comparison.words import tested

    if not results:
        return
    already: set[str] = set()
    signs: set[str] = set()
    few = not cells and sum(len(comparison.cells) for comparison in results) <= FEW
    if cells or few:
        for comparison in results:
            signs |= _print(comparison, already, few)
            progress.echo("")
    else:
        _print_overview(results)
    judged = [comparison for comparison in results if not comparison.one_machine]
    lines = [extension_of(judged).says] if judged else []
    if cells or few:
        shown = "; ".join(text for sign, text in LEGEND.items() if sign in signs)
        lines.append(shown.format(sure=f"{100 * (1 - results[0].alpha):.3g}"))
        lines += [tested(judged)] if judged and cells else []
    lines += [] if cells else [MORE]
    analyse.print_lines([line for line in lines if line])


def _print_overview(results: Sequence[Comparison]) -> None:
    """For each metric the answer, a row for each pattern, what stands beside them once."""
    from fsmatrix.analysis.comparison import overview

    groups: dict[str, list[overview.Seen]] = {}
    for comparison in results:
        if not comparison.one_machine:
            groups.setdefault(comparison.title, []).append(overview.Seen.pair(comparison))
    for pairs in groups.values():
        analyse.print_lines([overview.answer(pairs)])
        shown = overview.ranked(pairs)[:MOST_PAIRS]
        for start in range(0, len(shown), PAIRS):
            analyse.grid(*overview.overview(shown[start : start + PAIRS]), 1)
        if more := len(pairs) - len(shown):
            analyse.print_lines([f"And {more} more pairs: name some with --levels A,B."])
        analyse.print_lines([overview.counted(pairs)])
    analyse.print_lines(list(dict.fromkeys(line for c in results for line in c.beside)))
    progress.echo("")
    if groups:
        analyse.print_lines([overview.legend([one for pairs in groups.values() for one in pairs])])


def _print(comparison: Comparison, already: set[str], few: bool = False) -> set[str]:
    """The answer, the rows, what stands beside them if not `already` said; the rows' signs.

    `few`: only what stands beside an answer, not how it was found.
    """
    analyse.print_lines([line for line in comparison.says[:1] if line not in already])
    if comparison.one_machine:
        already.add(comparison.says[0])
    for spans in (True, False):  # without the medians' intervals if a row would not fit
        columns, rows = _rows(comparison, spans)
        if analyse.grid(columns, rows, fold=_labels(comparison), must=not spans):
            break
    every = [*comparison.means, *comparison.beside] if few else comparison.says[1:]
    beside = [line for line in every if line not in already]
    analyse.print_lines(beside)
    already.update(beside)
    texts = [str(cell).replace("▼", "▲") for row in rows for cell in row[-4:]]
    return {sign for sign in LEGEND if any(sign in text for text in texts)}


def _labels(comparison: Comparison) -> int:
    """Columns that say which cell a row is of."""
    return max(len(comparison.varying), 1) + any(cell.apart for cell in comparison.cells)


def _rows(comparison: Comparison, spans: bool) -> tuple[list[str], list[list[str | Text]]]:
    from fsmatrix.analysis.units import factor_title, level_text

    apart = any(cell.apart for cell in comparison.cells)
    columns = [factor_title(name) for name in comparison.varying] or ["cell"]
    columns += ["differs"] * apart
    columns += [
        f"{comparison.a}, {comparison.unit.label}",
        f"{comparison.b}, {comparison.unit.label}",
        "typical ratio",
    ]
    columns += ["verdict"] * (not comparison.one_machine)
    rows: list[list[str | Text]] = []
    for cell in comparison.cells:
        style = STYLE[cell.kind]
        verdict = f"{SYMBOL[cell.kind]} {SHORT.get(cell.kind, cell.kind)}" + " (!)" * bool(
            cell.doubts
        )
        row: list[str | Text] = [level_text(n, cell.levels.get(n, "")) for n in comparison.varying]
        row = row or ["the only case"]
        row += [cell.apart] * apart
        row += [
            _median(m, comparison, spans) + " !" * w
            for m, w in zip((cell.a, cell.b), cell.warned, strict=True)
        ]
        row += [_ratio(cell), Text(verdict, style=style)]
        rows.append(row[:-1] if comparison.one_machine else row)
    return columns, rows


def _median(of: Median, comparison: Comparison, spans: bool) -> str:
    from fsmatrix.analysis.units import MARKS
    from fsmatrix.analysis.units import text as shown

    span = (
        f" [{shown(of.low, comparison.unit)}–{shown(of.high, comparison.unit)}]"
        if spans and of.runs > 1
        else ""
    )
    return f"{shown(of.median, comparison.unit)}{MARKS.get(of.kind, '')}{span}"


def _ratio(cell: Compared) -> str:
    from fsmatrix.analysis.units import brief

    ratio = cell.ratio
    span = f" [{brief(ratio.low)}–{brief(ratio.high)}]" if ratio.low == ratio.low else ""
    return f"{brief(ratio.ratio)}{'' if ratio.decides else '*' if span else '†'}{span}"
