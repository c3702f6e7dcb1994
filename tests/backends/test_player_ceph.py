"""The drivers rados and cephfs of the player, against a real Ceph."""

from __future__ import annotations

import errno
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends import content, player
from fsmatrix.backends.ceph.librados import Cluster, IoCtx
from fsmatrix.backends.drivers import DRIVERS
from fsmatrix.backends.ops import OP, Chunk, Flag, Kind
from fsmatrix.backends.played import PlayerResult
from fsmatrix.backends.player import Player, open_player
from fsmatrix.backends.testbed.ceph import Bed, BedOptions, down, missing, up
from fsmatrix.results.histogram import bin_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(player._native is None, reason="the C player is not built"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

OBJECT = 1 << 16  # bytes
DRIVER_NAMES = ("rados", "cephfs")
SEED = 7
_fresh = itertools.count()


def op(kind: Kind, file: int = 0, offset: int = 0, size: int = 0, **more: int) -> tuple[Any, ...]:
    """One operation as a tuple in OP's order."""
    return (
        kind,
        more.get("flags", 0),
        more.get("stream", 0),
        file,
        more.get("file2", 0),
        offset,
        size,
        more.get("time", 0),
    )


def chunk(*ops: tuple[Any, ...], names: tuple[bytes, ...] = ()) -> Chunk:
    return Chunk(np.array(list(ops), dtype=OP), names)


def lines(**values: object) -> str:
    """The text of a root."""
    return "".join(f"{key.replace('__', '.')}={value}\n" for key, value in values.items())


@dataclass(frozen=True)
class Place:
    """A driver and an empty root of its own on the bed."""

    driver: str
    bed: Bed
    name: str

    def root(self, **more: object) -> str:
        base: dict[str, object] = {"conf": self.bed.conf, "user": self.bed.user}
        base |= {"keyring": self.bed.keyring}
        if self.driver == "rados":
            base |= {"pool": self.bed.pools["rados"], "namespace": self.name}
            base |= {"object_size": OBJECT}
        else:
            base |= {"filesystem": self.bed.filesystem, "path": f"/{self.name}"}
        return lines(**(base | more))

    def opened(self, *, root: str = "", **more: Any) -> Player:
        given: dict[str, Any] = {"slots": 8, "max_op_bytes": 1 << 20, "seed": SEED}
        given |= {"stop_on_error": False} | more
        return open_player(self.driver, root or self.root(), implementation="c", **given)

    def played(self, *ops: tuple[Any, ...], names: tuple[bytes, ...] = (), **more: Any) -> Any:
        """The result of a player that plays this and is closed."""
        one = self.opened(**more)
        try:
            one.play(chunk(*ops, names=names))
            one.drain()
            return one.result()
        finally:
            one.close()

    def objects(self, cluster: Cluster) -> IoCtx:
        """What is below: the objects of the namespace, or those of all files' data."""
        pool = self.bed.pools["rados" if self.driver == "rados" else "data"]
        return cluster.ioctx(pool, self.name if self.driver == "rados" else "")


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with tempfile.TemporaryDirectory(prefix="fsmatrix-test-") as folder:
        place = f"{folder}/bed"
        try:
            yield up(BedOptions(nodes=2, osds_per_node=1, pg_num=16, auth="cephx"), place)
        finally:
            down(place)


def made_place(bed: Bed, driver: str) -> Place:
    """An empty root."""
    name = f"test{next(_fresh)}"
    if driver == "cephfs":
        top = Place(driver, bed, "")
        assert top.played(op(Kind.MKDIR), names=(name.encode(),)).errors == 0
    return Place(driver, bed, name)


@pytest.fixture(params=DRIVER_NAMES)
def place(request: pytest.FixtureRequest, bed: Bed) -> Place:
    return made_place(bed, request.param)


@pytest.fixture
def rados(bed: Bed) -> Place:
    return made_place(bed, "rados")


@pytest.fixture
def cephfs(bed: Bed) -> Place:
    return made_place(bed, "cephfs")


def facts(result: PlayerResult) -> dict[str, Any]:
    """What must be the same on every storage system."""
    return {
        "numbers": (result.ops, result.bytes, result.operations, result.errors),
        "errors": result.errors_by_errno,
        "counts": result.counts.sum(axis=1).tolist(),
    }


def stream(rng: np.random.Generator, count: int) -> list[tuple[Any, ...]]:
    """A file written without holes, then overwritten, read, cut and read beyond its end."""
    ops = [op(Kind.CREATE, flags=Flag.EXCLUSIVE), op(Kind.CREATE, flags=Flag.EXCLUSIVE)]
    ops += [op(Kind.WRITE, 0, i * 50_000, 50_000) for i in range(20)]
    for _ in range(count):
        kind = Kind.READ if rng.random() < 0.6 else Kind.WRITE
        size = int(rng.integers(0, 200_000))
        offset = int(rng.integers(0, 1_000_000 - size))
        ops.append(op(kind, 0, offset, size, flags=Flag.VERIFY if kind == Kind.READ else 0))
    ops += [
        op(Kind.FSYNC),
        op(Kind.READ, 0, 990_000, 20_000),  # short
        op(Kind.READ, 0, 2_000_000, 1),
        op(Kind.TRUNCATE, 0, 300_001),
        op(Kind.READ, 0, 300_000, 2),
        op(Kind.READ, 0, 0, 300_001, flags=Flag.VERIFY),
        op(Kind.WRITE, 0, 300_001, 77_777),
        op(Kind.STAT),
        op(Kind.STAT, 1),
        op(Kind.UNLINK, 1),
        op(Kind.OPEN, 1),
        op(Kind.EVICT),
        op(Kind.READ, 0, 0, 377_778, flags=Flag.VERIFY),
        op(Kind.CLOSE),
        op(Kind.CLOSE),
        op(Kind.CREATE, 0, flags=Flag.EXCLUSIVE),
        op(Kind.OPEN, 0, flags=Flag.READ_ONLY),
        op(Kind.READ, 0, 0, 377_778, flags=Flag.VERIFY),
        op(Kind.WRITE, 0, 0, 10),
        op(Kind.CLOSE),
        op(Kind.OPEN, 0, flags=Flag.WRITE_ONLY),
        op(Kind.READ, 0, 0, 10),
        op(Kind.WRITE, 0, 0, 0),
        op(Kind.CLOSE),
    ]
    return ops


@pytest.mark.parametrize("depth", [1, 16])
def test_the_same_stream_gives_the_same_as_on_posix(
    place: Place, depth: int, tmp_path: Path
) -> None:
    ops = stream(np.random.default_rng(depth), 150)
    on_posix = Place("posix", place.bed, "").played(
        *ops, root=str(tmp_path), names=(b"file", b"none")
    )
    result = place.played(*ops, names=(b"file", b"none"), depth=depth)
    assert facts(result) == facts(on_posix)
    whole = (tmp_path / "file").read_bytes()
    assert whole == content.expected(SEED, b"file", 0, 377_778)
    back = [op(Kind.READ, 0, i, min(100_000, 377_778 - i), flags=Flag.VERIFY)
            for i in range(0, 377_778, 100_000)]  # fmt: skip
    again = place.played(op(Kind.OPEN), *back, names=(b"file",), depth=depth)
    assert (again.errors, again.bytes) == (0, 377_778)


def test_cephfs_metadata_is_that_of_posix(cephfs: Place, tmp_path: Path) -> None:
    names = (b"d", b"d/f", b"d/g", b".", b"../x", b"d/none/x")
    ops = (
        op(Kind.MKDIR, 0),
        op(Kind.CREATE, 1),
        op(Kind.WRITE, 1, 0, 999),
        op(Kind.FSYNC, 1, flags=Flag.DATA_ONLY),
        op(Kind.TRUNCATE, 1, 500),
        op(Kind.CLOSE, 1),
        op(Kind.STAT, 1),
        op(Kind.RENAME, 1, file2=2),
        op(Kind.READDIR, 0),
        op(Kind.READDIR, 3),
        op(Kind.READDIR, 2),
        op(Kind.RMDIR, 0),
        op(Kind.STAT, 1),
        op(Kind.MKDIR, 0),
        op(Kind.CLOSE, 1),
        op(Kind.CREATE, 2, flags=Flag.EXCLUSIVE),
        op(Kind.RMDIR, 2),
        op(Kind.STAT, 4),
        op(Kind.CREATE, 5),
        op(Kind.OPEN, 2),
        op(Kind.READ, 2, 0, 500),
        op(Kind.CLOSE, 2),
        op(Kind.UNLINK, 2),
        op(Kind.RMDIR, 0),
    )
    on_posix = Place("posix", cephfs.bed, "").played(*ops, root=str(tmp_path), names=names)
    for depth in (1, 4):
        assert facts(cephfs.played(*ops, names=names, depth=depth)) == facts(on_posix)


def test_rados_offers_what_has_a_meaning(rados: Place) -> None:
    one = rados.opened()
    for kind in Kind:
        offered = kind.name.lower() in DRIVERS["rados"].kinds
        if not offered:
            with pytest.raises(ValueError, match="cannot do"):
                one.play(chunk(op(kind)))
    one.close()
    assert {"mkdir", "rmdir", "rename", "readdir"}.isdisjoint(DRIVERS["rados"].kinds)


@pytest.mark.parametrize("driver", DRIVER_NAMES)
def test_the_stated_depth_is_the_drivers(bed: Bed, driver: str) -> None:
    place = made_place(bed, driver)
    most = DRIVERS[driver].max_depth
    place.opened(depth=most, max_op_bytes=4096).close()
    with pytest.raises(ValueError, match="depth must"):
        place.opened(depth=most + 1)


def test_objects_are_those_of_libradosstriper(rados: Place, tmp_path: Path) -> None:
    writes = [op(Kind.WRITE, 0, i * 50_000, 50_000) for i in range(10)]
    rados.played(op(Kind.CREATE), *writes, op(Kind.CLOSE), names=(b"d/f",), depth=4)
    with rados.bed.cluster() as cluster, rados.objects(cluster) as objects:
        assert sorted(objects.names()) == [f"d/f.{i:016x}" for i in range(8)]
        assert objects.get_xattr("d/f.0000000000000000", "striper.size") == b"500000"
        joined = b"".join(objects.read(f"d/f.{i:016x}") for i in range(8))
    assert joined == content.expected(SEED, b"d/f", 0, 500_000)
    out = tmp_path / "out"
    argv = ["rados", "-c", rados.bed.conf, "-p", rados.bed.pools["rados"], "-N", rados.name]
    # 16.2's tool may abort on its way out, after the file is whole: its bytes are what counts
    subprocess.run([*argv, "--striper", "get", "d/f", str(out)], check=False, timeout=60,
                   capture_output=True)  # fmt: skip
    assert out.read_bytes() == joined


def test_truncate_and_unlink_leave_no_object(rados: Place) -> None:
    writes = [op(Kind.WRITE, 0, i * OBJECT, OBJECT) for i in range(9)]
    one = rados.opened(depth=4)
    with rados.bed.cluster() as cluster, rados.objects(cluster) as objects:
        one.play(chunk(op(Kind.CREATE), *writes, names=(b"f",)))
        one.play(chunk(op(Kind.TRUNCATE, 0, 2 * OBJECT)))
        assert len(list(objects.names())) == 2
        one.play(chunk(op(Kind.TRUNCATE, 0, 10)))
        assert [objects.stat(name)[0] for name in objects.names()] == [10]
        one.play(chunk(op(Kind.CLOSE), op(Kind.OPEN, flags=Flag.TRUNCATE)))
        assert [objects.stat(name)[0] for name in objects.names()] == [0]
        one.play(chunk(*writes, op(Kind.UNLINK)))  # its size is not stored yet
        assert list(objects.names()) == []
    assert one.result().errors == 0
    one.close()


def test_two_writers_of_one_file_agree_on_its_size(rados: Place) -> None:
    first, second = rados.opened(), rados.opened(depth=4)
    first.play(chunk(op(Kind.CREATE), names=(b"f",)))
    second.play(chunk(op(Kind.OPEN), names=(b"f",)))
    second.play(chunk(op(Kind.WRITE, 0, OBJECT, OBJECT), op(Kind.CLOSE)))
    first.play(chunk(op(Kind.WRITE, 0, 0, OBJECT), op(Kind.CLOSE)))
    assert (first.result().errors, second.result().errors) == (0, 0)
    first.close()
    second.close()
    with rados.bed.cluster() as cluster, rados.objects(cluster) as objects:
        size = objects.get_xattr("f.0000000000000000", "striper.size")
    assert int(size) == 2 * OBJECT


def spoilt(place: Place, spoil: Callable[[IoCtx], None], depth: int) -> PlayerResult:
    """Write 8 objects' worth, let `spoil` work on the objects, read all with VERIFY."""
    count = 8 if place.driver == "rados" else 1
    size = count * OBJECT
    writes = [op(Kind.WRITE, 0, i * 8192, 8192) for i in range(size // 8192)]
    place.played(op(Kind.CREATE), *writes, op(Kind.FSYNC), op(Kind.CLOSE), names=(b"f",))
    with place.bed.cluster() as cluster, place.objects(cluster) as objects:
        spoil(objects)
    reads = [op(Kind.READ, 0, i * 8192, 8192, flags=Flag.VERIFY) for i in range(size // 8192)]
    result = place.played(op(Kind.OPEN), *reads, names=(b"f",), depth=depth)
    assert isinstance(result, PlayerResult)
    return result


@pytest.mark.parametrize("depth", [1, 8])
def test_verification_finds_a_byte_that_was_changed_below(place: Place, depth: int) -> None:
    right = content.expected(SEED, b"f", 0, OBJECT)

    def spoil(objects: IoCtx) -> None:
        mine = [name for name in objects.names() if objects.read(name, OBJECT) == right]
        assert len(mine) >= 1
        for name in mine:
            objects.write(name, bytes([right[20_001] ^ 0x40]), 20_001)

    result = spoilt(place, spoil, depth)
    assert result.errors_by_errno == {"EVERIFY": 1}
    error = result.first_error
    assert error is not None
    assert error["wrong_offset"] == 20_001
    assert (error["expected"], error["found"]) == (right[20_001], right[20_001] ^ 0x40)
    assert result.operations == result.ops - 2


@pytest.mark.parametrize("depth", [1, 8])
def test_a_missing_and_a_cut_object_are_errors(rados: Place, depth: int) -> None:
    def spoil(objects: IoCtx) -> None:
        objects.remove("f.0000000000000003")
        objects.truncate("f.0000000000000005", OBJECT - 10_000)

    result = spoilt(rados, spoil, depth)
    assert result.errors_by_errno == {"ENOENT": OBJECT // 8192, "ESHORT": 2}
    assert result.bytes == 7 * OBJECT - 10_000


def test_an_operation_over_several_objects_fails_with_the_bytes_before(rados: Place) -> None:
    def spoil(objects: IoCtx) -> None:
        objects.truncate("f.0000000000000005", 100)
        objects.remove("f.0000000000000006")

    spoilt(rados, spoil, 1)
    for depth in (1, 4):
        result = rados.played(
            op(Kind.OPEN), op(Kind.READ, 0, 1000, 8 * OBJECT - 1000), names=(b"f",), depth=depth
        )
        assert result.errors_by_errno == {"ESHORT": 1}
        assert result.bytes == 5 * OBJECT + 100 - 1000


def test_objects_that_are_no_file_of_ours(rados: Place) -> None:
    with rados.bed.cluster() as cluster, rados.objects(cluster) as objects:
        objects.write_full("f.0000000000000000", b"foreign")
        result = rados.played(
            op(Kind.OPEN), op(Kind.CREATE), op(Kind.UNLINK), op(Kind.STAT), names=(b"f",)
        )
        assert result.errors_by_errno == {"ENODATA": 4}
        assert objects.read("f.0000000000000000") == b"foreign"


def test_names_and_links_do_not_lead_out(cephfs: Place) -> None:
    top = Place("cephfs", cephfs.bed, "")
    outside = f"{cephfs.name}-outside".encode()
    assert top.played(op(Kind.CREATE), names=(outside,)).errors == 0
    script = (
        "import ctypes, sys\n"
        "lib = ctypes.CDLL('libcephfs.so.2')\n"
        "mount = ctypes.c_void_p()\n"
        "call = lambda name, *a: getattr(lib, 'ceph_' + name)(mount, *a)\n"
        "assert lib.ceph_create(ctypes.byref(mount), b'admin') == 0\n"
        "conf, keyring, path, target = (arg.encode() for arg in sys.argv[1:])\n"
        "assert call('conf_read_file', conf) == call('conf_set', b'keyring', keyring) == 0\n"
        "assert call('mount', b'/') == 0\n"
        "assert call('symlink', b'..', path + b'/up') == 0\n"
        "assert call('symlink', b'../' + target, path + b'/link') == 0\n"
        "assert call('unmount') == call('release') == 0\n"
    )
    argv = [cephfs.bed.conf, cephfs.bed.keyring, f"/{cephfs.name}", outside.decode()]
    subprocess.run([sys.executable, "-c", script, *argv], check=True, timeout=60)
    one = cephfs.opened()
    names = (b"up/" + outside, b"link", b"up/new", b"/" + outside, b"../" + outside)
    one.play(chunk(
        op(Kind.OPEN, 0), op(Kind.UNLINK, 0), op(Kind.STAT, 0), op(Kind.OPEN, 1),
        op(Kind.CREATE, 1, flags=Flag.TRUNCATE), op(Kind.MKDIR, 2), op(Kind.CREATE, 2),
        names=names,
    ))  # fmt: skip
    assert one.result().errors_by_errno == {"ELOOP": 7}
    one.play(chunk(op(Kind.OPEN, 3), op(Kind.UNLINK, 4)))
    assert one.result().errors_by_errno == {"EINVAL": 2, "ELOOP": 7}
    one.close()
    listed = top.played(op(Kind.STAT, 0), op(Kind.STAT, 1), names=(outside, b"new"))
    assert listed.errors_by_errno == {"ENOENT": 1}


def test_evict_drops_what_the_client_keeps(cephfs: Place) -> None:
    """What was changed below is seen only after the client's copy is gone."""
    right = content.expected(SEED, b"f", 0, OBJECT)
    read = op(Kind.READ, 0, 0, OBJECT, flags=Flag.VERIFY)
    cephfs.played(op(Kind.CREATE), op(Kind.WRITE, 0, 0, OBJECT), op(Kind.CLOSE), names=(b"f",))
    one = cephfs.opened()
    one.play(chunk(op(Kind.OPEN), read, names=(b"f",)))
    with cephfs.bed.cluster() as cluster, cephfs.objects(cluster) as objects:
        for name in objects.names():
            if objects.read(name, OBJECT) == right:
                objects.write(name, b"changed", 100)
    one.play(chunk(read))
    assert one.result().errors_by_errno == {}
    one.play(chunk(op(Kind.EVICT), read))
    assert one.result().errors_by_errno == {"EVERIFY": 1}
    assert one.result().overhead_ns >= one.result().total_ns[Kind.EVICT] > 0
    one.close()


@pytest.mark.parametrize("size", [4096, 4 << 20])
@pytest.mark.parametrize("driver", DRIVER_NAMES)
def test_exactly_depth_operations_are_in_flight(bed: Bed, driver: str, size: int) -> None:
    """While the OSDs stand still, as many writes wait as the depth says.

    With 4 MiB these are more bytes than librados lets out unasked (100 MiB).
    """
    depth, count = (40, 60) if size > OBJECT else (16, 100)
    place = made_place(bed, driver)
    more = {} if driver == "cephfs" else {"object_size": size}
    one = place.opened(root=place.root(**more), depth=depth, max_op_bytes=size)
    one.play(chunk(op(Kind.CREATE, flags=Flag.DIRECT), names=(b"f",)))
    writes = chunk(*(op(Kind.WRITE, 0, i * size, size) for i in range(count)))
    playing = threading.Thread(target=one.play, args=(writes,))
    try:
        for osd in (0, 1):
            bed.stop_osd(osd)
        began = time.monotonic_ns()
        playing.start()
        time.sleep(2)
    finally:
        pause = time.monotonic_ns() - began
        for osd in (0, 1):
            bed.cont_osd(osd)
    playing.join()
    one.drain()
    result = one.result()
    one.play(chunk(op(Kind.CLOSE), op(Kind.UNLINK)))
    one.close()
    assert (result.errors, result.operations) == (0, count)
    waited = result.counts[Kind.WRITE][bin_of(pause // 2) :].sum()
    assert waited == depth


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [2, 64])
def test_closing_waits_for_what_is_in_flight(place: Place, depth: int, threads: int) -> None:
    """Pieces that cross the objects' borders, and a close right after the last is sent."""
    pieces = [(i * 50_001, 50_001) for i in range(100)]
    one = place.opened(depth=depth, threads=threads)
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    one.play(chunk(*(op(Kind.WRITE, 0, at, size, stream=i % threads)
                     for i, (at, size) in enumerate(pieces))))  # fmt: skip
    one.close()
    back = (op(Kind.READ, 0, at, size, flags=Flag.VERIFY) for at, size in pieces)
    result = place.played(op(Kind.OPEN), *back, names=(b"f",), depth=depth)
    assert (result.errors, result.bytes) == (0, 100 * 50_001)


@pytest.mark.parametrize("depth", [1, 16])
def test_a_pool_that_goes_away_in_the_middle(bed: Bed, rados: Place, depth: int) -> None:
    """What is in flight then fails; nothing hangs and nothing crashes."""
    pool = f"gone-{rados.name}"
    with bed.cluster() as cluster:
        cluster.mon("osd pool create", pool=pool, pg_num=8, size=1)
        one = rados.opened(root=rados.root(pool=pool), depth=depth)
        one.play(chunk(op(Kind.CREATE), names=(b"f",)))
        until = time.monotonic() + 120  # generous: a client hears of it when it hears of it

        def write() -> None:
            while not one.result().errors_by_errno and time.monotonic() < until:
                one.play(chunk(*(op(Kind.WRITE, 0, i * 3000, 3000) for i in range(64))))

        playing = threading.Thread(target=write)
        playing.start()
        try:
            time.sleep(0.5)
        finally:
            cluster.mon("osd pool delete", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
            playing.join()
    one.drain()
    result = one.result()
    one.close()
    assert set(result.errors_by_errno) == {"ENOENT"}
    assert result.operations > 0  # what was written before
    assert result.operations + result.errors + 1 == result.ops  # and the create
    assert result.first_error is not None
    assert result.first_error["kind"] == "write"


@pytest.mark.parametrize("depth", [1, 16])
def test_an_osd_that_dies_fails_what_lies_on_it(bed: Bed, rados: Place, depth: int) -> None:
    """With one copy: exactly the objects of that OSD, each within the user's own limit."""
    count, limit = 8, 2
    pool = rados.bed.pools["rados"]
    one = rados.opened(root=rados.root(option__rados_osd_op_timeout=limit), depth=depth)
    writes = chunk(*(op(Kind.WRITE, 0, i * OBJECT, OBJECT) for i in range(count)))
    reads = chunk(*(op(Kind.READ, 0, i * OBJECT, OBJECT, flags=Flag.VERIFY)
                    for i in range(count)))  # fmt: skip
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    one.play(writes)
    one.drain()
    with bed.cluster() as cluster:
        places = [cluster.mon("osd map", pool=pool, object=f"f.{i:016x}", nspace=rados.name)
                  for i in range(count)]  # fmt: skip
    first = places[0]["acting_primary"]  # carries the file's size: it lives on
    dead = [i * OBJECT for i, where in enumerate(places) if where["acting_primary"] != first]
    assert dead
    bed.kill_osd(1 - first)
    try:
        one.play(reads)
        one.drain()
        failed = one.result()
    finally:
        bed.restart_osd(1 - first)
        bed.wait_clean(60)
    assert failed.errors_by_errno == {"ETIMEDOUT": len(dead)}
    assert failed.first_error is not None
    assert failed.first_error["offset"] in dead
    one.play(reads)
    one.drain()
    assert one.result().errors == len(dead)
    one.close()


def test_a_full_pool_is_an_error(bed: Bed, rados: Place) -> None:
    with bed.cluster() as cluster:
        cluster.mon("osd pool create", pool="small", pg_num=8, size=1)
        cluster.mon("osd pool set-quota", pool="small", field="max_objects", val="4")
        one = rados.opened(root=rados.root(pool="small"), depth=4)
        one.play(chunk(op(Kind.CREATE), names=(b"f",)))
        deadline, at = time.monotonic() + 60, 0
        while not one.result().errors and time.monotonic() < deadline:
            # what does not grow is let through
            one.play(chunk(*(op(Kind.WRITE, 0, (at + i) * OBJECT, OBJECT) for i in range(8))))
            one.drain()
            at += 8
            time.sleep(0.2)
        found = one.result()
        one.close()
        cluster.mon("osd pool set-quota", pool="small", field="max_objects", val="0")
    assert set(found.errors_by_errno) <= {"EDQUOT", "ENOSPC"}
    assert found.errors > 0
    assert found.first_error is not None
    assert found.first_error["kind"] == "write"


def refused(driver: str, root: str) -> OSError:
    """The error of opening."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the callers look at it
        open_player(driver, root, slots=1, max_op_bytes=4096, implementation="c")
    return caught.value


def test_reasons_why_a_root_cannot_be_opened(bed: Bed, rados: Place, cephfs: Place) -> None:
    error = refused("rados", rados.root(pool="nosuch"))
    assert error.errno == errno.ENOENT
    assert "pool nosuch" in str(error)
    error = refused("rados", rados.root(user="nobody"))
    assert error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT)
    assert "client.nobody" in str(error)
    error = refused("rados", rados.root(conf="/no/such.conf"))
    assert "/no/such.conf" in str(error)
    error = refused("rados", rados.root(option__no_such_option=1))
    assert "no_such_option=1" in str(error)
    error = refused("cephfs", cephfs.root(path="/nosuch"))
    assert error.errno == errno.ENOENT
    assert "/nosuch" in str(error)
    error = refused("cephfs", cephfs.root(filesystem="nosuch"))
    assert "nosuch" in str(error)
    assert bed.keyring not in str(error)


@pytest.mark.parametrize(
    ("driver", "root", "text"),
    [
        ("rados", "", "names no pool"),
        ("rados", "pool", "not key=value"),
        ("rados", "pool=a\npath=/\n", 'unknown key "path"'),
        ("rados", "pool=a\npool=b\n", "twice"),
        ("rados", "pool=a\nobject_size=1M", "object_size must"),
        ("rados", "pool=a\nobject_size=-1", "object_size must"),
        ("rados", "pool=a\nobject_size=100", "object_size must"),
        ("cephfs", "pool=a", 'unknown key "pool"'),
        ("cephfs", "path=/\noption.=1", "unknown key"),
    ],
)
def test_a_root_that_is_none(driver: str, root: str, text: str) -> None:
    error = refused(driver, root)
    assert error.errno == errno.EINVAL
    assert text in str(error)


@pytest.mark.parametrize(
    ("driver", "more"), [("rados", {}), ("cephfs", {"option__client_mount_timeout": 2})]
)
def test_a_cluster_that_does_not_answer(
    driver: str, more: dict[str, object], bed: Bed, tmp_path: Path
) -> None:
    """The bound is far from Ceph's own 300 s; the user's own option counts."""
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon_host = v1:127.0.0.1:1\nkeyring = /dev/null\n"
                    "auth_client_required = none\n")  # fmt: skip
    place = Place(driver, bed, "x")
    began = time.monotonic()
    error = refused(driver, place.root(conf=conf, keyring="", **more))
    assert error.errno == errno.ETIMEDOUT
    assert str(conf) in str(error)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("library", ["librados.so.2", "libcephfs.so.2"])
def test_a_missing_library_is_said(library: str) -> None:
    """In a mount namespace of its own the library is an empty file."""
    driver = library.removeprefix("lib").removesuffix(".so.2")
    code = (
        "from fsmatrix.backends.player import open_player\n"
        f"open_player('{driver}', 'conf=/x\\n{'pool=a' if driver == 'rados' else 'path=/'}',"
        " slots=1, max_op_bytes=1, implementation='c')"
    )
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    path = next(line.split()[-1] for line in listed.splitlines() if library in line)
    hide = f'mount --bind /dev/null "{path}" && exec "$0" -P -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hide, sys.executable, code],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{library} cannot be loaded (package " in done.stderr
