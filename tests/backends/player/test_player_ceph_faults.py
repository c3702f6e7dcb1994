"""The drivers rados and cephfs: what was changed below, daemons that die, what cannot be opened."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fsmatrix.backends.ceph.bindings.librados import IoCtx
from fsmatrix.backends.player import content
from fsmatrix.backends.player.lanes import PlayerOptions, PlayerResult
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests.backends.ceph_places import OBJECT, SEED, Place
from tests.backends.playing import chunk, op
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("c player", "ceph"),
]


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
    assert error.wrong_offset == 20_001
    assert (error.expected, error.found) == (right[20_001], right[20_001] ^ 0x40)
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


@pytest.mark.parametrize("depth", [1, 16])
def test_a_pool_that_goes_away_in_the_middle(bed: CephTestbed, rados: Place, depth: int) -> None:
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
    assert result.first_error.kind == "write"


@pytest.mark.parametrize("depth", [1, 16])
def test_an_osd_that_dies_fails_what_lies_on_it(bed: CephTestbed, rados: Place, depth: int) -> None:
    """With one copy: exactly the objects of that OSD, each within the user's own limit."""
    count, limit = 8, 2
    pool = rados.bed.pools["rados"]
    one = rados.opened(root=rados.root(option__rados_osd_op_timeout=limit), depth=depth)
    writes = chunk(*(op(Kind.WRITE, 0, i * OBJECT, OBJECT) for i in range(count)))
    one.play(chunk(op(Kind.CREATE), names=(b"f",)))
    one.play(writes)
    one.drain()
    with bed.cluster() as cluster:
        lies = [cluster.mon("osd map", pool=pool, object=f"f.{i:016x}", nspace=rados.name)
                for i in range(count)]  # fmt: skip
    first = lies[0]["acting_primary"]  # carries the file's size: it lives on
    alive = [i * OBJECT for i, its in enumerate(lies) if its["acting_primary"] == first]
    dead = [i * OBJECT for i, its in enumerate(lies) if its["acting_primary"] != first][: depth + 1]
    assert dead  # one after the other, each waits for the limit
    reads = chunk(*(op(Kind.READ, 0, at, OBJECT, flags=Flag.VERIFY)
                    for at in sorted(alive + dead)))  # fmt: skip
    bed.kill(f"osd.{1 - first}")
    try:
        one.play(reads)
        one.drain()
        failed = one.result()
    finally:
        bed.restart(f"osd.{1 - first}")
        bed.wait_clean(60)
    assert failed.errors_by_errno == {"ETIMEDOUT": len(dead)}
    assert failed.first_error is not None
    assert failed.first_error.offset in dead
    one.play(reads)
    one.drain()
    assert one.result().errors == len(dead)
    one.close()


def test_a_full_pool_is_an_error(bed: CephTestbed, rados: Place) -> None:
    with bed.cluster() as cluster:
        cluster.mon("osd pool create", pool="small", pg_num=8, size=1)
        # a pool without one is a health warning, with which no later test finds the bed clean
        cluster.mon("osd pool application enable", pool="small", app="rados")
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
        cluster.mon(
            "osd pool delete", pool="small", pool2="small", yes_i_really_really_mean_it=True
        )
    assert set(found.errors_by_errno) <= {"EDQUOT", "ENOSPC"}
    assert found.errors > 0
    assert found.first_error is not None
    assert found.first_error.kind == "write"


def refused(driver: str, root: str) -> OSError:
    """The error of opening."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the callers look at it
        open_player(driver, root, PlayerOptions(slots=1, max_op_bytes=4096), "c")
    return caught.value


def test_reasons_why_a_root_cannot_be_opened(bed: CephTestbed, rados: Place, cephfs: Place) -> None:
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
    driver: str, more: dict[str, object], bed: CephTestbed, tmp_path: Path
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
        "from fsmatrix.backends.player.player import PlayerOptions, open_player\n"
        f"open_player('{driver}', 'conf=/x\\n{'pool=a' if driver == 'rados' else 'path=/'}',"
        " PlayerOptions(slots=1, max_op_bytes=1), 'c')"
    )
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    path = next(line.split()[-1] for line in listed.splitlines() if library in line)
    hide = f'mount --bind /dev/null "{path}" && exec "$0" -P -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hide, sys.executable, code],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{library} cannot be loaded (package " in done.stderr
