"""Sessions under a real mpirun, and runners on a directory of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.access import PathAccess
from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.registry import LAUNCHERS
from fsmatrix.suite.run import environment
from fsmatrix.suite.run.assemble import Settings
from fsmatrix.suite.run.environment import SessionContext
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session.client import START_SECONDS, Session
from fsmatrix.suite.session.messages import StepAnswer, StepCommand, in_rows
from fsmatrix.suite.session.programs import StopFlag
from fsmatrix.suite.session.survey import Where, addressed
from fsmatrix.suite.session.wire import Arrays
from tests import asking


@contextmanager
def started(
    geometry: Geometry, kind: type[Mpirun] = Mpirun, seconds: float = START_SECONDS, **fields: Any
) -> Iterator[Session]:
    """A session that is up, `fields` are the launcher's; a skip where there is no MPI."""
    if reason := asking.first_refusal(*(["emulated nodes"] if fields.get("emulated") else [])):
        pytest.skip(reason)
    found = kind.probe()
    if not found.ok:
        pytest.skip(found.reason)
    session = Session(kind(found, **fields), geometry, StopFlag(), seconds)
    try:
        session.start()
        yield session
    finally:
        session.close()


def in_step(
    session: Session, geometry: Geometry, where: Where = "rank", **what: Any
) -> tuple[StepAnswer, Arrays]:
    """One step's answer, with its arrays; `what`: fields of the command."""
    ranks = session.hello.ranks
    command = StepCommand(
        to=in_rows(addressed(ranks, where, geometry)),
        access={},
        nodes=geometry.nodes,
        threads=geometry.threads,
        seed=1,
        sample=False,
        oversubscribed=True,
        timeout=30.0,
        **{"roots": ("/tmp",), "affinity": "none", **what},
    )
    return session.request(command, StepAnswer, 300)


def runner_on(session: Session, data: Path, out: Path, settings: Settings) -> Runner:
    """Runs in `data`, the journal and what they leave in `out`."""
    access = PathAccess(
        backend="directory",
        target="here",
        path=str(data),
        details={"tree": str(data), "tag": "t", "host": ""},
    )
    context = SessionContext(
        session=session,
        access=access,
        journal=out / "journal",
        settings=settings,
        session_id="s",
        environment=environment.of_session(session, {}),
        driver="posix",
        in_memory=False,
    )
    return Runner(context, lambda: None, lambda: 0)


def runner_like(runner: Runner, **settings: Any) -> Runner:
    """The same with other settings."""
    changed = replace(runner.context, settings=replace(runner.settings, **settings))
    return Runner(changed, runner.quiet, runner.written)


@contextmanager
def local() -> Iterator[Session]:
    """A session of one process, without MPI."""
    kind = LAUNCHERS.load("local")
    session = Session(kind(kind.probe()), Geometry(), StopFlag())
    try:
        session.start()
        yield session
    finally:
        session.close()
