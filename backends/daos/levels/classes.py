"""Object classes: what their names say, and what a pool must have for them.

Of a group of n copies, or of k data and m parity cells, each lies in a failure domain of its
own: a server, or an engine where the container's redundancy level is `rank`.  A class of g groups
needs n (or k + m) targets for each of them; of X groups it takes as many as there are.  RP_XSF, for
scalable fetch, is the one with a copy in every failure domain, however many a pool has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"(?:S|RP_(?P<copies>[2-6])G|EC_(?P<k>2|4|8|16)P(?P<m>[1-3])G)(?P<groups>X|[1-9]\d{0,3})"
)
_EVERYWHERE = "RP_XSF"


@dataclass(frozen=True)
class ObjectClass:
    """One object class."""

    name: str
    copies: int = 1
    k: int = 0  # data cells of an erasure code; 0: none
    m: int = 0
    groups: int | None = None  # None: as many as there is room for
    everywhere: bool = False  # a copy in every failure domain; `copies` is the least

    @property
    def domains(self) -> int:
        """Failure domains that a group needs at least."""
        return self.k + self.m if self.k else self.copies

    @property
    def outlives(self) -> int:
        """Failure domains that may fail without a loss, at least."""
        return self.domains - (self.k or 1)

    @property
    def targets(self) -> int:
        """Targets that it needs."""
        return self.domains * (self.groups or 1)

    @property
    def redundancy(self) -> str:
        """In the words of the coordinate `redundancy`: size=2, ec=4+2, size=all."""
        if self.everywhere:
            return "size=all"
        return f"ec={self.k}+{self.m}" if self.k else f"size={self.copies}"


def parse_class(name: str) -> ObjectClass:
    """Of S1, SX, RP_2G1, RP_XSF, EC_4P2GX...; ValueError for anything else."""
    if name == _EVERYWHERE:
        return ObjectClass(name, groups=1, everywhere=True)
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"object class {name!r}: write S1, S2, SX, RP_2G1, RP_XSF, EC_2P1GX...")
    groups = None if match["groups"] == "X" else int(match["groups"])
    if match["k"]:
        return ObjectClass(name, k=int(match["k"]), m=int(match["m"]), groups=groups)
    return ObjectClass(name, copies=int(match["copies"] or 1), groups=groups)


@dataclass(frozen=True)
class Shape:
    """What a pool lies on.  `servers` may be too many, where nobody tells who shares one."""

    servers: int
    engines: int
    targets: int | None  # None: not known yet

    def domains(self, level: str) -> int:
        """Failure domains at a redundancy level."""
        return self.engines if level == "rank" else self.servers


def class_refusal(name: str, shape: Shape, level: str) -> str:
    """Why a pool of this shape cannot hold a class (empty: it can).

    `level`: the redundancy level, `rank` or `node`.
    """
    wanted, domains = parse_class(name), shape.domains(level)
    if wanted.domains > domains:
        of = "engines" if level == "rank" else "servers"
        cure = (
            "" if level == "rank" else "; engines of one server count as one, or set rd_lvl: rank"
        )
        return f"object class {name} needs {wanted.domains} {of}, and the pool has {domains}{cure}"
    if shape.targets is not None and wanted.targets > shape.targets:
        needed = wanted.targets
        return f"object class {name} needs {needed} targets, and the pool has {shape.targets}"
    return ""


def factor_refusal(rd_fac: int, shape: Shape, level: str) -> str:
    """Why a pool of this shape cannot outlive `rd_fac` failures (empty: it can)."""
    domains = shape.domains(level)
    if rd_fac < domains:
        return ""
    of = "engines" if level == "rank" else "servers"
    return f"rd_fac {rd_fac} needs {rd_fac + 1} {of}, and the pool has {domains}"
