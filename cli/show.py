"""`fsmatrix show`, `logs` and `findings`: results in the terminal.

Failed runs, who is ahead where, and medians; what the audits found, and which cells and runs it
concerns.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.measure import Measurement
from rich.text import Text

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.questions import analyse
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.registry import did_you_mean
from fsmatrix.results.units import plural
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    import xarray as xr
    from rich.console import Console

    from fsmatrix.analysis.data.cells import Cell
    from fsmatrix.analysis.data.summary import Summary
    from fsmatrix.analysis.lessons.standings import Standings
    from fsmatrix.analysis.questions.findings import FindingGroup, Findings
    from fsmatrix.results.files.campaignfile import Entry
    from fsmatrix.results.record import Finding, RunRecord

# One run of a results directory: how its programs were started, and what they printed.
LONGEST_LOG = 256 << 20  # bytes of a job's log
MOST_NAMED = 5  # of several that were meant
NONE = "{} has no run whose id begins so, and no job or part of a submission that is called so"
FACTS = ("run_id", "status", "error", "engine", "engine_version", "started", "duration")
UNSET: tuple[Json, ...] = (None, "", [])  # levels that say nothing

STYLE = {"invalid": "bold red", "warning": "yellow", "info": "cyan"}
MOST_CELLS, MOST_RUNS, MOST_MESSAGES = 4, 2, 2  # shown, unless --audit asks for all


def logs(
    results: Annotated[
        Path,
        typer.Argument(
            help="A results directory or a campaign.h5.", autocompletion=completion.results
        ),
    ],
    run: Annotated[
        str,
        typer.Argument(
            help="Id of a run, or how it begins; or a job that submit queued: its number or part.",
            autocompletion=completion.runs,
        ),
    ],
    text: Annotated[
        str | None, typer.Option("--text", help="Only this text, by the name in its first line.")
    ] = None,
    out: common.OutFile = None,
) -> None:
    """Print what the programs of a run, or a job of Slurm, printed.

    Several texts each follow a line with their name; one alone stands as it was printed.

    Example: fsmatrix logs out 0123456789abcdef-r0000-a1 -o fio.json
    """
    from fsmatrix.results.files.safefile import write_whole

    if out is not None and not out.parent.is_dir():
        raise refuse(Origin(f"--out {out}"), "", f"no directory {out.parent}")
    of_job = {} if results.is_file() else _of_job(results, run)
    texts = of_job or dict(read(results, run).texts)
    if not texts:
        raise refuse(Origin(run), "", "no program printed anything: the built-in player did it")
    if text is not None and text not in texts:
        raise refuse(Origin(f"--text {text}"), "", f"no such text; there are {', '.join(texts)}")
    chosen = texts if text is None else {text: texts[text]}
    whole = "\n".join(
        f"==> {name} <==\n{printed}" if len(chosen) > 1 else printed
        for name, printed in chosen.items()
    )
    if out is not None:
        write_whole(out, whole.encode())
    else:
        progress.raw(whole)


@dataclass(frozen=True)
class OneRun:
    """What a results directory, or a campaign file (an import), keeps of a run."""

    facts: dict[str, Json]  # run_id, status, error, engine, engine_version, started, duration
    levels: Mapping[str, Json]  # factor -> level
    argv: Sequence[Sequence[str]]  # command lines; a campaign file has none
    findings: Sequence[Finding]
    texts: Mapping[str, str]  # what programs printed, by name


def read(results: Path, wanted: str) -> OneRun:
    """The run of that id, or the only one whose id begins so."""
    from fsmatrix.results.files.campaignread import reading, run_of
    from fsmatrix.results.files.store import Store

    if results.is_file():
        with reading(results) as file:
            ids = list(dict.fromkeys(each.decode() for each in file["run_id"][...].tolist()))
        return _of_entry(run_of(results, _named(results, wanted, ids)))
    store = Store.open(results)
    return _of_record(store.read(_named(results, wanted, store.ids())))


def _named(results: Path, wanted: str, ids: Iterable[str]) -> str:
    found = [each for each in ids if each.startswith(wanted)]
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    more = ", ..." if len(found) > MOST_NAMED else ""
    which = f"{len(found)} runs begin so: {', '.join(found[:MOST_NAMED])}{more}"
    raise refuse(Origin(f"run {wanted}"), "", which if found else NONE.format(results))


def timeline(
    results: Annotated[
        Path, typer.Argument(help="A results directory.", autocompletion=completion.results)
    ],
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            help="Id of a run, or how it begins.  Default: of each cell that nearest its median.",
            show_default=False,
            autocompletion=completion.runs,
        ),
    ] = None,
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Show a run over time: latencies, throughput and client CPU on one axis.

    Example: fsmatrix timeline out --run 0123456789abcdef-r0003 --out run.pdf
    Example: fsmatrix timeline out --where target=xfs --where pattern=seq-write -o cell.png
    """
    from fsmatrix.analysis.questions.timeline.timeline import of_run
    from fsmatrix.analysis.questions.timeline.timeline import timeline as of_cells
    from fsmatrix.results.files.store import Store

    analyse.picture(out)
    if not results.is_dir():
        message = "must be a results directory: what happened inside a run is in its run files"
        raise refuse(Origin(str(results)), "", message)
    if run is not None and where:
        raise refuse(Origin("fsmatrix timeline"), "", "takes either --run or --where")
    with analyse.bad_input([str(results)]):
        if run is not None:
            store = Store.open(results)
            result = of_run(store.read(_named(results, run, store.ids())))
        else:
            ds = analyse.opened([str(results)])
            result = of_cells(ds, results, where=analyse.levels(where))
    if as_json:
        common.print_json(result.to_dict())
    else:
        analyse.print_lines(result.says)
    if out:
        analyse.drawn([result], out)


