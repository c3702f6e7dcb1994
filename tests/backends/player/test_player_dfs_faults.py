"""The driver dfs where something is wrong: agents, pools, containers, classes, full pools.

On the double, which says what a real DAOS was seen to say; those that need nothing but a pool
run on a real one too.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.backends.player.player import open_player
from tests.backends import daos_places
from tests.backends.daos_places import SEED, Place, Storage, elsewhere
from tests.backends.playing import chunk, op

pytestmark = [pytest.mark.daos, pytest.mark.needs("c player", "compiler")]
SIZE = 8192
COUNT = 100
OPEN = (
    "from fsmatrix.backends.player.player import PlayerOptions, open_player\n"
    "def attempt(root):\n"
    "    try:\n"
    "        open_player('dfs', root, PlayerOptions(slots=1, max_op_bytes=4096), 'c').close()\n"
    "    except OSError as error:\n"
    "        return error.errno, str(error)\n"
    "    return 0, ''\n"
)


def refused(root: str) -> OSError:
    """The error of opening."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the callers look at it
        open_player("dfs", root, PlayerOptions(slots=1, max_op_bytes=4096), "c")
    return caught.value


def writes(count: int = COUNT) -> tuple[tuple[Any, ...], ...]:
    """Into file 0, one block after the other."""
    return tuple(op(Kind.WRITE, 0, i * SIZE, SIZE) for i in range(count))


def reads(count: int = COUNT) -> tuple[tuple[Any, ...], ...]:
    """Of the same, verified."""
    return tuple(op(Kind.READ, 0, i * SIZE, SIZE, flags=Flag.VERIFY) for i in range(count))


# -- roots and libraries -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("root", "text"),
    [
        ("", "names no pool"),
        ("pool=a", "no container"),
        ("pool=a\ncontainer=b\nnamespace=c", 'unknown key "namespace"'),
        ("pool=a\ncontainer=b\nchunk_size=1M", "chunk_size must"),
        ("pool=a\ncontainer=b\nchunk_size=-4096", "chunk_size must"),
        ("pool=a\ncontainer=b\nchunk_size=100", "chunk_size must"),
        ("pool=a\ncontainer=b\ntimeout=0", "timeout must"),
        ("pool=a\ncontainer=b\ntimeout=nan", "timeout must"),
        ("pool=a\ncontainer=b\ntimeout=1h", "timeout must"),
    ],
)
def test_a_root_that_is_none(root: str, text: str) -> None:
    error = refused(root)
    assert error.errno == errno.EINVAL
    assert text in str(error)


def test_a_missing_library_is_said(tmp_path: Path) -> None:
    error = refused(f"pool=a\ncontainer=b\nlibrary={tmp_path}")
    assert error.errno == errno.ELIBACC
    assert f"{tmp_path}/libdaos.so.2 cannot be loaded (package daos-client)" in str(error)


def test_a_library_without_what_is_needed_is_said(tmp_path: Path) -> None:
    empty = ["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", tmp_path / "libdaos.so.2"]
    subprocess.run(empty, check=True)
    error = refused(f"pool=a\ncontainer=b\nlibrary={tmp_path}")
    assert error.errno == errno.ELIBACC
    assert "has no daos_" in str(error)


def test_a_release_without_numbered_names(tmp_path: Path) -> None:
    """Where pool_connect and cont_open have no second form."""
    library = tmp_path / "plain"
    library.mkdir()
    place = Place(
        daos_places.doubled(daos_places.compiled(library, "-DDOUBLE_PLAIN"), tmp_path / "daos"),
        "",
    )
    script = OPEN + (
        "import os\nos.environ['FSMATRIX_DOUBLE'] = given['folder']\nprint(attempt(given['root']))"
    )
    done = elsewhere(script, {"root": place.root(), "folder": str(place.storage.folder)})
    assert done.stdout.strip() == "(0, '')", done.stderr
    assert place.storage.violations == []


