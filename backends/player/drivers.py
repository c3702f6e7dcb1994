"""What each driver of the player can do, as data: planning compares it with what is needed.

Drivers are C and come with fsmatrix only: one file in native/, one line in native/module.c and
one here.  They are compiled into the player, whose inner loop calls them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fsmatrix.backends.player.ops import Kind

ALL_KINDS = frozenset(kind.name.lower() for kind in Kind)
NO_DIRECTORIES = ALL_KINDS - {"mkdir", "rmdir", "rename", "readdir"}


@dataclass(frozen=True)
class Driver:
    """Operation kinds (lower-case names of ops.Kind) and operations in flight per thread.

    `depth_by`: who keeps operations in flight: nobody, the storage's own library ("library"),
    or that many threads of the driver, each in a call that waits ("threads").
    """

    name: str
    kinds: frozenset[str] = ALL_KINDS
    max_depth: int = 1
    depth_by: Literal["nobody", "library", "threads"] = "nobody"
    longest_path: int = 4095  # bytes, of a name below the place it works in
    native: bool = False  # the Python player does not have it
    shared: bool = False  # one process connects, the others join it (Player.share)


DRIVERS: dict[str, Driver] = {
    driver.name: driver
    for driver in (
        Driver("posix"),
        Driver("null"),
        Driver(
            "rados",
            NO_DIRECTORIES,
            max_depth=1024,
            depth_by="library",
            native=True,
            longest_path=2048 - len(".0123456789abcdef"),  # osd_max_object_name_len by default
        ),
        Driver("cephfs", max_depth=128, depth_by="threads", native=True),
        Driver("dfs", max_depth=1024, depth_by="library", native=True, shared=True),
    )
}
