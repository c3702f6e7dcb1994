"""The driver uring: the contract, what it keeps, and a kernel that takes io_uring away.

tests/backends/player/test_player_depth.py plays random streams on it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.backends.player import content
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.backends.player.player import driver_refusal
from tests.backends.playing import (
    SEED,
    PlayerPlace,
    chunk,
    data_stream,
    facts,
    metadata_stream,
    op,
)
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.needs("io_uring")

DRIVERS = ["uring", "uring-sqpoll"]
MIB = 1 << 20
REPOSITORY = Path(__file__).parents[3]


class Directory(PlayerPlace):
    """A directory for a driver of paths."""

    def __init__(self, driver: str, folder: Path) -> None:
        self.driver, self.folder = driver, folder
        folder.mkdir()

    def root(self) -> str:
        return str(self.folder)


@pytest.fixture(params=DRIVERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return Directory(request.param, tmp_path / "place")


@pytest.fixture
def uring(tmp_path: Path) -> Directory:
    return Directory("uring", tmp_path / "place")


BEGIN = """
import errno, sys, threading, time
import numpy as np
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.player.player import driver_refusal, open_player
from tests.backends.forbidding import ENTER, REGISTER, SETUP, forbid
from tests.backends.playing import chunk, op
"""


def program(text: str, *words: object) -> list[str]:
    """A Python program that has these names."""
    return [sys.executable, "-c", BEGIN + textwrap.dedent(text), *map(str, words)]


def in_child(text: str, *words: object, by: tuple[str, ...] = ()) -> str:
    """What such a program prints; `by`: what starts it."""
    done = subprocess.run(
        [*by, *program(text, *words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- the contract ------------------------------------------------------------------------------
@pytest.mark.parametrize("depth", [1, 2, 32, 1024])
def test_the_contract_of_drivers(place: Directory, tmp_path: Path, depth: int) -> None:
    stream = data_stream(np.random.default_rng(depth), 150)
    other = Directory("posix", tmp_path / "posix")
    names = (b"f", b"g")
    ours, theirs = (
        place.played(*stream, names=names, depth=depth),
        other.played(*stream, names=names),
    )
    assert facts(ours) == facts(theirs)
    assert (place.folder / "f").read_bytes() == (other.folder / "f").read_bytes()


def test_the_contract_of_names(place: Directory, tmp_path: Path) -> None:
    ops, names = metadata_stream()
    other = Directory("posix", tmp_path / "posix")
    assert facts(place.played(*ops, names=names, depth=8)) == facts(other.played(*ops, names=names))


@pytest.mark.parametrize("threads", [1, 3])
def test_closing_waits(place: Directory, threads: int) -> None:
    place.wait_in_closing(64, threads)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_thousand_in_flight(place: Directory, threads: int, direct: bool) -> None:
    """Of each thread, in a ring of its own: none is lost, none comes twice."""
    count, flags = 6000, Flag.DIRECT if direct else 0
    player = place.opened(depth=1024, threads=threads, max_op_bytes=4096)
    player.play(chunk(op(Kind.CREATE, flags=flags), names=(b"f",)))
    if player.result().errors:
        pytest.skip("the temporary directory has no direct I/O")
    shuffled = np.random.default_rng(1).permutation(count).tolist()
    for kind, flag in ((Kind.WRITE, 0), (Kind.READ, Flag.VERIFY)):
        ops = [
            op(kind, 0, at * 4096, 4096, flags=flag, stream=i % threads)
            for i, at in enumerate(shuffled)
        ]
        assert player.play(chunk(*ops)) == count
    player.drain()
    result = player.result()
    player.close()
    assert result.errors_by_errno == {}
    assert result.counts.sum(axis=1)[[Kind.WRITE, Kind.READ]].tolist() == [count, count]
    assert (place.folder / "f").read_bytes() == content.expected(SEED, b"f", 0, count * 4096)


def test_order_within_a_file(place: Directory) -> None:
    """Close, truncate, rename and unlink come after what is in flight, at any depth."""
    size, rounds = 64 << 10, 40
    ops = []
    for _ in range(rounds):
        writes = [op(Kind.WRITE, 0, i * size, size) for i in range(16)]
        ops += [op(Kind.CREATE, 0), *writes, op(Kind.TRUNCATE, 0, 5 * size + 1)]
        ops += [op(Kind.READ, 0, 0, 5 * size + 1, flags=Flag.VERIFY), *writes, op(Kind.CLOSE, 0)]
        ops += [op(Kind.RENAME, 0, file2=1), op(Kind.OPEN, 1)]
        ops += [op(Kind.READ, 1, i * size, size) for i in range(16)]
        ops += [op(Kind.UNLINK, 1), op(Kind.CLOSE, 1), op(Kind.STAT, 1)]
    result = place.played(*ops, names=(b"f", b"g"), depth=32)
    assert result.errors_by_errno == {"ENOENT": rounds}  # of stat: it is gone
    assert result.bytes == rounds * (48 * size + 5 * size + 1)


# -- short ones, registered ones -----------------------------------------------------------------
def test_short_reads(place: Directory) -> None:
    """At the end of a file, also where direct I/O meets an end that is not aligned."""
    (place.folder / "f").write_bytes(b"x" * 10_000)
    reads = [op(Kind.READ, 0, at, 8192) for at in (0, 4096, 8192, 12288, 1 << 40)]
    for flags in (0, Flag.DIRECT):
        ours = place.played(op(Kind.OPEN, flags=flags), *reads, names=(b"f",), depth=8)
        theirs = Directory("posix", place.folder / f"posix{int(flags)}")
        (theirs.folder / "f").write_bytes(b"x" * 10_000)
        assert facts(ours) == facts(
            theirs.played(op(Kind.OPEN, flags=flags), *reads, names=(b"f",))
        )
        if not flags:
            assert ours.errors_by_errno == {"ESHORT": 4}
            assert ours.bytes == 8192 + (10_000 - 4096) + (10_000 - 8192)


@pytest.mark.root
def test_a_full_file_system(place: Directory) -> None:
    """A write that is done in part counts with that part; the error is ENOSPC."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "fsmatrix-test", place.root()], check=True
    )
    try:
        writes = [op(Kind.WRITE, 0, i * 100_000, 100_000) for i in range(11)]
        result = place.played(op(Kind.CREATE), *writes, names=(b"f",), depth=4)
        assert result.errors_by_errno == {"ENOSPC": 1}
        assert (result.operations, result.bytes) == (10, MIB)
    finally:
        subprocess.run(["umount", place.root()], check=True)


