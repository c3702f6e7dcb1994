"""`fsmatrix bundle`: a campaign with its results as one archive for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fsmatrix.cli import common, completion
from fsmatrix.cli.progress import console, echo

if TYPE_CHECKING:
    from fsmatrix.results.files.store import Store
    from fsmatrix.results.sharing.bundle import Bundle

SHOWN = 20


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
        _say(written)


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
    from fsmatrix.results.files.hdf5.schema import from_json

    try:
        name = Path(str(from_json(store.campaign()[0])["campaign"])).name or "results"
    except (OSError, ValueError, KeyError, TypeError):
        name = "results"
    return f"{name}{'-anonymous' if anonymise else ''}.tar.gz"


def _say(written: Bundle) -> None:
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