def test_clients_are_silenced_unless_the_user_says_otherwise(doubled: Storage) -> None:
    script = OPEN + (
        "import ctypes, os\n"
        "os.environ |= given['environment']\n"
        "print(attempt(given['root'])[0])\n"
        "library = ctypes.CDLL(None)\n"
        "library.getenv.restype = ctypes.c_char_p\n"
        "print(library.getenv(b'D_LOG_FILE').decode(), library.getenv(b'DD_STDERR').decode())\n"
    )
    for theirs, seen in (({}, "/dev/null CRIT"), ({"D_LOG_FILE": "/x/y"}, "/x/y CRIT")):
        environment = {"FSMATRIX_DOUBLE": str(doubled.folder), **theirs}
        given = {"root": Place(doubled, "").root(), "environment": environment}
        done = elsewhere("import os\nos.environ.pop('D_LOG_FILE', None)\n" + script, given)
        assert done.stdout.splitlines() == ["0", seen], done.stderr


# -- connecting --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "name"), [(-2034, "DER_AGENT_COMM(-2034)"), (-1025, "DER_MISC(-1025)")]
)
def test_no_agent_and_a_stale_socket(
    doubled: Storage, monkeypatch: pytest.MonkeyPatch, code: int, name: str
) -> None:
    doubled.faults(init=code)
    error = refused(Place(doubled, "").root())
    assert name in str(error)
    assert "daos_agent" in str(error)
    assert "/var/run/daos_agent/daos_agent.sock" in str(error)
    monkeypatch.setenv("DAOS_AGENT_DRPC_DIR", "/run/other/")
    assert "/run/other/daos_agent.sock" in str(refused(Place(doubled, "").root()))


def test_versions_that_do_not_go_together(doubled: Storage) -> None:
    doubled.faults(init=-2029)
    error = refused(Place(doubled, "").root())
    assert error.errno == errno.EPROTO
    assert "DER_AGENT_INCOMPAT(-2029), daos_agent is of another version" in str(error)


@pytest.mark.parametrize(
    ("fault", "text"),
    [("hung_agent", "/daos_agent.sock) does not answer"), ("hung_pool", "was not opened within")],
)
def test_what_hangs_is_given_up_and_may_come_back(doubled: Storage, fault: str, text: str) -> None:
    """The process goes on; once the call returns, what it made is taken down."""
    doubled.faults(**{fault: 1})
    script = OPEN + (
        "import os, pathlib, time\n"
        "os.environ['FSMATRIX_DOUBLE'] = given['folder']\n"
        "began = time.monotonic()\n"
        "print(attempt(given['root'] + 'timeout=1'), time.monotonic() - began)\n"
        "pathlib.Path(given['folder'], 'faults').write_text('')\n"
        "print(attempt(given['root']))\n"
        "while list(pathlib.Path(given['folder']).rglob('.open.*')):\n"
        "    time.sleep(0.01)\n"
    )
    given = {"root": Place(doubled, "").root(), "folder": str(doubled.folder)}
    done = elsewhere(script, given)
    first, second = done.stdout.splitlines()
    assert first.startswith(f"({errno.ETIMEDOUT}, "), done.stderr
    assert text in first
    assert "daos_agent" in first
    assert second == "(0, '')"


def test_a_hung_agent_is_told_within_ten_seconds_by_default(doubled: Storage) -> None:
    """The limit itself, not how long this machine took."""
    source = Path(daos_places.__file__).parents[2] / "fsmatrix/backends/player/native"
    line = next(
        line for line in (source / "dfsconnect.c").read_text().splitlines()
        if line.startswith("#define AGENT_SECONDS")
    )  # fmt: skip
    assert float(line.split()[2]) < 10
    doubled.faults(hung_agent=1)
    script = OPEN + (
        "import os, time\nos.environ['FSMATRIX_DOUBLE'] = given['folder']\n"
        "began = time.monotonic()\nprint(attempt(given['root'])[1], time.monotonic() - began, "
        "flush=True)\nos._exit(0)\n"
    )
    given = {"root": Place(doubled, "").root(), "folder": str(doubled.folder)}
    began = time.monotonic()
    assert "daos_agent" in elsewhere(script, given).stdout
    assert time.monotonic() - began >= float(line.split()[2])


