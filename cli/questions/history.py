"""`fsmatrix history`: the same work over many campaigns, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fsmatrix.cli import common
from fsmatrix.cli.questions import acceptance, analyse, options

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.acceptance.acceptance import Acceptance, Condition
    from fsmatrix.analysis.acceptance.history import Order
    from fsmatrix.analysis.acceptance.result import History
    from fsmatrix.analysis.comparison.rows import VerdictOptions


def history(
    files: options.Files,
    metric: options.MetricName = "bandwidth",
    by: Annotated[
        str, options.factor("--by", "The factor whose levels are the lines of a panel.")
    ] = "target",
    as_given: Annotated[
        bool, typer.Option("--as-given", help="Keep the order of FILES; do not sort by start time.")
    ] = False,
    unit: options.UnitName = None,
    tolerance: options.Tolerance = "5%",
    alpha: options.Alpha = 0.05,
    correction: options.CorrectionName = "holm",
    where: options.Wheres = None,
    fail_if: acceptance.FailIf = None,
    allow: acceptance.Allow = None,
    out: options.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Follow medians over campaigns: where they jump, and what else changed there.

    --fail-if judges the newest campaign against the one before it.

    Example: fsmatrix history 2026-*/campaign.h5 --metric latency_p99 --out history.pdf

    Example: fsmatrix history old.h5 new.h5 newest.h5 --fail-if 'slower > 10 %'
    """
    from fsmatrix.analysis.acceptance.history import history as analysis
    from fsmatrix.analysis.comparison.rows import VerdictOptions

    analyse.picture(out)
    conditions, method = acceptance.conditions(fail_if, allow), options.corrected(correction)
    levels, share = options.levels(where), options.share("--tolerance", tolerance)
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
        raise typer.Exit(acceptance.FAILED)


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
    from fsmatrix.analysis.comparison.rows import ComparisonOptions

    if not conditions:
        return None
    old, new = (campaign.name for campaign in result.campaigns[-2:])
    same = ComparisonOptions(chosen.where, None, chosen.tolerance, chosen.alpha, chosen.correction)
    return acceptance_of(
        ds, old, metric, only=[new], conditions=conditions, allow=allow, options=same
    )
