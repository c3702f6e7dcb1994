"""Commands of the analyses: files in, text, JSON or a picture out.

Some ask one question each, others take a factor of the user's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.questions import analyse
from fsmatrix.cli.questions.analyse import Ask, question
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.result import Result
    from fsmatrix.analysis.studies.io500.io500_result import Io500Study
    from fsmatrix.analysis.units import Level

# `fsmatrix study`: what a collection of other people's results says.  A study is a command.
PARTS = 10  # how often the reading says how far it is
app = typer.Typer(
    no_args_is_help=True,
    help="What a collection of other people's results shows, and how yours compare.",
)


@app.command("io500")
def io500(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="IO500 submissions, in folders of any depth.")
    ],
    mine: Annotated[
        str | None,
        typer.Option(
            "--mine",
            help="Place the IO500 phases of a results directory or campaign.h5 among them.",
            autocompletion=completion.results,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Write the report (.html), a picture (.png, .svg, .pdf) or the table (.csv, "
            ".tex, .md).",
        ),
    ] = None,
    as_json: common.AsJson = False,
) -> None:  # fmt: skip
    """Recompute IO500 scores; describe file-system families, phases and your own run.

    The systems differ in hardware: the result describes, it proves nothing.

    Example: fsmatrix study io500 submission-data --mine out -o io500.html
    """
    from fsmatrix.analysis.studies.io500.io500_chart import SUFFIX, write
    from fsmatrix.analysis.studies.io500.io500_study import io500 as study
    from fsmatrix.suite.importing.recognise import collection

    analyse.picture(out, SUFFIX)
    campaign = _opened(mine) if mine is not None else None
    collected = collection(directory, _steps())
    with analyse.bad_input([str(directory), *([mine] if mine else [])]):
        result = study(collected, str(directory), campaign)
    if as_json:
        common.print_json(result.to_dict())
    else:
        _show(result)
    if out is not None and out.suffix.lower() == SUFFIX:
        progress.echo(str(write(result, out)), err=True)
    elif out is not None:
        analyse.drawn([result], out)


def _opened(results: str) -> xr.Dataset:
    """One's own campaign; refused before the collection is read."""
    from fsmatrix.analysis.data.load import open_campaign

    with analyse.bad_input([results]):
        return open_campaign(common.campaign_file(Path(results)))


def _steps() -> Callable[[int, int], None]:
    """Says how far the reading is, PARTS times."""
    from fsmatrix.analysis.steps import step

    def progress(done: int, total: int) -> None:
        if done * PARTS // total > (done - 1) * PARTS // total:
            step(f"study io500: read {done} of {total} places")

    return progress


def _show(result: Io500Study) -> None:
    """Sentences, then the families that have enough submissions for a table."""
    from fsmatrix.analysis.studies.io500.io500_result import ENOUGH, grids

    analyse.print_lines(result.says)
    few = sum(row.submissions < ENOUGH for row in result.families)
    for grid in grids(result, ENOUGH if few < len(result.families) else 1, ranges=False):
        analyse.print_lines(["", grid.title])
        analyse.grid(grid.columns, grid.lines, 1)
    if 0 < few < len(result.families):
        analyse.print_lines(
            ["", f"{few} families with fewer than {ENOUGH} submissions: see --out or --json."]
        )


Coding = Literal["raw", "log2"]


@question
def bars(metric: analyse.MetricName = "bandwidth", unit: analyse.UnitName = None) -> Ask:
    """Medians by interface, pattern, chunk size and processes, with intervals.

    Example: fsmatrix bars out --metric iops --where storage_nodes=2 --out figure2.pdf
    """
    from fsmatrix.analysis.questions.bars import bars as analysis

    return _of_one_metric(analysis, metric, unit)


@question
def scalability(metric: analyse.MetricName = "bandwidth", unit: analyse.UnitName = None) -> Ask:
    """Growth over storage nodes: speed-up, efficiency and scalability laws.

    Example: fsmatrix scalability out --where pattern=seq-read --out figure7.pdf
    """
    from fsmatrix.analysis.questions.scalability import scalability as analysis

    return _of_one_metric(analysis, metric, unit)


def _of_one_metric(analysis: Callable[..., Result], metric: str, unit: str | None) -> Ask:
    from fsmatrix.analysis.data.metric_cells import metric_for

    def ask(ds: xr.Dataset, where: Mapping[str, Level]) -> Result:
        name = metric_for(ds, metric)
        return analysis(ds, name, unit=analyse.unit(ds, name, unit), where=where)

    return ask


