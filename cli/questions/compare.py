"""`fsmatrix compare` and `history`: targets, levels of a factor, or campaigns, cell by cell.

`history` goes over many campaigns in the order of time.  A terminal shows the answer, a row for
each cell, and what the signs mean.  Both commands can pass or fail: by conditions, and by the
status that comes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.questions import analyse
from fsmatrix.results.evidence.stored import Json
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.acceptance.acceptance import Acceptance, Condition
    from fsmatrix.analysis.acceptance.acceptance_result import History
    from fsmatrix.analysis.acceptance.history import Order
    from fsmatrix.analysis.comparison.compared import Compared
    from fsmatrix.analysis.comparison.comparison_result import Comparison
    from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions, VerdictOptions
    from fsmatrix.analysis.questions.fairness import Fairness
    from fsmatrix.analysis.stats.estimates.medians import Median

FAILED = 1  # status of a condition that is met; 2 is bad input
TESTS = "Acceptance tests"
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        rich_help_panel=TESTS,
        help="Exit with status 1 if met (repeatable): 'slower > 10 %' (the same work takes more "
        "than 1.1 times as long: the interval of the ratio lies wholly beyond that, p corrected "
        "over all cells), slower, faster, 'faster > 5 %', undecided (cells without a proven "
        "answer). Lost cells of the baseline (missing, failed, invalid) fail too, and so does a "
        "comparison in which no cell can be decided.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="WORD",
        rich_help_panel=TESTS,
        help="Do not fail for these cells (repeatable): missing, failed, invalid, undecided.",
    ),
]

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

By = Annotated[
    str | None,
    typer.Option(
        "--by",
        help="What to compare: target, any factor, several as target+trial, or campaign. "
        "Default: campaign for several files, target for one.",
        autocompletion=completion.factors_joined,
    ),
]
Sides = Annotated[
    str | None,
    typer.Option(
        "--levels",
        "--targets",
        help="Only these: xfs,ext4.  Default: every pair.",
        autocompletion=completion.sides,
    ),
]
MetricOfPhase = Annotated[
    str,
    typer.Option(
        "--metric",
        help="bandwidth, iops, latency_p99, ...  Default: bandwidth for data phases, "
        "operations per second for metadata phases.",
        callback=analyse.known,
    ),
]
Ignore = Annotated[
    list[str] | None,
    analyse.factor(
        "--ignore",
        "A factor that may differ between the cells of a pair; work_id: options that "
        "are not factors (repeatable).",
    ),
]
AcrossEngines = Annotated[
    bool, typer.Option("--across-engines", help="Compare measurements of different engines too.")
]
AcrossCache = Annotated[
    bool, typer.Option("--across-cache", help="Compare different cache states too.")
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="OLD",
        help="A campaign (file or directory) that all FILES are compared with.",
        rich_help_panel=TESTS,
        autocompletion=completion.results,
    ),
]


def conditions_of(
    fail_if: Sequence[str] | None, allow: Sequence[str] | None
) -> tuple[Condition, ...]:
    """--fail-if read; refuses what is not a condition, and --allow without any."""
    from fsmatrix.analysis.acceptance.acceptance import parse

    if allow and not fail_if:
        raise refuse(Origin(f"--allow {allow[0]}"), "", "only with --fail-if")
    parsed = []
    for text in fail_if or ():
        try:
            parsed.append(parse(text))
        except ValueError as error:
            raise refuse(Origin(f"--fail-if {text}"), "", str(error)) from error
    return tuple(dict.fromkeys(parsed))


def of_baseline(
    fail_if: Sequence[str] | None,
    allow: Sequence[str] | None,
    baseline: str | None,
    by: str | None,
    sides: str | None,
) -> tuple[Condition, ...]:
    """The conditions of `compare`, which needs a baseline for them."""
    parsed = conditions_of(fail_if, allow)
    if parsed and baseline is None:
        raise refuse(Origin(f"--fail-if {parsed[0]}"), "", "only with --baseline OLD")
    other = f"--by {by}" if by not in (None, "campaign") else f"--levels {sides}" if sides else ""
    if baseline is not None and other:
        raise refuse(Origin(other), "", "not with --baseline: campaigns are compared")
    return parsed


def show_comparison(results: Sequence[Comparison], cells: bool) -> None:
    """Each, and once what they share, with what would decide more; every cell if asked, or few."""
    from fsmatrix.analysis.comparison.comparison_result import extension_of, how_tested

    if not results:
        return
    already: set[str] = set()
    signs: set[str] = set()
    few = not cells and sum(len(comparison.cells) for comparison in results) <= FEW
    if cells or few:
        for comparison in results:
            signs |= _print_comparison(comparison, already, few)
            progress.echo("")
    else:
        _print_overview(results)
    judged = [comparison for comparison in results if not comparison.one_machine]
    lines = [extension_of(judged).says] if judged else []
    if cells or few:
        shown = "; ".join(text for sign, text in LEGEND.items() if sign in signs)
        lines.append(shown.format(sure=f"{100 * (1 - results[0].alpha):.3g}"))
        lines += [how_tested(judged)] if judged and cells else []
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


def _print_comparison(comparison: Comparison, already: set[str], few: bool = False) -> set[str]:
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


def compare(
    files: analyse.Files,
    by: By = None,
    sides: Sides = None,
    metric: MetricOfPhase = "",
    unit: analyse.UnitName = None,
    tolerance: analyse.Tolerance = "5%",
    alpha: analyse.Alpha = 0.05,
    correction: analyse.CorrectionName = "max-t",
    where: analyse.Wheres = None,
    ignore: Ignore = None,
    across_engines: AcrossEngines = False,
    across_cache: AcrossCache = False,
    baseline: Baseline = None,
    fail_if: FailIf = None,
    allow: Allow = None,
    cells: analyse.Cells = False,
    out: analyse.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Compare targets, levels of a factor, or campaigns, cell by cell.

    It takes 6 blocks or more to prove that one is faster; fewer only show by how much it was.

    Example: fsmatrix compare out --targets xfs,ext4 --metric latency_p99 --out ratios.png

    Example: fsmatrix compare old.h5 new.h5

    Example: fsmatrix compare --baseline old.h5 new.h5 --fail-if 'slower > 10 %'
    (status 1 if a condition is met; docs/acceptance.md)
    """
    from fsmatrix.analysis.acceptance.acceptance import acceptance as acceptance_of
    from fsmatrix.analysis.comparison.comparison_result import extension_of
    from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions

    analyse.picture(out)
    conditions = of_baseline(fail_if, allow, baseline, by, sides)
    levels, share = analyse.levels(where), analyse.share("--tolerance", tolerance)
    method = analyse.corrected(correction)
    every = [*([baseline] if baseline is not None else []), *files]
    with analyse.bad_input(every):
        ds = analyse.opened(every)
        free = (across_engines, across_cache, tuple(ignore or ()))
        chosen = ComparisonOptions(levels, unit, share, alpha, method, *free)
        old = analyse.labels(every)[0] if baseline is not None else ""
        if conditions:
            accepted = acceptance_of(
                ds, old, metric, conditions=conditions, allow=allow or (), options=chosen
            )
            _say_accepted(accepted, out, as_json)
            return
        results, fair = _compared(ds, every, by, sides, old, metric, chosen)
    if as_json:
        judged = [comparison for comparison in results if not comparison.one_machine]
        more = extension_of(judged).to_dict() if judged else {}
        common.print_json(
            [_with_fairness(comparison, fair) | {"extension": more} for comparison in results]
        )
    else:
        show_comparison(results, cells)
        analyse.print_lines(fair.short(" ".join(every)) if fair else [])
    if out:
        analyse.drawn(results, out)


