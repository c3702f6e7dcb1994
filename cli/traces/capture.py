"""`fsmatrix trace capture` and `rank`: programs run under strace, and what they did is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fsmatrix.cli import common, progress
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.suite.campaign.yamlio import Origin, refuse

Command = Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")]
Roots = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        help="Only files below this directory (repeatable). Default: the working directory.",
    ),
]


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
    from fsmatrix.traces.capture import program

    check_place(out)
    if not os.access(out.absolute().parent, os.W_OK):
        raise refuse(Origin(f"-o {out}"), "", "lies in a directory that is read-only")
    status = program.capture(command, checked(roots), out, to_stderr=as_json)
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
    from fsmatrix.traces.capture import program

    if not out.is_dir():
        raise refuse(Origin(f"-o {out}"), "", f"{out} is not a directory: make it before")
    raise typer.Exit(program.run_rank(command, checked(roots), out))


def check_place(out: Path) -> None:
    """Refuse a trace's place without a folder, or where something is that is no trace.

    A trace is replaced by a new one; results or what somebody wrote are not, before anything runs.
    """
    from fsmatrix.results.files.safefile import ResultError
    from fsmatrix.traces import reader

    folder = out.absolute().parent
    if not folder.is_dir():
        raise refuse(Origin(f"-o {out}"), "", f"{folder} is not a directory")
    if out.is_dir():
        raise refuse(Origin(f"-o {out}"), "", "is a directory: name a file, for example t.h5 in it")
    if not out.exists():
        return
    try:
        with reader.opened(out):
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
    from fsmatrix.traces.reader import opened

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
