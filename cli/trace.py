"""`fsmatrix trace`: what programs do to their files, written down to be looked at and replayed.

Traces are captured by running programs under strace, imported from what other tools have taken, or
generated from a published workload; looked at; and made anonymous, to be given to others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import common, progress
from fsmatrix.cli.progress import echo, waiting
from fsmatrix.cli.questions import analyse
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.suite.campaign.yamlio import Origin, refuse

Command = Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")]
Roots = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        help="Only files below this directory (repeatable). Default: the working directory.",
    ),
]

app = typer.Typer(
    no_args_is_help=True,
    help="Capture what programs do to their files; import, examine and anonymise traces.",
)


def capture(
    command: Command,
    out: Annotated[Path, typer.Option("-o", "--out", help="The trace to write.")],
    roots: Roots = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Machine-readable output; what the command prints goes to standard error.",
        ),
    ] = False,
) -> None:
    """Run a command and record what it does to its files.

    Its output, its input and its exit status are passed through; status 2 and a message that
    begins with "error:" if nothing was captured.  strace makes the command slower.

    Example: fsmatrix trace capture -o git.h5 --root . -- git clone /srv/repository copy
    """
    from fsmatrix.traces.capture import strace

    check_place(out)
    if not os.access(out.absolute().parent, os.W_OK):
        raise refuse(Origin(f"-o {out}"), "", "lies in a directory that is read-only")
    status = strace.capture(command, checked(roots), out, to_stderr=as_json)
    facts = summary(out)
    if as_json:
        common.print_json({"status": status, **vars(facts)})
    else:
        _say(facts)
    raise typer.Exit(status)


def rank(
    command: Command,
    out: Annotated[Path, typer.Option("-o", "--out", help="Directory for the texts of strace.")],
    roots: Roots = None,
) -> None:
    """Run one rank of an MPI program under strace; all become one trace.

    The text of each rank is written into the directory, which all nodes share; then
    fsmatrix trace import texts/*.strace -o t.h5 makes the trace.

    Example: mpirun -n 4 fsmatrix trace rank -o texts -- ./program
    """
    from fsmatrix.traces.capture import strace

    if not out.is_dir():
        raise refuse(Origin(f"-o {out}"), "", f"{out} is not a directory: make it before")
    raise typer.Exit(strace.run_rank(command, checked(roots), out))


def check_place(out: Path) -> None:
    """Refuse a trace's place without a folder, or where something is that is no trace.

    A trace is replaced by a new one; results or what somebody wrote are not, before anything runs.
    """
    from fsmatrix.results.files.safefile import ResultError
    from fsmatrix.traces import tracefile

    folder = out.absolute().parent
    if not folder.is_dir():
        raise refuse(Origin(f"-o {out}"), "", f"{folder} is not a directory")
    if out.is_dir():
        raise refuse(Origin(f"-o {out}"), "", "is a directory: name a file, for example t.h5 in it")
    if not out.exists():
        return
    try:
        with tracefile.opened(out):
            pass
    except ResultError as error:
        message = "is there already and is no whole trace: remove it, or choose another name"
        raise refuse(Origin(f"-o {out}"), "", message) from error


def checked(roots: list[Path] | None) -> list[Path]:
    """The roots, absolute; without any the working directory."""
    for root in roots or []:
        if not root.is_dir():
            raise refuse(Origin(f"--root {root}"), "", "is not a directory")
    return [root.absolute() for root in roots or [Path.cwd()]]


@dataclass(frozen=True)
class Summary:
    """What is in a trace, and what is not."""

    file: str
    operations: int
    kinds: Mapping[str, int]  # operations by kind
    files: int
    threads: int
    unseen: Mapping[str, int]
    facts: JsonObject


def summary(path: Path) -> Summary:
    """Of a trace that was just taken."""
    import numpy as np

    from fsmatrix.backends.player.ops import Kind
    from fsmatrix.traces.tracefile import opened

    with opened(path) as trace:
        counts = np.zeros(len(Kind), dtype=np.int64)
        for block in trace.blocks(("kind",)):
            counts += np.bincount(block["kind"], minlength=len(Kind))
        return Summary(
            file=str(path),
            operations=trace.operations,
            kinds={kind.name.lower(): int(counts[kind]) for kind in Kind if counts[kind]},
            files=len(trace.files),
            threads=len(trace.threads) if trace.operations else 0,
            unseen=dict(trace.header.unseen),
            facts=dict(trace.header.facts),
        )


def _say(trace: Summary) -> None:
    """On standard error: standard output is the command's."""
    from fsmatrix.results.evidence.trace import gaps
    from fsmatrix.results.units import plural

    console = progress.console(stderr=True)
    names = plural(trace.files, "name")
    text = f"{trace.file}: {plural(trace.operations, 'operation')} on {names}"
    progress.line(console, f"{text} by {plural(trace.threads, 'thread')}")
    if not trace.operations:
        progress.line(console, "nothing was done below the root: is --root the folder it works in?")
    for title, counts in (("kinds", trace.kinds), ("not in the trace", trace.unseen)):
        ordered = sorted(counts.items(), key=lambda pair: -pair[1])
        listed = ", ".join(f"{count} x {what}" for what, count in ordered)
        progress.line(console, f"{title}: {listed or 'none'}")
    for sentence in gaps(trace.facts):
        progress.line(console, sentence, "yellow")


def import_(
    inputs: Annotated[list[Path], typer.Argument(help="Files of one format.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Trace to write.")],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="strace, fio-iolog, dbench, darshan, blkparse, ...; else by content.",
        ),
    ] = "",
    roots: Annotated[
        list[Path] | None,
        typer.Option(
            "--root", help="Only files below this directory; names begin there (repeatable)."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="The program's working directory (strace without -y)."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Import what other tools have recorded: strace, fio, dbench, Darshan, blkparse.

    Paths are relative to "/", or to --root, which texts of strace need.  Several files become
    threads of one trace that begin together.  Status 2: nothing was written.

    Example: fsmatrix trace import job1.iolog job2.iolog -o fio.h5
    """
    from fsmatrix.results.evidence.trace import gaps
    from fsmatrix.traces.capture.system import NO_FOLDER
    from fsmatrix.traces.importing.dbench import Names
    from fsmatrix.traces.importing.importer import FOLDER_ADVICE, import_traces
    from fsmatrix.traces.trace_model import NO_TIMES

    check_place(out)
    absolute = [root.absolute() for root in roots or ()]
    try:
        Names(absolute)
    except ValueError as error:
        raise refuse(Origin("--root"), "", str(error)) from error
    if folder is not None and not folder.is_absolute():
        raise refuse(Origin(f"--folder {folder}"), "", "is not an absolute path")
    with waiting("trace import: reading"):
        done = import_traces(inputs, out, format_, absolute, folder)
    if as_json:
        common.print_json(
            {
                "file": str(out),
                "format": done.format,
                "operations": done.operations,
                "timed": done.header.timed,
                "unseen": dict(done.header.unseen),
                "facts": dict(done.header.facts),
            }
        )
        return
    console = progress.console()
    facts = done.header.facts
    times = "" if done.header.timed else ", without times: only their order is known"
    reason = f" ({facts[NO_TIMES]})" if NO_TIMES in facts else ""
    progress.line(console, f"{done.operations} operations of {done.format} in {out}{times}{reason}")
    for what, count in sorted(done.header.unseen.items()):
        progress.line(console, f"not in the trace: {count} x {what}", "yellow")
    if NO_FOLDER in done.header.unseen:
        progress.line(console, FOLDER_ADVICE, "yellow")
    for sentence in gaps(facts):
        progress.line(console, sentence, "yellow")


def generate(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="uniform-random, ycsb-zipfian, neo4j-dijkstra or synapse-labelling.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Trace to write.")],
    scale: Annotated[
        float,
        typer.Option(
            "--scale", help="Numbers of operations and pages, relative to the published ones."
        ),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of the trace: another seed gives another trace.")
    ] = 0,
) -> None:
    """Write one of the four published workloads as a trace.

    Replays do not need such a file: they generate the workload themselves, block by block.

    Example: fsmatrix trace generate ycsb-zipfian --scale 0.01 -o ycsb.h5
    """
    from fsmatrix.traces import page_cache
    from fsmatrix.traces.tracefile import copy

    try:
        trace = page_cache.generate(name, scale, seed)
    except ValueError as error:
        raise refuse(Origin(f"trace generate {name}"), "", str(error)) from error
    check_place(out)
    with progress.bar("writing", trace.operations) as tell:
        copy(trace, out, tell)
    pages = int(trace.files.size.sum()) // 4096
    echo(f"{out}: {trace.operations} operations on {pages} pages of 4 KiB")


def info(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace.")],
    out: analyse.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """What a trace is like: operations, sizes, files, pages, reuse, order, rates.

    Miss ratios are those of an LRU cache, which drops the least recently used page.

    Example: fsmatrix trace info git.h5 -o git.png
    """
    from fsmatrix.analysis.draw.tables import text
    from fsmatrix.analysis.traces import TraceShown
    from fsmatrix.traces.statistics import survey
    from fsmatrix.traces.tracefile import opened

    analyse.picture(out)
    with opened(trace) as operations, progress.bar("reading", operations.operations) as tell:
        result = TraceShown(trace.name, survey(operations, tell))
    analyse.deliver(result, out, as_json)
    if not as_json:
        frame = text(result.classes())
        analyse.grid([str(name) for name in frame.columns], frame.to_numpy().tolist())


def anonymise(
    source: Annotated[Path, typer.Argument(help="A trace.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The anonymised trace to write.")],
    extensions: Annotated[
        bool, typer.Option("--keep-extensions", help="Keep what follows the last dot of a name.")
    ] = False,
) -> None:
    """Replace the names of files, remove the command, renumber the processes.

    Folders stay folders, and one name has one pseudonym everywhere; the key is not stored. Sizes,
    times, ranks and the order of operations stay as they are.

    Example: fsmatrix trace anonymise git.h5 -o shared.h5 --keep-extensions
    """
    from fsmatrix.traces.tracefile import anonymise as rewrite

    check_place(out)
    rewrite(source, out, extensions)
    progress.echo(f"{out}: {source} without names", err=True)


COMMANDS: dict[str, Callable[..., None]] = {
    "capture": capture,
    "rank": rank,
    "import": import_,
    "generate": generate,
    "info": info,
    "anonymise": anonymise,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