def _of_record(record: RunRecord) -> OneRun:
    facts = {name: getattr(record, name) for name in FACTS}
    return OneRun(facts, record.coordinates, record.argv, record.findings, record.texts)


def _of_entry(entry: Entry) -> OneRun:
    first = entry.rows[0]
    facts: dict[str, Json] = {**first.texts, "duration": first.numbers["duration"]}
    findings = {repr(one): one for row in entry.rows for one in row.findings}
    return OneRun(
        {name: facts[name] for name in FACTS},
        entry.levels,
        (),
        tuple(findings.values()),
        entry.texts,
    )


def _of_job(results: Path, wanted: str) -> dict[str, str]:
    """Logs of the jobs with this number, or of this part of a submission."""
    from fsmatrix.results.files import safefile
    from fsmatrix.slurm import submission

    paths = [
        submission.log(results, noted.key, noted.job)
        for noted in submission.submitted(results)
        if wanted in (noted.job, noted.key)
    ]
    there = [path for path in paths if path.exists()]
    if paths and not there:
        raise refuse(Origin(str(paths[-1])), "", "is not there: the job has printed nothing yet")
    return {p.name: safefile.read(p, LONGEST_LOG).decode(errors="replace") for p in there}


def _doubts(findings: Sequence[Finding]) -> str:
    """ ", invalid (...)" or ", doubtful (...)", with the audits that say so; "" if none does."""
    for severity, word in (("invalid", "invalid"), ("warning", "doubtful")):
        if audits := sorted({one.audit for one in findings if one.severity == severity}):
            return f", {word} ({', '.join(audits)})"
    return ""


def tell(results: Path, wanted: str, as_json: bool) -> None:
    """What `show --run` says of a run."""
    run = read(results, wanted)
    facts = run.facts
    if as_json:
        common.print_json(
            {**facts, "coordinates": run.levels, "argv": run.argv, "texts": list(run.texts)}
        )
        return
    console = progress.console()
    engine = f"{facts['engine']} {facts['engine_version']}".rstrip()
    verdict = f"{facts['status']}{_doubts(run.findings)}"
    head = f"{facts['run_id']}: {verdict}, {engine}, {facts['started']}, {facts['duration']:.1f} s"
    progress.line(console, head)
    if facts["error"]:
        progress.line(console, str(facts["error"]), "red")
    levels = {name: level for name, level in run.levels.items() if level not in UNSET}
    progress.line(console, " ".join(f"{name}={level}" for name, level in levels.items()))
    for argv in run.argv:
        progress.line(console, f"$ {shlex.join(argv)}")
    if run.texts:
        named = shlex.join([str(results), str(facts["run_id"])])
        progress.line(console, f"fsmatrix logs {named}  # what it printed")


