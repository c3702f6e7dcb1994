"""`fsmatrix history`: the same work over many campaigns, in the order of time."""

from __future__ import annotations

from typing import Annotated

import typer

from fsmatrix.cli import common, completion
from fsmatrix.cli.questions import acceptance, analyse
from fsmatrix.cli.questions.compare import corrected


def history(
    files: analyse.Files,
    metric: analyse.MetricName = "bandwidth",
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help="The factor whose levels are the lines of a panel.",
            autocompletion=completion.factors,
        ),
    ] = "target",
    as_given: Annotated[
        bool, typer.Option("--as-given", help="Keep the order of FILES; do not sort by start time.")
    ] = False,
    unit: analyse.UnitName = None,
    tolerance: analyse.Tolerance = "5%",
    alpha: analyse.Alpha = 0.05,
    correction: analyse.CorrectionName = "holm",
    where: analyse.Wheres = None,
    fail_if: acceptance.FailIf = None,
    allow: acceptance.Allow = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Follow medians over campaigns: where they jump, and what else changed there.

    --fail-if judges the newest campaign against the one before it.

    Example: fsmatrix history 2026-*/campaign.h5 --metric latency_p99 --out history.pdf

    Example: fsmatrix history old.h5 new.h5 newest.h5 --fail-if 'slower > 10 %'
    """
    from fsmatrix.analysis.acceptance.acceptance import acceptance as acceptance_of
    from fsmatrix.analysis.acceptance.history import history as analysis
    from fsmatrix.analysis.comparison.options import ComparisonOptions, VerdictOptions

    analyse.picture(out)
    conditions, method = acceptance.conditions(fail_if, allow), corrected(correction)
    levels, share = analyse.levels(where), analyse.share("--tolerance", tolerance)
    with analyse.bad_input(files):
        ds = analyse.opened(files)
        options = VerdictOptions(levels, unit, share, alpha, method)
        result = analysis(ds, metric, by=by, order="given" if as_given else "time", options=options)
        tested = None
        if conditions:
            names = [campaign.name for campaign in result.campaigns[-2:]]
            tested = acceptance_of(
                ds,
                names[0],
                metric,
                only=names[1:],
                conditions=conditions,
                allow=allow or (),
                options=ComparisonOptions(levels, None, share, alpha, method),
            )
    if as_json:
        verdict = {"acceptance": tested.to_dict()} if tested else {}
        common.print_json(result.to_dict() | verdict)
    else:
        if tested:
            analyse.say([*tested.says, ""])
        analyse.show(result)
    if out:
        analyse.drawn([result], out)
    if tested and not tested.passed:
        raise typer.Exit(acceptance.FAILED)
