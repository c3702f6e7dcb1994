"""Places for the player's driver dfs: directories of a container, on a double or on a real DAOS.

The double (tests/backends/daos/double) is two small libraries over a directory.  It shows that
the driver keeps the rules of the headers, and says nothing about DAOS.  With FSMATRIX_DAOS_POOL
the same tests use a container that they make in that pool; FSMATRIX_DAOS_LIBRARY is the folder
of libdaos where neither the loader finds it nor the tool `daos` stands beside it.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsmatrix.backends.daos import libraries
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.player.ops import Kind
from tests.backends.playing import SEED as SEED
from tests.backends.playing import PlayerPlace, op

DOUBLE = Path(__file__).parent / "daos" / "double"
REAL_POOL = os.environ.get("FSMATRIX_DAOS_POOL", "")
REAL_LIBRARY = os.environ.get("FSMATRIX_DAOS_LIBRARY", "")
_fresh = itertools.count()


def compiled(folder: Path, *options: str) -> Path:
    """The double's two libraries, made in a folder."""
    cc = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-shared", "-fPIC", "-pthread"]
    daos, dfs = folder / "libdaos.so.2", folder / "libdfs.so"
    sources = [DOUBLE / "daos.c", DOUBLE / "events.c"]
    subprocess.run([*cc, *options, *sources, "-Wl,-soname,libdaos.so.2", "-o", daos], check=True)
    subprocess.run([*cc, *options, DOUBLE / "dfs.c", daos, "-o", dfs], check=True)
    return folder


@dataclass(frozen=True)
class Storage:
    """A container and how it is reached."""

    pool: str
    container: str
    library: str
    folder: Path | None = None  # of the double; None: it is real

    def faults(self, **numbers: int) -> None:
        """What the double does wrong from now on."""
        assert self.folder is not None
        text = "".join(f"{name} {number}\n" for name, number in numbers.items())
        (self.folder / "faults").write_text(text)

    @property
    def violations(self) -> list[str]:
        """Rules of the headers that were broken."""
        if self.folder is None or not (self.folder / "violations").exists():
            return []
        return (self.folder / "violations").read_text().splitlines()


def doubled(library: Path, folder: Path) -> Storage:
    """An empty container on the double, in an empty folder."""
    (folder / "pool" / "container" / "root").mkdir(parents=True)
    return Storage("pool", "container", str(library), folder)


def made(label: str) -> Storage:
    """A new container in the real pool."""
    Client().create(REAL_POOL, label)
    return Storage(REAL_POOL, label, libraries.library_folder(REAL_LIBRARY))


@dataclass(frozen=True)
class Place(PlayerPlace):
    """An empty directory of its own."""

    driver = "dfs"
    storage: Storage
    name: str

    @classmethod
    def fresh(cls, storage: Storage) -> Place:
        """Made by a player of its own."""
        name = f"place{next(_fresh)}-{os.getpid()}"
        top = cls(storage, "")
        assert top.played(op(Kind.MKDIR), names=(name.encode(),)).errors == 0
        return cls(storage, name)

    def root(self, **more: object) -> str:
        """What the driver gets."""
        storage = self.storage
        base: dict[str, object] = {"pool": storage.pool, "container": storage.container}
        base |= {"library": storage.library, "path": f"/{self.name}"} | more
        return "".join(f"{key}={value}\n" for key, value in base.items() if value != "")


def elsewhere(
    script: str, arguments: Mapping[str, Any], timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, which finds `arguments` as the dict `given`."""
    head = "import json, sys\ngiven = json.loads(sys.argv[1])\n"
    return subprocess.run(
        [sys.executable, "-c", head + script, json.dumps(arguments)],
        capture_output=True, text=True, timeout=timeout, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
