"""A level of the cluster factors in CRUSH: a root of its own over hosts that stay where they are.

Pure: from what the cluster says to the commands that make a level, and those that remove it.
Hosts are only linked and unlinked, never moved, re-classed or removed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fsmatrix.results.evidence.values import JsonObject, objects, whole, wholes

# Redundancy of data pools, and how many placement groups they need.


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


MARK = "fsmatrix"  # key of our mark on a pool, in the metadata of its application


@dataclass(frozen=True)
class Command:
    """A monitor command.  `arguments` in the order in which the ceph tool takes them."""

    prefix: str
    arguments: JsonObject
    named: JsonObject = field(default_factory=dict)  # what the tool takes as --name=value

    @property
    def text(self) -> str:
        """As one would type it."""
        words = ["ceph", self.prefix]
        for value in self.arguments.values():
            words += map(str, value) if isinstance(value, list) else [str(value)]
        for name, value in self.named.items():
            option = "--" + name.replace("_", "-")
            words.append(option if value is True else f"{option}={value}")
        return " ".join(words)


@dataclass(frozen=True)
class Host:
    """A host bucket with its OSDs of the wanted class that are up and in."""

    name: str
    osds: tuple[int, ...]


def hosts_of(tree: JsonObject, root: str, device_class: str) -> list[Host] | None:
    """From `ceph osd tree`: hosts below `root` with usable OSDs of the class, by name.

    None if there is no such root.  Class "": OSDs of any.
    """
    nodes = {whole(node, "id"): node for node in objects(tree, "nodes")}
    start = next((node for node in nodes.values() if node["name"] == root), None)
    if start is None:
        return None
    hosts, waiting = [], [start]
    while waiting:
        node = waiting.pop()
        children = wholes(node, "children") if "children" in node else ()
        below = [nodes[number] for number in children if number in nodes]
        if node["type"] != "host":
            waiting += below
            continue
        osds = sorted(whole(osd, "id") for osd in below if _usable(osd, device_class))
        if osds:
            hosts.append(Host(str(node["name"]), tuple(osds)))
    return sorted(hosts, key=lambda host: host.name)


def _usable(osd: JsonObject, device_class: str) -> bool:
    of_class = not device_class or osd.get("device_class") == device_class
    return bool(
        osd["type"] == "osd" and of_class and osd.get("status") == "up" and osd.get("reweight", 0)
    )


@dataclass(frozen=True)
class Level:
    """What is made for a level; all of it has the same name, which holds random digits."""

    name: str
    tag: str
    hosts: tuple[str, ...]
    osds: tuple[int, ...]  # of these hosts, of the class
    redundancy: Redundancy
    failure_domain: str
    device_class: str
    pg_num: int
    filesystem: str = ""  # gets the pool as a data pool; empty: the pool is used by itself

    @property
    def application(self) -> str:
        """What the pool is for, in Ceph's words."""
        return "cephfs" if self.filesystem else "rados"

    def making(self) -> list[Command]:
        """Commands in order.  Links come before the rule: it takes the root's class by name."""
        name, groups = self.name, self.pg_num
        steps = [Command("osd crush add-bucket", {"name": name, "type": "root"})]
        steps += [
            Command("osd crush link", {"name": host, "args": [f"root={name}"]})
            for host in self.hosts
        ]
        pool: JsonObject = {"pool": name, "pg_num": groups, "pgp_num": groups}
        off = {"autoscale_mode": "off"}
        if self.redundancy.erasure_coded:
            profile: JsonObject = {"name": name, "profile": self._profile()}
            steps += [
                Command("osd erasure-code-profile set", profile),
                Command("osd crush rule create-erasure", {"name": name, "profile": name}),
                Command(
                    "osd pool create",
                    {**pool, "pool_type": "erasure", "erasure_code_profile": name, "rule": name},
                    off,
                ),
                Command(
                    "osd pool set", {"pool": name, "var": "allow_ec_overwrites", "val": "true"}
                ),
            ]
        else:
            rule = {"name": name, "root": name, "type": self.failure_domain}
            rule |= {"class": self.device_class} if self.device_class else {}
            steps += [
                Command("osd crush rule create-replicated", rule),
                Command(
                    "osd pool create",
                    {**pool, "pool_type": "replicated"},
                    {"rule": name, "size": self.redundancy.size, **off},
                ),
            ]
        mark = {"pool": name, "app": self.application, "key": MARK, "value": self.tag}
        if self.filesystem:  # adding it to a file system enables the application
            steps.append(Command("fs add_data_pool", {"fs_name": self.filesystem, "pool": name}))
        else:
            steps.append(Command("osd pool application enable", {"pool": name, "app": "rados"}))
        return [*steps, Command("osd pool application set", mark)]

    def _profile(self) -> list[str]:
        code = self.redundancy
        values = [f"k={code.k}", f"m={code.m}", f"crush-failure-domain={self.failure_domain}"]
        values.append(f"crush-root={self.name}")
        return values + ([f"crush-device-class={self.device_class}"] if self.device_class else [])


def removing(name: str, hosts: Sequence[str], filesystem: str, coded: bool) -> list[Command]:
    """Commands that take a level down, in order."""
    steps = []
    if filesystem:
        steps.append(Command("fs rm_data_pool", {"fs_name": filesystem, "pool": name}))
    sure = {"yes_i_really_really_mean_it": True}
    steps.append(Command("osd pool delete", {"pool": name, "pool2": name}, sure))
    steps.append(Command("osd crush rule rm", {"name": name}))
    if coded:
        steps.append(Command("osd erasure-code-profile rm", {"name": name}))
    steps += [Command("osd crush unlink", {"name": host, "ancestor": name}) for host in hosts]
    return [*steps, Command("osd crush rm", {"name": name})]