@question
def models(
    metric: analyse.MetricName = "bandwidth",
    unit: analyse.UnitName = None,
    hold_out: Annotated[
        str, typer.Option("--hold-out", help="Chunk size to leave out and predict, or none.")
    ] = "1MiB",
) -> Ask:
    """Regression models over chunk size, and how well they predict an unseen size.

    Example: fsmatrix models out --hold-out 1MiB --out models.pdf
    """
    from fsmatrix.analysis.questions.models.models import models as analysis

    left = None if hold_out == "none" else ("chunk", number(f"chunk={hold_out}"))
    return lambda ds, where: analysis(
        ds, metric, left, where=where, unit=analyse.unit(ds, metric, unit)
    )


@question
def correlation(
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="bandwidth, iops, ... (repeatable).",
            autocompletion=completion.metrics,
            callback=analyse.known,
        ),
    ] = None,
    coding: Annotated[
        str, typer.Option("--coding", help="Chunk size as raw or log2 values; this changes r.")
    ] = "raw",
) -> Ask:
    """Correlation of factors and metrics, per pattern and number of storage nodes.

    Example: fsmatrix correlation out --coding log2 --out figure6.pdf
    """
    from fsmatrix.analysis.questions.correlation import PAPER_METRICS
    from fsmatrix.analysis.questions.correlation import correlation as analysis

    if coding not in get_args(Coding):
        raise refuse(Origin(f"--coding {coding}"), "", "raw or log2")
    return lambda ds, where: analysis(
        ds, coding=cast(Coding, coding), metrics=metric or PAPER_METRICS, where=where
    )


@question
def bottleneck(
    files: analyse.Files,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", help="network=1.25GB or device=500MB, in bytes per second (repeatable)."
        ),
    ] = None,
    unit: analyse.UnitName = None,
) -> Ask:
    """Where bandwidth stops growing, and which resource is at its limit there.

    Example: fsmatrix bottleneck out --limit network=1.25GB --out figure10.pdf
    """
    from fsmatrix.analysis.questions.bottleneck.bottleneck import bottleneck as analysis

    limits = {text.partition("=")[0]: number(text) for text in limit or ()}
    store = Path(files[0]) if len(files) == 1 and Path(files[0]).is_dir() else None
    return lambda ds, where: analysis(
        ds,
        store=store,
        limits=limits or None,
        where=where,
        unit=analyse.unit(ds, "bandwidth", unit),
    )


@question
def variability(metric: analyse.OwnMetric = "", unit: analyse.UnitName = None) -> Ask:
    """How runs vary: spread, differing attachments, modes, drift and warm-up.

    Example: fsmatrix variability out --metric latency_p99 --out spread.png
    """
    from fsmatrix.analysis.questions.variability import variability as analysis

    return _of_one_metric(analysis, metric, unit)


@question
def tails(
    quantile: Annotated[
        str, typer.Option("--quantile", help="Quantile of the operations, such as 99% or 0.999.")
    ] = "99%",
) -> Ask:
    """Latency percentile of each cell with its interval, and what factors change it.

    Example: fsmatrix tails out --quantile 99.9% --out tails.png
    """
    from fsmatrix.analysis.questions.tails import tails as analysis

    share = analyse.share("--quantile", quantile)
    return lambda ds, where: analysis(ds, share, where=where)


@question
def repetitions(
    metric: analyse.OwnMetric = "",
    half_width: Annotated[
        str, typer.Option("--half-width", help="Wanted precision of the median: +- 5% or 0.05.")
    ] = "5%",
) -> Ask:
    """How many attachments give an interval of the wanted width, from data so far.

    Example: fsmatrix repetitions out --half-width 2%
    """
    from fsmatrix.analysis.questions.variability import variability as analysis

    share = analyse.share("--half-width", half_width)
    return lambda ds, where: analysis(ds, metric, "repetitions", half_width=share, where=where)


def number(text: str) -> float:
    """The value of name=value as a number or a size."""
    value = next(iter(analyse.levels([text]).values()))
    if isinstance(value, str):
        raise refuse(Origin(text), "", "must be name=number, such as network=1.25GB")
    return float(value)


