"""`fsmatrix compare`: targets, levels of a factor, or campaigns, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer
from rich.text import Text

from fsmatrix.cli import common, completion, terminal
from fsmatrix.cli.questions import acceptance, analyse
from fsmatrix.suite.campaign.problems import Origin, refuse

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.acceptance.judged import Acceptance
    from fsmatrix.analysis.comparison.compared import Compared
    from fsmatrix.analysis.comparison.result import Comparison
    from fsmatrix.analysis.questions.fairness import Fairness
    from fsmatrix.analysis.stats.estimates.medians import Median

Correction = Literal["max-t", "holm", "benjamini-hochberg", "none"]
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
    "no difference": "=",
    "too few": "?",
    "single": "×",
    "no data": "×",
}

SHORT = {"single": "one value", "too few": "not proven"}
LEGEND = {
    "[": "[ ]: {sure} % sure that the ratio lies in this range",
    "*": "*: too few blocks, less sure",
    "†": "†: one attachment or one value",
    "▲": "▲ ▼: proven",
    "?": "?: may be chance",
    " !": "!: an audit warns",
    "(!)": "(!): in doubt, see below",
}


def compare(
    files: analyse.Files,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help="What to compare: target, any factor, several as target+trial, or campaign. "
            "Default: campaign for several files, target for one.",
            autocompletion=completion.factors_joined,
        ),
    ] = None,
    sides: Annotated[
        str | None,
        typer.Option(
            "--levels",
            "--targets",
            help="Only these: xfs,ext4.  Default: every pair.",
            autocompletion=completion.sides,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            help="bandwidth, iops, latency_p99, ...  Default: bandwidth for data phases, "
            "operations per second for metadata phases.",
        ),
    ] = "",
    unit: analyse.UnitName = None,
    tolerance: analyse.Tolerance = "5%",
    alpha: analyse.Alpha = 0.05,
    correction: analyse.CorrectionName = "max-t",
    where: analyse.Wheres = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            help="A factor that may differ between the cells of a pair; work_id: options that "
            "are not factors (repeatable).",
            autocompletion=completion.factors,
        ),
    ] = None,
    across_engines: Annotated[
        bool,
        typer.Option("--across-engines", help="Compare measurements of different engines too."),
    ] = False,
    across_cache: Annotated[
        bool, typer.Option("--across-cache", help="Compare different cache states too.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="OLD",
            help="A campaign (file or directory) that all FILES are compared with.",
            rich_help_panel=acceptance.TESTS,
            autocompletion=completion.results,
        ),
    ] = None,
    fail_if: acceptance.FailIf = None,
    allow: acceptance.Allow = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Compare targets, levels of a factor, or campaigns, cell by cell.

    It takes 6 blocks or more to prove that one is faster; fewer only show by how much it was.

    Example: fsmatrix compare out --targets xfs,ext4 --metric latency_p99 --out ratios.png

    Example: fsmatrix compare old.h5 new.h5

    Example: fsmatrix compare --baseline old.h5 new.h5 --fail-if 'slower > 10 %'
    (status 1 if a condition is met; docs/acceptance.md)
    """
    from fsmatrix.analysis.acceptance.acceptance import acceptance as acceptance_of
    from fsmatrix.analysis.comparison.compare import comparisons
    from fsmatrix.analysis.comparison.options import ComparisonOptions

    analyse.picture(out)
    conditions = acceptance.of_baseline(fail_if, allow, baseline, by, sides)
    levels, share = analyse.levels(where), analyse.share("--tolerance", tolerance)
    method = corrected(correction)
    every = [*([baseline] if baseline is not None else []), *files]
    with analyse.bad_input(every):
        ds = analyse.opened(every)
        options = ComparisonOptions(
            where=levels,
            unit=unit,
            tolerance=share,
            alpha=alpha,
            correction=method,
            across_engines=across_engines,
            across_cache=across_cache,
            ignore=tuple(ignore or ()),
        )
        old = analyse.labels(every)[0] if baseline is not None else ""
        if conditions:
            accepted = acceptance_of(
                ds, old, metric, conditions=conditions, allow=allow or (), options=options
            )
            _accepted(accepted, out, as_json)
            return
        named = tuple(by.split("+")) if by else ("campaign" if len(every) > 1 else "target",)
        chosen = tuple(side.strip() for side in sides.split(",")) if sides else ()
        if not chosen and named == ("campaign",):
            chosen = tuple(analyse.labels(every))
        results = comparisons(ds, metric, by=named, sides=chosen, baseline=old, options=options)
        fair = _fairness(ds, results) if named == ("target",) else None
    if as_json:
        common.print_json([_with_fairness(comparison, fair) for comparison in results])
    else:
        _print_all(results)
        analyse.say(fair.short(" ".join(every)) if fair else [])
    if out:
        analyse.drawn(results, out)


def _fairness(ds: xr.Dataset, results: Sequence[Comparison]) -> Fairness | None:
    """Of all targets that were compared."""
    from fsmatrix.analysis.questions.fairness import fairness

    compared = dict.fromkeys(
        name for comparison in results for name in (comparison.a, comparison.b)
    )
    return fairness(ds, tuple(compared)) if compared else None


def _with_fairness(comparison: Comparison, fair: Fairness | None) -> dict[str, Any]:
    """A comparison of targets with what is known of its fairness."""
    if fair is None:
        return comparison.to_dict()
    return comparison.to_dict() | {"fairness": fair.among((comparison.a, comparison.b)).to_dict()}


def corrected(name: str) -> Correction:
    """The correction that --correction names; other names are refused."""
    if name not in get_args(Correction):
        allowed = ", ".join(get_args(Correction))
        raise refuse(Origin(f"--correction {name}"), "", f"one of {allowed}")
    return cast(Correction, name)


def _accepted(result: Acceptance, out: Path | None, as_json: bool) -> None:
    """Print an acceptance test and end with its status."""
    if as_json:
        common.print_json(result.to_dict())
    else:
        analyse.say(result.says)
        terminal.echo("")
        _print_all(result.comparisons)
    if out:
        analyse.drawn([result], out)
    if not result.passed:
        raise typer.Exit(acceptance.FAILED)


def _print_all(results: Sequence[Comparison]) -> None:
    """Each, and once what they share."""
    from fsmatrix.analysis.comparison.words import tested

    if not results:
        return
    already: set[str] = set()
    signs: set[str] = set()
    for comparison in results:
        signs |= _print(comparison, already)
        terminal.echo("")
    shown = "; ".join(text for sign, text in LEGEND.items() if sign in signs)
    analyse.say([shown.format(sure=f"{100 * (1 - results[0].alpha):.3g}"), tested(results)])


def _print(comparison: Comparison, already: set[str]) -> set[str]:
    """The answer, the rows, what stands beside them if not `already` said; the rows' signs."""
    analyse.say(comparison.says[:1])
    for spans in (True, False):  # without the medians' intervals if a row would not fit
        columns, rows = _rows(comparison, spans)
        if analyse.grid(columns, rows, fold=_labels(comparison), must=not spans):
            break
    beside = [line for line in comparison.says[1:] if line not in already]
    analyse.say(beside)
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
        "ratio",
        "verdict",
    ]
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
        rows.append([*row, _ratio(cell), Text(verdict, style=style)])
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
