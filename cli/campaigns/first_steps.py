"""First steps: `fsmatrix check`, what is usable on this machine, and `init`, one's own campaign.

`check` tells versions, or the reasons why not; `init` writes what each part of a campaign is for.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fsmatrix.cli import common, progress
from fsmatrix.suite.campaign.yamlio import Origin, refuse

PATHS = """  first: {{backend: directory, options: {{path: {0}}}}}
  second: {{backend: directory, options: {{path: {1}}}}}"""
CEPH = """  rados: {{backend: rados, options: {{pool: {0}, user: {1}}}}}    # a pool that exists
  cephfs: {{backend: libcephfs, options: {{user: {1}}}}}  # or cephfs-kernel, cephfs-fuse"""
CAMPAIGN = """# fsmatrix plan {file} says what this takes; fsmatrix run {file} -o out does it.
campaign: {name}
targets:                # what is compared; call them what the report shall call them
{targets}
workloads:              # what is done on each
  io:
    workload: pattern
    options:
      bytes_total: 1GiB # of all processes together; more than the servers' memory, if you can
      fixed: time       # each run ends after so long, however fast the target is
      seconds: 5s
factors:                # every combination of levels is a case
  pattern: [seq-write, seq-read, rand-read]
  chunk: [4KiB, 1MiB]
  processes_per_node: [1, 2]
geometry: {{nodes: 1}}    # client nodes
cache: cold             # before each timed read; warm, bypass
repetitions: 6          # the fewest that can prove a difference
order: {{attachments: 6}} # so often each target is attached anew
"""
IMPORT = """no campaign is needed for what was measured already:
fsmatrix import {0} -o results.h5
fsmatrix show results.h5
fsmatrix report results.h5 -o report.html"""


@dataclass(frozen=True)
class Item:
    """One thing that a campaign may name."""

    kind: str  # backend, workload, engine, driver, launcher, audit, mount
    name: str
    ok: bool
    version: str = ""
    reason: str = ""


def check(as_json: common.AsJson = False) -> None:
    """Show which backends, workloads, engines and launchers work here, or why not.

    Audits from other packages are listed too: they judge every run made or imported here.  So are
    mounts whose numbers would not be those of their storage, with the remedy.

    Example: fsmatrix check --json
    """
    engines = list(_engines())
    usable = {item.name for item in engines if item.ok} | {"player"}
    items = [
        *_backends(),
        *_workloads(usable),
        *engines,
        *_drivers(),
        *_launchers(),
        *_audits(),
        *_mounts(),
    ]
    if as_json:
        common.print_json([asdict(item) for item in items])
        return
    table = Table("", "name", "usable", "version or reason", box=None)
    last = ""
    for item in items:
        mark = "[green]yes[/]" if item.ok else "[yellow]no[/]"
        table.add_row(
            item.kind if item.kind != last else "",
            item.name,
            mark,
            escape(item.version if item.ok else item.reason),
        )
        last = item.kind
    progress.console().print(table)


def _backends() -> Iterator[Item]:
    from fsmatrix.backends.contract import BACKENDS

    for name in BACKENDS.names():
        try:
            usable = BACKENDS.load(name).check()
        except ImportError as error:
            yield Item("backend", name, False, reason=str(error))
        else:
            yield Item("backend", name, usable.ok, usable.version, usable.reason)


def _workloads(engines: Collection[str]) -> Iterator[Item]:
    """`engines`: those that can be used here; a workload needs one of its own."""
    from fsmatrix.suite.registry import WORKLOADS

    for name in WORKLOADS.names():
        try:
            workload = WORKLOADS.load(name)
        except ImportError as error:
            yield Item("workload", name, False, reason=str(error))
        else:
            named = ", ".join(workload.engines)
            accesses = ", ".join(sorted(workload.accesses))
            yield Item(
                "workload",
                name,
                any(engine in engines for engine in workload.engines),
                f"engine {named}; speaks {accesses}",
                f"its engine is not usable (below): {named}",
            )


def _engines() -> Iterator[Item]:
    from fsmatrix.backends.player import lanes, player

    fast = player.engine_name() == lanes.ENGINE_C
    yield Item(
        "engine",
        lanes.ENGINE_C,
        fast,
        f"version {lanes.VERSION}",
        "not built for this version: install a C compiler and install fsmatrix again",
    )
    yield Item("engine", lanes.ENGINE_PYTHON, True, f"version {lanes.VERSION}; slower")
    yield from _external_engines()


def _drivers() -> Iterator[Item]:
    """Drivers of the player that a machine may forbid."""
    from fsmatrix.backends.player import player

    for name in ("uring", "uring-sqpoll"):
        reason = player.driver_refusal(name)
        yield Item("driver", name, not reason, f"io_uring, for io: {name}", reason)


