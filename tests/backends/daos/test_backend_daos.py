"""DAOS containers, against a stand-in of the `daos` tool that replays recorded answers."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.access import DfsAccess, PathAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import containers, libraries, rollback
from fsmatrix.backends.daos.levels import Shape
from fsmatrix.backends.daos.native import DaosDfs
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.campaign.yamlio import Tree
from fsmatrix.suite.plan.plan import Installation, Request, build_plan
from tests.backends.daos_places import REAL_POOL, Storage
from tests.backends.daos_standin import THEIRS, Standin, answer, daos, details, impatient


@pytest.fixture
def context(tmp_path: Path) -> ProvisionContext:
    return ProvisionContext(
        "daos-a", tmp_path / "state", Journal(tmp_path / "journals/host.jsonl"), "tag1"
    )


# -- the backend ------------------------------------------------------------------------------
def test_check_tells_version_and_system(standin: Standin) -> None:
    usable = DaosDfs.check()
    assert usable.ok
    assert usable.version == "DAOS CLI version 2.6.5, libdaos v2.7.0, system daos_server"
    standin.fault("system query", "fail", error="DER_AGENT_COMM(-1049)", status=-1049)
    usable = DaosDfs.check()
    assert not usable.ok
    assert "DER_AGENT_COMM(-1049)" in usable.reason


@pytest.mark.parametrize(
    "options",
    [
        {"pool": ""},
        {"pool": "-f"},
        {"pool": "a b"},
        {"pool": "x" * 128},
        {"pool": "p", "oclass": "S1 --force"},
        {"pool": "p", "oclass": "RP_1G1"},
        {"pool": "p", "oclass": "RP_2G1", "rd_fac": 2},
        {"pool": "p", "levels": {"size_per_node": "1GiB"}},
        {"levels": {}},
        {"levels": {"size_per_node": "1GiB", "control": "dmg.yml"}},
        {"levels": {"pools": [{"pool": "p2", "storage_nodes": 2}], "consent": True}},
        {"levels": {"pools": [{"pool": "-f", "storage_nodes": 2}]}},
        {"levels": {"size_per_node": "1GiB"}, "container": "c"},
        {"pool": "p", "system": "a/b"},
        {"pool": "p", "chunk_size": 0},
        {"pool": "p", "chunk_size": 4095},
        {"pool": "p", "container": "--force"},
        {"pool": "p", "container": "daos://p/c"},
        {"pool": "p\n"},
        {"pool": "p", "container": "c", "oclass": "S1"},
        {"pool": "p", "container": "c", "rd_fac": 0},
        {"pool": "p", "rd_fac": 6},
        {"pool": "p", "rd_lvl": "rack"},
        {"pool": "p", "checksum": "crc32,rd_fac:1"},
        {"pool": "p", "deadline": 0},
        {},
    ],
)
def test_bad_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        contract.load("daos-dfs").Options(**options)


def test_copies_everywhere_outlive_as_many_failures_as_the_pool_has_domains_to_lose() -> None:
    chosen = daos(oclass="RP_XSF", rd_fac=1)._chosen
    assert chosen.coordinates == {"redundancy": "size=all"}
    assert chosen.misfit(Shape(servers=2, engines=2, targets=4)) == ""
    assert chosen.misfit(Shape(1, 1, 4)) == "rd_fac 1 needs 2 servers, and the pool has 1"


def test_from_container_to_nothing(standin: Standin, context: ProvisionContext) -> None:
    backend = daos(oclass="SX", dir_oclass="S1", chunk_size="4MiB")
    access = backend.provision({}, context)
    assert access == DfsAccess.from_json(json.loads(json.dumps(access.to_json())))
    assert access.container.startswith("fsmatrix-tag1-daos-a-")
    assert standin.ours == [access.container]
    assert (access.pool, access.prefix) == ("bench", "/")
    assert access.details["uuid"] == standin.containers[access.container]["uuid"]
    create = next(call for call in standin.calls if "create" in call)
    assert create[-4:] == [
        "--type=POSIX",
        "--oclass=SX",
        "--dir-oclass=S1",
        "--chunk-size=4194304",
    ]
    backend.mount(access, context.journal)
    backend.mount(access, context.journal)
    facts = backend.describe(access)
    json.dumps(facts)
    assert facts["container"]["chunk_size"] == 4 << 20
    assert facts["container"]["object_class"] == "SX"
    assert facts["pool"]["tiers"]["scm"]["total"] == 4000002048
    assert facts["daos"]["version"].startswith("DAOS CLI version 2.6.5")
    assert facts["server"] == {"version": "2.6.5"}
    assert facts["agent"].endswith("/daos_agent.sock")
    assert facts["properties"]["rd_fac"] == "rd_fac0"
    assert facts["properties"].keys().isdisjoint({"acl", "owner", "group"})
    assert backend.space(access).bytes == 3324566816
    assert backend.health(access) == []
    settled = backend.settle(access, 60.0)
    assert settled.reached
    assert settled.state["rebuild"] == "idle"
    backend.unmount(access, context.journal)
    backend.release(access, context)
    backend.release(access, context)
    backend.finish(context)
    assert standin.containers == {"posix1": THEIRS}
    assert context.journal.pending() == []


def test_properties_of_an_own_container(standin: Standin, context: ProvisionContext) -> None:
    daos(rd_fac=0, rd_lvl="rank", checksum="crc32", file_oclass="SX").provision({}, context)
    create = next(call for call in standin.calls if "create" in call)
    wanted = ["--file-oclass=SX", "--properties=rd_fac:0,rd_lvl:rank,cksum:crc32"]
    assert create[-2:] == wanted


def test_cache_states_are_those_of_the_client() -> None:
    access = DfsAccess("daos-dfs", "a", {}, "bench", "x")
    for state in ("cold", "bypass"):
        evidence = DaosDfs.cache(access, state, ["file"])
        assert evidence.state == state
        assert evidence.facts["server_caches"] == "unknown"
    with pytest.raises(BackendError, match="no data cache in the client"):
        DaosDfs.cache(access, "warm", ["file"])
    assert DaosDfs.cache_states == {"cold", "bypass"}


def test_no_level_without_options_that_say_how(standin: Standin, context: ProvisionContext) -> None:
    with pytest.raises(BackendError, match="realises no cluster factors: storage_nodes"):
        daos().provision({"storage_nodes": 2}, context)
    assert standin.ours == []


def test_missing_pool(standin: Standin, context: ProvisionContext) -> None:
    backend = daos(pool="nopool")
    reason = answer("daos-pool-query-missing")["error"]
    assert reason in backend.refusal()
    with pytest.raises(BackendError, match="failed to connect to pool nopool"):
        backend.provision({}, context)
    assert context.journal.pending() == []
    assert backend.space().bytes is None


@pytest.mark.parametrize(
    ("classes", "bytes_stored"),
    [
        ({}, 1.0),
        ({"oclass": "RP_2G1"}, 2.0),
        ({"oclass": "RP_2G1", "file_oclass": "S1"}, 1.0),
        ({"file_oclass": "EC_2P1GX"}, 1.5),
        ({"oclass": "RP_XSF"}, 1.0),  # as many copies as the pool has domains
    ],
)
def test_space_is_for_data_without_its_redundancy(
    standin: Standin, classes: dict[str, str], bytes_stored: float
) -> None:
    space = daos(**classes).space()
    assert space.bytes == int(3324566816 / bytes_stored)
    assert ("not deducted" in space.source) == (classes in ({}, {"oclass": "RP_XSF"}))


def test_another_system_than_the_agents(standin: Standin) -> None:
    """The tool takes any name, and answers for the agent's; libdfs fails with DER_INVAL later."""
    assert daos(system="daos_server").refusal() == ""
    reason = daos(system="prod").refusal()
    assert reason == "option system: daos_agent belongs to 'daos_server', not 'prod'"


