"""Runs inside an allocation: a session, and beside it a program, by one launcher.

`python -P hello_session.py JSON` prints one line of JSON: what the ranks say of themselves and
what the program printed, or the error.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from fsmatrix.results.record import Geometry
from fsmatrix.slurm.slurm import Slurm
from fsmatrix.suite.launchers.launcher import Launcher, LauncherError, Probe, find_library
from fsmatrix.suite.registry import LAUNCHERS
from fsmatrix.suite.session.client import Session, SessionError
from fsmatrix.suite.session.programs import StopFlag, run

# Seconds of the program's life.  Open MPI 5.0.11's mpirun may hang, or end with status 1, if a
# program that is no MPI program ends while its daemons still report its start.
LIVES = 0.5
SECONDS = 600.0  # as tests/waiting.py, which a job does not find


def _launcher(asked: dict[str, Any]) -> Launcher:
    kind = LAUNCHERS.load(asked["name"])
    found = kind.probe()
    if not found.ok:
        raise LauncherError(found.reason)
    if "program" in asked:
        library = find_library(asked["program"], asked["libraries"])
        found = Probe(True, asked["program"], asked["version"], library=library)
    if "library" in asked:
        found = replace(found, library=asked["library"])
    given = Slurm().nodes(os.environ)
    assert given is not None, "this is no allocation"
    return kind(found, given.hosts, options=tuple(asked.get("options", ())), cpus=given.cpus)


def _told(asked: dict[str, Any]) -> dict[str, Any]:
    nodes, per_node = asked["geometry"]
    geometry = Geometry(nodes, per_node)
    session = Session(_launcher(asked), geometry, StopFlag(), SECONDS)
    try:
        session.start()
        ranks = [
            {
                name: getattr(rank, name)
                for name in ("host", "node", "node_rank", "cpus", "processor")
            }
            for rank in session.hello.ranks
        ]
        with tempfile.TemporaryDirectory() as folder:
            launcher = replace(session.launcher, scratch=folder)
            launcher.prepare()
            words = ["sh", "-c", f'echo $(uname -n) "$GIVEN"; sleep {LIVES}']
            command = launcher.command(words, geometry, {"GIVEN": 'a,b "c"'})
            done = run(command, folder, SECONDS, launcher.environment())
        return {
            "mpi": session.hello.mpi,
            "ranks": ranks,
            "beside": sorted(done.stdout.splitlines()),
            "status": done.returncode,
            "errors": done.stderr,
        }
    finally:
        session.close()


def main() -> None:
    """Print what came of it."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    try:
        told = _told(asked)
    except (SessionError, LauncherError) as error:
        told = {"error": str(error)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