def test_pools_and_containers_that_cannot_be_opened(doubled: Storage) -> None:
    place, folder = Place(doubled, ""), doubled.folder
    assert folder is not None
    (folder / "secret").mkdir()
    (folder / "secret" / "forbidden").touch()
    (folder / "pool" / "numbers").mkdir()
    (folder / "pool" / "numbers" / "type").write_text("HDF5")
    error = refused(place.root(pool="secret"))
    assert error.errno == errno.EPERM
    assert "pool secret: DER_NO_PERM(-1001), not permitted; errno 1" in str(error)
    error = refused(place.root(container="numbers"))
    assert error.errno == errno.EINVAL
    assert "container numbers of pool pool cannot be mounted" in str(error)
    assert "POSIX" in str(error)


def test_unknown_names_are_errors_and_nothing_is_created(dfs: Place) -> None:
    error = refused(dfs.root(pool="fsmatrix-no-such-pool"))
    assert error.errno == errno.ENOENT
    assert "pool fsmatrix-no-such-pool: DER_NONEXIST(-1005)" in str(error)
    for _ in range(2):  # the first did not make it
        error = refused(dfs.root(container="fsmatrix-no-such"))
        assert error.errno == errno.ENOENT
        assert f"container fsmatrix-no-such of pool {dfs.storage.pool}" in str(error)
    error = refused(dfs.root(path="/no/such"))
    assert error.errno == errno.ENOENT
    assert "directory /no/such in container" in str(error)
    error = refused(dfs.root(oclass="S3000"))
    assert error.errno == errno.EINVAL
    assert "oclass=S3000" in str(error)


def test_handles_that_are_damaged(dfs: Place) -> None:
    owner = dfs.opened()
    lines = owner.share().strip()
    for wrong in ("handles=00", "handles=0g.00.00", "handles=00.00.00.00", lines[:-1], lines + "."):
        error = refused(dfs.root() + wrong)
        assert "handle" in str(error) or "shared" in str(error), wrong
    owner.close()


def test_a_queue_that_cannot_be_made(doubled: Storage) -> None:
    doubled.faults(eq_create=-1009)
    with pytest.raises(OSError, match=r"no event queue: DER_NOMEM\(-1009\)"):
        Place(doubled, "").opened(depth=4)


