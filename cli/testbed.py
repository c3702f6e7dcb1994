"""`fsmatrix testbed`: a real system on this machine, up, looked at, and down again.

`up` has a command for each system that can be brought up.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from fsmatrix.cli import common, progress
from fsmatrix.results.evidence.stored import JsonObject, inside, objects, text, texts

if TYPE_CHECKING:
    from pydantic import BaseModel

    from fsmatrix.backends.testbed.bed import BaseTestbed
    from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
    from fsmatrix.backends.testbed.daos_testbed import DaosTestbed
    from fsmatrix.backends.testbed.home import Step
    from fsmatrix.slurm.testbed import SlurmTestbed

System = TypeVar("System", bound="BaseTestbed[Any]")
DEFAULTS = {  # where a test bed is if nobody says so
    "ceph": Path("/var/tmp/fsmatrix-testbed"),
    "daos": Path("/var/tmp/fsmatrix-testbed-daos"),
    "slurm": Path("/var/tmp/fsmatrix-testbed-slurm"),
}
BedDirectory = Annotated[
    Path,
    typer.Option(
        "--directory", "-d", help="The test bed's own directory, which holds all its state."
    ),
]
up_app = typer.Typer(
    no_args_is_help=True,
    help="Bring up a test bed that outlives this command; a failed start is undone.",
)

NOT_AS_ASKED = 1  # status of `status` (not up) and of `down` (something was left alone)
app = typer.Typer(
    no_args_is_help=True,
    help="A real Ceph, DAOS or Slurm on this machine, with emulated nodes (needs root).",
)
Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        help="The test bed's directory. Default: the directories that `up` uses by default "
        f"({', '.join(map(str, DEFAULTS.values()))}).",
    ),
]


@up_app.command("ceph")
def ceph(
    nodes: Annotated[int, typer.Option(help="Storage nodes, each its own host bucket.")] = 3,
    osds_per_node: Annotated[
        str, typer.Option(help="OSDs per node; study: 6 for sata, 3 for pcie.")
    ] = "1",
    interface: Annotated[
        str, typer.Option(help="Drives to emulate: sata or pcie; none: plain files.")
    ] = "none",
    scale: Annotated[
        float, typer.Option(help="Speed of a drive, as a fraction of the real one's.")
    ] = 0.1,
    network: Annotated[
        str, typer.Option(help="Speed of a node's link, such as 1Gbit, or none.")
    ] = "none",
    redundancy: Annotated[str, typer.Option(help="size=1, size=3 or ec=2+1.")] = "size=1",
    failure_domain: Annotated[str, typer.Option(help="osd or host.")] = "host",
    osd_size: Annotated[str, typer.Option(help="Size of each OSD.")] = "2GiB",
    pg_num: Annotated[
        int | None, typer.Option(help="Placement groups of a data pool. Default: 100 per OSD.")
    ] = None,
    auth: Annotated[str, typer.Option(help="none, or cephx: users and capabilities.")] = "none",
    address: Annotated[str, typer.Option(help="Address of the daemons. Default: 127.x.y.1.")] = "",
    directory: BedDirectory = DEFAULTS["ceph"],
    as_json: common.AsJson = False,
) -> None:
    """Bring up a Ceph; show how long each step took and how much of it was waiting.

    Example: fsmatrix testbed up ceph --nodes 3 --osds-per-node 2 --interface sata --network 1Gbit
    """
    from fsmatrix.backends.testbed.ceph_testbed import CephTestbed

    _bring_up(
        CephTestbed,
        directory,
        as_json,
        _ceph_lines,
        nodes=nodes,
        interface=interface,
        scale=scale,
        network=network,
        redundancy=redundancy,
        osds_per_node=int(osds_per_node) if osds_per_node.isdecimal() else osds_per_node,
        failure_domain=failure_domain,
        osd_size=osd_size,
        pg_num=pg_num,
        auth=auth,
        address=address,
    )


@up_app.command("daos")
def daos(
    nodes: Annotated[
        int, typer.Option(help="Storage nodes: each is a server with one engine, which polls.")
    ] = 2,
    targets_per_node: Annotated[int, typer.Option(help="Targets of each engine.")] = 1,
    memory: Annotated[
        str, typer.Option(help="Storage of each engine, a tmpfs that is filled as it is used.")
    ] = "4GiB",
    network: Annotated[
        str, typer.Option(help="Speed of a node's link, such as 1Gbit, or none.")
    ] = "none",
    pool: Annotated[str, typer.Option(help="Label of the pool on all nodes.")] = "fsmatrix",
    pool_percent: Annotated[
        int, typer.Option(help="Percentage of the storage that the pool takes; 0: no pool.")
    ] = 50,
    directory: BedDirectory = DEFAULTS["daos"],
    as_json: common.AsJson = False,
) -> None:
    """Bring up a DAOS, where its server is installed, with an agent of its own.

    Example: fsmatrix testbed up daos --nodes 2
    """
    from fsmatrix.backends.testbed.daos_testbed import DaosTestbed

    _bring_up(
        DaosTestbed,
        directory,
        as_json,
        _daos_lines,
        nodes=nodes,
        targets_per_node=targets_per_node,
        memory=memory,
        network=network,
        pool=pool,
        pool_percent=pool_percent,
    )


@up_app.command("slurm")
def slurm(
    nodes: Annotated[int, typer.Option(help="Compute nodes, node1 to nodeN.")] = 4,
    cpus_per_node: Annotated[
        int, typer.Option(help="CPUs that a node declares, even if the machine has fewer.")
    ] = 4,
    time_limit: Annotated[
        str, typer.Option(help="Longest job of partition main, as Slurm writes times.")
    ] = "1-00:00:00",
    short_time_limit: Annotated[
        str, typer.Option(help="Longest job of partition short.")
    ] = "0:30:00",
    licenses: Annotated[str, typer.Option(help="Licences of the cluster: scratch:1,ior:2.")] = "",
    directory: BedDirectory = DEFAULTS["slurm"],
    as_json: common.AsJson = False,
) -> None:
    """Bring up a Slurm: slurmctld, and for each node a slurmd with its own host name.

    Example: fsmatrix testbed up slurm --nodes 4
    """
    from fsmatrix.slurm.testbed import SlurmTestbed

    _bring_up(
        SlurmTestbed,
        directory,
        as_json,
        _slurm_lines,
        nodes=nodes,
        cpus_per_node=cpus_per_node,
        time_limit=time_limit,
        short_time_limit=short_time_limit,
        licenses=licenses,
    )


def _bring_up(
    system: type[System],
    directory: Path,
    as_json: bool,
    lines: Callable[[System], list[str]],
    **given: Any,
) -> None:
    """Bring a test bed with the given options up; `lines` say how to use it."""
    options = _checked(system.Options, given)
    with _told(as_json) as (begun, ended):
        testbed = system.up(options, directory, begun=begun, ended=ended)
    if as_json:
        common.print_json(system.status(directory))
        return
    total, own = (sum(getattr(step, name) for step in testbed.steps) for name in ("seconds", "own"))
    for line in (
        f"up in {total:.1f} s, of which {own:.1f} s were fsmatrix's own",
        *lines(testbed),
        f"take it down:  fsmatrix testbed down --directory {testbed.directory}",
    ):
        progress.line(progress.console(), line)


def _checked(kind: type[BaseModel], given: dict[str, Any]) -> BaseModel:
    """The options, or BackendError that names the command's option."""
    from pydantic import ValidationError

    from fsmatrix.backends.errors import BackendError

    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        text = str(first["msg"]).removeprefix("Value error, ")
        raise BackendError(f"--{name} {first['input']}: {text}") from error