def test_missing_container(standin: Standin, context: ProvisionContext) -> None:
    backend = daos()
    access = backend.provision({}, context)
    standin.keep({"posix1": THEIRS})
    with pytest.raises(BackendError, match=f"container {access.container} is not in pool bench"):
        backend.mount(access, context.journal)
    assert "is not in pool bench" in backend.health(access)[0]
    assert backend.describe(access)["container"] == {"error": "the container does not exist"}
    backend.release(access, context)
    assert context.journal.pending() == []


def test_another_container_of_the_same_name_is_left_alone(
    standin: Standin, context: ProvisionContext
) -> None:
    """One that a program made silently, or somebody else, after ours had gone."""
    backend = daos()
    access = backend.provision({}, context)
    standin.keep({"posix1": THEIRS, access.container: THEIRS | {"uuid": "other"}})
    before = standin.containers
    with pytest.raises(BackendError, match="is not the one that was made"):
        backend.mount(access, context.journal)
    with pytest.raises(BackendError, match="not destroyed"):
        backend.release(access, context)
    with pytest.raises(BackendError, match="not destroyed"):
        backend.finish(context)
    assert standin.containers == before
    assert len(context.journal.pending()) == 1


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_foreign_container_with_our_name(
    standin: Standin, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    if when == "before":
        standin.keep({"fsmatrix-tag1-daos-a-00000000": THEIRS})
    else:
        standin.fault("container create", "exists")
    before = standin.containers
    with pytest.raises(BackendError, match="exists and is not the suite's: left alone"):
        daos().provision({}, context)
    monkeypatch.undo()
    assert standin.containers == before
    assert context.journal.pending("daos-container") == []


def test_two_shards_do_not_meet(standin: Standin, context: ProvisionContext) -> None:
    first, second = daos().provision({}, context), daos().provision({}, context)
    assert first.container != second.container
    daos().release(first, context)
    assert standin.ours == [second.container]
    daos().release(second, context)


@pytest.mark.parametrize(("do", "made"), [("late", True), ("nothing", False)])
def test_failed_creation_is_cleaned_up(
    standin: Standin, context: ProvisionContext, do: str, made: bool
) -> None:
    """An error after it was made; and made by its own words, but not there."""
    standin.fault("container create", do)
    backend = daos()
    with pytest.raises(BackendError, match="DER_TIMEDOUT" if made else "but is not there"):
        backend.provision({}, context)
    assert bool(standin.ours) is made
    assert len(context.journal.pending()) == 1
    backend.finish(context)
    assert standin.containers == {"posix1": THEIRS}
    assert context.journal.pending() == []


def test_hanging_creation(
    standin: Standin, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin.fault("container create", "hang")
    impatient(monkeypatch, "create")
    backend = daos()
    with pytest.raises(ToolError, match=r"container create .* still no answer after"):
        backend.provision({}, context)
    assert [entry.kind for entry in context.journal.pending()] == ["daos-container"]
    backend.finish(context)
    assert context.journal.pending() == []


def test_what_a_killed_program_holds_open_is_closed_by_force(
    standin: Standin, context: ProvisionContext
) -> None:
    access = daos().provision({}, context)
    busy = "failed to destroy container: DER_BUSY(-1012): Device or resource busy"
    standin.fault("container destroy", "fail", error=busy, status=-1012, unforced=True)
    daos().release(access, context)
    destroys = [call for call in standin.calls if "destroy" in call]
    assert ["--force" in call for call in destroys] == [False, True]
    assert all(access.details["uuid"] in call for call in destroys)
    assert standin.ours == []


def test_a_refused_destruction_stays_pending(standin: Standin, context: ProvisionContext) -> None:
    access = daos().provision({}, context)
    standin.fault("container destroy", "fail", error="DER_NO_PERM(-1001)", status=-1001)
    with pytest.raises(BackendError, match="DER_NO_PERM"):
        daos().release(access, context)
    assert len(context.journal.pending()) == 1
    standin.fault()
    daos().finish(context)
    assert context.journal.pending() == []
    assert standin.ours == []


def test_another_access_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="DFS access"):
        DaosDfs.mount(PathAccess("daos-dfs", "a"), Journal(Path("/nowhere")))


# -- in a container that is given -------------------------------------------------------------
@pytest.fixture
def given(standin: Standin, doubled: Storage) -> Path:
    """The root of container posix1 of pool bench: for the tool the stand-in's, and a double's."""
    assert doubled.folder is not None
    root = doubled.folder / "bench/posix1/root"
    root.mkdir(parents=True)
    return root


@pytest.mark.needs("compiler")
def test_a_directory_of_its_own_in_a_container_that_is_given(
    standin: Standin, doubled: Storage, given: Path, context: ProvisionContext
) -> None:
    (given / "theirs").mkdir()
    backend = daos(container="posix1", library=doubled.library)
    assert backend.refusal() == ""
    access = backend.provision({}, context)
    assert access.container == "posix1"
    assert access.prefix.startswith("/fsmatrix-tag1-daos-a-")
    assert not backend.describe(access)["managed"]
    backend.make_run(access, "run1")
    own = given / access.prefix.strip("/")
    assert (own / "run1").is_dir()
    assert f"path={access.prefix}/run1" in backend.run_root(access, "run1").splitlines()
    (own / "run1" / "file").touch()
    backend.remove_run(access, "run1")
    assert list(own.iterdir()) == []
    (own / "left").touch()
    backend.release(access, context)
    assert [path.name for path in given.iterdir()] == ["theirs"]
    assert context.journal.pending() == []
    assert standin.containers == {"posix1": THEIRS}


@pytest.mark.needs("compiler")
def test_it_goes_after_a_failure_too(
    standin: Standin, doubled: Storage, given: Path, context: ProvisionContext
) -> None:
    backend = daos(container="posix1", library=doubled.library)
    access = backend.provision({}, context)
    assert [entry.kind for entry in context.journal.pending()] == ["daos-tree"]
    standin.keep({"posix1": THEIRS | {"uuid": "other"}})
    with pytest.raises(BackendError, match="nothing was removed from it"):
        backend.release(access, context)
    assert len(list(given.iterdir())) == 1
    standin.keep({"posix1": THEIRS})
    backend.finish(context)
    assert list(given.iterdir()) == []
    assert context.journal.pending() == []


@pytest.mark.needs("compiler")
def test_after_a_crash_it_goes_by_the_libraries_beside_the_tool(
    standin: Standin,
    doubled: Storage,
    given: Path,
    context: ProvisionContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the run that made it: the loader need not find them."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(libraries, "of_loader", lambda _name: iter(()))
    monkeypatch.setattr(libraries, "beside", lambda _, name: iter([Path(doubled.library, name)]))
    daos(container="posix1").provision({}, context)
    (entry,) = context.journal.pending()
    said = rollback.DAOS_TREE.undo(entry.facts, True)
    assert said == f"removed /{entry.facts['name']} from container posix1"
    assert list(given.iterdir()) == []


@pytest.mark.parametrize(
    "facts", [{"name": "theirs"}, {"name": "fsmatrix-a/../b"}, {"container": "-f"}, {"deadline": 0}]
)
def test_a_forged_entry_removes_nothing(standin: Standin, facts: dict[str, Any]) -> None:
    entry = details() | {"name": "fsmatrix-t-a-00000000"} | facts
    with pytest.raises(BackendError, match="nothing was destroyed"):
        containers.remove_recorded_tree(entry)
    assert not (standin.folder / "calls.jsonl").exists()


# -- planning ---------------------------------------------------------------------------------
def impossible(workload: str, options: str = "pool: bench", backend: str = "daos-dfs") -> str:
    text = (
        "campaign: test\nseed: 1\nimpossible: skip\ntargets:\n"
        f"  a: {{backend: {backend}, options: {{{options}}}}}\n"
        "  b: {backend: tmpfs, reference: true}\n"
        f"workloads:\n  w: {{{workload}}}\n"
    )
    made = build_plan(
        Source(text),
        Request(),
        installation=Installation(site=SiteFile(), user=Tree(), root=True),
        here=False,
    )
    reasons = [
        reason for cell in made.matrix.cells if cell.target == "a" for reason in cell.reasons
    ]
    return "; ".join(reasons)


def test_what_speaks_no_dfs_is_refused_with_the_way_out() -> None:
    reasons = impossible("workload: dbench, cache: warm")
    assert "dbench speaks only" in reasons
    assert "target a gives a DFS container: use its DFUSE mount" in reasons


@pytest.mark.parametrize("workload", ["pattern, options: {iodepth: 16}", "metadata"])
def test_the_player_speaks_dfs(workload: str) -> None:
    assert impossible(f"workload: {workload}") == ""


def test_fio_is_refused_in_a_container_that_is_given() -> None:
    fio, given_one = "workload: fio, options: {rw: write, size: 1MiB}", "pool: bench, container: c"
    assert impossible(fio) == ""
    assert "works in the root of a container only" in impossible(fio, given_one)
    assert impossible("workload: pattern", given_one) == ""


def test_warm_is_refused() -> None:
    reasons = impossible("workload: pattern, cache: warm")
    assert "cannot reach cache state warm; it can: bypass, cold" in reasons


# -- the real one -----------------------------------------------------------------------------
@pytest.mark.daos
@pytest.mark.skipif(
    not REAL_POOL or shutil.which("daos") is None,
    reason="not in any registry: DAOS; with a pool in FSMATRIX_DAOS_POOL its containers are "
    "made by the real tool (here only by a stand-in)",
)
def test_real_daos(context: ProvisionContext) -> None:
    backend = daos(pool=REAL_POOL, chunk_size="2MiB")
    assert DaosDfs.check().ok
    access = backend.provision({}, context)
    try:
        backend.mount(access, context.journal)
        facts = backend.describe(access)
        errors = [name for name, value in facts.items() if "error" in str(value)]
        assert errors == []
        assert facts["container"]["chunk_size"] == 2 << 20
        assert backend.space(access).bytes
        assert backend.settle(access, 60.0).reached
    finally:
        backend.release(access, context)
    with pytest.raises(BackendError, match="is not in pool"):
        backend.mount(access, context.journal)
    assert context.journal.pending() == []
