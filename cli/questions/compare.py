"""`fsmatrix compare`: targets, levels of a factor, or campaigns, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.questions import acceptance, analyse, compared, options
from fsmatrix.results.evidence.values import Json

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.acceptance.acceptance import Acceptance
    from fsmatrix.analysis.comparison.result import Comparison
    from fsmatrix.analysis.comparison.rows import ComparisonOptions
    from fsmatrix.analysis.questions.fairness import Fairness

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
        callback=options.known,
    ),
]
Ignore = Annotated[
    list[str] | None,
    options.factor(
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
        rich_help_panel=acceptance.TESTS,
        autocompletion=completion.results,
    ),
]


def compare(
    files: options.Files,
    by: By = None,
    sides: Sides = None,
    metric: MetricOfPhase = "",
    unit: options.UnitName = None,
    tolerance: options.Tolerance = "5%",
    alpha: options.Alpha = 0.05,
    correction: options.CorrectionName = "max-t",
    where: options.Wheres = None,
    ignore: Ignore = None,
    across_engines: AcrossEngines = False,
    across_cache: AcrossCache = False,
    baseline: Baseline = None,
    fail_if: acceptance.FailIf = None,
    allow: acceptance.Allow = None,
    cells: options.Cells = False,
    out: options.Out = None,
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
    from fsmatrix.analysis.comparison.advice import extension_of
    from fsmatrix.analysis.comparison.rows import ComparisonOptions

    analyse.picture(out)
    conditions = acceptance.of_baseline(fail_if, allow, baseline, by, sides)
    levels, share = options.levels(where), options.share("--tolerance", tolerance)
    method = options.corrected(correction)
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
        compared.show(results, cells)
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
        compared.show(result.comparisons, True)
    if out:
        analyse.drawn([result], out)
    if not result.passed:
        raise typer.Exit(acceptance.FAILED)
