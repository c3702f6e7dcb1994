"""The driver dfs of the player: the contract of drivers, on a double or on a real DAOS."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.player import content
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import DRIVERS, Flag, Kind
from fsmatrix.backends.player.player import open_player
from tests.backends.daos_places import SEED, Place, Storage, elsewhere
from tests.backends.playing import chunk, data_stream, facts, metadata_stream, op

pytestmark = [pytest.mark.daos, pytest.mark.needs("c player", "compiler")]


def on_posix(folder: Path, ops: Any, names: tuple[bytes, ...]) -> Any:
    """What the same stream gives in a directory of this machine."""
    options = PlayerOptions(slots=8, max_op_bytes=1 << 20, seed=SEED, stop_on_error=False)
    one = open_player("posix", str(folder), options, "c")
    one.play(chunk(*ops, names=names))
    result = one.result()
    one.close()
    return result


@pytest.mark.parametrize("depth", [1, 16])
def test_the_same_stream_gives_the_same_as_on_posix(dfs: Place, depth: int, tmp_path: Path) -> None:
    ops, names = data_stream(np.random.default_rng(depth), 150), (b"file", b"none")
    (tmp_path / "posix").mkdir()
    wanted = on_posix(tmp_path / "posix", ops, names)
    assert facts(dfs.played(*ops, names=names, depth=depth)) == facts(wanted)
    back = [op(Kind.READ, 0, i, min(100_000, 377_778 - i), flags=Flag.VERIFY)
            for i in range(0, 377_778, 100_000)]  # fmt: skip
    again = dfs.played(op(Kind.OPEN), *back, names=(b"file",), depth=depth)
    assert (again.errors, again.bytes) == (0, 377_778)


def test_what_a_buffer_holds_is_of_no_other_operation(dfs: Place) -> None:
    """Writes whose bytes lie alike in the pool of content share a copy: all but their stamps."""
    rng, names = np.random.default_rng(1), (b"f", b"g")
    writes: list[Any] = []
    reads: list[Any] = []
    for number in range(120):
        file = number % 2
        offset = (number // 2) * 4 * content.POOL + int(rng.choice([0, 3, content.BLOCK - 5]))
        size = int(rng.integers(1, 4 * content.POOL - content.BLOCK))
        writes.append(op(Kind.WRITE, file, offset, size))
        reads.append(op(Kind.READ, file, offset, size, flags=Flag.VERIFY))
        if number % 7 == 6:
            writes += reads[-7:]  # buffers hold something else now
    made = dfs.played(op(Kind.CREATE), op(Kind.CREATE, 1), *writes, names=names, depth=4)
    assert made.errors == 0
    opened = [op(Kind.OPEN), op(Kind.OPEN, 1)]
    again = dfs.played(*opened, *reads, names=names, depth=1)
    assert (again.errors, again.bytes) == (0, sum(each[6] for each in reads))


@pytest.mark.parametrize("depth", [1, 4])
def test_metadata_is_that_of_posix(dfs: Place, depth: int, tmp_path: Path) -> None:
    ops, names = metadata_stream()
    (tmp_path / "posix").mkdir()
    wanted = on_posix(tmp_path / "posix", ops, names)
    assert facts(dfs.played(*ops, names=names, depth=depth)) == facts(wanted)


def test_a_directory_is_opened_for_reading_only(dfs: Place, tmp_path: Path) -> None:
    """Programs open directories to list or fsync them (git, databases)."""
    names, looking = (b"d", b"d/f", b"."), int(Flag.READ_ONLY)
    ops = (
        op(Kind.MKDIR, 0), op(Kind.OPEN, 0), op(Kind.OPEN, 0, flags=int(Flag.WRITE_ONLY)),
        op(Kind.OPEN, 0, flags=looking), op(Kind.FSYNC, 0), op(Kind.READ, 0, 0, 10),
        op(Kind.WRITE, 0, 0, 10), op(Kind.TRUNCATE, 0, 5), op(Kind.CREATE, 1), op(Kind.CLOSE, 1),
        op(Kind.RMDIR, 0), op(Kind.READDIR, 0), op(Kind.CLOSE, 0), op(Kind.READ, 0, 0, 10),
        op(Kind.OPEN, 2, flags=looking), op(Kind.FSYNC, 2), op(Kind.CLOSE, 2),
        op(Kind.OPEN, 0, flags=looking), op(Kind.UNLINK, 1), op(Kind.RMDIR, 0), op(Kind.FSYNC, 0),
        op(Kind.CLOSE, 0), op(Kind.STAT, 0), op(Kind.OPEN, 0, flags=looking),
    )  # fmt: skip
    (tmp_path / "posix").mkdir()
    wanted = on_posix(tmp_path / "posix", ops, names)
    for depth in (1, 4):
        assert facts(Place.fresh(dfs.storage).played(*ops, names=names, depth=depth)) == facts(
            wanted
        )


def test_directories_are_not_mistaken_for_others(dfs: Place, tmp_path: Path) -> None:
    """Handles of directories are kept: what moves, goes and comes again must be looked up anew."""
    names = (b"a", b"a/b", b"a/b/f", b"c", b"c/b/f", b"a//./b/g", b"a/b/g", b"f")
    ops = (
        op(Kind.MKDIR, 0), op(Kind.MKDIR, 1), op(Kind.CREATE, 2), op(Kind.CLOSE, 2),
        op(Kind.RENAME, 0, file2=3), op(Kind.STAT, 2), op(Kind.STAT, 4), op(Kind.CREATE, 6),
        op(Kind.MKDIR, 0), op(Kind.MKDIR, 1), op(Kind.STAT, 2), op(Kind.CREATE, 5),
        op(Kind.CLOSE, 5), op(Kind.STAT, 6), op(Kind.UNLINK, 6), op(Kind.RMDIR, 1),
        op(Kind.CREATE, 2), op(Kind.MKDIR, 1), op(Kind.CREATE, 2), op(Kind.CLOSE, 2),
        op(Kind.UNLINK, 1), op(Kind.READDIR, 1), op(Kind.READDIR, 2), op(Kind.RENAME, 4, file2=7),
        op(Kind.STAT, 7), op(Kind.MKDIR, 1), op(Kind.OPEN, 0), op(Kind.CREATE, 0),
    )  # fmt: skip
    (tmp_path / "posix").mkdir()
    wanted = on_posix(tmp_path / "posix", ops, names)
    assert facts(dfs.played(*ops, names=names)) == facts(wanted)


def test_a_directory_of_more_entries_than_are_read_at_once(dfs: Place) -> None:
    count = 200
    names = tuple(f"d/{i}".encode() for i in range(count))
    files = (op(kind, i) for i in range(count) for kind in (Kind.CREATE, Kind.CLOSE))
    made = dfs.played(
        op(Kind.MKDIR, count), *files, op(Kind.READDIR, count),
        names=(*names, b"d"), slots=count + 1,
    )  # fmt: skip
    assert made.errors == 0
    removed = dfs.played(
        *(op(Kind.UNLINK, i) for i in range(count)), op(Kind.RMDIR, count),
        names=(*names, b"d"), slots=count + 1,
    )  # fmt: skip
    assert removed.errors == 0


def test_the_stated_depth_is_the_drivers(dfs: Place) -> None:
    most = DRIVERS["dfs"].max_depth
    dfs.opened(depth=most, max_op_bytes=4096).close()
    with pytest.raises(ValueError, match="depth must"):
        dfs.opened(depth=most + 1)


def test_every_kind_is_offered(dfs: Place) -> None:
    one = dfs.opened()
    one.play(chunk(*(op(kind) for kind in Kind), names=(b"f",)))  # ValueError if it were not
    one.close()
    assert DRIVERS["dfs"].kinds == {kind.name.lower() for kind in Kind}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 64])
def test_closing_waits_for_what_is_in_flight(dfs: Place, depth: int, threads: int) -> None:
    dfs.wait_in_closing(depth, threads)


def test_threads_share_directories(dfs: Place) -> None:
    """Four lanes in the same directories; more of them than places for handles collide."""
    count = 64
    names = [f"d{i % 8}/f{i}".encode() for i in range(count)]
    folders = [f"d{i}".encode() for i in range(8)]
    one = dfs.opened(threads=4, slots=count + 8)
    one.play(chunk(*(op(Kind.MKDIR, count + i) for i in range(8)), names=(*names, *folders)))
    for kind in (Kind.CREATE, Kind.STAT, Kind.CLOSE, Kind.UNLINK):
        one.play(chunk(*(op(kind, i, stream=i % 4) for i in range(count))))
    one.play(chunk(*(op(Kind.RMDIR, count + i, stream=i % 4) for i in range(8))))
    result = one.result()
    one.close()
    assert (result.errors, result.ops) == (0, 4 * count + 16)


def test_another_process_joins_the_connection(dfs: Place) -> None:
    """It reads what was written here, with a handle of this process; it leaves first."""
    size = 1 << 16
    owner = dfs.opened()
    owner.play(chunk(op(Kind.CREATE), op(Kind.WRITE, 0, 0, size), names=(b"f",)))
    lines = owner.share()
    assert lines.startswith("handles=")
    script = (
        "from fsmatrix.backends.player.player import PlayerOptions, open_player\n"
        "from tests.backends.playing import chunk, op\n"
        "from fsmatrix.backends.player.ops import Flag, Kind\n"
        "options = PlayerOptions(slots=2, max_op_bytes=1 << 16, seed=given['seed'], depth=4)\n"
        "one = open_player('dfs', given['root'], options, 'c')\n"
        "one.play(chunk(op(Kind.OPEN), op(Kind.READ, 0, 0, 1 << 16, flags=Flag.VERIFY),\n"
        "    op(Kind.CREATE, 1), op(Kind.WRITE, 1, 0, 4096), op(Kind.CLOSE, 1),\n"
        "    names=(b'f', b'g')))\n"
        "one.drain()\n"
        "print(one.result().errors, one.result().bytes)\n"
        "one.close()\n"
    )
    done = elsewhere(script, {"root": dfs.root() + lines, "seed": SEED})
    assert done.stdout.split() == ["0", str(size + 4096)], done.stderr
    back = chunk(op(Kind.OPEN, 1), op(Kind.READ, 1, 0, 4096, flags=Flag.VERIFY), names=(b"f", b"g"))
    owner.play(chunk(op(Kind.CLOSE)))
    owner.play(back)
    assert owner.result().errors == 0
    owner.close()


def test_who_joins_a_connection_that_is_gone_is_told(dfs: Place) -> None:
    owner = dfs.opened()
    lines = owner.share()
    owner.close()
    with pytest.raises(OSError, match="whose connection is shared here") as caught:
        dfs.opened(root=dfs.root() + lines)
    assert caught.value.errno == errno.EINVAL


def test_verification_finds_a_byte_that_was_changed(dfs: Place) -> None:
    """By a second player, whose content has another seed."""
    size = 1 << 15
    dfs.played(op(Kind.CREATE), op(Kind.WRITE, 0, 0, size), names=(b"f",))
    dfs.played(op(Kind.OPEN), op(Kind.WRITE, 0, 20_000, 1), names=(b"f",), seed=SEED + 1)
    right = content.expected(SEED, b"f", 20_000, 1)
    other = content.expected(SEED + 1, b"f", 20_000, 1)
    assert right != other
    for depth in (1, 8):
        result = dfs.played(
            op(Kind.OPEN), op(Kind.READ, 0, 0, size, flags=Flag.VERIFY), names=(b"f",), depth=depth
        )
        assert result.errors_by_errno == {"EVERIFY": 1}
        assert result.first_error is not None
        assert result.first_error.wrong_offset == 20_000


@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_exactly_depth_operations_are_in_flight(doubled: Storage, size: int) -> None:
    """Nothing completes before 16 are under way, and there are never 17."""
    place = Place.fresh(doubled)
    doubled.faults(hold=16, most=16)
    writes = (op(Kind.WRITE, 0, i * size, size) for i in range(50))
    result = place.played(op(Kind.CREATE), *writes, names=(b"f",), depth=16, max_op_bytes=size)
    assert (result.errors, result.operations) == (0, 50)


def test_class_and_chunk_size_go_to_new_files(dfs: Place) -> None:
    root = dfs.root(oclass="S1", dir_oclass="S1", chunk_size=1 << 16)
    result = dfs.played(
        op(Kind.MKDIR, 1), op(Kind.CREATE), op(Kind.WRITE, 0, 0, 1 << 20), op(Kind.CLOSE),
        names=(b"d/f", b"d"), root=root,
    )  # fmt: skip
    assert (result.errors, result.bytes) == (0, 1 << 20)
