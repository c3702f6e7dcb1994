"""`fsmatrix testbed`: a real storage system on this machine, up, looked at, and down again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fsmatrix.suite.cli import common

if TYPE_CHECKING:
    from fsmatrix.backends.testbed.ceph import Bed, BedOptions
    from fsmatrix.backends.testbed.steps import Step

NOT_AS_ASKED = 1  # status of `status` (not up) and of `down` (something was left alone)
DEFAULT = Path("/var/tmp/fsmatrix-testbed")

app = typer.Typer(
    no_args_is_help=True,
    help="A real Ceph of this machine's packages: emulated storage nodes, drives and links (root).",
)


class System(Enum):
    """What can be brought up."""

    ceph = "ceph"


Directory = Annotated[
    Path, typer.Option("--directory", "-d", help="The bed's own directory: all its state.")
]


@app.command("up")
def up(
    system: Annotated[System, typer.Argument(help="What to bring up.")],
    nodes: Annotated[int, typer.Option(help="Storage nodes, each its own host bucket.")] = 3,
    osds_per_node: Annotated[
        str, typer.Option(help="OSDs of a node; study: 6 of sata, 3 of pcie.")
    ] = "1",
    interface: Annotated[
        str, typer.Option(help="Drives to emulate: sata, pcie; none: plain files.")
    ] = "none",
    scale: Annotated[
        float, typer.Option(help="Speed of a drive, as a part of the real one's.")
    ] = 0.1,
    network: Annotated[
        str, typer.Option(help="Speed of a node's link: 1Gbit...; or none.")
    ] = "none",
    redundancy: Annotated[str, typer.Option(help="size=1, size=3 or ec=2+1.")] = "size=1",
    failure_domain: Annotated[str, typer.Option(help="osd or host.")] = "host",
    osd_size: Annotated[str, typer.Option(help="Size of each OSD.")] = "2GiB",
    pg_num: Annotated[
        int | None, typer.Option(help="Placement groups of a data pool. Default: 100 per OSD.")
    ] = None,
    auth: Annotated[str, typer.Option(help="none, or cephx: users and capabilities.")] = "none",
    address: Annotated[str, typer.Option(help="Address of the daemons. Default: 127.x.y.1.")] = "",
    directory: Directory = DEFAULT,
    as_json: common.Json = False,
) -> None:
    """Bring a test bed up, and say for each step who was waited for.

    It outlives this command.  What fails half-way is taken down again.

    Example: fsmatrix testbed up ceph --nodes 3 --osds-per-node 2 --interface sata --network 1Gbit
    """
    del system  # there is only one
    from fsmatrix.backends.testbed import ceph

    options = _options(
        nodes=nodes, interface=interface, scale=scale, network=network, redundancy=redundancy,
        osds_per_node=int(osds_per_node) if osds_per_node.isdecimal() else osds_per_node,
        failure_domain=failure_domain, osd_size=osd_size, pg_num=pg_num, auth=auth,
        address=address,
    )  # fmt: skip
    console = Console(stderr=True) if as_json else common.console()
    with _ended_by_sigterm(), console.status("") as spinner:
        bed = ceph.up(
            options, directory, begun=spinner.update, ended=lambda step: _say_step(console, step)
        )
    if as_json:
        common.print_json(ceph.status(directory))
    else:
        _say_bed(console, bed)


def _options(**values: Any) -> BedOptions:
    from pydantic import ValidationError

    from fsmatrix.backends.errors import BackendError
    from fsmatrix.backends.testbed.ceph import BedOptions

    try:
        return BedOptions.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        text = str(first["msg"]).removeprefix("Value error, ")
        raise BackendError(f"--{name} {first['input']}: {text}") from error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM takes down what was made, as Ctrl-C does."""

    def ended(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_step(console: Console, step: Step) -> None:
    console.print(
        f"{step.name:<22} {step.seconds:6.2f} s = {step.waited:6.2f} s waited for Ceph or the "
        f"system + {step.own:6.2f} s own",
        highlight=False,
        soft_wrap=True,
    )


def _say_bed(console: Console, bed: Bed) -> None:
    total = sum(step["seconds"] for step in bed.steps)
    own = sum(step["own"] for step in bed.steps)
    lines = [
        f"up in {total:.1f} s, {own:.1f} s of it our own",
        f"configuration  {bed.conf}",
        f"file system    {bed.filesystem}, data pool {bed.pools['data']}",
        f"RADOS pool     {bed.pools['rados']}",
    ]
    for name, factor in bed.facts["factors"].items():
        if "realised" in factor:
            lines.append(f"{name:<14} {factor['level']}, {factor['realised']}: {factor['how']}")
    lines.append(f"take it down:  fsmatrix testbed down --directory {bed.directory}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@app.command("status")
def status(directory: Directory = DEFAULT, as_json: common.Json = False) -> None:
    """Say whether a test bed is up, with its daemons and health.  Status 1: it is not up.

    Example: fsmatrix testbed status --json
    """
    from fsmatrix.backends.testbed import ceph

    found = ceph.status(directory)
    if as_json:
        common.print_json(found)
    else:
        _say_status(common.console(), found)
    if found["state"] != "up":
        raise typer.Exit(NOT_AS_ASKED)


def _say_status(console: Console, found: dict[str, Any]) -> None:
    words = {
        "none": "no test bed",
        "interrupted": "bringing it up was interrupted: take it down",
    }
    state = words.get(found["state"], found["state"])
    console.print(f"{found['directory']}: {state}", highlight=False, markup=False, soft_wrap=True)
    table = Table("daemon", "pid", "state", box=None)
    for daemon in found.get("daemons", []):
        table.add_row(daemon["role"], str(daemon["pid"] or ""), daemon["state"])
    if table.row_count:
        console.print(table)
    for line in found.get("health", []):
        console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)


@app.command("down")
def down(directory: Directory = DEFAULT, as_json: common.Json = False) -> None:
    """Take a test bed down, also after a crash: all that it made, and nothing else.

    It may be said again at any time.  Status 1: something was left alone, and why.

    Example: fsmatrix testbed down --directory /var/tmp/fsmatrix-testbed
    """
    from fsmatrix.backends.testbed import ceph
    from fsmatrix.backends.testbed.teardown import LEFT

    said = ceph.down(directory)
    left = [line for line in said if line.startswith(LEFT)]
    if as_json:
        common.print_json({"directory": str(directory), "done": said, "left_alone": left})
    else:
        for line in said or [f"{directory}: no test bed"]:
            common.console().print(line, highlight=False, markup=False, soft_wrap=True)
    if left:
        raise typer.Exit(NOT_AS_ASKED)