MOST_RANKED = 3  # targets of a ranking that are shown
FEW = 8  # cells whose medians are shown without being asked for
MORE = "More: --cells (medians and intervals of each cell), --metric, --json."
WIDEST = 10_000  # columns of characters that a table may need


def show(
    results: common.Results,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            help="bandwidth, iops, latency_p99, ... (repeatable).",
            autocompletion=completion.metrics,
        ),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Show targets declared as references too.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            help="Only this run: its levels, and the command lines of its programs.",
            autocompletion=completion.runs,
        ),
    ] = None,
    cells: analyse.Cells = False,
    as_json: common.AsJson = False,
) -> None:
    """Show failed runs, which target is ahead in each cell, medians and intervals.

    Of more than a few cells the medians are shown if asked for, by --cells or --metric.

    Example: fsmatrix show out --metric bandwidth --metric latency_p99
    """
    if run is not None:
        tell(results, run, as_json)
        return
    from rich.console import Group

    from fsmatrix.analysis.data.cluster import ONE_MACHINE
    from fsmatrix.analysis.data.load import campaign_json, open_campaign, rows
    from fsmatrix.analysis.data.summary import summarise
    from fsmatrix.analysis.questions import iterations
    from fsmatrix.analysis.report import terminal
    from fsmatrix.analysis.units import METRICS

    for name in metric or ():
        if name not in METRICS:
            raise refuse(
                Origin(f"--metric {name}"), "", "no such metric" + did_you_mean(name, METRICS)
            )
    dataset = open_campaign(common.campaign_file(results))
    with analyse.bad_input([str(results)]):
        summary = summarise(dataset, include=["reference"] if reference else [])
    if as_json:
        standings, _ = _standings(dataset, summary)
        rows_of = zip(summary.cells, iterations.with_values(dataset, summary), strict=True)
        common.print_json([flat | _where(standings, cell) for cell, flat in rows_of])
        return
    console = progress.console()
    if summary.cluster.one_machine:
        console.print(Text(f"{ONE_MACHINE}.", style="bold"))
    data = rows(dataset)
    failed = data.where(data.failed & data.current)
    common.say_failures(
        console, list(zip(failed["run_id"], failed["status"], failed["error"], strict=True))
    )
    if not metric:
        named = results.is_dir() or campaign_json(dataset).get("imported")
        many = _first_screen(console, dataset, summary, str(results) if named else "")
        if many and not cells:
            analyse.print_lines([*terminal.doubts(summary), MORE])
            return
    tables = Group(terminal.in_terminal(summary, metric or ()), iterations.tables(summary))
    # rich leaves out columns that do not fit, from the right: the numbers
    needs = Measurement.get(console, console.options.update(max_width=WIDEST), tables)
    needed = needs.minimum if console.is_terminal else needs.maximum
    console.width = max(console.width, needed)
    console.print(tables, crop=False)


def _standings(dataset: xr.Dataset, summary: Summary) -> tuple[Standings | None, list[str]]:
    """Who is ahead in which cell, and why some or all of that is not known.

    Nothing of one machine, which is said above all else.
    """
    from fsmatrix.analysis.lessons.backend import pairs_compared
    from fsmatrix.analysis.lessons.standings import standings
    from fsmatrix.analysis.report.sections import MOST_RUNS

    if summary.cluster.one_machine:
        return None, []
    if summary.many_targets or dataset.sizes["run"] > MOST_RUNS:
        return None, [
            "too many runs or targets for this table; use `fsmatrix lessons` and `fsmatrix compare`"
        ]
    targets = [name for name in summary.targets if name not in summary.references]
    compared, refused = pairs_compared(dataset, targets)
    return (standings(summary, compared) if compared else None), refused


def _where(standings: Standings | None, cell: Cell) -> dict[str, Json]:
    """What `--json` says of a cell beside its medians."""
    standing = standings.of(cell) if standings else None
    return standing.to_dict() if standing else {}