def _external_engines() -> Iterator[Item]:
    from fsmatrix.suite.cases.resolve import Engines
    from fsmatrix.suite.engines.engine import EngineError
    from fsmatrix.suite.registry import ENGINES

    engines = Engines({})
    for name in ENGINES.names():
        try:
            engine = engines.get(name)
        except (EngineError, ImportError) as error:
            yield Item("engine", name, False, reason=str(error))
        else:
            can = _features(engine.features)
            yield Item("engine", name, True, f"version {engine.version} ({engine.path}){can}")


def _features(features: frozenset[str]) -> str:
    """Features of one kind together: "; api POSIX, MPIIO"; not all options one by one."""
    kinds: dict[str, list[str]] = {}
    for feature in sorted(features):
        kind, _, value = feature.partition(":")
        if value and kind != "option":
            kinds.setdefault(kind, []).append(value)
    return "".join(f"; {kind} {', '.join(values)}" for kind, values in kinds.items())


def _launchers() -> Iterator[Item]:
    from fsmatrix.suite.registry import LAUNCHERS

    for name in LAUNCHERS.names():
        launcher = LAUNCHERS.load(name)
        probe = launcher.probe()
        version = f"{launcher.mpi} {probe.version}".strip()
        version += f" ({probe.program})" if probe.program else ""
        yield Item("launcher", name, probe.ok, version, probe.reason)


def _mounts() -> Iterator[Item]:
    """Where a target's numbers would not be those of its storage."""
    from fsmatrix.backends.local import underneath
    from fsmatrix.backends.system import mounts

    for mount in mounts.mounts():
        is_system = any(Path(mount.point).is_relative_to(folder) for folder in mounts.SYSTEM)
        if not (mount.read_only or is_system):
            for text in underneath.cautions_of_mount(mount):
                yield Item("mount", mount.point, True, text)


def _audits() -> Iterator[Item]:
    """Audits of other packages: those of fsmatrix are always usable."""
    from fsmatrix.results.audits import AUDITS

    for name, package in AUDITS.outside().items():
        try:
            audits = ", ".join(audit.name for audit in AUDITS.load(name))
        except ImportError as error:
            yield Item("audit", name, False, reason=str(error))
        else:
            yield Item("audit", name, True, f"{audits}; {package}")


def init(
    path: Annotated[
        list[str] | None,
        typer.Option("--path", help="A place to compare, twice: a mount, '$SCRATCH'."),
    ] = None,
    ceph: Annotated[
        str | None, typer.Option("--ceph", help="A pool of a Ceph, beside its CephFS.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help='With --ceph: its user without "client."; admin.')
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")] = Path(
        "campaign.yaml"
    ),
) -> None:
    """Write a campaign of your own, with comments; what you do not say is asked.

    Example: fsmatrix init --path /mnt/a --path '$SCRATCH' -o mine.yaml
    """
    from fsmatrix.results.files.safefile import write_whole

    if os.path.lexists(out):
        raise refuse(Origin(f"--out {out}"), "", "is there already: name another file")
    if not path and ceph is None:
        kind = _asked("1 two paths, 2 a Ceph, 3 results that you have", "1")
        while kind not in ("1", "2", "3"):
            kind = _asked("1, 2 or 3", "1")
        if kind == "3":
            progress.echo(IMPORT.format(shlex.quote(_asked("which files or directories"))))
            return
        ceph = _asked("a pool of it") if kind == "2" else None
        user = user or (_asked("its user", "admin") if kind == "2" else None)
        path = [] if kind == "2" else [_asked("the first path"), _asked("the second path")]
    text = _text(path or [], ceph, user, str(out))
    write_whole(out, text.encode())
    progress.echo(f"{out}: fsmatrix plan {shlex.quote(str(out))}")


def _asked(question: str, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        raise refuse(Origin("fsmatrix init"), "", "give --path twice, or --ceph POOL")
    return str(typer.prompt(question, default))


def _text(paths: list[str], pool: str | None, user: str | None, file: str) -> str:
    """The campaign; CampaignError if that is none, in its own lines."""
    from fsmatrix.suite.campaign.settings import Source
    from fsmatrix.suite.plan.plan import Request, build_plan

    if (pool is None) != (len(paths) == 2) or (pool is not None and paths):
        raise refuse(Origin("fsmatrix init"), "", "give --path twice, or --ceph POOL alone")
    if user is not None and pool is None:
        raise refuse(Origin(f"--user {user}"), "", "belongs to --ceph")
    meant = [text if text[:1] in "/~$" else str(Path(text).absolute()) for text in paths]
    given = meant if pool is None else [pool, user or "admin"]
    targets = (PATHS if pool is None else CEPH).format(*map(json.dumps, given))
    text = CAMPAIGN.format(
        file=shlex.quote(file), name="ceph" if paths == [] else "two-paths", targets=targets
    )
    build_plan(Source(text, file), Request(), here=False)
    return text
