"""Fixtures that several modules share: a real Ceph, rooms, players, a DAOS that is a stand-in."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.ceph import trees
from fsmatrix.backends.ceph.bindings import librados
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import containers, daos_state
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.player.lanes import Player, PlayerOptions
from fsmatrix.backends.player.ops import Kind
from fsmatrix.backends.player.player import open_player
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests import asking, ceph_beds
from tests.backends import daos_agent_double, daos_places, playing
from tests.backends.ceph_places import DRIVER_NAMES, Place
from tests.backends.daos_standin import TESTS, Standin
from tests.backends.playing import IMPLEMENTATIONS, Open, chunk, op

_fresh = itertools.count()


# -- Ceph --------------------------------------------------------------------------------------
@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProvisionContext]:
    """What the conductor gives; nothing may stay mounted or running after a test."""
    yield ProvisionContext(
        "a", tmp_path / "state", Journal(tmp_path / "journals/host.jsonl"), "tag1"
    )
    assert mounts.mounted_below(tmp_path) == []


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter deadlines, for a cluster that does not answer at all."""
    monkeypatch.setattr(librados, "TIMEOUT", 2.0)
    monkeypatch.setattr(trees, "TIMEOUT", 2.0)
    monkeypatch.setattr(trees, "QUIET", 3.0)
    monkeypatch.setattr(own_mounts, "LOOK", 2.0)
    monkeypatch.setattr(own_mounts, "FAREWELL", 2.0)
    monkeypatch.setattr(mounts, "PATIENCE", 0.2)


@pytest.fixture(scope="module")
def made_place(bed: CephTestbed) -> Iterator[Callable[[str], Place]]:
    """Makes empty roots, over one mount: libcephfs takes a second to let go of each."""
    top = Place("cephfs", bed, "").opened()

    def make(driver: str) -> Place:
        name = f"test{next(_fresh)}"
        if driver == "cephfs":
            top.play(chunk(op(Kind.MKDIR), names=(name.encode(),)))
            assert top.result().errors == 0
        return Place(driver, bed, name)

    yield make
    top.close()
    ceph_beds.empty(bed)


@pytest.fixture
def root_for(made_place: Callable[[str], Place]) -> Iterator[Callable[[str], Place]]:
    """Makes empty roots for one test.

    Players that it forgot because it failed are closed while their storage is there: later they
    would wait for it for ever.
    """
    before = set(playing.OPENED)
    yield made_place
    for player in set(playing.OPENED) - before:
        player.close()


@pytest.fixture(params=DRIVER_NAMES)
def place(request: pytest.FixtureRequest, root_for: Callable[[str], Place]) -> Place:
    """An empty root on the bed, for each driver."""
    return root_for(request.param)


@pytest.fixture
def rados(root_for: Callable[[str], Place]) -> Place:
    return root_for("rados")


@pytest.fixture
def cephfs(root_for: Callable[[str], Place]) -> Place:
    return root_for("cephfs")


# -- without a cluster -------------------------------------------------------------------------
@pytest.fixture(params=IMPLEMENTATIONS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens players on tmp_path; closes them at the end."""
    if request.param == "c" and (reason := asking.why_not("c player")):
        pytest.skip(reason)
    made: list[Player] = []

    def make(root: Path = tmp_path, driver: Any = "posix", **more: Any) -> Player:
        settings: dict[str, Any] = {"slots": 8, "max_op_bytes": 1 << 20, "seed": 7} | more
        made.append(open_player(driver, str(root), PlayerOptions(**settings), request.param))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def agent_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where libdaos would look for an agent; nobody is there.  Short: it is part of an address."""
    with tempfile.TemporaryDirectory(prefix="agent-") as name:
        monkeypatch.setenv("DAOS_AGENT_DRPC_DIR", name)
        yield Path(name)


@pytest.fixture
def standin(
    tmp_path: Path, agent_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Standin]:
    """The `daos` on PATH is the stand-in, and an agent runs."""
    folder = tmp_path / "standin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{TESTS / 'standins'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN_DAOS", str(folder))
    monkeypatch.setattr(daos_state, "_found", lambda _: [])  # it has none, whatever else runs here
    with daos_agent_double.running(agent_folder):
        yield Standin(folder)


# -- libdfs: a double, or a real DAOS ----------------------------------------------------------
@pytest.fixture(scope="session")
def double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the double's libraries.  A process that has loaded the real ones cannot."""
    if daos_places.REAL_POOL:
        pytest.skip("a double of DAOS shows it, and FSMATRIX_DAOS_POOL asks for a real one")
    return daos_places.compiled(tmp_path_factory.mktemp("double"))


@pytest.fixture(scope="session")
def real_daos() -> Iterator[daos_places.Storage | None]:
    """A container of the tests' own in the real pool; None if no pool is named."""
    if not daos_places.REAL_POOL:
        yield None
        return
    label = f"fsmatrix-test-{os.getpid()}"
    yield daos_places.made(label)
    assert containers.destroy(Client(), daos_places.REAL_POOL, label)


@pytest.fixture
def doubled(
    double: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[daos_places.Storage]:
    """A container on the double, whose rules nobody may break."""
    storage = daos_places.doubled(double, tmp_path / "daos")
    monkeypatch.setenv("FSMATRIX_DOUBLE", str(storage.folder))
    yield storage
    assert storage.violations == []


@pytest.fixture
def dfs(real_daos: daos_places.Storage | None, request: pytest.FixtureRequest) -> daos_places.Place:
    """An empty directory for the driver dfs: of the real DAOS if one is named."""
    return daos_places.Place.fresh(real_daos or request.getfixturevalue("doubled"))
