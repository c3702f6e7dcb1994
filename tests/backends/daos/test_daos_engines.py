"""What engines have as storage class memory, of processes that only have their name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsmatrix.backends.daos import daos_state
from fsmatrix.backends.system.mounts import mounted_at


@contextmanager
def running(folder: Path, program: str, words: Sequence[str]) -> Iterator[int]:
    """A process of a program of that name, in this network, which does nothing."""
    folder.mkdir(exist_ok=True)
    shutil.copy(Path(shutil.which("sh") or "").resolve(), folder / program)
    script = [str(folder / program), "-c", "echo up; read line", *words]
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process.pid
        process.kill()


@pytest.mark.parametrize("word", ["-s", "--storage"])
def test_engines_here_whose_storage_is_a_tmpfs(tmp_path: Path, word: str) -> None:
    mount = mounted_at("/dev/shm")
    assert mount is not None
    assert mount.fstype == "tmpfs"
    with running(tmp_path, "daos_engine", ["-t", "1", word, "/dev/shm"]) as pid:
        assert pid in daos_state.engines_here(["127.0.0.1"])
        seen = daos_state.engines_seen(["127.0.0.1"])
        assert (seen.running, seen.scm, seen.engines) == (True, "RAM", 1)
        assert seen.cores == os.cpu_count()
        assert (seen.memory or 0) > 1 << 28
        others = daos_state.engines_seen(
            ["127.0.0.1", "192.0.2.1"]
        )  # who else is there, nobody sees
        assert others == daos_state.SeenEngine(True)
        with running(tmp_path / "b", "daos_engine", ["-t", "1", "-s", str(tmp_path)]):
            both = daos_state.engines_seen(["127.0.0.1"])
            assert (both.scm, both.engines) == ("", 2)  # not all the same


def test_servers_alone_tell_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "daos_server", ["-s", "/dev/shm"]) as pid:
        assert pid in daos_state.engines_here(["127.0.0.1"])
        assert daos_state.engines_seen(["127.0.0.1"]) == daos_state.SeenEngine(False)
    assert (
        daos_state.engines_seen(["192.0.2.1"])
        == daos_state.engines_seen([])
        == daos_state.SeenEngine(False)
    )
