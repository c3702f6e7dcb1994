"""External engines: where they are, which version, and what this build of them can do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fsmatrix.backends.system import tools
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.suite.launchers.mpirun import memory_in
from fsmatrix.suite.session.programs import clean_environment

PROBE_SECONDS = 20.0


@dataclass(frozen=True)
class Engine:
    """The program that does it: path, version and features as probed (suite/cases/resolve.py)."""

    name: str
    version: str
    path: str = ""
    features: frozenset[str] = frozenset()

    @property
    def program(self) -> str:
        """What to start: the path that was found, or the name."""
        return self.path or self.name


class EngineError(Exception):
    """An engine cannot be used here; the text says why and what to do."""


@dataclass(frozen=True)
class EngineKind:
    """What is to be known about one external program.  One file each in this folder."""

    name: str
    program: str  # looked for on PATH
    cure: str  # what to install or load where it is missing
    questions: tuple[tuple[str, ...], ...]  # arguments with which it tells about itself
    # answers (stdout and stderr of each question) -> version, features; EngineError
    read: Callable[[Sequence[str]], tuple[str, frozenset[str]]]
    environment: Mapping[str, str] = field(default_factory=dict)  # for the questions

    @property
    def variable(self) -> str:
        """Environment variable that names the program: FSMATRIX_IOR."""
        return f"FSMATRIX_{self.name.upper()}"

    def find(self, given: str = "") -> str:
        """Path of the program: the given one, the environment's, or the first on PATH."""
        asked = given or os.environ.get(self.variable, "")
        path = tools.find(asked or self.program)
        if path is None:
            if reason := tools.refusal(asked or self.program):
                raise EngineError(reason)
            what = f"{asked}: not an executable file" if asked else f"no {self.program} on PATH"
            raise EngineError(f"{what}: {self.cure}, or give its path by {self.variable}")
        return path  # links stay: some programs look at their name

    def probe(self, given: str = "") -> Engine:
        """Find and ask it; EngineError with the reason and the cure."""
        return _probe(self, self.find(given))


def _probe(kind: EngineKind, path: str) -> Engine:
    answers = []
    for question in kind.questions:
        try:
            answers.append(_answer(kind, path, question))
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(f"{path} does not answer {' '.join(question)}: {error}") from error
    version, features = kind.read(answers)
    return Engine(kind.name, version, path, features)


def _answer(kind: EngineKind, path: str, question: Sequence[str]) -> str:
    """What it prints.  MPI programs leave folders and shared memory: they go with ours."""
    with work_folder() as folder:
        own = {"LC_ALL": "C", "TMPDIR": str(folder), **memory_in(str(folder))}
        done = subprocess.run(
            [path, *question],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=PROBE_SECONDS,
            env=clean_environment({**own, **kind.environment}),
            check=False,
            start_new_session=True,  # a Ctrl-C is not for it
        )
    return done.stdout + done.stderr
