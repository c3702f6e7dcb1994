"""The cephfs driver over a libcephfs with nonblocking calls, which is a stand-in.

No package registry here has a libcephfs newer than 16.2, which has none.  So a small library
(tests/standins/cephfs/nonblocking.c) adds the call to the real one: everything but that call is
the real library against a real cluster.  How the call behaves was read in Ceph's sources, not
seen.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.ceph.libcephfs import NONBLOCKING
from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests import ceph_beds
from tests.waiting import PATIENCE

HERE = Path(__file__).parent
STANDIN = HERE.parents[1] / "standins" / "cephfs"
LIBRARY = "libcephfs.so.2"
SIZE = 8192  # bytes of an operation
COUNT = 56
VERIFY = Flag.VERIFY
_fresh = itertools.count()
Op = Sequence[int]

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("c player", "ceph", "compiler"),
]


def op(kind: Kind, offset: int = 0, size: int = 0, *, file: int = 0, flags: int = 0) -> Op:
    """One operation, in OP's order."""
    return (int(kind), int(flags), 0, file, 0, offset, size, 0)


def blocks(kind: Kind, count: int = COUNT, flags: int = 0) -> list[Op]:
    """One operation on each block of SIZE bytes."""
    return [op(kind, i * SIZE, SIZE, flags=flags) for i in range(count)]


