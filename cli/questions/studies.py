"""Commands of the analyses that ask one question each: files in, text, JSON or a picture out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from fsmatrix.cli import common, completion
from fsmatrix.cli.questions import analyse
from fsmatrix.suite.campaign.problems import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.analysis.result import Result

Coding = Literal["raw", "log2"]


def bars(
    files: analyse.Files,
    metric: analyse.MetricName = "bandwidth",
    unit: analyse.UnitName = None,
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Medians by interface, pattern, chunk size and processes, with intervals.

    Example: fsmatrix bars out --metric iops --where storage_nodes=2 --out figure2.pdf
    """
    from fsmatrix.analysis.questions.bars import bars as analysis

    _of_one_metric(analysis, files, metric, unit, where, out, as_json)


def scalability(
    files: analyse.Files, metric: analyse.MetricName = "bandwidth", unit: analyse.UnitName = None,
    where: analyse.Wheres = None, out: analyse.Out = None, as_json: common.Json = False,
) -> None:  # fmt: skip
    """Growth over storage nodes: speed-up, efficiency and scalability laws.

    Example: fsmatrix scalability out --where pattern=seq-read --out figure7.pdf
    """
    from fsmatrix.analysis.questions.scalability.scalability import scalability as analysis

    _of_one_metric(analysis, files, metric, unit, where, out, as_json)


def _of_one_metric(
    analysis: Callable[..., Result],
    files: Sequence[str],
    metric: str,
    unit: str | None,
    where: Sequence[str] | None,
    out: Path | None,
    as_json: bool,
) -> None:
    analyse.answer(
        files,
        out,
        as_json,
        lambda ds: analysis(
            ds, metric, unit=analyse.unit(ds, metric, unit), where=analyse.levels(where)
        ),
    )


def models(
    files: analyse.Files,
    metric: analyse.MetricName = "bandwidth",
    unit: analyse.UnitName = None,
    hold_out: Annotated[
        str, typer.Option("--hold-out", help="Chunk size to leave out and predict, or none.")
    ] = "1MiB",
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Regression models over chunk size, and how well they predict an unseen size.

    Example: fsmatrix models out --hold-out 1MiB --out models.pdf
    """
    from fsmatrix.analysis.questions.models.models import models as analysis

    left = None if hold_out == "none" else ("chunk", number(f"chunk={hold_out}"))
    analyse.answer(
        files,
        out,
        as_json,
        lambda ds: analysis(
            ds, metric, left, where=analyse.levels(where), unit=analyse.unit(ds, metric, unit)
        ),
    )


def correlation(
    files: analyse.Files,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", help="bandwidth, iops, ... (repeatable).", autocompletion=completion.metrics
        ),
    ] = None,
    coding: Annotated[
        str, typer.Option("--coding", help="Chunk size as raw or log2 values; this changes r.")
    ] = "raw",
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Correlation of factors and metrics, per pattern and number of storage nodes.

    Example: fsmatrix correlation out --coding log2 --out figure6.pdf
    """
    from fsmatrix.analysis.questions.correlation.correlation import PAPER_METRICS
    from fsmatrix.analysis.questions.correlation.correlation import correlation as analysis

    if coding not in get_args(Coding):
        raise refuse(Origin(f"--coding {coding}"), "", "raw or log2")
    analyse.answer(
        files,
        out,
        as_json,
        lambda ds: analysis(
            ds,
            coding=cast(Coding, coding),
            metrics=metric or PAPER_METRICS,
            where=analyse.levels(where),
        ),
    )


def bottleneck(
    files: analyse.Files,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", help="network=1.25GB or device=500MB, in bytes per second (repeatable)."
        ),
    ] = None,
    unit: analyse.UnitName = None,
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Where bandwidth stops growing, and what is at its limit there.

    Example: fsmatrix bottleneck out --limit network=1.25GB --out figure10.pdf
    """
    from fsmatrix.analysis.questions.bottleneck.bottleneck import bottleneck as analysis

    limits = {text.partition("=")[0]: number(text) for text in limit or ()}
    store = Path(files[0]) if len(files) == 1 and Path(files[0]).is_dir() else None
    analyse.answer(
        files,
        out,
        as_json,
        lambda ds: analysis(
            ds,
            store=store,
            limits=limits or None,
            where=analyse.levels(where),
            unit=analyse.unit(ds, "bandwidth", unit),
        ),
    )


def variability(
    files: analyse.Files, metric: analyse.MetricName = "bandwidth", unit: analyse.UnitName = None,
    where: analyse.Wheres = None, out: analyse.Out = None, as_json: common.Json = False,
) -> None:  # fmt: skip
    """How runs vary: spread, differing attachments, modes, drift and warm-up.

    Example: fsmatrix variability out --metric latency_p99 --out spread.png
    """
    from fsmatrix.analysis.questions.variability import spread

    _of_one_metric(spread, files, metric, unit, where, out, as_json)


def tails(
    files: analyse.Files,
    quantile: Annotated[
        str, typer.Option("--quantile", help="Quantile of the operations, such as 99% or 0.999.")
    ] = "99%",
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """Latency percentile of each cell with its interval, and what factors change it.

    Example: fsmatrix tails out --quantile 99.9% --out tails.png
    """
    from fsmatrix.analysis.questions.tails.tails import tails as analysis

    share = analyse.share("--quantile", quantile)
    analyse.answer(files, out, as_json, lambda ds: analysis(ds, share, where=analyse.levels(where)))


def repetitions(
    files: analyse.Files,
    metric: analyse.MetricName = "bandwidth",
    half_width: Annotated[
        str, typer.Option("--half-width", help="Wanted precision of the median: +- 5% or 0.05.")
    ] = "5%",
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """How many attachments give an interval of the wanted width, from data so far.

    Example: fsmatrix repetitions out --half-width 2%
    """
    from fsmatrix.analysis.questions.variability import spread

    share = analyse.share("--half-width", half_width)
    analyse.answer(
        files,
        out,
        as_json,
        lambda ds: spread(ds, metric, "repetitions", half_width=share, where=analyse.levels(where)),
    )


def number(text: str) -> float:
    """The value of name=value as a number or a size."""
    value = next(iter(analyse.levels([text]).values()))
    if isinstance(value, str):
        raise refuse(Origin(text), "", "must be name=number, such as network=1.25GB")
    return float(value)