# -- operations --------------------------------------------------------------------------------
@pytest.mark.parametrize("der", [0, 1])
@pytest.mark.parametrize("depth", [1, 16])
def test_a_pool_that_is_full_in_the_middle(doubled: Storage, depth: int, der: int) -> None:
    """Every tenth write fails, some releases say so by DER codes; the others are there."""
    place = Place.fresh(doubled)
    doubled.faults(write=10, der=der)
    one = place.opened(depth=depth)
    one.play(chunk(op(Kind.CREATE), *writes(), names=(b"f",)))
    one.drain()
    result = one.result()
    assert result.errors_by_errno == {"ENOSPC": COUNT // 10}
    assert result.bytes == (COUNT - COUNT // 10) * SIZE
    assert result.first_error is not None
    assert result.first_error.kind == "write"
    doubled.faults()
    one.play(chunk(*writes(), *reads()))  # the space is back
    one.drain()
    assert one.result().errors == COUNT // 10
    one.close()


def test_a_class_that_does_not_fit_is_refused_when_a_file_is_made(doubled: Storage) -> None:
    place = Place.fresh(doubled)
    doubled.faults(unfit=1)
    result = place.played(op(Kind.CREATE), names=(b"f",), root=place.root(oclass="RP_2G1"))
    assert result.errors_by_errno == {"EINVAL": 1}
    assert place.played(op(Kind.CREATE), names=(b"f",)).errors == 0


@pytest.mark.parametrize("fault", ["refuse", "launched"])
def test_calls_that_fail_when_they_are_sent(doubled: Storage, fault: str) -> None:
    """With an event that was never launched, and with one that was all the same (before 2.2)."""
    place = Place.fresh(doubled)
    assert place.played(op(Kind.CREATE), *writes(), names=(b"f",)).errors == 0
    doubled.faults(**{fault: 7})
    one = place.opened(depth=16)
    one.play(chunk(op(Kind.OPEN), *reads(), names=(b"f",)))
    one.drain()
    result = one.result()
    one.close()
    assert set(result.errors_by_errno) == {"EIO"}
    assert result.errors == COUNT // 7 + (1 if fault == "refuse" and COUNT % 7 == 0 else 0)
    assert result.ops == COUNT + 1


@pytest.mark.parametrize("depth", [1, 16])
def test_reads_that_get_less(doubled: Storage, depth: int) -> None:
    place = Place.fresh(doubled)
    assert place.played(op(Kind.CREATE), *writes(), names=(b"f",)).errors == 0
    doubled.faults(short=4)
    result = place.played(op(Kind.OPEN), *reads(), names=(b"f",), depth=depth)
    assert result.errors_by_errno == {"ESHORT": COUNT // 4}
    assert result.bytes == COUNT * SIZE - COUNT // 4 * (SIZE // 2)


def test_a_queue_that_fails_now_and_then_loses_nothing(doubled: Storage) -> None:
    place = Place.fresh(doubled)
    doubled.faults(poll=3)
    result = place.played(op(Kind.CREATE), *writes(), *reads(), names=(b"f",), depth=8)
    assert (result.errors, result.bytes) == (0, 2 * COUNT * SIZE)


def test_a_queue_that_fails_for_good_ends_the_play(doubled: Storage) -> None:
    """In a process of its own: what was in flight stays so."""
    place = Place.fresh(doubled)
    doubled.faults(poll=1)
    script = (
        "import os\nos.environ['FSMATRIX_DOUBLE'] = given['folder']\n"
        "from fsmatrix.backends.player.player import PlayerOptions, open_player\n"
        "from tests.backends.playing import chunk, op\n"
        "from fsmatrix.backends.player.ops import Kind\n"
        "options = PlayerOptions(slots=1, max_op_bytes=4096, depth=4, stop_on_error=False)\n"
        "one = open_player('dfs', given['root'], options, 'c')\n"
        "one.play(chunk(op(Kind.CREATE), *(op(Kind.WRITE, 0, 4096 * i, 4096) for i in range(9)),"
        " names=(b'f',)))\n"
        "one.drain()\n"
        "print(one.result().errors_by_errno, flush=True)\n"
        "os._exit(0)\n"
    )
    done = elsewhere(script, {"root": place.root(), "folder": str(doubled.folder)})
    assert done.stdout.strip() == "{'EIO': 9}", done.stderr


def test_names_and_links_do_not_lead_out(doubled: Storage) -> None:
    place = Place.fresh(doubled)
    assert doubled.folder is not None
    top = doubled.folder / "pool" / "container" / "root"
    (top / "outside").write_bytes(b"kept")
    (top / place.name / "up").symlink_to("..")
    (top / place.name / "link").symlink_to("../outside")
    names = (b"up/outside", b"link", b"up/new", b"/outside", b"../outside")
    one = place.opened()
    one.play(chunk(
        op(Kind.OPEN, 0), op(Kind.UNLINK, 0), op(Kind.STAT, 0), op(Kind.OPEN, 1),
        op(Kind.CREATE, 1, flags=Flag.TRUNCATE), op(Kind.MKDIR, 2), op(Kind.CREATE, 2),
        op(Kind.READDIR, 0), names=names,
    ))  # fmt: skip
    assert one.result().errors_by_errno == {"ELOOP": 8}
    one.play(chunk(op(Kind.OPEN, 3), op(Kind.UNLINK, 4), op(Kind.STAT, 1), op(Kind.UNLINK, 1)))
    assert one.result().errors_by_errno == {"EINVAL": 2, "ELOOP": 8}
    one.close()
    assert sorted(os.listdir(top)) == ["outside", place.name]
    assert (top / "outside").read_bytes() == b"kept"
    assert refused(place.root(path=f"/{place.name}/up")).errno == errno.ELOOP


def test_content_of_another_seed_is_found_in_flight(dfs: Place) -> None:
    """Whatever order completions come in, each is verified against its own block."""
    assert dfs.played(op(Kind.CREATE), *writes(), names=(b"f",), depth=16).errors == 0
    again = dfs.played(op(Kind.OPEN), *reads(), names=(b"f",), depth=16, seed=SEED + 1)
    assert again.errors_by_errno == {"EVERIFY": COUNT}