def fairness(
    files: analyse.Files,
    targets: Annotated[
        str | None, analyse.side("--targets", "Only these: xfs,ext4.  Default: all.")
    ] = None,
    out: analyse.Out = None,
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
    metric: analyse.OwnMetric = "",
    factor: Annotated[
        list[str] | None,
        analyse.factor("--factor", "Only this factor (repeatable).  Default: all that vary."),
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
        str, analyse.factor("--along", "A numeric factor: processes, page_size, warehouses...")
    ],
    metric: analyse.MetricName = "bandwidth",
    panel: Annotated[
        list[str] | None,
        analyse.factor("--panel", "Draw one panel for each level of this factor (repeatable)."),
    ] = None,
    unit: analyse.UnitName = None,
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
        analyse.factor("--along", "The load: rate, iodepth, threads, ...  Default: what varies."),
    ] = None,
    latency: Annotated[
        str, typer.Option("--latency", help="mean, p50, p95, p99 or p99.9.")
    ] = "p99",
) -> Ask:
    """Throughput against latency as load grows, and the knee, for each target.

    Example: fsmatrix response out --along rate --latency p99.9 --out response.png
    """
    from fsmatrix.analysis.lessons.lessons_words import LATENCIES
    from fsmatrix.analysis.questions.response import LOADS
    from fsmatrix.analysis.questions.response import response as analysis

    if latency not in LATENCIES:
        allowed = ", ".join(LATENCIES)
        raise refuse(Origin(f"--latency {latency}"), "", f"no latency: there are {allowed}")
    loads = (along,) if along else LOADS
    return lambda ds, where: analysis(ds, LATENCIES[latency], loads, where=where)


def predict(
    files: analyse.Files,
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
    metric: analyse.MetricName = "bandwidth",
    unit: analyse.UnitName = None,
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Predict untested chunk sizes, or check another campaign for faults.

    Example: fsmatrix predict out --chunk 2MiB --where pattern=seq-read
    Example: fsmatrix predict out --measured today --out faults.pdf
    """
    from fsmatrix.analysis.questions.models.models import models
    from fsmatrix.analysis.questions.models.models_result import faults
    from fsmatrix.analysis.questions.models.models_result import predict as analysis

    if bool(chunk) == bool(measured):
        raise refuse(Origin("fsmatrix predict"), "", "needs either --chunk or --measured")
    analyse.picture(out)
    sizes = [number(f"chunk={text}") for text in chunk or ()]
    with analyse.bad_input([*files, *([measured] if measured else [])]):
        ds = analyse.opened(files)
        shown = analyse.unit(ds, metric, unit)
        fitted = models(ds, metric, None, where=analyse.levels(where), unit=shown)
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
    of: Annotated[str, analyse.side("--of", "The level that should be faster.")],
    over: Annotated[str, analyse.side("--over", "The level that it is compared with.")],
    by: Annotated[str, analyse.factor("--by", "The factor of both levels.")] = "target",
    along: Annotated[
        str, analyse.factor("--along", "The numeric factor that the ratio may depend on.")
    ] = "memory",
    metric: analyse.MetricName = "bandwidth",
) -> Ask:
    """Ratio of one level to another, over a third factor: speed-up with less memory.

    Example: fsmatrix speedup out --of nilfs2 --over ext2 --along memory --metric iops
    """
    from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
    from fsmatrix.analysis.questions.curves import speedup as analysis

    return lambda ds, where: analysis(
        ds, of, over, metric, along=(along,), by=by, options=ComparisonOptions(where=where)
    )


@question
def traffic(
    files: analyse.Files,
    unit: analyse.UnitName = None,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="Of the storage nodes that were watched instead.")
    ] = False,
) -> Ask:
    """Network traffic of the clients over time, with a panel for each chunk size.

    Example: fsmatrix traffic out --where processes_per_node=16 --out figure10.pdf
    """
    from fsmatrix.analysis.questions.bottleneck.traffic import CLIENTS, STORAGE_NODES
    from fsmatrix.analysis.questions.bottleneck.traffic import traffic as analysis

    if len(files) != 1 or not Path(files[0]).is_dir():
        message = (
            "must be one results directory: series of counters are in its run files, "
            "not in the campaign file"
        )
        raise refuse(Origin(" ".join(files)), "", message)
    return lambda ds, where: analysis(
        ds,
        Path(files[0]),
        where=where,
        unit=analyse.unit(ds, "bandwidth", unit),
        whose=STORAGE_NODES if nodes else CLIENTS,
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
