"""Levels of a DAOS system's factors, against stand-ins of `daos` and `dmg`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import containers, tools
from fsmatrix.backends.daos import levels as pools
from fsmatrix.backends.daos.tools import Member
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Journal, undo_pending
from tests.backends.daos_standin import THEIRS, Standin, daos

MADE = {"size_per_node": "1GiB", "consent": True}


@pytest.fixture
def context(tmp_path: Path) -> ProvisionContext:
    journal = Journal(tmp_path / "journals/host.jsonl")
    return ProvisionContext("daos-a", tmp_path / "state", journal, "tag1", block_seed="7/1")


def created(standin: Standin) -> list[list[str]]:
    return [call[1:] for call in standin.dmg_calls if "create" in call]


def test_a_pool_for_a_level(standin: Standin, context: ProvisionContext) -> None:
    backend = daos(levels=MADE)
    level = {"storage_nodes": 2, "object_class": "RP_2G1"}
    assert backend.foreseen().level_factors == {"storage_nodes", "object_class", "redundancy_level"}
    assert backend.refusal() == backend.level_refusal(level) == backend.required_consent() == ""
    access = backend.provision(level, context)
    (label,) = standin.pools
    assert label.startswith("fsmatrix-tag1-daos-a-")
    assert access.pool == label
    made = backend.describe(access)["level"]
    ranks = ",".join(map(str, made["placement"]["ranks"]))
    assert len(made["placement"]["hosts"]) == 2
    assert created(standin) == [["pool", "create", label, f"--ranks={ranks}", f"--size={2 << 30}B"]]
    assert standin.containers[access.container]["options"]["oclass"] == "RP_2G1"
    assert [entry.kind for entry in context.journal.pending()] == ["daos-pool", "daos-container"]
    backend.release(access, context)
    assert standin.pools == {}
    assert standin.ours == []
    assert context.journal.pending() == []


def test_dry_run_shows_what_would_be_done(standin: Standin, context: ProvisionContext) -> None:
    backend = daos(levels=MADE)
    making, destroying = backend.commands({"storage_nodes": 2}, context.block_seed)
    assert standin.pools == {}
    access = backend.provision({"storage_nodes": 2}, context)
    (words,) = created(standin)
    assert making == " ".join(["dmg", *words]).replace(access.pool, "fsmatrix-dry-run")
    backend.release(access, context)
    assert standin.dmg_calls[-1][-2:] == destroying.split()[-2:] == ["--recursive", "--force"]


def test_agreement_comes_first(standin: Standin, context: ProvisionContext) -> None:
    backend = daos(levels={"size_per_node": "1GiB"})
    assert "consent: true agrees" in backend.required_consent()
    with pytest.raises(BackendError, match="consent: true agrees"):
        backend.provision({"storage_nodes": 1}, context)
    assert created(standin) == []
    assert context.journal.pending() == []


@pytest.mark.parametrize(
    ("level", "reason"),
    [
        ({"storage_nodes": 4}, "4 servers are needed, and 3 have engines that joined"),
        ({"storage_nodes": 0}, "a level is a number of servers"),
        ({"storage_nodes": "two"}, "a level is a number of servers"),
        ({"storage_nodes": True}, "a level is a number of servers"),
        ({"storage_nodes": 1, "object_class": "RP_2G1"}, "needs 2 servers, and the pool has 1"),
        ({"storage_nodes": 2, "object_class": "EC_2P1GX"}, "needs 3 servers, and the pool has 2"),
        ({"object_class": "EC_2P1GX"}, ""),
        ({"storage_nodes": 3, "object_class": "EC_2P1GX"}, ""),
        ({"storage_nodes": 3, "object_class": "RAID5"}, "write S1, S2, SX, RP_2G1"),
        ({"storage_nodes": 3, "redundancy_level": "rack"}, "rack"),
        ({"storage_nodes": 3, "redundancy_level": "rank"}, ""),
    ],
)
def test_levels_that_cannot_be(
    standin: Standin, context: ProvisionContext, level: dict[str, Any], reason: str
) -> None:
    standin.keep_pools(other=[0])
    backend = daos(levels=MADE)
    refusal = backend.level_refusal(level)
    assert reason in refusal
    assert bool(refusal) is bool(reason)
    if reason:
        with pytest.raises(BackendError):
            backend.provision(level, context)
        backend.finish(context)
        assert set(standin.pools) == {"other"}
        assert context.journal.pending() == []


def test_classes_of_a_pool_that_exists(standin: Standin) -> None:
    """One engine; which classes it holds is known before anything runs."""
    assert daos(oclass="RP_2G1").refusal().startswith("object class RP_2G1 needs 2 servers")
    assert daos(oclass="SX").refusal() == ""
    assert daos(rd_fac=1).refusal() == "rd_fac 1 needs 2 servers, and the pool has 1"
    assert "needs 2 targets" in daos().level_refusal({"object_class": "S2"})
    assert "is also a cluster factor" in daos(oclass="S1").level_refusal({"object_class": "SX"})
    assert daos().foreseen().level_factors == {"object_class", "redundancy_level"}
    assert daos(container="posix1").foreseen().level_factors == set()


def test_coordinates() -> None:
    assert daos(oclass="EC_2P1GX", rd_lvl="node").foreseen().attributes == {
        "redundancy": "ec=2+1",
        "failure_domain": "host",
    }
    assert daos().foreseen().attributes == {}


def test_prepared_pools(standin: Standin, context: ProvisionContext) -> None:
    standin.keep_pools(p1=[0], p2=[0, 1], p2b=[1, 2])
    named = [{"pool": f"p{n}", "storage_nodes": n} for n in (1, 2)]
    backend = daos(levels={"pools": named})
    assert backend.level_refusal({"storage_nodes": 2}) == backend.required_consent() == ""
    assert backend.commands({"storage_nodes": 2}, "7/1") == []
    access = backend.provision({"storage_nodes": 2}, context)
    assert access.pool == "p2"
    backend.release(access, context)
    assert set(standin.pools) == {"p1", "p2", "p2b"}
    assert standin.dmg_calls == []
    assert "must name exactly one pool for storage_nodes=3" in backend.level_refusal(
        {"storage_nodes": 3}
    )
    assert "needs the factor storage_nodes" in backend.level_refusal({})
    wrong = daos(levels={"pools": [{"pool": "p1", "storage_nodes": 2}]})
    refusal = wrong.level_refusal({"storage_nodes": 2})
    assert refusal == "pool p1 has 1 engines: it does not lie on 2 servers"


@pytest.mark.parametrize(
    ("options", "error", "meaning"),
    [
        ({"size_per_node": "1MiB"}, "code = 604", "raise levels.size_per_node"),
        ({"size_per_node": "1TiB"}, "DER_NOSPACE(-1007)", ""),
    ],
)
def test_a_pool_that_is_refused(
    standin: Standin, context: ProvisionContext, options: dict[str, Any], error: str, meaning: str
) -> None:
    backend = daos(levels=MADE | options)
    with pytest.raises(BackendError) as raised:
        backend.provision({"storage_nodes": 1}, context)
    assert error in str(raised.value)
    assert meaning in str(raised.value)
    backend.finish(context)
    assert context.journal.pending() == []


@pytest.mark.parametrize("number", [604, 606, 609])
def test_faults_are_in_the_text_only(standin: Standin, number: int) -> None:
    standin.dmg_fault("system query", "fail", error=f"server: code = {number} description = x")
    with pytest.raises(ToolError) as raised:
        tools.Control().members()
    assert tools.FAULTS[number] in str(raised.value)
    assert "daos_agent" not in str(raised.value)  # which dmg does not ask


def test_a_pool_that_came_late(standin: Standin, context: ProvisionContext) -> None:
    """The answer was an error, and the pool is there: `finish` destroys it."""
    standin.dmg_fault("pool create", "late")
    backend = daos(levels=MADE)
    with pytest.raises(BackendError, match="DER_TIMEDOUT"):
        backend.provision({"storage_nodes": 1}, context)
    assert len(standin.pools) == 1
    backend.finish(context)
    assert standin.pools == {}
    assert context.journal.pending() == []


def test_a_pool_goes_when_no_container_can_be_made(
    standin: Standin, context: ProvisionContext
) -> None:
    standin.fault("container create", "fail", error="DER_NO_PERM(-1001)", status=-1001)
    with pytest.raises(BackendError, match="DER_NO_PERM"):
        daos(levels=MADE).provision({"storage_nodes": 1}, context)
    assert standin.pools == {}
    assert context.journal.pending() == []


def test_another_pool_of_the_same_name_is_left_alone(
    standin: Standin, context: ProvisionContext
) -> None:
    backend = daos(levels=MADE)
    access = backend.provision({"storage_nodes": 1}, context)
    standin.keep_pools(**{access.pool: [0]})
    with pytest.raises(BackendError, match=r"is another one .* not destroyed"):
        backend.release(access, context)
    assert set(standin.pools) == {access.pool}


CONDUCTOR = """
import os, signal, sys
from pathlib import Path
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos.tools import Control
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.contract import load