def _compared(
    ds: xr.Dataset,
    files: Sequence[str],
    by: str | None,
    sides: str | None,
    old: str,
    metric: str,
    chosen: ComparisonOptions,
) -> tuple[tuple[Comparison, ...], Fairness | None]:
    """The comparisons that --by and --levels name; of targets also whether they are fair."""
    from fsmatrix.analysis.comparison.compare import comparisons

    named = tuple(by.split("+")) if by else ("campaign" if len(files) > 1 else "target",)
    names = tuple(side.strip() for side in sides.split(",")) if sides else ()
    if not names and named == ("campaign",):
        names = tuple(analyse.labels(files))
    results = comparisons(ds, metric, by=named, sides=names, baseline=old, options=chosen)
    return results, _fairness(ds, results) if named == ("target",) else None


def _fairness(ds: xr.Dataset, results: Sequence[Comparison]) -> Fairness | None:
    """Of all targets that were compared."""
    from fsmatrix.analysis.questions.fairness import fairness

    names = dict.fromkeys(name for comparison in results for name in (comparison.a, comparison.b))
    return fairness(ds, tuple(names)) if names else None


def _with_fairness(comparison: Comparison, fair: Fairness | None) -> dict[str, Json]:
    """A comparison of targets with what is known of its fairness."""
    if fair is None:
        return comparison.to_dict()
    return comparison.to_dict() | {"fairness": fair.among((comparison.a, comparison.b)).to_dict()}


