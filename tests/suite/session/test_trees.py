"""Trees between nodes: of commands, of gathers and of clocks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.session import serve, stream, wire
from fsmatrix.suite.session.messages import Command, Quit, in_rows
from fsmatrix.suite.session.serve import FAN, World
from tests.ranks import rank
from tests.waiting import PATIENCE


@given(st.lists(st.integers(0, 300), unique=True))
def test_rows_keep_ranks_and_their_order(ranks: list[int]) -> None:
    assert Command(to=in_rows(ranks)).ranks == tuple(ranks)


def test_rows_are_few() -> None:
    assert in_rows(range(10_000)) == ((0, 10_000, 1),)
    cyclic = [rank for node in range(5) for rank in range(node, 40, 5)]
    assert in_rows(cyclic) == tuple((node, 8, 5) for node in range(5))
    half = [node * 8 + rank for node in range(5) for rank in range(4)]
    assert in_rows(half) == tuple((node * 8, 4, 1) for node in range(5))


def leader(nodes: int, node: int) -> World:
    """Of a made-up world of two ranks on each node."""
    world = World.__new__(World)
    world.ranks = tuple(
        rank(f"n{number // 2}", rank=number, node=number // 2, node_rank=number % 2)
        for number in range(2 * nodes)
    )
    world.leaders = list(range(0, 2 * nodes, 2))
    world.me = world.ranks[2 * node]
    return world


def test_a_member_that_is_gone_is_no_end_of_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a leader ended in silence before the launcher had said which rank was killed."""
    monkeypatch.setattr(serve, "LOST", 0.0)
    world = leader(1, 0)
    world.conductor, conductor = socket.socketpair()
    member, gone = socket.socketpair()
    world._up, world._members = None, {1: member}
    with world.conductor, conductor, member:
        wire.send(conductor, Quit(to=in_rows([0, 1])))
        gone.close()
        with pytest.raises(ConnectionError, match="rank 1 has ended") as raised:
            world.next_command()
    assert not isinstance(raised.value, wire.ChannelClosed)


@pytest.mark.parametrize("count", [1, 2, FAN, FAN + 1, FAN + 2, 73, 200])
def test_a_command_reaches_every_addressed_node_once(count: int) -> None:
    addressed = {4 * index for index in range(count)}  # every second node
    reached, hops = [0], 0
    line = [0]
    while line:
        line = [
            following
            for rank in line
            for following in leader(2 * count, rank // 2)._next_leaders(addressed)
        ]
        reached += line
        hops += bool(line)
    assert sorted(reached) == sorted(addressed)
    assert FAN ** (hops - 1) < max(count, 2)


@pytest.mark.parametrize("count", [1, 2, stream.FAN, stream.FAN + 1, 100, 600])
def test_clocks_are_compared_along_a_tree(count: int) -> None:
    hops = {0: 0}
    for knowing, asking in stream.pairs(count):
        assert asking not in hops
        hops[asking] = hops[knowing] + 1  # who answers knows the time already
    assert sorted(hops) == list(range(count))
    answered = [asking for knowing, asking in stream.pairs(count) if knowing == 0]
    rounds = sum(stream.FAN**digits < count for digits in range(10))
    assert max(hops.values()) <= rounds
    assert len(answered) <= (stream.FAN - 1) * rounds


TREES = """
import json
from mpi4py import MPI
from fsmatrix.suite.session.stream import measure
from fsmatrix.suite.session.comm import MpiComm
world = MpiComm(MPI.COMM_WORLD)
told = {}
for size in range(1, world.size + 1):
    if world.rank < size:
        own = {"rank": world.rank, "text": "x" * world.rank}
        told[size] = world.subgroup(range(size)).gather(own)
odd = [5, 1, 3, 7]
if world.rank in odd:
    told["odd"] = world.subgroup(odd).gather(world.rank)
if world.rank:
    world.post(b"%d" % world.rank, 0)
else:
    posts = []
    while len(posts) < world.size - 1:
        if (post := world.fetch()) is not None:
            posts.append(int(post))
    told["posts"] = sorted(posts)
first = {str(rank): rank for rank in range(world.size)}
offset = measure(world, first, str(world.rank))
told["offset"] = [offset.nanoseconds, offset.uncertainty]
answers = world.gather(told)
if answers is not None:
    print(json.dumps(answers))
"""


def test_trees_over_mpi() -> None:
    """Gathers of every size, posts, and clocks over two hops between kernels that are one."""
    found = Mpirun.probe()
    if not found.ok:
        pytest.skip(found.reason)
    ranks = stream.FAN + 2
    launcher = Mpirun(found)
    command = launcher.command([sys.executable, "-P", "-c", TREES], Geometry(1, ranks), {})
    done = subprocess.run(
        command,
        env=os.environ | launcher.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    answers = json.loads(done.stdout)
    assert len(answers) == ranks
    for size in range(1, ranks + 1):
        assert answers[0][str(size)] == [{"rank": r, "text": "x" * r} for r in range(size)]
        assert all(answer[str(size)] is None for answer in answers[1:size])
    assert answers[5]["odd"] == [5, 1, 3, 7]
    assert answers[0]["posts"] == list(range(1, ranks))
    offsets = [answer["offset"] for answer in answers]
    assert offsets[0] == [0, 0]
    assert all(abs(offset) <= bound for offset, bound in offsets)
    assert offsets[stream.FAN + 1][1] > offsets[1][1], "the second hop adds to the first's bound"
