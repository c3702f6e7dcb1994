"""The nodes that a batch system gave to a job, and the CPUs of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Allocation:
    """The hosts that a job has, and how many CPUs on each."""

    hosts: tuple[str, ...]
    cpus: tuple[int, ...] = ()  # of each host; empty if the batch system does not say

    def of(self, hosts: Sequence[str]) -> tuple[int, ...]:
        """CPUs of these hosts; () if that is not known of all of them."""
        cpus_of = dict(zip(self.hosts, self.cpus, strict=False))
        return tuple(cpus_of[host] for host in hosts) if cpus_of.keys() >= set(hosts) else ()