@contextmanager
def _told(as_json: bool) -> Iterator[tuple[Callable[[str], None], Callable[[Step], None]]]:
    """What tells of steps that begin and end.  SIGTERM takes down what was made, as Ctrl-C does."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    console = progress.console(stderr=True) if as_json else progress.console()
    before = signal.signal(signal.SIGTERM, end)
    try:
        with console.status("") as spinner:
            yield spinner.update, lambda step: _say_step(console, step)
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_step(console: Console, step: Step) -> None:
    console.print(
        f"{step.name:<22} {step.seconds:6.2f} s = {step.waited:6.2f} s waited for daemons or the "
        f"system + {step.own:6.2f} s own",
        highlight=False,
        soft_wrap=True,
    )


def _ceph_lines(testbed: CephTestbed) -> list[str]:
    return [
        f"configuration  {testbed.conf}",
        f"file system    {testbed.filesystem}, data pool {testbed.pools['data']}",
        f"RADOS pool     {testbed.pools['rados']}",
        *_realised(testbed.facts),
    ]


def _realised(facts: JsonObject) -> Iterator[str]:
    """How the factors are that a test bed emulates."""
    factors = inside(facts, "factors")
    for name in factors:
        if "realised" in (factor := inside(factors, name)):
            yield f"{name:<14} {factor['level']}, {factor['realised']}: {factor['how']}"


def _daos_lines(testbed: DaosTestbed) -> list[str]:
    variables = " ".join(f"{name}={value}" for name, value in testbed.environment().items())
    return [
        *(f"warning        {line}" for line in texts(testbed.facts, "warnings")),
        f"DAOS           {testbed.facts['version']}, {testbed.options.nodes} nodes, "
        f"system {testbed.system}",
        f"pool           {testbed.pool or 'none'}",
        *_realised(testbed.facts),
        f"use it:        export {variables}",
        f"administer it: dmg -o {testbed.conf} system query",
    ]


def _slurm_lines(testbed: SlurmTestbed) -> list[str]:
    cpus = testbed.options.cpus_per_node
    return [
        f"Slurm          {testbed.facts['version']}, {len(testbed.nodes)} nodes of {cpus} CPUs, "
        f"{testbed.facts['realised']}: all are this machine",
        f"use it:        export SLURM_CONF={testbed.conf}",
    ]


app.add_typer(up_app, name="up")


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
    from fsmatrix.backends.testbed.bed import left_alone

    beds = []
    for place in _places(directory):
        lines = [line for system in _systems().values() for line in system.down(place)]
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


def _systems() -> dict[str, type[BaseTestbed[Any]]]:
    """Every kind of test bed by name, also of other packages."""
    from fsmatrix.backends.testbed.bed import TESTBEDS
    from fsmatrix.slurm.testbed import SlurmTestbed

    return {**{name: TESTBEDS.load(name) for name in TESTBEDS.names()}, "slurm": SlurmTestbed}


def _found(directory: Path) -> JsonObject:
    """Facts of the test bed in a directory, whichever system it is."""
    none: JsonObject = {}
    for name, system in _systems().items():
        facts = system.status(directory)
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
