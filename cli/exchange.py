"""Results from others and for others: `fsmatrix import` and `fsmatrix bundle`.

Outputs that somebody has already become a campaign file, or series of storage nodes of runs that
are there; a campaign with its results becomes one archive.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.progress import console, echo
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import plural
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from rich.console import Console

    from fsmatrix.results.files.store import Store
    from fsmatrix.results.sharing.bundle import Bundle
    from fsmatrix.suite.importing.importing import Outcome

SOME_LEFT_OUT = 1
MOST_SHOWN = 20

SHOWN = 20


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Files and directories; with --onto: nmon, sar or collectl, FILES."),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Campaign file to make or add to.")
    ] = None,
    onto: Annotated[
        Path | None,
        typer.Option(
            "--onto",
            metavar="OUT",
            help="Results directory to whose runs the series of storage nodes belong.",
            autocompletion=completion.results,
        ),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Label all files: target=ceph-a (repeatable)."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--map", help="Read labels from the paths: 'results/{target}/{nodes}/*.json'."
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="Whose a file is: NAME, or FILE=NAME (repeatable)."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option("--zone", help="Of times that have none: Europe/Berlin, UTC, +02:00."),
    ] = None,
    shifts: Annotated[
        list[str] | None,
        typer.Option(
            "--shift", help="Seconds that a node's clock was ahead: 3600, HOST=-1.5 (repeatable)."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="In place of what was imported for these hosts.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be imported; write nothing.")
    ] = False,
    as_json: common.AsJson = False,
) -> None:
    """Import outputs of benchmarks; or of nmon, sar, collectl onto runs.

    Of benchmarks: IOR, mdtest, fio, dbench, IO500 and elbencho.

    Files are recognised by content.  Status 1: some files of a directory could not
    be imported and are listed; 2: nothing was written.  With --onto, what nmon, sar or
    collectl wrote on storage nodes is put onto the runs of its time.

    Example: fsmatrix import results -o old.h5 --map 'results/{target}/{storage_nodes}/*.json'

    Example: fsmatrix import nmon osd1.nmon osd2.nmon --onto out --zone Europe/Berlin
    """
    _refuse_mixtures(
        out,
        onto,
        {"--set": sets, "--map": pattern},
        {"--host": hosts, "--zone": zone, "--shift": shifts, "--replace": replace},
    )
    if onto is not None:
        _onto(onto, paths, (hosts or (), zone, shifts or (), replace, dry_run), as_json)
        return
    assert out is not None
    from rich.progress import Progress

    from fsmatrix.suite.importing.importing import Import, labeller
    from fsmatrix.suite.importing.recognise import Formats, find

    if not out.absolute().parent.is_dir():
        raise refuse(Origin(f"-o {out}"), "", f"{out.absolute().parent} is not a directory")
    labels, formats = labeller(sets or (), pattern), Formats.all()
    entries = find(paths, formats.summaries, out)
    console = progress.console()
    with Progress(console=console, transient=True, disable=as_json) as bar:
        task = bar.add_task("importing", total=len(entries))
        outcome = Import(out, labels, formats).run(
            entries, dry_run, lambda done: bar.update(task, completed=done)
        )
    if as_json:
        common.print_json(_told(outcome, out, dry_run))
    else:
        _say(console, outcome, out, dry_run)
    if outcome.refused:
        raise typer.Exit(SOME_LEFT_OUT)


def _refuse_mixtures(
    out: Path | None, onto: Path | None, of_out: dict[str, object], of_onto: dict[str, object]
) -> None:
    """Either --out or --onto, and the options of that."""
    if (out is None) == (onto is None):
        reason = "-o FILE takes benchmarks' outputs, --onto OUT those of nmon, sar, collectl"
        raise refuse(Origin("import"), "", f"one of both is needed: {reason}")
    name, others = ("-o", of_onto) if onto is None else ("--onto", of_out)
    for option, value in others.items():
        if value:
            raise refuse(Origin(option), "", f"has no meaning with {name}")


def _onto(
    onto: Path,
    paths: list[Path],
    said: tuple[Iterable[str], str | None, Iterable[str], bool, bool],
    as_json: bool,
) -> None:
    """Series of storage nodes, put onto runs that are there."""
    from fsmatrix.results.registry import UnknownName
    from fsmatrix.suite.importing import onto as nodes

    tool, *files = paths
    if not files:
        raise refuse(Origin("import"), "", "names no file: fsmatrix import nmon FILES --onto OUT")
    hosts, zone, shifts, replace, dry = said
    options = nodes.Options(
        dict(_pairs("--host", hosts)),
        zone,
        {name: _seconds(text) for name, text in _pairs("--shift", shifts)},
        replace,
        dry,
    )
    try:
        task = nodes.Onto(onto, str(tool), options)
    except UnknownName as error:
        raise refuse(Origin("import --onto"), "", str(error)) from error
    with _bars(as_json) as tell:
        outcome = task.run(files, lambda done, total: tell("files", done, total))
    if as_json:
        common.print_json({"directory": str(onto), **nodes.told(outcome)})
        return
    console = progress.console()
    for line, style in nodes.sentences(outcome, onto):
        progress.line(console, line, style)


def _pairs(option: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """("FILE", "NAME") of FILE=NAME, ("", "NAME") of NAME."""
    seen: set[str] = set()
    for text in texts:
        name, _, value = text.rpartition("=")
        if not value or name in seen:
            reason = "is there twice" if value else "has nothing after the ="
            raise refuse(Origin(f"{option} {text}"), "", reason)
        seen.add(name)
        yield name, value


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise refuse(Origin(f"--shift {text}"), "", "is no number of seconds, such as 3600 or -1.5")
    return seconds


def _told(outcome: Outcome, out: Path, dry: bool) -> dict[str, Json]:
    def listed(pairs: list[tuple[str, str]], key: str) -> list[dict[str, str]]:
        return [{"path": path, key: text} for path, text in pairs]

    return {
        "file": str(out),
        "written": not dry and bool(outcome.taken),
        "runs_added": outcome.runs,
        "runs_kept": outcome.kept,
        "mixed": outcome.mixed,
        "imported": [
            {
                "path": taken.file,
                "format": taken.format,
                "target": taken.target,
                "runs": list(taken.run_ids),
                "failed": list(taken.failed),
            }
            for taken in outcome.taken
        ],
        "already_there": listed(outcome.already_imported, "same_as"),
        "not_recognised": listed(outcome.not_recognised, "reason"),
        "left_out": listed(outcome.refused, "reason"),
    }


def _say(console: Console, outcome: Outcome, out: Path, dry: bool) -> None:
    failed = [(taken.file, f"failed run: {why}") for taken in outcome.taken for why in taken.failed]
    same = [(file, f"same text as {other}") for file, other in outcome.already_imported]
    _list(console, "not recognised", outcome.not_recognised, "dim")
    _list(console, "already there", same, "dim")
    _list(console, "imported", failed, "yellow")
    _list(console, "left out", outcome.refused, "red")
    formats = Counter(taken.format for taken in outcome.taken for _ in taken.run_ids)
    kinds = ", ".join(f"{count} {name}" for name, count in sorted(formats.items()))
    verb = "would be added to" if dry else "added to"
    text = f"{plural(outcome.runs, 'run')} {verb} {out}" + (f" ({kinds})" if kinds else "")
    if outcome.kept:
        text += f"; {outcome.kept} were there before"
    progress.line(console, text)
    if outcome.mixed:
        progress.line(console, outcome.mixed, "yellow")


def _list(console: Console, title: str, pairs: list[tuple[str, str]], style: str) -> None:
    for file, reason in pairs[:MOST_SHOWN]:
        text = f"{title}: {file}: {reason}"
        progress.line(console, text, style)
    if len(pairs) > MOST_SHOWN:
        console.print(f"{title}: {len(pairs) - MOST_SHOWN} more (--json lists all)", style=style)


def bundle(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="A results directory.", autocompletion=completion.results
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="Archive to write: NAME.tar.gz. Default: the campaign's name."
        ),
    ] = None,
    anonymise: Annotated[
        bool,
        typer.Option(
            "--anonymise",
            help="Replace hosts, users, paths, addresses, serial numbers, job ids with pseudonyms.",
        ),
    ] = False,
    runs: Annotated[
        bool, typer.Option("--runs/--no-runs", help="Include the run files, not only campaign.h5.")
    ] = True,
    as_json: common.AsJson = False,
) -> None:
    """Pack campaign, results, versions, checksums and a README into one archive.

    Unpacked, it is a results directory: another group can analyse it and run it again.

    Example: fsmatrix bundle out -o results.tar.gz --anonymise
    """
    from fsmatrix.results.files.store import Store
    from fsmatrix.results.sharing.bundle import Options
    from fsmatrix.results.sharing.bundle import bundle as make

    target = out or Path(_default(Store.open(results), anonymise))
    with _bars(as_json) as tell:
        written = make(results, target, Options(anonymise, runs), tell)
    if as_json:
        common.print_json(asdict(written))
    else:
        _say_bundled(written)


@contextmanager
def _bars(disabled: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each part; calls (part, done, total) move it."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
        disable=disabled,
    ) as progress:
        tasks = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what)
            progress.update(tasks[what], completed=done, total=total)

        yield tell


def _default(store: Store, anonymise: bool) -> str:
    """The campaign's name; without a campaign `results`."""
    from fsmatrix.results.files.schema import from_json

    try:
        name = Path(str(from_json(store.campaign()[0])["campaign"])).name or "results"
    except (OSError, ValueError, KeyError, TypeError):
        name = "results"
    return f"{name}{'-anonymous' if anonymise else ''}.tar.gz"


def _say_bundled(written: Bundle) -> None:
    runs = written.runs
    echo(
        f"{written.path}: {written.files} files, {written.size} bytes; {runs['total']} runs, "
        f"{runs['ok']} ok, {runs['failed']} failed, {runs['timeout']} past their deadline, "
        f"{runs['invalid']} invalid"
    )
    if written.replaced:
        kinds = ", ".join(f"{count} {kind}" for kind, count in written.replaced.items())
        echo(f"replaced (different names): {kinds}")
    for word, kind in sorted(written.ordinary.items()):
        echo(
            f"note: {kind} {word!r} is like an ordinary word or number: kept where it stands "
            "alone outside the fields that hold such names",
            err=True,
        )
    for file, reason in written.left_out[:SHOWN]:
        echo(f"left out: {file}: {reason}", err=True)
    if len(written.left_out) > SHOWN:
        echo(f"... and {len(written.left_out) - SHOWN} more files (see README.md)", err=True)
