"""Without read-ahead a cold file has in memory what was read of it, and nothing else."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.backends.system import files, mounts

PAGE = 4096
SIZE = 8 << 20
IN_MEMORY = ("tmpfs", "ramfs")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory of a file system with storage."""
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    mount = mounts.mount_of(place)
    try:
        if mount is not None and mount.fstype in IN_MEMORY:
            pytest.skip("needs: a disk below /var/tmp (its files lie in memory)")
        yield place
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("implementation", ["c", "python"])
@pytest.mark.parametrize("read_ahead", [False, True])
def test_what_is_read_ahead(
    folder: Path, implementation: Literal["c", "python"], read_ahead: bool
) -> None:
    (folder / "f").write_bytes(bytes(SIZE))
    ops = np.zeros(9, dtype=OP)
    ops["kind"] = [Kind.OPEN, *[Kind.READ] * 8]
    ops["size"] = PAGE
    ops["offset"][1:] = np.arange(8) * PAGE
    options = PlayerOptions(slots=1, max_op_bytes=PAGE, read_ahead=read_ahead)
    with (folder / "f").open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert files.resident_pages(file.fileno()) == 0
        player = open_player("posix", str(folder), options, implementation)
        try:
            assert player.play(Chunk(ops, [b"f"])) == 9
            assert player.result().errors == 0
        finally:
            player.close()
        present = files.resident_pages(file.fileno())
    assert present is not None
    assert (present > 8 * PAGE) is read_ahead
