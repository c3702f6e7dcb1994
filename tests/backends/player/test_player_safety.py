"""The player, in both implementations: what it refuses, and that it stays below its root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from tests.backends.playing import Open, chunk, op


@pytest.mark.parametrize("name", [b"/etc/hostname", b"../x", b"a/../../x", b"a/..", b"", b".."])
@pytest.mark.parametrize(
    "kind",
    [
        Kind.OPEN,
        Kind.CREATE,
        Kind.STAT,
        Kind.UNLINK,
        Kind.MKDIR,
        Kind.RMDIR,
        Kind.READDIR,
        Kind.RENAME,
    ],
)
def test_names_that_leave_the_root_are_refused(
    opened: Open, name: bytes, kind: Kind, tmp_path: Path
) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "x").write_text("mine")
    one = opened(inside)
    one.play(chunk(op(kind, flags=Flag.TRUNCATE), names=(name, b"other")))
    assert one.result().errors_by_errno == {"EINVAL": 1}
    assert (tmp_path / "x").read_text() == "mine"


def test_symbolic_links_are_not_followed(opened: Open, tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (inside / "file").symlink_to(outside / "kept")
    (inside / "made").symlink_to(outside / "made")
    (inside / "dir").symlink_to(outside)
    (inside / "own").write_text("own")
    names = (b"file", b"made", b"dir/kept", b"dir/new", b"own", b"dir/x/y")
    one = opened(inside, stop_on_error=False)
    one.play(
        chunk(
            op(Kind.OPEN, 0, flags=Flag.TRUNCATE),
            op(Kind.CREATE, 1),
            op(Kind.OPEN, 2),
            op(Kind.CREATE, 3),
            op(Kind.UNLINK, 2),
            op(Kind.MKDIR, 3),
            op(Kind.RMDIR, 3),
            op(Kind.RENAME, 4, file2=3),
            op(Kind.RENAME, 2, file2=4),
            op(Kind.MKDIR, 5),
            names=names,
        )
    )
    assert one.result().errors_by_errno == {"ELOOP": 10}
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "mine"
    assert (inside / "own").read_text() == "own"


def test_removing_a_link_removes_the_link_only(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    one = opened()
    one.play(chunk(op(Kind.UNLINK), names=(b"link",)))
    assert one.result().errors == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    "bad",
    [
        chunk(op(99)),  # type: ignore[arg-type]
        chunk(op(Kind.READ, 8)),
        chunk(op(Kind.RENAME, 0, file2=8)),
        chunk(op(Kind.WRITE, 0, 0, (1 << 20) + 1)),
        chunk(op(Kind.READ, 0, (1 << 63), 1)),
        chunk(op(Kind.TRUNCATE, 0, (1 << 64) - 1)),
        chunk(op(Kind.STAT), names=(b"a\0b",)),
        chunk(op(Kind.STAT), names=("text",)),  # type: ignore[arg-type]
        chunk(op(Kind.STAT), names=(b"a" * 4096,)),
        chunk(op(Kind.STAT), names=(b"a", b"b"), first=7),
        chunk(op(Kind.STAT, time=(1 << 62))),
        Chunk(np.zeros(4, dtype=np.uint8)),
        Chunk(np.zeros((2, 2), dtype=OP)),
        Chunk([1, 2]),  # type: ignore[arg-type]
    ],
)
def test_a_bad_chunk_is_refused_before_anything_is_done(
    opened: Open, tmp_path: Path, bad: Chunk
) -> None:
    one = opened()
    ops = bad.ops
    if isinstance(ops, np.ndarray) and ops.dtype == OP and ops.ndim == 1:
        ops = np.concatenate([np.array([op(Kind.CREATE, 3)], dtype=OP), ops])
    one.play(chunk(names=(b"f", b"g", b"h", b"made")))
    with pytest.raises((ValueError, TypeError)):
        one.play(Chunk(ops, bad.names, bad.first))
    assert list(tmp_path.iterdir()) == []
    assert one.result().ops == 0
    assert one.play(chunk(op(Kind.CREATE, 3))) == 1


def test_an_open_slot_cannot_be_named_nor_opened_again(opened: Open) -> None:
    one = opened(stop_on_error=False)
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    with pytest.raises(ValueError, match="open"):
        one.play(chunk(op(Kind.STAT), names=(b"g",)))
    one.play(chunk(op(Kind.OPEN)))
    assert one.result().errors_by_errno == {"EBUSY": 1}


@pytest.mark.parametrize(
    "more",
    [
        {"slots": 0},
        {"threads": 0},
        {"threads": 5000},
        {"max_op_bytes": -1},
        {"origin_ns": -1},
        {"max_op_bytes": 1 << 31},
        {"fill_ratio": 2.0},
        {"driver": "nfs"},
    ],
)
def test_bad_settings(opened: Open, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - eight texts
        opened(**more)


def test_a_root_that_is_none(opened: Open, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opened(tmp_path / "no")
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        opened(tmp_path / "f")


def test_a_closed_player_says_so(opened: Open) -> None:
    one = opened()
    one.close()
    one.close()
    with pytest.raises(ValueError, match="closed"):
        one.play(chunk(op(Kind.STAT)))
    with pytest.raises(ValueError, match="closed"):
        one.result()


def test_close_closes_every_handle(opened: Open, tmp_path: Path) -> None:
    def handles() -> int:
        return sum(
            str(tmp_path) in str(link.readlink())
            for link in Path("/proc/self/fd").iterdir()
            if link.is_symlink()
        )

    one = opened(threads=2)
    one.play(chunk(*(op(Kind.CREATE, i) for i in range(4)), names=(b"a", b"b", b"c", b"d")))
    assert handles() >= 4
    one.close()
    assert handles() == 0
