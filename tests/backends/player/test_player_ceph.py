"""The drivers rados and cephfs of the player, against a real Ceph."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.player import content
from fsmatrix.backends.player.ops import DRIVERS, Flag, Kind
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from fsmatrix.results.histogram import bin_of
from tests.backends.ceph_places import DRIVER_NAMES, OBJECT, SEED, Place, get_xattr
from tests.backends.playing import chunk, data_stream, facts, metadata_stream, op
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("c player", "ceph"),
]


@pytest.mark.parametrize("depth", [1, 16])
def test_the_same_stream_gives_the_same_as_on_posix(
    place: Place, depth: int, tmp_path: Path
) -> None:
    ops = data_stream(np.random.default_rng(depth), 150)
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
    ops, names = metadata_stream()
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
def test_the_stated_depth_is_the_drivers(made_place: Any, driver: str) -> None:
    place = made_place(driver)
    most = DRIVERS[driver].max_depth
    place.opened(depth=most, max_op_bytes=4096).close()
    with pytest.raises(ValueError, match="depth must"):
        place.opened(depth=most + 1)


def test_objects_are_those_of_libradosstriper(rados: Place, tmp_path: Path) -> None:
    writes = [op(Kind.WRITE, 0, i * 50_000, 50_000) for i in range(10)]
    rados.played(op(Kind.CREATE), *writes, op(Kind.CLOSE), names=(b"d/f",), depth=4)
    with rados.bed.cluster() as cluster, rados.objects(cluster) as objects:
        assert sorted(objects.names()) == [f"d/f.{i:016x}" for i in range(8)]
        assert get_xattr(objects, "d/f.0000000000000000", "striper.size") == b"500000"
        joined = b"".join(objects.read(f"d/f.{i:016x}") for i in range(8))
    assert joined == content.expected(SEED, b"d/f", 0, 500_000)
    out = tmp_path / "out"
    argv = ["rados", "-c", rados.bed.conf, "-p", rados.bed.pools["rados"], "-N", rados.name]
    # 16.2's tool may abort on its way out, after the file is whole: its bytes are what counts
    subprocess.run([*argv, "--striper", "get", "d/f", str(out)], check=False, timeout=PATIENCE,
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
        size = get_xattr(objects, "f.0000000000000000", "striper.size")
    assert int(size) == 2 * OBJECT


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
    subprocess.run([sys.executable, "-c", script, *argv], check=True, timeout=PATIENCE)
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
def test_exactly_depth_operations_are_in_flight(
    bed: CephTestbed, made_place: Any, driver: str, size: int
) -> None:
    """While the OSDs stand still, as many writes wait as the depth says.

    With 4 MiB these are more bytes than librados lets out unasked (100 MiB).  The pause is much
    longer than the same writes take without one, here and now: half of it to let them out, half
    of it to tell those that waited from those that did not.
    """
    depth, count = (28, 32) if size > OBJECT else (16, 100)
    place = made_place(driver)
    more = {} if driver == "cephfs" else {"object_size": size}
    one = place.opened(root=place.root(**more), depth=depth, max_op_bytes=size)
    one.play(chunk(op(Kind.CREATE, flags=Flag.DIRECT), names=(b"f",)))
    writes = chunk(*(op(Kind.WRITE, 0, i * size, size) for i in range(count)))
    playing = threading.Thread(target=one.play, args=(writes,))
    began = time.monotonic()
    one.play(writes)
    one.drain()
    usual = time.monotonic() - began
    try:
        for osd in (0, 1):
            bed.stop(f"osd.{osd}")
        began = time.monotonic_ns()
        playing.start()
        time.sleep(max(4.0, 6 * usual))
    finally:
        pause = time.monotonic_ns() - began
        for osd in (0, 1):
            bed.resume(f"osd.{osd}")
    playing.join()
    one.drain()
    result = one.result()
    one.play(chunk(op(Kind.CLOSE), op(Kind.UNLINK)))
    one.close()
    assert (result.errors, result.operations) == (0, 2 * count)
    waited = result.counts[Kind.WRITE][bin_of(pause // 2) :].sum()
    assert waited == depth


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [2, 64])
def test_closing_waits_for_what_is_in_flight(place: Place, depth: int, threads: int) -> None:
    place.wait_in_closing(depth, threads)