def _say_accepted(result: Acceptance, out: Path | None, as_json: bool) -> None:
    """Print an acceptance test and end with its status."""
    if as_json:
        common.print_json(result.to_dict())
    else:
        analyse.print_lines(result.says)
        progress.echo("")
        show_comparison(result.comparisons, True)
    if out:
        analyse.drawn([result], out)
    if not result.passed:
        raise typer.Exit(FAILED)


def history(
    files: analyse.Files,
    metric: analyse.MetricName = "bandwidth",
    by: Annotated[
        str, analyse.factor("--by", "The factor whose levels are the lines of a panel.")
    ] = "target",
    as_given: Annotated[
        bool, typer.Option("--as-given", help="Keep the order of FILES; do not sort by start time.")
    ] = False,
    unit: analyse.UnitName = None,
    tolerance: analyse.Tolerance = "5%",
    alpha: analyse.Alpha = 0.05,
    correction: analyse.CorrectionName = "holm",
    where: analyse.Wheres = None,
    fail_if: FailIf = None,
    allow: Allow = None,
    out: analyse.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Follow medians over campaigns: where they jump, and what else changed there.

    --fail-if judges the newest campaign against the one before it.

    Example: fsmatrix history 2026-*/campaign.h5 --metric latency_p99 --out history.pdf

    Example: fsmatrix history old.h5 new.h5 newest.h5 --fail-if 'slower > 10 %'
    """
    from fsmatrix.analysis.acceptance.history import history as analysis
    from fsmatrix.analysis.comparison.counted_rows import VerdictOptions

    analyse.picture(out)
    conditions, method = conditions_of(fail_if, allow), analyse.corrected(correction)
    levels, share = analyse.levels(where), analyse.share("--tolerance", tolerance)
    order: Order = "given" if as_given else "time"
    with analyse.bad_input(files):
        ds = analyse.opened(files)
        chosen = VerdictOptions(levels, unit, share, alpha, method)
        result = analysis(ds, metric, by=by, order=order, options=chosen)
        tested = _newest(ds, result, metric, conditions, allow or (), chosen)
    if as_json:
        verdict = {"acceptance": tested.to_dict()} if tested else {}
        common.print_json(result.to_dict() | verdict)
    else:
        if tested:
            analyse.print_lines([*tested.says, ""])
        analyse.show(result)
    if out:
        analyse.drawn([result], out)
    if tested and not tested.passed:
        raise typer.Exit(FAILED)


def _newest(
    ds: xr.Dataset,
    result: History,
    metric: str,
    conditions: Sequence[Condition],
    allow: Sequence[str],
    chosen: VerdictOptions,
) -> Acceptance | None:
    """The newest campaign judged against the one before it; None without a condition."""
    from fsmatrix.analysis.acceptance.acceptance import acceptance as acceptance_of
    from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions

    if not conditions:
        return None
    old, new = (campaign.name for campaign in result.campaigns[-2:])
    same = ComparisonOptions(chosen.where, None, chosen.tolerance, chosen.alpha, chosen.correction)
    return acceptance_of(
        ds, old, metric, only=[new], conditions=conditions, allow=allow, options=same
    )