def only_open(path: Path) -> bool:
    """Whether nobody else has it open: the kernel grants a lease for writing then only."""
    with path.open("rb+") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except BlockingIOError:
            return False
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True


def test_a_registered_file_that_is_closed_is_closed(uring: Directory) -> None:
    """And descriptors come again: another file is not read in its place."""
    player = uring.opened(depth=4)
    assert "registered files" in player.features()
    for name in (b"f", b"g", b"h"):
        path = uring.folder / name.decode()
        ops = [op(Kind.WRITE, 0, i * 4096, 4096) for i in range(20)]
        ops += [op(Kind.READ, 0, i * 4096, 4096, flags=Flag.VERIFY) for i in range(20)]
        player.play(chunk(op(Kind.CREATE), *ops, names=(name,)))
        assert not only_open(path)
        player.play(chunk(op(Kind.CLOSE)))
        assert only_open(path)
    assert player.result().errors == 0
    player.close()


def test_files_open_at_the_end_are_closed_with_the_player(place: Directory) -> None:
    player = place.opened(depth=4)
    ops = [op(Kind.WRITE, 0, i * 4096, 4096) for i in range(20)]
    player.play(chunk(op(Kind.CREATE), *ops, names=(b"f",)))
    player.close()
    if place.driver == "uring":
        assert only_open(place.folder / "f")
    until(lambda: only_open(place.folder / "f"))  # sqpoll: when the kernel's thread gets to it


