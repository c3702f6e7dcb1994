"""`fsmatrix testbed`: a real system on this machine, up, looked at, and down again."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fsmatrix.cli import common, progress
from fsmatrix.cli.testbeds import testbed_up
from fsmatrix.cli.testbeds.testbed_up import DEFAULTS
from fsmatrix.results.evidence.values import JsonObject, inside, objects, text, texts

NOT_AS_ASKED = 1  # status of `status` (not up) and of `down` (something was left alone)
# each has up, status and down
_MODULES = {
    "ceph": "fsmatrix.backends.testbed.ceph_testbed",
    "daos": "fsmatrix.backends.testbed.daos_testbed",
    "slurm": "fsmatrix.slurm.testbed",
}

app = typer.Typer(
    no_args_is_help=True,
    help="A real Ceph, DAOS or Slurm on this machine, with emulated nodes (needs root).",
)
app.add_typer(testbed_up.app, name="up")

Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        help="The test bed's directory. Default: the directories that `up` uses by default "
        f"({', '.join(map(str, DEFAULTS.values()))}).",
    ),
]


@app.command("status")
def status(directory: Directory = None, as_json: common.AsJson = False) -> None:
    """Show whether test beds are up, with their daemons and health.

    Status 1: one of them is not up, or there is none.

    With --directory, --json gives the facts of that test bed, otherwise {"beds": [...]}.

    Example: fsmatrix testbed status --json
    """
    beds = [_found(place) for place in _places(directory)]
    if as_json:
        common.print_json(beds[0] if directory else {"beds": beds})
    else:
        for facts in beds:
            _say_status(progress.console(), facts)
    there = [facts["state"] for facts in beds if facts["state"] != "none"]
    if not there or set(there) != {"up"}:
        raise typer.Exit(NOT_AS_ASKED)


@app.command("down")
def down(directory: Directory = None, as_json: common.AsJson = False) -> None:
    """Take test beds down, even after a crash: all that they made, and nothing else.

    It can be repeated at any time.  Status 1: something was left alone; the output says why.
    With --directory, --json describes that test bed, otherwise {"beds": [...]}.

    Example: fsmatrix testbed down --directory /var/tmp/fsmatrix-testbed
    """
    from fsmatrix.backends.testbed.base import left_alone

    beds = []
    for place in _places(directory):
        lines = [line for name in _MODULES for line in _system(name).down(place)]
        beds.append({"directory": str(place), "done": lines, "left_alone": left_alone(lines)})
        if not as_json:
            for line in lines or [f"{place}: no test bed"]:
                progress.line(progress.console(), line)
    if as_json:
        common.print_json(beds[0] if directory else {"beds": beds})
    if any(bed["left_alone"] for bed in beds):
        raise typer.Exit(NOT_AS_ASKED)


def _places(directory: Path | None) -> list[Path]:
    return [directory] if directory else list(DEFAULTS.values())


def _system(name: str) -> Any:
    return importlib.import_module(_MODULES[name])


def _found(directory: Path) -> JsonObject:
    """Facts of the test bed in a directory, whichever system it is."""
    none: JsonObject = {}
    for name in _MODULES:
        facts = _system(name).status(directory)
        if facts["state"] != "none":
            return {"system": name, **facts}
        none = facts
    return none


def _say_status(console: Console, facts: JsonObject) -> None:
    words = {
        "none": "no test bed",
        "distrusted": "not looked at",
        "interrupted": "interrupted while it came up: take it down",
    }
    state = words.get(state := text(facts, "state"), state)
    system = f" ({facts['system']})" if "system" in facts else ""
    progress.line(console, f"{facts['directory']}{system}: {state}")
    table = Table("daemon", "pid", "state", box=None)
    for daemon in objects(facts, "daemons") if "daemons" in facts else ():
        table.add_row(text(daemon, "role"), str(daemon["pid"] or ""), text(daemon, "state"))
    if table.row_count:
        console.print(table)
    for part, key in ((facts, "health"), (inside(facts, "facts"), "warnings")):
        for line in texts(part, key) if key in part else ():
            progress.line(console, line, "yellow")
