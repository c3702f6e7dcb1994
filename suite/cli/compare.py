"""`fsmatrix compare`: targets, levels of a factor, or campaigns, cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer
from rich.text import Text

from fsmatrix.suite.cli import analyse, common
from fsmatrix.suite.problems import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.analysis.compare_result import Compared, Comparison
    from fsmatrix.analysis.medians import Median

Correction = Literal["holm", "benjamini-hochberg", "none"]
STYLE = {"faster": "green", "slower": "red", "no difference": "cyan", "too few": "dim",
         "single": "dim", "no data": "dim"}  # fmt: skip
SYMBOL = {"faster": "▲", "slower": "▼", "no difference": "=", "too few": "?", "single": "×",
          "no data": "×"}  # fmt: skip


def compare(
    files: analyse.Files,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="What is compared: target, any factor, several as target+trial, or campaign. "
            "Default: campaign for several files, target for one.",
        ),
    ] = None,
    sides: Annotated[
        str | None,
        typer.Option("--levels", "--targets", help="Only these: xfs,ext4.  Default: every pair."),
    ] = None,
    metric: analyse.MetricName = "bandwidth",
    unit: analyse.UnitName = None,
    tolerance: Annotated[
        str, typer.Option("--tolerance", help="A difference that does not matter: 5% or 0.05.")
    ] = "5%",
    alpha: Annotated[
        float, typer.Option("--alpha", help="Chance of a false claim over all cells.")
    ] = 0.05,
    correction: Annotated[
        str, typer.Option("--correction", help="Of p: holm, benjamini-hochberg or none.")
    ] = "holm",
    where: analyse.Wheres = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            help="A factor that may differ between the cells of a pair; work_id: options that "
            "are no factor (repeatable).",
        ),
    ] = None,
    across_engines: Annotated[
        bool, typer.Option("--across-engines", help="Compare also what two engines measured.")
    ] = False,
    across_cache: Annotated[
        bool, typer.Option("--across-cache", help="Compare also two cache states.")
    ] = False,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Compare targets, levels of a factor, or campaigns, cell by cell.

    A verdict needs 6 attachments or more; fewer give ratios and no verdict.

    Example: fsmatrix compare out --targets xfs,ext4 --metric latency_p99 --out ratios.png

    Example: fsmatrix compare old.h5 new.h5
    """
    from fsmatrix.analysis.compare import comparisons

    if correction not in get_args(Correction):
        raise refuse(
            Origin(f"--correction {correction}"), "", f"one of {', '.join(get_args(Correction))}"
        )
    analyse.picture(out)
    levels, share = analyse.levels(where), analyse.share("--tolerance", tolerance)
    with analyse.bad_input(files):
        ds = analyse.opened(files)
        named = tuple(by.split("+")) if by else ("campaign" if len(files) > 1 else "target",)
        chosen = tuple(sides.split(",")) if sides else ()
        if not chosen and named == ("campaign",):
            chosen = tuple(analyse.labels(files))
        found = comparisons(
            ds, metric, by=named, sides=[side.strip() for side in chosen], tolerance=share,
            alpha=alpha, correction=cast(Correction, correction), unit=unit, where=levels,
            across_engines=across_engines, across_cache=across_cache, ignore=tuple(ignore or ()),
        )  # fmt: skip
    if as_json:
        common.print_json([one.to_dict() for one in found])
    else:
        for number, one in enumerate(found):
            if number:
                typer.echo()
            _print(one)
    if out:
        analyse.drawn(found, out)


def _print(one: Comparison) -> None:
    from fsmatrix.analysis.units import MISSING

    analyse.say(one.says[:1])
    columns = ["cell", f"{one.a}, {one.unit.label}", f"{one.b}, {one.unit.label}", "ratio",
               "p", "corrected", "A", "", "verdict"]  # fmt: skip
    rows: list[list[str | Text]] = []
    for cell in one.cells:
        p = ["" if v != v else f"{v:.2g}" for v in (cell.verdict.raw_p, cell.verdict.p)]
        effect = MISSING if cell.effect.a != cell.effect.a else f"{cell.effect.a:.2f}"
        style = STYLE[cell.kind]
        rows.append([
            cell.named or "the only case", _median(cell.a, one), _median(cell.b, one),
            _ratio(cell), *p, effect, Text(SYMBOL[cell.kind], style=style),
            Text(one.word(cell.kind) + (" (!)" if cell.doubts else ""), style=style),
        ])  # fmt: skip
    analyse.grid(columns, rows)
    analyse.say(one.says[1:])


def _median(of: Median, one: Comparison) -> str:
    from fsmatrix.analysis.units import MARKS
    from fsmatrix.analysis.units import text as shown

    span = f" [{shown(of.low, one.unit)}–{shown(of.high, one.unit)}]" if of.runs > 1 else ""
    return f"{shown(of.median, one.unit)}{MARKS.get(of.kind, '')}{span}"


def _ratio(cell: Compared) -> str:
    found = cell.ratio
    span = f" [{found.low:.3g}–{found.high:.3g}]" if found.low == found.low else ""
    return f"{found.ratio:.3g}{'' if found.decides else '*' if span else '†'}{span}"
