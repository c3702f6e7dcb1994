"""Another process swaps a directory for a link out of the tree while the player works below it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.backends.player.lanes import Player, PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player.player import NativePlayer
from fsmatrix.backends.player.python_player import PythonPlayer
from tests.backends.playing import chunk, op
from tests.waiting import PATIENCE

FILES = 8
ROUNDS = 400
SWAPPER = """
import ctypes, sys
exchange = ctypes.CDLL(None, use_errno=True).renameat2
one, other = (name.encode() for name in sys.argv[1:])
print("begun", flush=True)
while exchange(-100, one, -100, other, 2) == 0:  # AT_FDCWD, RENAME_EXCHANGE
    pass
sys.exit(f"errno {ctypes.get_errno()}")
"""


@contextmanager
def swapped(one: Path, other: Path) -> Iterator[None]:
    """Each has the other's name and its own in turn, as fast as the kernel does it."""
    argv = [sys.executable, "-c", SWAPPER, str(one), str(other)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """When each thing there was last changed, and what the files hold."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_ctime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *sorted(folder.rglob("*")))
    }


def opened(how: str, root: Path) -> Player:
    options = PlayerOptions(slots=3 * FILES, max_op_bytes=4096, threads=2, stop_on_error=False)
    if how == "python":
        return PythonPlayer("posix", str(root), options)
    return NativePlayer("posix", str(root), options, openat2=how == "openat2")


def changes() -> Chunk:
    """Everything that a player may do to a name, again and again."""
    ops = []
    for i in range(FILES):
        more = {"stream": i % 2}
        ops += [
            op(Kind.CREATE, i, flags=Flag.TRUNCATE, **more),
            op(Kind.WRITE, i, 0, 100, **more),
            op(Kind.TRUNCATE, i, 50, **more),
            op(Kind.CLOSE, i, **more),
            op(Kind.RENAME, i, file2=FILES + i, **more),
            op(Kind.UNLINK, FILES + i, **more),
            op(Kind.UNLINK, i, **more),
            op(Kind.MKDIR, 2 * FILES + i, **more),
            op(Kind.RMDIR, 2 * FILES + i, **more),
        ]
    return Chunk(np.array(ops, dtype=OP))


def both_were_met(player: Player) -> bool:
    """The link and the directory."""
    result = player.result()
    return "ELOOP" in result.errors_by_errno and bool(result.counts[Kind.UNLINK].any())


@pytest.mark.needs("c player")
@pytest.mark.parametrize("how", ["openat2", "before openat2", "python"])
def test_a_directory_that_becomes_a_link_leads_nowhere(tmp_path: Path, how: str) -> None:
    root, outside = tmp_path / "in", tmp_path / "out"
    (root / "d" / "e").mkdir(parents=True)
    (outside / "e").mkdir(parents=True)
    names = [f"d/e/{kind}{i}" for kind in ("f", "g", "m") for i in range(FILES)]
    for name in names:  # what the player would meet behind the link
        if "/m" in name:
            (outside / name.removeprefix("d/")).mkdir()
        else:
            (outside / name.removeprefix("d/")).write_text("mine")
    (root / "link").symlink_to(outside)
    before = state(outside)
    player = opened(how, root)
    try:
        player.play(Chunk(np.zeros(0, dtype=OP), [os.fsencode(name) for name in names]))
        with swapped(root / "d", root / "link"):
            rounds, deadline = 0, time.monotonic() + PATIENCE
            while rounds < ROUNDS or not both_were_met(player):
                assert time.monotonic() < deadline
                player.play(changes())
                rounds += 1
    finally:
        player.close()
    assert state(outside) == before


@pytest.mark.needs("c player")
@pytest.mark.parametrize("how", ["openat2", "before openat2", "python"])
def test_a_directory_that_others_made_again_is_the_one_worked_in(tmp_path: Path, how: str) -> None:
    player = opened(how, tmp_path)
    try:
        for _ in range(3):
            (tmp_path / "d").mkdir()
            (tmp_path / "d" / "f").touch()
            player.play(chunk(op(Kind.UNLINK), names=(b"d/f",)))
            (tmp_path / "d").rmdir()
        assert player.result().errors == 0
        player.play(chunk(op(Kind.UNLINK)))
        assert player.result().errors_by_errno == {"ENOENT": 1}
    finally:
        player.close()


@pytest.mark.needs("c player")
@pytest.mark.parametrize("how", ["openat2", "before openat2", "python"])
def test_a_directory_that_another_thread_renamed_is_not_taken_for_its_old_name(
    tmp_path: Path, how: str
) -> None:
    (tmp_path / "d").mkdir()
    player = opened(how, tmp_path)
    try:
        names = (b"d", b"e", b"d/x", b"d/y")
        player.play(chunk(op(Kind.MKDIR, 2, stream=1), names=names))  # its thread works in d
        player.play(chunk(op(Kind.RENAME, 0, file2=1)))
        player.play(chunk(op(Kind.MKDIR, 0)))
        player.play(chunk(op(Kind.MKDIR, 3, stream=1)))
        assert player.result().errors == 0
    finally:
        player.close()
    assert os.listdir(tmp_path / "d") == ["y"]
    assert os.listdir(tmp_path / "e") == ["x"]