@dataclass(frozen=True)
class Place:
    """Names of files that nobody else has, and the stand-in that may serve them."""

    bed: CephTestbed
    names: tuple[str, ...]  # in the root, which unmounts a second faster than a directory
    folder: Path  # of the stand-in
    report: Path

    def root(self, **more: str) -> str:
        """What the driver gets."""
        login = {"conf": self.bed.conf, "user": self.bed.user, "keyring": self.bed.keyring}
        values = {**login, "filesystem": self.bed.filesystem, "path": "/", **more}
        return "".join(f"{key}={value}\n" for key, value in values.items())

    def environment(self, standin: bool, faults: str = "") -> dict[str, str]:
        """Of a process that finds the stand-in, or the real library."""
        added = {"LD_LIBRARY_PATH": str(self.folder), "FSMATRIX_STANDIN": faults}
        added["FSMATRIX_STANDIN_REPORT"] = str(self.report)
        return {**os.environ, **(added if standin else {})}

    def run(
        self, *chunks: Sequence[Op], faults: str = "", standin: bool = True, root: str = "",
        drain: bool = True, driver: str = "cephfs", **options: Any,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """A player in a process of its own."""
        given = {"slots": 4, "max_op_bytes": 1 << 20, "seed": 7, "depth": 16} | options
        given.setdefault("stop_on_error", False)
        asked = {"driver": driver, "root": root or self.root(), "names": self.names}
        asked |= {"chunks": chunks, "drain": drain, "options": given}
        return subprocess.run(
            [sys.executable, "-P", str(STANDIN / "play.py")],
            input=json.dumps(asked), capture_output=True, text=True, timeout=PATIENCE, check=False,
            env=self.environment(standin, faults),
        )  # fmt: skip

    def played(self, *chunks: Sequence[Op], **more: Any) -> dict[str, Any]:
        """The facts that it printed."""
        done = self.run(*chunks, **more)
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    def write(self) -> None:
        """A file of COUNT blocks, by the real library."""
        made = self.played(
            [op(Kind.CREATE), *blocks(Kind.WRITE), op(Kind.CLOSE)], standin=False, depth=1
        )
        assert made["errors"] == 0

    def seen(self) -> dict[str, int]:
        """What the stand-in counted in the last process."""
        facts: dict[str, int] = json.loads(self.report.read_text().splitlines()[-1])
        assert facts["closed_early"] == 0, "a handle was closed under an operation"
        assert facts["at_unmount"] == 0, "the mount ended under an operation"
        return facts


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in, compiled against this machine's library."""
    folder = tmp_path_factory.mktemp("standin")
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    real = next(line.split()[-1] for line in listed.splitlines() if LIBRARY in line)
    # a library that is named by the real one's path: so the stand-in needs that very file
    name, cc = folder / "name.so", ["cc", "-std=gnu11", "-Wall", "-Wextra", "-shared", "-fPIC"]
    subprocess.run([*cc, "-x", "c", "/dev/null", f"-Wl,-soname,{real}", "-o", name], check=True)
    (folder / "lib").mkdir()
    subprocess.run(
        [*cc, "-pthread", f'-DREAL="{real}"', STANDIN / "nonblocking.c", "-Wl,--no-as-needed",
         name, "-ldl", "-o", folder / "lib" / LIBRARY],
        check=True,
    )  # fmt: skip
    return folder / "lib"


@pytest.fixture
def place(bed: CephTestbed, standin: Path, tmp_path: Path) -> Iterator[Place]:
    number = next(_fresh)
    yield Place(bed, (f"f{number}", f"g{number}"), standin, tmp_path / "report")
    ceph_beds.empty(bed)


# -- the contract -----------------------------------------------------------------------------
def test_the_contract_of_the_driver_holds_over_it(place: Place) -> None:
    """The tests of the driver itself, those that read or write, with this library."""
    files = sorted(HERE.glob("test_player_ceph*.py"))
    files.remove(Path(__file__))
    chosen = "cephfs and (same_stream or metadata or closing or evict or verification)"
    argv = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run(
        [*argv, *files], cwd=HERE.parents[2], env=place.environment(standin=True),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 5, done.stdout
    seen = place.seen()
    assert min(seen["reads"], seen["writes"], seen["disordered"]) > 0


def contract_stream() -> list[Op]:
    """Writes, overwrites, reads to and beyond the end, and what handles do not allow."""
    return [
        op(Kind.CREATE),
        *blocks(Kind.WRITE),
        *(op(Kind.WRITE, i * 3001, 5000) for i in range(COUNT)),
        *blocks(Kind.READ, flags=VERIFY),
        op(Kind.READ, COUNT * SIZE - 100, 200),  # short
        op(Kind.READ, COUNT * SIZE, 1),
        op(Kind.READ, 0, 0),
        op(Kind.WRITE, 0, 0),
        op(Kind.TRUNCATE, 10_000),
        op(Kind.READ, 0, 10_000, flags=VERIFY),
        op(Kind.READ, 9_999, 2),
        op(Kind.EVICT),
        op(Kind.FSYNC),
        op(Kind.READ, 0, 10_000, flags=VERIFY),
        op(Kind.CLOSE),
        op(Kind.OPEN, flags=Flag.READ_ONLY),
        op(Kind.WRITE, 0, 10),
        op(Kind.READ, 0, 10, flags=VERIFY),
        op(Kind.CLOSE),
        op(Kind.OPEN, flags=Flag.WRITE_ONLY | Flag.DIRECT),
        op(Kind.READ, 0, 10),
        op(Kind.WRITE, 0, SIZE),
        op(Kind.CLOSE),
        op(Kind.OPEN, file=1),
    ]


def test_all_ways_give_the_same_as_posix(place: Place, tmp_path: Path) -> None:
    stream = contract_stream()
    wanted = place.played(stream, driver="posix", root=str(tmp_path), depth=1, standin=False)
    del wanted["first_error"]
    ways = {
        "library": place.root(depth_by="library"),
        "auto": place.root(),
        "threads": place.root(depth_by="threads"),
    }
    for way, root in ways.items():
        found = place.played(stream, root=root)
        assert place.played([op(Kind.UNLINK)], standin=False)["errors"] == 0
        del found["first_error"]  # of two in flight at once either may be the first
        assert found == wanted, way


def test_who_keeps_the_depth_is_as_told(place: Place) -> None:
    stream = [op(Kind.CREATE), *blocks(Kind.WRITE), op(Kind.CLOSE)]
    place.played(stream, root=place.root(depth_by="threads"))
    assert place.seen()["calls"] == 0
    place.played(stream, depth=1)
    assert place.seen()["calls"] == 0
    place.played(stream, faults="late=1")  # whoever begins waits: all that may be are in flight
    seen = place.seen()
    assert (seen["writes"], seen["most"]) == (COUNT, 16)


def test_what_is_demanded_and_missing_is_refused(place: Place) -> None:
    """Not a silent other way: the record says how it was done."""
    exported = hasattr(ctypes.CDLL(LIBRARY), NONBLOCKING)
    done = place.run([], root=place.root(depth_by="library"), standin=False)
    assert (done.returncode == 0) == exported
    assert exported or f"{LIBRARY} has no {NONBLOCKING}" in done.stderr
    done = place.run([], root=place.root(depth_by="magic"))
    assert "depth_by must be library or threads, not magic" in done.stderr


# -- faults -----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [Kind.READ, Kind.WRITE])
@pytest.mark.parametrize(
    ("fault", "error"), [("refuse", "EIO"), ("tell", "EDQUOT"), ("fail", "EIO"), ("excess", "EIO")]
)
def test_an_error_is_that_of_its_operation(
    place: Place, kind: Kind, fault: str, error: str
) -> None:
    every = 7
    place.write()
    found = place.played([op(Kind.OPEN), *blocks(kind), op(Kind.CLOSE)], faults=f"{fault}={every}")
    failed = COUNT // every
    assert found["errors_by_errno"] == {error: failed}
    assert found["operations"] == COUNT - failed
    assert found["bytes"] == (COUNT - failed) * SIZE
    assert found["first_error"]["offset"] % (every * SIZE) == (every - 1) * SIZE
    assert place.seen()["calls"] == COUNT


@pytest.mark.parametrize("kind", [Kind.READ, Kind.WRITE])
@pytest.mark.parametrize("faults", ["short=3", "none=3,late=9", "now=2", "now=2,short=3"])
def test_what_was_not_done_is_done_by_the_call_that_waits(
    place: Place, kind: Kind, faults: str
) -> None:
    if kind == Kind.READ:
        place.write()
    flags = VERIFY if kind == Kind.READ else 0
    begin = Kind.OPEN if kind == Kind.READ else Kind.CREATE
    found = place.played([op(begin), *blocks(kind, flags=flags), op(Kind.CLOSE)], faults=faults)
    assert (found["errors_by_errno"], found["bytes"]) == ({}, COUNT * SIZE)
    assert place.seen()["calls"] == COUNT
    back = [op(Kind.OPEN), *blocks(Kind.READ, flags=VERIFY), op(Kind.CLOSE)]
    again = place.played(back, standin=False)
    assert (again["errors_by_errno"], again["bytes"]) == ({}, COUNT * SIZE)


def test_truncate_and_close_wait_for_what_is_late(place: Place) -> None:
    """A write that came after the truncation would make the file longer again."""
    found = place.played(
        [op(Kind.CREATE), *blocks(Kind.WRITE, 20), op(Kind.TRUNCATE, 5 * SIZE)],
        [op(Kind.READ, 0, SIZE, flags=VERIFY), op(Kind.CLOSE), op(Kind.OPEN)],
        [*blocks(Kind.READ, 5, flags=VERIFY), op(Kind.READ, 5 * SIZE, 1), op(Kind.CLOSE)],
        faults="late=4",
    )
    assert found["errors_by_errno"] == {"ESHORT": 1}
    assert found["bytes"] == (20 + 1 + 5) * SIZE
    assert place.seen()["calls"] == 20 + 1 + 5 + 1


@pytest.mark.parametrize("stop_on_error", [True, False])
def test_what_is_in_flight_at_the_end_is_waited_for(place: Place, stop_on_error: bool) -> None:
    """The player is closed at once, after an error or in the middle of all."""
    faults = "late=3,fail=5" if stop_on_error else "late=3"
    stream = [op(Kind.CREATE), *blocks(Kind.WRITE)]
    done = place.run(stream, drain=False, faults=faults, stop_on_error=stop_on_error)
    assert (done.returncode, done.stderr) == (0, "")
    seen = place.seen()
    assert seen["most"] > 1
    if not stop_on_error:
        back = [op(Kind.OPEN), *blocks(Kind.READ, flags=VERIFY)]
        again = place.played(back, standin=False)
        assert (again["errors"], again["bytes"]) == (0, COUNT * SIZE)


# -- the backend ------------------------------------------------------------------------------
LIFE = """
import json, sys
from pathlib import Path
from fsmatrix.backends import contract
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal.journal import Journal
given = json.loads(sys.argv[1])
folder = Path(sys.argv[2])
kind = contract.load("libcephfs")
used = kind(kind.Options(**given))
context = ProvisionContext("a", folder / "state", Journal(folder / "journals/host.jsonl"), "tag1")
access = used.provision({}, context)
try:
    used.make_run(access, "run1")
    print(json.dumps({"root": used.run_root(access, "run1"), **used.describe(access)}))
finally:
    used.release(access, context)
    used.finish(context)
"""


@pytest.mark.parametrize(
    ("over", "asked", "said"),
    [(True, "auto", "library"), (True, "threads", "threads"), (False, "threads", "threads")],
)
def test_the_record_says_who_keeps_the_depth(
    place: Place, tmp_path: Path, over: bool, asked: str, said: str
) -> None:
    login = {"conf": place.bed.conf, "user": place.bed.user, "keyring": place.bed.keyring}
    options = json.dumps({**login, "depth_by": asked})
    done = subprocess.run(
        [sys.executable, "-P", "-c", LIFE, options, str(tmp_path)],
        env=place.environment(over), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["depth_by"] == said
    assert f"depth_by={said}" in facts["root"].splitlines()