create = Control.create

def made(*words):
    create(*words)
    os.kill(os.getpid(), signal.SIGKILL)

Control.create = made
kind = load("daos-dfs")
backend = kind(kind.Options(levels={"size_per_node": "1GiB", "consent": True}))
base = Path(sys.argv[1])
context = ProvisionContext("daos-a", base / "state", Journal(base / "journals/host.jsonl"), "tag1")
backend.provision({"storage_nodes": 1}, context)
"""


def test_killed_right_after_the_pool_was_made(standin: Standin, tmp_path: Path) -> None:
    standin.keep_pools(other=[0])
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path)]
    assert subprocess.run(argv, check=False).returncode < 0
    (label,) = set(standin.pools) - {"other"}
    assert undo_pending(tmp_path / "journals") == [f"destroyed pool {label}"]
    assert set(standin.pools) == {"other"}
    assert undo_pending(tmp_path / "journals") == []


@pytest.mark.parametrize(
    "facts",
    [
        {"name": "other"},
        {"name": "fsmatrix-a --force"},
        {"name": "fsmatrix-results"},
        {"control": "relative.yml"},
        {"control": "/a\n"},
        {"deadline": "soon"},
    ],
)
def test_a_forged_entry_is_passed_to_no_tool(standin: Standin, facts: dict[str, Any]) -> None:
    standin.keep_pools(other=[0])
    entry = {"name": "fsmatrix-a-b-00000000", "control": "", "deadline": 5.0} | facts
    with pytest.raises(BackendError, match="nothing was destroyed"):
        pools.Levels.remove(entry)
    assert standin.dmg_calls == []


def test_servers_are_failure_domains() -> None:
    """Two engines of one server, and one that has not joined."""
    members = [
        Member(rank=rank, state=state, fault_domain=domain)
        for rank, state, domain in [(2, "joined", "/a"), (0, "joined", "/a"), (1, "excluded", "/b")]
    ]
    assert pools.servers_of(members) == {"/a": [0, 2]}


def test_a_container_that_is_given(standin: Standin, context: ProvisionContext) -> None:
    """It is found, never made, and never destroyed."""
    client = daos().options.client  # type: ignore[attr-defined]
    place = containers.given(client, "bench", "posix1")
    assert (place.uuid, place.own) == (THEIRS["uuid"], False)
    containers.release(place, context)
    with pytest.raises(BackendError, match="container nothere is not in pool bench"):
        containers.given(client, "bench", "nothere")
    standin.keep({"posix1": THEIRS, "array": THEIRS | {"type": "unknown"}})
    with pytest.raises(BackendError, match="of type unknown, not POSIX"):
        containers.given(client, "bench", "array")
    assert standin.containers["posix1"] == THEIRS
    assert not [call for call in standin.calls if {"create", "destroy"} & set(call)]
    assert replace(place, uuid="x").gone().endswith("is not the one that was made")
