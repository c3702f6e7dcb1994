"""Directories in a container, made and removed through libdfs by a process that may be ended.

A call of libdfs waits for ever when an agent, or the servers, hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

from fsmatrix.backends.errors import BackendError
from fsmatrix.results.evidence.values import Json, JsonObject

MAKING = 60.0  # seconds; a machine whose engines poll on all cores took 16 to answer
REMOVAL = 600.0  # of a directory with all in it
_SHOWN = 300  # characters of a child's complaint


@dataclass(frozen=True)
class Folders:
    """The container, and the folder of DAOS's libraries (empty: the loader finds them)."""

    pool: str
    container: str
    system: str = ""
    library: str = ""

    def make(self, path: str) -> None:
        """Make a directory and those above it; harmless if it is there."""
        self._ask("make", path, MAKING)

    def remove(self, path: str) -> None:
        """Remove a directory with all in it; harmless if it is gone."""
        self._ask("remove", path, REMOVAL)

    def _ask(self, do: str, path: str, seconds: float) -> None:
        what = f"{do} {path} in container {self.container} of pool {self.pool}"
        request: dict[str, Json] = {**asdict(self), "do": do, "path": path, "parent": os.getpid()}
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "fsmatrix.backends.daos.bindings.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        try:
            out, complaint = child.communicate(json.dumps(request).encode(), seconds)
        except subprocess.TimeoutExpired:
            raise BackendError(
                f"{what}: nothing happened for {seconds:g} s: daos_agent, or the pool's engines, "
                "do not answer"
            ) from None
        finally:
            child.kill()
            child.wait()
        answer = _answer(out)
        if answer is None:
            words = " ".join(complaint.decode(errors="replace").split())
            raise BackendError(f"{what}: libdfs ended without an answer: {words[-_SHOWN:]}")
        if answer["error"]:
            raise BackendError(f"{what}: {answer['error']}")


def _answer(text: bytes) -> JsonObject | None:
    for line in reversed(text.splitlines()):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and "error" in data:
            return data
    return None
