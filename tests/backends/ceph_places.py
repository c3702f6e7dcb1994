"""Places on a real Ceph for the player's drivers rados and cephfs: the bed and empty roots."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.ceph.librados import Cluster, IoCtx
from fsmatrix.backends.ops import OP, Chunk, Kind
from fsmatrix.backends.player import Player, open_player
from fsmatrix.backends.testbed.ceph import Bed, BedOptions, down, up

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


@pytest.fixture(scope="module")
def made_place(bed: Bed) -> Iterator[Callable[[str], Place]]:
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


@pytest.fixture(params=DRIVER_NAMES)
def place(request: pytest.FixtureRequest, made_place: Callable[[str], Place]) -> Place:
    return made_place(request.param)


@pytest.fixture
def rados(made_place: Callable[[str], Place]) -> Place:
    return made_place("rados")


@pytest.fixture
def cephfs(made_place: Callable[[str], Place]) -> Place:
    return made_place("cephfs")