def _first_screen(console: Console, dataset: xr.Dataset, summary: Summary, place: str) -> bool:
    """As the report's, or why there is none; whether it holds more than a few cells."""
    from fsmatrix.analysis.data.load import campaign_json
    from fsmatrix.analysis.questions.fairness import fairness
    from fsmatrix.analysis.report.terminal import WIDTH, standing

    standings, refused = _standings(dataset, summary)
    for why in refused:
        console.print(Text(f"Not compared: {why}.", style="dim"))
    if standings:
        console.width = max(console.width, WIDTH)  # rich prints no wider than its console
        for part in standing(standings, campaign_json(dataset), place):
            console.print(part, width=None if console.is_terminal else WIDTH, crop=False)
    if any(cell.open_loop for cell in summary.cells):
        _loads(dataset)
    if summary.many_targets:
        _rankings(dataset)
        return True
    if standings or summary.cluster.one_machine:
        analyse.print_lines(fairness(dataset, summary=summary).short(place or "FILE"))
    return standings is not None and len(standings.cells) > FEW


def _loads(dataset: xr.Dataset) -> None:
    """How much load each target can take, where runs had a rate and no throughput of their own."""
    from fsmatrix.analysis.questions.response import response

    try:
        lines = response(dataset).answers
    except ValueError:  # one load, say: its latencies are in the tables
        return
    analyse.print_lines([*lines, ""])


def _rankings(dataset: xr.Dataset) -> None:
    """For each pattern the first of many targets by their largest medians: no comparison."""
    from fsmatrix.analysis.data.metric_cells import metric_for, study
    from fsmatrix.analysis.lessons.standings import places

    analyse.print_lines(["The largest medians, no comparison:"])
    for pattern, shown in places(study(dataset, metric_for(dataset))).rankings:
        some = ", ".join(shown[:MOST_RANKED])
        more = len(shown) - MOST_RANKED
        start = f"{pattern}: " if pattern else ""
        analyse.print_lines([f"  {start}{some}{f' and {more} more' * (more > 0)}"])


def findings(
    files: analyse.Files,
    audit: Annotated[
        list[str] | None,
        typer.Option(
            "--audit",
            help="Only findings of this audit, with all cells and runs (repeatable).",
            autocompletion=completion.audits,
        ),
    ] = None,
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Show what the audits found, by severity and audit, with the cells and runs.

    What each audit examines, and its threshold: docs/audits.md.

    Example: fsmatrix findings out --where target=xfs

    Example: fsmatrix findings out --audit not-stationary --json
    """
    from fsmatrix.analysis.questions.findings import findings as analysis

    analyse.picture(out)
    with analyse.bad_input(files):
        result = analysis(analyse.opened(files), where=analyse.levels(where), audits=audit or ())
        if as_json:
            common.print_json(result.to_dict())
        else:
            _print_findings(result, whole=bool(audit))
        if out is not None:
            analyse.drawn([result], out)


def _print_findings(result: Findings, whole: bool) -> None:
    analyse.print_lines(result.says)
    console = progress.console()
    for group in result.groups:
        head = Text(f"\n{group.severity}", style=STYLE.get(group.severity, ""))
        head.append(f" {group.audit}: {_counted_findings(group, result)}", style="default")
        console.print(head, soft_wrap=True)
        analyse.print_lines([f"  {line}" for line in _finding_lines(group, whole)])


def _counted_findings(group: FindingGroup, result: Findings) -> str:
    runs, cells = plural(result.runs, "run"), plural(result.cells, "cell")
    return f"{group.runs} of {runs}, {len(group.cells)} of {cells}"


def _finding_lines(group: FindingGroup, whole: bool) -> list[str]:
    """Messages, advice, cells with their runs."""
    messages = group.messages if whole else group.messages[:MOST_MESSAGES]
    lines = [*messages]
    if left := len(group.messages) - len(messages):
        lines.append(f"and {left} more like these")
    lines += [f"what to do: {group.advice}"] if group.advice else []
    cells = group.cells if whole else group.cells[:MOST_CELLS]
    for cell in cells:
        runs = cell.run_ids if whole else cell.run_ids[:MOST_RUNS]
        more = ", ..." if len(runs) < len(cell.run_ids) else ""
        named = f"{cell.named or 'the only cell'}: " + ", ".join(runs) + more
        lines.append(f"- {named}")
    if left := len(group.cells) - len(cells):
        lines.append(f"- and {left} more cells (--audit {group.audit} lists all)")
    return lines