def test_without_locked_memory_it_goes_on_with_plain_buffers(tmp_path: Path) -> None:
    """The limit counts only for a process without the capability to pass it."""
    out = in_child(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        player = open_player("uring", sys.argv[1],
                             PlayerOptions(slots=1, max_op_bytes=4096, depth=64), "c")
        print(player.features())
        writes = [op(Kind.WRITE, 0, i * 4096, 4096) for i in range(200)]
        player.play(chunk(op(Kind.CREATE), *writes, names=(b"f",)))
        print(player.result().errors, player.result().bytes)
        """,
        tmp_path,
        by=() if os.geteuid() else ("setpriv", "--bounding-set=-ipc_lock"),
    )
    features, counted = out.splitlines()
    assert "plain buffers" in features
    assert counted == f"0 {200 * 4096}"


# -- times ---------------------------------------------------------------------------------------
def test_a_completion_is_seen_when_it_comes(uring: Directory) -> None:
    """In an open loop nobody submits for most of the time, and the latency must not show it."""
    count, apart = 100, 3_000_000
    player = uring.opened(depth=8)
    player.play(chunk(op(Kind.CREATE), op(Kind.WRITE, 0, 0, MIB), names=(b"f",)))
    player.begin(time.monotonic_ns()) if False else None
    origin = time.monotonic_ns() - player.result().first_ns
    reads = [op(Kind.READ, 0, i * 4096, 4096, time=origin + (i + 2) * apart) for i in range(count)]
    player.play(chunk(*reads))
    result = player.result()
    player.close()
    assert result.service is not None
    window = result.io_last_ns - result.io_first_ns
    assert window > (count - 1) * apart
    assert result.service.total_ns[Kind.READ] < window / 4  # it would be about the window


def test_another_thread_may_play_on(place: Directory) -> None:
    """A ring belongs to one thread: the next one gets a new one, with all that was registered."""
    player = place.opened(depth=16)
    player.play(chunk(op(Kind.CREATE), names=(b"f",)))
    for turn in range(3):
        ops = [op(Kind.WRITE, 0, (turn * 50 + i) * 4096, 4096) for i in range(50)]
        other = threading.Thread(target=player.play, args=(chunk(*ops),))
        other.start()
        other.join(PATIENCE)
    reads = [op(Kind.READ, 0, i * 4096, 4096, flags=Flag.VERIFY) for i in range(150)]
    player.play(chunk(*reads))
    assert (player.result().errors, player.result().bytes) == (0, 300 * 4096)
    assert "registered buffers" in player.features()
    player.close()


# -- what may be forbidden -----------------------------------------------------------------------
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("error", "said"),
    [("EPERM", "forbidden here: by a seccomp filter"), ("ENOSYS", "older than 5.6")],
)
def test_a_machine_that_forbids_it(driver: str, error: str, said: str, tmp_path: Path) -> None:
    out = in_child(
        f"""
        forbid(errno.{error}, SETUP)
        print(driver_refusal({driver!r}))
        try:
            open_player({driver!r}, sys.argv[1], PlayerOptions(slots=1, max_op_bytes=1), "c")
        except OSError as refused:
            print(errno.errorcode[refused.errno])
        print(driver_refusal("posix"))
        """,
        tmp_path,
    )
    reason, number, posix = out.split("\n")[:3]
    assert said in reason
    assert (number, posix) == (error, "")


def test_nothing_is_forbidden_here() -> None:
    assert [driver_refusal(name, 1024) for name in DRIVERS] == ["", ""]
    assert "depth must lie" in driver_refusal("uring", 2000)
    assert "no driver" in driver_refusal("uring", 1, "python")


def test_what_cannot_be_registered_is_not(tmp_path: Path) -> None:
    """But a ring that cannot be enabled takes nothing: each operation fails, none hangs."""
    out = in_child(
        """
        forbid(errno.EPERM, REGISTER)
        player = open_player("uring", sys.argv[1],
                             PlayerOptions(slots=1, max_op_bytes=4096, depth=8,
                                           stop_on_error=False), "c")
        print(player.features())
        writes = [op(Kind.WRITE, 0, i * 4096, 4096) for i in range(20)]
        player.play(chunk(op(Kind.CREATE), *writes, op(Kind.CLOSE), names=(b"f",)))
        result = player.result()
        print(result.errors_by_errno or result.bytes)
        player.close()
        """,
        tmp_path,
    )
    features, became = out.splitlines()
    assert features.startswith("plain buffers, plain files")
    alone = "SINGLE_ISSUER" in features
    assert became == ("{'EPERM': 20}" if alone else f"{20 * 4096}")


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("depth", [1, 64])
def test_forbidden_between_two_chunks(driver: str, depth: int, tmp_path: Path) -> None:
    """What has been done counts, what comes fails with the reason, and closing ends."""
    out = in_child(
        f"""
        player = open_player({driver!r}, sys.argv[1],
                             PlayerOptions(slots=1, max_op_bytes=4096, depth={depth},
                                           stop_on_error=False), "c")
        writes = [op(Kind.WRITE, 0, i * 4096, 4096) for i in range(100)]
        player.play(chunk(op(Kind.CREATE), *writes, names=(b"f",)))
        forbid(errno.EPERM, ENTER)
        player.play(chunk(*writes, op(Kind.FSYNC), op(Kind.CLOSE)))
        player.drain()
        result = player.result()
        player.close()
        print(result.errors_by_errno, result.operations, result.ops)
        """,
        tmp_path,
    )
    if driver == "uring":
        assert out == "{'EPERM': 100} 100 203\n"
    else:  # a thread of the kernel's may take some without being called
        assert out.endswith(" 203\n")


def test_forbidden_with_operations_in_flight(tmp_path: Path) -> None:
    """All come to an end, with an error if need be, and the memory is still the player's."""
    out = in_child(
        """
        options = PlayerOptions(slots=1, max_op_bytes=65536, depth=64, stop_on_error=False)
        player = open_player("uring", sys.argv[1], options, "c")
        writes = [op(Kind.WRITE, 0, i * 65536, 65536) for i in range(256)]
        player.play(chunk(op(Kind.CREATE, flags=Flag.DIRECT), names=(b"f",)))
        if player.result().errors:  # no direct I/O here
            player.close()
            player = open_player("uring", sys.argv[1], options, "c")
            player.play(chunk(op(Kind.CREATE), names=(b"f",)))
        player.play(chunk(*writes))
        before = player.result().operations
        reads = np.tile(np.array([op(Kind.READ, 0, i * 65536, 65536) for i in range(256)],
                                 dtype=OP), 400)
        playing = threading.Thread(target=player.play, args=(Chunk(reads),))
        playing.start()
        start = player.completed()
        while player.completed() == start:
            time.sleep(0.001)
        forbid(errno.EPERM, ENTER)
        playing.join()
        result = player.result()
        player.close()
        assert result.operations + result.errors == 256 + len(reads), result
        print(set(result.errors_by_errno), result.ops == 257 + len(reads))
        """,
        tmp_path,
    )
    assert out == "{'EPERM'} True\n"


# -- killed --------------------------------------------------------------------------------------
@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of its own on a loop device."""
    image, point = tmp_path / "image", tmp_path / "mounted"
    point.mkdir()
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 128 * MIB)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    yield point
    if point.is_mount():
        subprocess.run(["umount", point], check=True)


@pytest.mark.loop
@pytest.mark.parametrize("driver", DRIVERS)
def test_killed_with_operations_in_flight(mounted: Path, driver: str) -> None:
    """Nothing stays: neither the process nor its files, so that the storage can be unmounted."""
    text = """
        options = PlayerOptions(slots=2, max_op_bytes=65536, depth=256, threads=2)
        player = open_player(sys.argv[1], sys.argv[2], options, "c")
        player.play(chunk(*(op(Kind.CREATE, i, flags=Flag.DIRECT) for i in range(2)),
                          names=(b"f", b"g")))
        one = [op(Kind.WRITE, i % 2, (i // 2 % 512) * 65536, 65536, stream=i % 2)
               for i in range(2048)]
        print("plays", flush=True)
        while True:
            player.play(chunk(*one))
    """
    argv = program(text, driver, mounted)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"plays\n"
        until(lambda: (mounted / "g").stat().st_size > 8 * MIB)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
    # the kernel takes its rings apart after the process has gone
    until(lambda: subprocess.run(["umount", mounted], check=False).returncode == 0, 60.0)
