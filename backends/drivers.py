"""What each driver of the player can do, as data: planning compares it with what is needed."""

from __future__ import annotations

from dataclasses import dataclass

from fsmatrix.backends.ops import Kind

ALL_KINDS = frozenset(kind.name.lower() for kind in Kind)


@dataclass(frozen=True)
class Driver:
    """Operation kinds (lower-case names of ops.Kind) and operations in flight per thread."""

    name: str
    kinds: frozenset[str] = ALL_KINDS
    max_depth: int = 1


DRIVERS: dict[str, Driver] = {driver.name: driver for driver in (Driver("posix"), Driver("null"))}
