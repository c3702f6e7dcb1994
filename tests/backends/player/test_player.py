"""The player, in both implementations: bytes, verification, time, threads."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.backends.player import content, player
from fsmatrix.backends.player.lanes import INTERVALS, PlayerResult
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from tests import asking
from tests.backends.playing import IMPLEMENTATIONS, Open, chunk, op
from tests.waiting import PATIENCE

WRITES = ((0, 4096), (4096, 4096), (10_000, 3), (12_285, 70_000), (1_500_000, 1 << 20), (5, 0))


def test_content_on_disk_is_the_reference(opened: Open, tmp_path: Path) -> None:
    one = opened(fill_ratio=0.25)
    ops = [op(Kind.WRITE, 0, offset, size) for offset, size in WRITES]
    assert one.play(chunk(op(Kind.CREATE), *ops, op(Kind.CLOSE), names=(b"a/../b",))) == 1
    one = opened(fill_ratio=0.25)
    one.play(chunk(op(Kind.CREATE), *ops, op(Kind.CLOSE), names=(b"data",)))
    written = (tmp_path / "data").read_bytes()
    for offset, size in WRITES:
        right = content.expected(7, b"data", offset, size, 0.25)
        assert len(right) == size
        assert written[offset : offset + size] == right
    result = one.result()
    assert result.bytes == sum(size for _, size in WRITES)
    assert result.operations == len(WRITES)
    assert result.ops == len(WRITES) + 2
    assert result.errors == 0
    assert result.counts.sum(axis=1)[[Kind.CREATE, Kind.WRITE, Kind.CLOSE]].tolist() == [1, 6, 1]
    assert result.first_ns <= result.io_first_ns < result.io_last_ns <= result.last_ns


def test_reference_is_stamped_turned_and_compressible_as_stated() -> None:
    data = np.frombuffer(content.expected(3, b"x", 0, 8 * 4096, 0.5), dtype=np.uint8)
    blocks = data.reshape(8, 4096)
    assert not blocks[:, 2048:].any()
    assert len({block[:8].tobytes() for block in blocks}) == 8
    assert content.expected(3, b"x", 100, 50) == content.expected(3, b"x", 0, 150)[100:]
    assert content.expected(3, b"x", 0, 4096) != content.expected(3, b"y", 0, 4096)
    assert content.expected(3, b"x", 0, 4096) != content.expected(4, b"x", 0, 4096)
    assert (content.mix64(1 << 70 | 5), content.mix64(0)) == (content.mix64(5), 0)
    assert content.fnv1a64(b"foobar") == 0x85944171F73967E8  # the authors' test vector
    with pytest.raises(ValueError, match="between 0 and 1"):
        content.make_pool(1, 1.5)


def write_then_verify(
    opened: Open, tmp_path: Path, spoil: Callable[[Path], None], seed: int = 7
) -> PlayerResult:
    """Write 16 x 8 KiB, let `spoil` work on the file, read all back with VERIFY."""
    one = opened()
    writes = [op(Kind.WRITE, 0, i * 8192, 8192) for i in range(16)]
    one.play(chunk(op(Kind.CREATE), *writes, op(Kind.CLOSE), names=(b"f",)))
    spoil(tmp_path / "f")
    other = opened(seed=seed, stop_on_error=False)
    reads = [op(Kind.READ, 0, i * 8192, 8192, flags=Flag.VERIFY) for i in range(16)]
    assert other.play(chunk(op(Kind.OPEN), *reads, names=(b"f",))) == 17
    return other.result()


def test_verify_accepts_what_was_written(opened: Open, tmp_path: Path) -> None:
    result = write_then_verify(opened, tmp_path, lambda _: None)
    assert (result.errors, result.bytes, result.operations) == (0, 16 * 8192, 16)
    assert result.overhead_ns > 0


def test_verify_names_the_first_wrong_byte(opened: Open, tmp_path: Path) -> None:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[50_001] ^= 0x40
        path.write_bytes(bytes(data))

    result = write_then_verify(opened, tmp_path, flip)
    right = content.expected(7, b"f", 50_001, 1)[0]
    assert result.errors_by_errno == {"EVERIFY": 1}
    assert (result.operations, result.bytes) == (15, 15 * 8192)
    error = result.first_error
    assert error is not None
    assert error.wrong_offset == 50_001
    assert (error.expected, error.found) == (right, right ^ 0x40)
    assert (error.file, error.offset, error.op) == ("f", 49_152, 7)


def test_stale_data_of_another_seed_cannot_pass(opened: Open, tmp_path: Path) -> None:
    result = write_then_verify(opened, tmp_path, lambda _: None, seed=8)
    assert result.errors_by_errno == {"EVERIFY": 16}


def test_blocks_of_another_place_cannot_pass(opened: Open, tmp_path: Path) -> None:
    def swap(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[8192:16384] + data[:8192] + data[16384:])

    assert write_then_verify(opened, tmp_path, swap).errors_by_errno == {"EVERIFY": 2}


def test_a_short_read_is_an_error(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 6000)
    one = opened(stop_on_error=False)
    one.play(
        chunk(
            op(Kind.OPEN),
            op(Kind.READ, 0, 4096, 4096),
            op(Kind.READ, 0, 9000, 1),
            op(Kind.READ, 0, 0, 6000),
            names=(b"f",),
        )
    )
    result = one.result()
    assert result.errors_by_errno == {"ESHORT": 2}
    assert (result.bytes, result.operations) == (6000 - 4096 + 6000, 1)
    assert result.first_error is not None
    assert result.first_error.errno == "ESHORT"


def test_the_first_error_stops_or_not(opened: Open) -> None:
    ops = (op(Kind.STAT, 0), op(Kind.STAT, 1), op(Kind.STAT, 0))
    one = opened()
    assert one.play(chunk(op(Kind.CREATE), names=(b"f", b"missing"))) == 1
    assert one.play(chunk(*ops)) == 2
    assert one.play(chunk(*ops)) == 0
    error = one.result().first_error
    assert error is not None
    assert {key: getattr(error, key) for key in ("kind", "file", "errno", "op", "thread")} == {
        "kind": "stat",
        "file": "missing",
        "errno": "ENOENT",
        "op": 2,
        "thread": 0,
    }
    two = opened(stop_on_error=False)
    assert two.play(chunk(*ops, names=(b"f", b"missing"))) == 3
    assert two.result().errors_by_errno == {"ENOENT": 1}
    assert two.result().counts[Kind.STAT].sum() == 2


def test_metadata_is_counted_on_request(opened: Open) -> None:
    ops = chunk(op(Kind.CREATE), op(Kind.WRITE, 0, 0, 10), op(Kind.CLOSE), names=(b"f",))
    one, two = opened(), opened(count_metadata=True)
    one.play(ops)
    two.play(ops)
    assert (one.result().operations, two.result().operations) == (1, 3)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_deadline_stops_and_the_rest_can_be_played(opened: Open, threads: int) -> None:
    streams = [op(Kind.STAT, 0, i, stream=i % 7) for i in range(20_000)]
    one = opened(threads=threads, stop_on_error=False)
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    whole = chunk(*streams)
    one.stop_at(time.monotonic_ns() - 1)
    assert one.play(whole) == 0
    one.stop_at(time.monotonic_ns() + 3_000_000)
    done = one.play(whole)
    left = one.left(whole)
    assert len(left.ops) == len(whole.ops) - done
    for thread in range(threads):
        own = whole.ops["offset"][whole.ops["stream"] % threads == thread]
        rest = left.ops["offset"][left.ops["stream"] % threads == thread]
        np.testing.assert_array_equal(rest, own[len(own) - len(rest) :])
    one.stop_at(0)
    assert one.play(left) == len(left.ops)
    assert one.result().ops == len(whole.ops) + 1


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_the_work_and_keep_order_within_a_stream(
    opened: Open, threads: int, tmp_path: Path
) -> None:
    names = tuple(b"f%d" % i for i in range(8))
    one = opened(threads=threads)
    rows = []
    for i in range(8):
        rows.append(
            [op(Kind.CREATE, i, stream=i)]
            + [op(Kind.WRITE, i, j * 4096, 4096, stream=i) for j in range(50)]
            + [op(Kind.READ, i, j * 4096, 4096, stream=i, flags=Flag.VERIFY) for j in range(50)]
            + [op(Kind.CLOSE, i, stream=i)]
        )
    mixed = [row[j] for j in range(102) for row in rows]
    assert one.play(Chunk(np.array(mixed[:300], dtype=OP), names)) == 300
    assert one.play(chunk(*mixed[300:])) == len(mixed) - 300
    result = one.result()
    assert (result.errors, result.bytes, result.operations) == (0, 8 * 100 * 4096, 800)
    assert result.counts.sum() == result.ops == len(mixed)
    assert result.interval_bytes.sum() == result.bytes
    assert result.interval_operations.sum() == result.operations
    for i, name in enumerate(names):
        assert (tmp_path / name.decode()).read_bytes() == content.expected(
            7, names[i], 0, 50 * 4096
        )


def test_intervals_fold_and_add_up(opened: Open) -> None:
    # the origin lies so far back that 10 ms intervals cannot reach from it to now
    one = opened(origin_ns=max(1, time.monotonic_ns() - 60_000_000_000))
    writes = [op(Kind.WRITE, 0, i * 100, 100) for i in range(200)]
    one.play(chunk(op(Kind.CREATE), *writes, names=(b"f",)))
    result = one.result()
    assert len(result.interval_bytes) <= INTERVALS
    assert result.interval_ns > 10_000_000
    assert (result.interval_ns // 10_000_000).bit_count() == 1
    assert result.interval_bytes.sum() == result.bytes == 20_000
    assert result.interval_operations.sum() == 200
    age = result.io_last_ns - result.first_ns + 60_000_000_000
    last = int(np.flatnonzero(result.interval_bytes)[-1])
    assert abs((last + 0.5) * result.interval_ns - age) <= 2 * result.interval_ns


def test_open_loop_counts_from_the_intended_time(opened: Open) -> None:
    one = opened(max_op_bytes=4096)
    one.play(chunk(op(Kind.CREATE), op(Kind.WRITE, 0, 0, 4096), names=(b"f",)))
    assert one.result().service is None
    two = opened(max_op_bytes=4096)
    origin = time.monotonic_ns() - 500_000_000
    two.begin(origin)
    # ten that are half a second late, and one that has to be waited for
    late = [op(Kind.READ, 0, 0, 4096, time=1 + i) for i in range(10)]
    two.play(
        chunk(op(Kind.OPEN), *late, op(Kind.READ, 0, 0, 4096, time=550_000_000), names=(b"f",))
    )
    result = two.result()
    assert result.last_ns >= origin + 550_000_000
    assert result.max_ns[Kind.READ] >= 490_000_000
    assert result.service is not None
    assert result.service.counts[Kind.READ].sum() == result.counts[Kind.READ].sum() == 11
    assert result.service.counts[Kind.OPEN].sum() == 0
    assert result.service.total_ns[Kind.READ] <= result.last_ns - result.first_ns
    assert result.total_ns[Kind.READ] - result.service.total_ns[Kind.READ] >= 10 * 490_000_000


def test_open_loop_does_not_wait_beyond_the_deadline(opened: Open) -> None:
    one = opened()
    began = time.monotonic_ns()
    one.begin(began)
    one.stop_at(began + 50_000_000)
    far = op(Kind.STAT, 0, time=3_600_000_000_000)
    assert one.play(chunk(op(Kind.CREATE), far, names=(b"f",))) == 1
    with pytest.raises(ValueError, match="already"):
        one.begin(began)


def test_metadata_kinds(opened: Open, tmp_path: Path) -> None:
    one = opened(stop_on_error=False, threads=1)
    names = (b"d", b"d/f", b"d/g", b".")
    played = one.play(
        chunk(
            op(Kind.MKDIR, 0),
            op(Kind.CREATE, 1),
            op(Kind.WRITE, 1, 0, 999),
            op(Kind.FSYNC, 1),
            op(Kind.FSYNC, 1, flags=Flag.DATA_ONLY),
            op(Kind.TRUNCATE, 1, 500),
            op(Kind.CLOSE, 1),
            op(Kind.STAT, 1),
            op(Kind.RENAME, 1, file2=2),
            op(Kind.READDIR, 0),
            op(Kind.READDIR, 3),
            op(Kind.RMDIR, 0),
            op(Kind.STAT, 1),
            op(Kind.MKDIR, 0),
            op(Kind.CLOSE, 1),
            op(Kind.CREATE, 2, flags=Flag.EXCLUSIVE),
            op(Kind.RMDIR, 2),
            names=names,
        )
    )
    assert played == 17
    assert (tmp_path / "d/g").stat().st_size == 500
    assert one.result().errors_by_errno == {
        "EBADF": 1,
        "EEXIST": 2,
        "ENOENT": 1,
        "ENOTDIR": 1,
        "ENOTEMPTY": 1,
    }
    one.play(chunk(op(Kind.UNLINK, 2), op(Kind.RMDIR, 0)))
    assert list(tmp_path.iterdir()) == []


def test_direct_io(opened: Open, tmp_path: Path) -> None:
    one = opened(stop_on_error=False)
    one.play(chunk(op(Kind.CREATE, flags=Flag.DIRECT), names=(b"f",)))
    if one.result().errors:
        pytest.skip("the temporary directory has no direct I/O")
    one.play(
        chunk(
            op(Kind.WRITE, 0, 0, 65536),
            op(Kind.WRITE, 0, 1 << 20, 1 << 20),
            op(Kind.READ, 0, 1 << 20, 1 << 20, flags=Flag.VERIFY),
            op(Kind.READ, 0, 0, 4096, flags=Flag.VERIFY),
        )
    )
    assert one.result().errors_by_errno == {}
    assert (tmp_path / "f").read_bytes()[:65536] == content.expected(7, b"f", 0, 65536)


BLOCKED = """
import os, sys, threading
import numpy as np
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.player import open_player
root, implementation = sys.argv[1:]
os.mkfifo(root + "/fifo")
one = open_player("posix", root, PlayerOptions(slots=1, max_op_bytes=0), implementation)
ops = np.zeros(1, dtype=OP)
ops["kind"], ops["flags"] = Kind.OPEN, Flag.READ_ONLY
playing = threading.Thread(target=one.play, args=(Chunk(ops, (b"fifo",)),))
playing.start()
os.close(os.open(root + "/fifo", os.O_WRONLY))  # only now can the player's open return
playing.join()
print(one.result().ops, one.result().errors)
"""


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_other_python_threads_run_during_play(implementation: str, tmp_path: Path) -> None:
    if implementation == "c" and (reason := asking.why_not("c player")):
        pytest.skip(reason)
    argv = [sys.executable, "-P", "-c", BLOCKED, str(tmp_path), implementation]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.split() == ["1", "0"]


def test_wait_until(monkeypatch: pytest.MonkeyPatch) -> None:
    for native in {id(player._native): player._native, 0: None}.values():
        monkeypatch.setattr(player, "_native", native)
        for spin in (0, 200_000):
            moment = time.monotonic_ns() + 3_000_000
            player.wait_until(moment, spin)
            assert time.monotonic_ns() >= moment
        player.wait_until(0)
