"""`fsmatrix check`: what is usable on this machine, with version or the reason why not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from fsmatrix.cli import common, progress


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
    from fsmatrix.backends.base import BACKENDS

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
    from fsmatrix.backends.player import base, player

    fast = player.engine_name() == base.ENGINE_C
    yield Item(
        "engine",
        base.ENGINE_C,
        fast,
        f"version {base.VERSION}",
        "not built for this version: install a C compiler and install fsmatrix again",
    )
    yield Item("engine", base.ENGINE_PYTHON, True, f"version {base.VERSION}; slower")
    yield from _external_engines()


def _drivers() -> Iterator[Item]:
    """Drivers of the player that a machine may forbid."""
    from fsmatrix.backends.player import player

    for name in ("uring", "uring-sqpoll"):
        reason = player.driver_refusal(name)
        yield Item("driver", name, not reason, f"io_uring, for io: {name}", reason)


def _external_engines() -> Iterator[Item]:
    from fsmatrix.suite.cases.engines import Engines
    from fsmatrix.suite.engines.base import EngineError
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
