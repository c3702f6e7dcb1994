"""Commands of the analyses that take a factor of the user's choice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fsmatrix.cli import common, completion
from fsmatrix.cli.questions import analyse, options, studies
from fsmatrix.cli.questions.analyse import Ask, question
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.result import Result
    from fsmatrix.analysis.units import Level


def fairness(
    files: options.Files,
    targets: Annotated[
        str | None, options.side("--targets", "Only these: xfs,ext4.  Default: all.")
    ] = None,
    out: options.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Are the targets compared fairly?  The facts about each, side by side.

    Redundancy, durability, caches, transport, media, servers: what is equal, what favours
    which target and why, and what is not known (docs/ceph-vs-daos.md).

    Example: fsmatrix fairness out --targets ceph,daos
    """
    from fsmatrix.analysis.questions.fairness import fairness as analysis

    chosen = tuple(name.strip() for name in targets.split(",")) if targets else ()
    analyse.answer(files, out, as_json, lambda ds: analysis(ds, chosen))


@question
def effects(
    metric: options.OwnMetric = "",
    factor: Annotated[
        list[str] | None,
        options.factor("--factor", "Only this factor (repeatable).  Default: all that vary."),
    ] = None,
    order: Annotated[
        int, typer.Option("--order", help="Largest number of factors in one interaction: 1 to 3.")
    ] = 2,
) -> Ask:
    """Effect of each factor, and interactions between factors (analysis of variance).

    Example: fsmatrix effects out --metric iops --out effects.pdf
    """
    from fsmatrix.analysis.questions.effects import effects as analysis

    return lambda ds, where: analysis(ds, metric, factors=factor or (), order=order, where=where)


@question
def curves(
    along: Annotated[
        str, options.factor("--along", "A numeric factor: processes, page_size, warehouses...")
    ],
    metric: options.MetricName = "bandwidth",
    panel: Annotated[
        list[str] | None,
        options.factor("--panel", "Draw one panel for each level of this factor (repeatable)."),
    ] = None,
    unit: options.UnitName = None,
) -> Ask:
    """A metric over a numeric factor, one line per combination of the other factors.

    Example: fsmatrix curves published:flash-tpcc-nilfs2-gc --along warehouses
    --metric transaction_rate --unit 1/min
    """
    from fsmatrix.analysis.questions.curves import curves as analysis

    def ask(ds: xr.Dataset, where: dict[str, Level]) -> Result:
        shown = analyse.unit(ds, metric, unit)
        return analysis(
            ds,
            metric,
            [along],
            panel=panel or (),
            where=where,
            unit=(shown.label, shown.divisor) if shown else None,
        )

    return ask


@question
def response(
    along: Annotated[
        str | None,
        options.factor("--along", "The load: rate, iodepth, threads, ...  Default: what varies."),
    ] = None,
    latency: Annotated[
        str, typer.Option("--latency", help="mean, p50, p95, p99 or p99.9.")
    ] = "p99",
) -> Ask:
    """Throughput against latency as load grows, and the knee, for each target.

    Example: fsmatrix response out --along rate --latency p99.9 --out response.png
    """
    from fsmatrix.analysis.lessons.words import LATENCIES
    from fsmatrix.analysis.questions.response import LOADS
    from fsmatrix.analysis.questions.response import response as analysis

    if latency not in LATENCIES:
        allowed = ", ".join(LATENCIES)
        raise refuse(Origin(f"--latency {latency}"), "", f"no latency: there are {allowed}")
    loads = (along,) if along else LOADS
    return lambda ds, where: analysis(ds, LATENCIES[latency], loads, where=where)


def predict(
    files: options.Files,
    chunk: Annotated[
        list[str] | None,
        typer.Option("--chunk", help="A chunk size, tested or not: 2MiB (repeatable)."),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            "--measured",
            help="A campaign to check against the predictions.",
            autocompletion=completion.results,
        ),
    ] = None,
    metric: options.MetricName = "bandwidth",
    unit: options.UnitName = None,
    where: options.Wheres = None,
    out: options.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Predict untested chunk sizes, or check another campaign for faults.

    Example: fsmatrix predict out --chunk 2MiB --where pattern=seq-read
    Example: fsmatrix predict out --measured today --out faults.pdf
    """
    from fsmatrix.analysis.questions.models.models import models
    from fsmatrix.analysis.questions.models.predictions import faults
    from fsmatrix.analysis.questions.models.predictions import predict as analysis

    if bool(chunk) == bool(measured):
        raise refuse(Origin("fsmatrix predict"), "", "needs either --chunk or --measured")
    analyse.picture(out)
    sizes = [studies.number(f"chunk={text}") for text in chunk or ()]
    with analyse.bad_input([*files, *([measured] if measured else [])]):
        ds = analyse.opened(files)
        shown = analyse.unit(ds, metric, unit)
        fitted = models(ds, metric, None, where=options.levels(where), unit=shown)
        result = faults(fitted, analyse.opened([measured])) if measured else analysis(fitted, sizes)
    analyse.deliver(result, out, as_json)


@question
def cpu() -> Ask:
    """Where the clients' CPU time goes: user, system, waiting for I/O, idle.

    Example: fsmatrix cpu out --where pattern=rand-read --out cpu.pdf
    """
    from fsmatrix.analysis.studies.flash import cpu as analysis

    return lambda ds, where: analysis(ds, where)


@question
def speedup(
    of: Annotated[str, options.side("--of", "The level that should be faster.")],
    over: Annotated[str, options.side("--over", "The level that it is compared with.")],
    by: Annotated[str, options.factor("--by", "The factor of both levels.")] = "target",
    along: Annotated[
        str, options.factor("--along", "The numeric factor that the ratio may depend on.")
    ] = "memory",
    metric: options.MetricName = "bandwidth",
) -> Ask:
    """Ratio of one level to another, over a third factor: speed-up with less memory.

    Example: fsmatrix speedup out --of nilfs2 --over ext2 --along memory --metric iops
    """
    from fsmatrix.analysis.comparison.rows import ComparisonOptions
    from fsmatrix.analysis.questions.speedup import speedup as analysis

    return lambda ds, where: analysis(
        ds, of, over, metric, along=(along,), by=by, options=ComparisonOptions(where=where)
    )


@question
def traffic(files: options.Files, unit: options.UnitName = None) -> Ask:
    """Network traffic of the clients over time, with a panel for each chunk size.

    Example: fsmatrix traffic out --where processes_per_node=16 --out figure10.pdf
    """
    from fsmatrix.analysis.questions.bottleneck.traffic import traffic as analysis

    if len(files) != 1 or not Path(files[0]).is_dir():
        message = (
            "must be one results directory: series of counters are in its run files, "
            "not in the campaign file"
        )
        raise refuse(Origin(" ".join(files)), "", message)
    return lambda ds, where: analysis(
        ds, Path(files[0]), where=where, unit=analyse.unit(ds, "bandwidth", unit)
    )


@question
def lhcb() -> Ask:
    """Show the LHCb analysis: its histogram, whether all runs agree, and rates.

    Example: fsmatrix lhcb out --out mass.pdf
    """
    from fsmatrix.analysis.studies.lhcb import lhcb as analysis

    return lambda ds, where: analysis(ds, where)


@question
def adapters() -> Ask:
    """Operations per second of a device, over the devices sharing a host adapter.

    Example: fsmatrix adapters published:ssd-per-hba --out adapters.pdf
    """
    from fsmatrix.analysis.studies.pagecache import adapters as analysis

    return lambda ds, where: analysis(ds, where=where)
