"""What is a node: boot ids, host names and memory, as the ranks saw them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.evidence.evidence import Rank
from fsmatrix.results.record import Geometry
from fsmatrix.suite.run.environment import world_of
from fsmatrix.suite.session.comm import SoloComm
from fsmatrix.suite.session.serve import cpu_times
from fsmatrix.suite.session.survey import disagreements, own_place, plain_name, survey


class Gathered(SoloComm):
    """A world whose ranks see what the test says: (host, boot id, processor, shared)."""

    def __init__(self, *sights: tuple[str, str, str, int]) -> None:
        self.size = len(sights)
        names = ("rank", "host", "boot_id", "processor", "shared")
        rows = [(number, *sight) for number, sight in enumerate(sights)]
        self.sights = [dict(zip(names, row, strict=True)) for row in rows]

    def gather(self, value: Any) -> list[Any] | None:
        return [value | sight for sight in self.sights]


def seen(*sights: tuple[str, str, str, int]) -> tuple[Rank, ...]:
    return survey(Gathered(*sights))


PLAIN = (("a", "A", "a", 0), ("a", "A", "a", 0), ("b", "B", "b", 2), ("b", "B", "b", 2))


@pytest.mark.parametrize(
    ("sights", "nodes", "emulated", "said"),
    [
        pytest.param(PLAIN, [0, 0, 1, 1], False, [], id="two-hosts"),
        pytest.param(
            (PLAIN[0], PLAIN[2], ("a", "A", "a", 0), ("b", "B", "b", 1)),
            [0, 1, 0, 1],
            False,
            None,
            id="cyclic",
        ),
        pytest.param(
            (("n", "A", "n", 0), ("n", "A", "n", 0), ("n", "B", "n", 2), ("n", "B", "n", 2)),
            [0, 0, 1, 1],
            False,
            ["MPI sees the processor name n on 2 nodes (n, n)"],
            id="two-machines-of-one-name",
        ),
        pytest.param(
            (("n", "A", "n", 0), ("n", "B", "n", 0)),
            [0, 1],
            False,
            [
                "MPI sees the processor name n on 2 nodes (n, n)",
                "MPI sees one shared memory on 2 nodes (n, n)",
            ],
            id="one-name-that-MPI-believes",
        ),
        pytest.param(
            (("a", "A", "a", 0), ("a", "A", "a", 1)),
            [0, 0],
            False,
            ["MPI sees 2 groups of shared memory on the one node a"],
            id="one-host-split",
        ),
        pytest.param(
            (("a", "A", "a1", 0), ("a", "A", "a2", 1)),
            [0, 0],
            False,
            [
                "MPI sees 2 processor names on the one node a",
                "MPI sees 2 groups of shared memory on the one node a",
            ],
            id="aliases-of-one-host",
        ),
        pytest.param(
            (("a.site.org", "A", "a", 0), ("a", "A", "a", 0)), [0, 0], False, [], id="domain"
        ),
        pytest.param(
            (
                ("node-with-a-long-name-1", "A", "node-with", 0),
                ("node-with-a-long-name-2", "B", "node-with", 1),
            ),
            [0, 1],
            False,
            [
                "MPI sees the processor name node-with on 2 nodes "
                "(node-with-a-long-name-1, node-with-a-long-name-2)"
            ],
            id="truncated",
        ),
        pytest.param(
            (("box1", "A", "box1", 0), ("box2", "A", "box2", 1)),
            [0, 1],
            True,
            [],
            id="containers-on-one-kernel",
        ),
        pytest.param(
            (("10.0.0.1", "A", "10.0.0.1", 0), ("10.0.0.2", "A", "10.0.0.2", 1)),
            [0, 1],
            True,
            [],
            id="addresses-for-names",
        ),
    ],
)
def test_one_node_is_one_node(
    sights: tuple[tuple[str, str, str, int], ...],
    nodes: list[int],
    emulated: bool,
    said: list[str] | None,
) -> None:
    ranks = seen(*sights)
    assert [rank.node for rank in ranks] == nodes
    for node in set(nodes):
        inside = [rank.node_rank for rank in ranks if rank.node == node]
        assert inside == list(range(len(inside)))
    if said is not None:
        assert disagreements(ranks) == said
    world = world_of(Geometry(2, len(ranks) // 2), ranks)
    assert world.got_nodes == len(set(nodes))
    assert world.emulated_nodes is emulated


def test_a_world_of_one_sees_itself() -> None:
    (rank,) = survey(SoloComm())
    place = own_place(SoloComm())
    assert (rank.pid, rank.host, rank.cpus) == (os.getpid(), place.host, place.cpus)
    assert plain_name(rank.processor) == plain_name(rank.host)


def test_oversubscription_is_counted_on_each_kernel() -> None:
    cpus = ((0,), (1,), (0, 1), (0, 1))
    ranks = [replace(rank, cpus=own) for rank, own in zip(seen(*PLAIN), cpus, strict=True)]
    assert not world_of(Geometry(2, 2), ranks).oversubscribed, "each is bound to its own CPU"
    assert world_of(Geometry(2, 2, 2), ranks).oversubscribed
    ranks[1] = replace(ranks[1], cpus=(0,))
    assert world_of(Geometry(2, 2), ranks).oversubscribed, "two ranks share one CPU"


def test_time_of_niced_programs_is_time_of_users() -> None:
    """As the kernel counts it, which on a virtual machine is less than a program's own time."""

    def niced() -> float:
        return int(Path("/proc/stat").read_text().split()[2]) / os.sysconf("SC_CLK_TCK")

    program = "import os\nos.nice(5)\nwhile True: pass"
    before, niced_before = cpu_times(), niced()
    with subprocess.Popen([sys.executable, "-c", program]) as running:
        while niced() - niced_before < 0.3:
            time.sleep(0.05)
        running.kill()
    niced_after, after = niced(), cpu_times()
    assert after["cpu_user"] - before["cpu_user"] >= niced_after - niced_before - 0.02
    assert after["cpu_busy"] - before["cpu_busy"] >= after["cpu_user"] - before["cpu_user"] - 0.02
