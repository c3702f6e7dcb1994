"""Redundancy of data pools, and how many placement groups they need."""

from __future__ import annotations

import re
from dataclasses import dataclass

PGS_PER_OSD = 100  # so that chance does not decide how full an OSD is


@dataclass(frozen=True)
class Redundancy:
    """Copies (`k` = 0: replicated, `size` of them) or an erasure code k+m."""

    size: int  # failure domains that a placement group needs
    k: int = 0
    m: int = 0

    @property
    def erasure_coded(self) -> bool:
        """Whether data is coded rather than copied."""
        return self.k > 0

    @property
    def copies(self) -> int:
        """Copies of what must be replicated anyway (metadata): bears as many losses as data."""
        return self.m + 1 if self.k else self.size

    def placement_groups(self, osds: int) -> int:
        """pg_num on so many OSDs: a power of two, so that all groups are of one size."""
        wanted = PGS_PER_OSD * osds / self.size
        return 1 << max(0, (int(wanted - 1e-9)).bit_length())


def parse_redundancy(text: str) -> Redundancy:
    """Of "size=3" or "ec=2+1"; ValueError for anything else."""
    if match := re.fullmatch(r"size=([1-9][0-9]?)", text):
        return Redundancy(int(match[1]))
    if match := re.fullmatch(r"ec=([1-9][0-9]?)\+([1-9][0-9]?)", text):
        k, m = int(match[1]), int(match[2])
        if k < 2:
            raise ValueError(f"redundancy {text!r}: an erasure code needs k >= 2")
        return Redundancy(k + m, k, m)
    raise ValueError(f"redundancy {text!r}: write size=1, size=3 or ec=2+1")


def placement_refusal(redundancy: str, failure_domain: str, hosts: int, osds: int) -> str:
    """Why that can never be placed on so many hosts and OSDs (empty: it can)."""
    places = hosts if failure_domain == "host" else osds
    needed = parse_redundancy(redundancy).size
    if needed <= places:
        return ""
    what = "hosts" if failure_domain == "host" else "OSDs"
    return (
        f"redundancy {redundancy} with failure domain {failure_domain} needs {needed} {what}, and "
        f"there are {places}: data could never be placed. Take more nodes, another redundancy, or "
        "failure domain osd"
    )
