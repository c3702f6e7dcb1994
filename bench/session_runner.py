"""The runner with which bench/session.py and bench/scale.py play into a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.local.directory import Directory
from fsmatrix.suite.run import environment
from fsmatrix.suite.run.assemble import Settings
from fsmatrix.suite.run.environment import SessionContext
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session.client import Session


def runner_in(
    session: Session,
    folder: Path,
    data: Path,
    seconds: float,
    quiet: Callable[[], None] = lambda: None,
) -> Runner:
    """Its runs write in `data`, for at most `seconds` each; `quiet` as Runner's."""
    access = PathAccess(
        backend="directory",
        target="here",
        path=str(data),
        details={"tree": str(folder), "tag": "bench", "host": ""},
    )
    context = SessionContext(
        session=session,
        access=access,
        journal=folder / "journal",
        settings=Settings(seconds, 5.0, out=folder),
        session_id="bench",
        environment=environment.of_session(session, {}),
        driver=Directory.driver,
        in_memory=False,
    )
    return Runner(context, quiet, lambda: 0)
