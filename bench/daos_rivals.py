"""What bench/daos.py compares on one container of a DAOS: the player, IOR, fio and mdtest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLAY, NAMES = HERE / "ceph_play.py", HERE / "daos_names.py"
SMALL, LARGE = 4096, 1 << 20  # bytes of an operation
SHARE = {SMALL: 1, LARGE: 16}  # as many operations of this size are one of the work
DEADLINE = 600  # seconds of any run
MDTEST = {"create": "File creation", "stat": "File stat", "unlink": "File removal"}


@dataclass(frozen=True)
class Container:
    """Where all work, and how the programs are called."""

    pool: str
    container: str
    library: str = ""
    ior: str = "ior"
    mdtest: str = "mdtest"
    fio: str = "fio"
    operations: int = 4096  # of a run with small ones
    most: int = 1 << 28  # bytes that a run may write

    @property
    def root(self) -> str:
        """What the driver gets."""
        values = {"pool": self.pool, "container": self.container, "library": self.library}
        return "".join(f"{key}={value}\n" for key, value in values.items() if value)


def program(argv: list[str]) -> str:
    """What a program printed; RuntimeError with its last words."""
    # numpy's threads would spin beside what is timed; DAOS logs into what programs print
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"D_LOG_FILE": "/dev/null", "DD_STDERR": "CRIT"}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=DEADLINE, check=False, env=environment
    )
    if done.returncode:
        text = done.stdout[-2000:] + done.stderr[-4000:]
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}:\n{text}")
    return done.stdout


def last_line(text: str) -> Any:
    """JSON in the last line of an output."""
    return json.loads(text.splitlines()[-1])


class Data:
    """One file, written anew or read from its beginning to its end; operations/s."""

    def __init__(self, where: Container, size: int) -> None:
        self.where, self.size = where, size
        operations = min(where.operations // SHARE[size], where.most // size)
        self.span = max(operations, 16) * size
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        self._play(self._own, write=True, create=True, depth=16)
        self._ior("-w", "-k", "-o", f"/{self.name}-ior")
        self._fio("write", f"{self.name}-fio", 16)

    @property
    def _own(self) -> str:
        return f"{self.name}-player"

    def close(self) -> None:
        """Remove the files."""
        for name in (self._own, f"{self.name}-ior", f"{self.name}-fio"):
            self._remove(name)

    def _remove(self, name: str) -> None:
        # reads one block of it, since a play has data
        self._play(name, span=self.size, write=False, unlink=True)

    def _play(self, name: str, **more: Any) -> float:
        asked = {"driver": "dfs", "root": self.where.root, "name": name, "size": self.size}
        asked |= {"span": self.span, "random": False} | more
        result = last_line(program([sys.executable, "-P", str(PLAY), json.dumps(asked)]))
        return float(result["operations"] / result["seconds"])

    def player(self, write: bool, depth: int) -> float:
        """The driver dfs; by its own window, from the first operation to the last completion."""
        if write:
            return self._play(
                f"new-{uuid.uuid4().hex}", write=True, create=True, unlink=True, depth=depth
            )
        return self._play(self._own, write=False, depth=depth)

    def _ior(self, *more: str) -> Mapping[str, Any]:
        where = [f"--dfs.pool={self.where.pool}", f"--dfs.cont={self.where.container}"]
        size = ["-t", str(self.size), "-b", str(self.span), "-O", "summaryFormat=JSON"]
        text = program([self.where.ior, "-a", "DFS", *where, *size, *more])
        found: Mapping[str, Any] = json.loads(text[text.index("{") :])["tests"][0]["Results"][0]
        return found

    def ior(self, write: bool, depth: int) -> float:
        """IOR, which has one operation in flight; without its opening and closing."""
        assert depth == 1
        if write:
            done = self._ior("-w", "-o", f"/new-{uuid.uuid4().hex}")
        else:
            done = self._ior("-r", "-k", "-o", f"/{self.name}-ior")
        return self.span / self.size / float(done["wrRdTime"])

    def _fio(self, rw: str, name: str, depth: int) -> float:
        where = [f"--pool={self.where.pool}", f"--cont={self.where.container}"]
        work = [f"--bs={self.size}", f"--size={self.span}", f"--iodepth={depth}", f"--rw={rw}"]
        text = program(
            [
                self.where.fio,
                f"--name={self.name}",
                "--ioengine=dfs",
                *where,
                *work,
                f"--filename_format={name}",
                "--thread=1",
                "--invalidate=0",
                "--overwrite=0",
                "--output-format=json",
            ]
        )
        job = json.loads(text[text.index("{") :])["jobs"][0][rw]
        return float(job["total_ios"] / (job["runtime"] / 1e3))

    def fio(self, write: bool, depth: int) -> float:
        """Fio's engine dfs; its window has milliseconds."""
        if not write:
            return self._fio("read", f"{self.name}-fio", depth)
        name = f"new-{uuid.uuid4().hex}"
        rate = self._fio("write", name, depth)
        self._remove(name)
        return rate


class Names:
    """Files of one directory made, looked at and removed; operations/s of each kind."""

    def __init__(self, where: Container) -> None:
        self.where, self.files = where, max(where.operations // 4, 16)

    def player(self) -> dict[str, float]:
        """The driver dfs; opening and closing are one creation, as mdtest counts it."""
        asked = json.dumps({"root": self.where.root, "files": self.files})
        rates: dict[str, float] = last_line(program([sys.executable, "-P", str(NAMES), asked]))
        return rates

    def mdtest(self) -> dict[str, float]:
        """The program mdtest, in a directory of its own."""
        where = [f"--dfs.pool={self.where.pool}", f"--dfs.cont={self.where.container}"]
        folder = f"/new-{uuid.uuid4().hex}"
        work = ["-n", str(self.files), "-F", "-C", "-T", "-r", "-i", "1", "-d", folder]
        text = program([self.where.mdtest, "-a", "DFS", *where, *work])
        rates = {}
        for kind, title in MDTEST.items():
            line = re.search(rf"^ *{title} +([0-9.]+)", text, re.MULTILINE)
            if line is None:
                raise RuntimeError(f"mdtest says nothing of {title!r}:\n{text[-2000:]}")
            rates[kind] = float(line[1])
        return rates
