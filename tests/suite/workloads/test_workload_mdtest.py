"""The workload `mdtest`: its engine, its command lines, its options."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import Access, CephfsAccess, DfsAccess
from fsmatrix.results.record import Case
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.engines.mdtest import read
from fsmatrix.suite.workloads.mdtest import Mdtest, MdtestOptions
from fsmatrix.suite.workloads.workload import Argv, Step
from tests.suite.mdtest_workload import (
    NEW,
    OLD,
    PATH,
    SPLIT,
    case_of,
    engine,
    steps,
    words,
    workload,
)

DFS = DfsAccess("daos-dfs", "t", pool="bench", container="posix1", system="sys1", prefix="/fsm/")
CEPHFS = CephfsAccess("libcephfs", "t", conf="/etc/ceph/c.conf", user="me", path="/fsm")


def outline(made: list[Step]) -> list[tuple[str, str, bool]]:
    return [(step.name, step.role, step.reads) for step in made]


# -- the engine ----------------------------------------------------------------------------------
def test_the_engine_tells_version_and_features() -> None:
    assert (NEW.version, OLD.version) == ("4.1.0+dev", "1.9.3")
    assert {"api:POSIX", "api:DUMMY", "option:U", "option:posix.odirect"} <= NEW.features
    assert "option:saveRankPerformanceDetails" in NEW.features
    assert {"api:MPIIO", "option:x"} <= OLD.features
    assert not {"option:U", "option:saveRankPerformanceDetails"} & OLD.features


@pytest.mark.parametrize(
    ("answers", "words_"),
    [
        (("Usage: md5sum", ""), "this is not mdtest"),
        (("  -C  only create files/dirs", "PMI_Init failed"), "outside of mpirun"),
        (("  -C  only create files/dirs", "mdtest-1.8.3 was launched with 1"), "too old"),
    ],
)
def test_what_cannot_be_used_is_refused(answers: tuple[str, str], words_: str) -> None:
    with pytest.raises(EngineError, match=words_):
        read(answers)


def test_a_list_of_apis_from_lost_memory_is_told_as_unknown() -> None:
    _, features = read(
        (
            "  -C  only create files/dirs\n  -a=x  API for I/O [\x07?]",
            "mdtest-3.3.0 was launched with",
        )
    )
    assert "api:?" in features
    assert workload().unsupported(case_of(), "dfs", Engine("mdtest", "3.3.0", "", features)) == ""


# -- command lines -------------------------------------------------------------------------------
def test_a_cold_cache_is_made_between_the_phases() -> None:
    made = steps(workload(items=50, unique_dir=True))
    assert outline(made) == [
        ("create", "timed", False),
        ("stat", "timed", True),
        ("read", "timed", True),
        ("remove", "timed", True),
    ]
    assert [step.phases for step in made] == [
        ("mkdir-tree", "mkdir", "create"),
        ("stat-directories", "stat"),
        ("read",),
        ("rmdir", "remove", "rmdir-tree"),
    ]
    assert words(made[1]) == (
        "/opt/ior/bin/mdtest -a POSIX -T -n 50 -u -i 1 -d {path}/mdtest "
        "--saveRankPerformanceDetails={scratch}/ranks.csv"
    )
    assert all(step.where == "mpi" for step in made)
    assert Mdtest.cold_metadata


@pytest.mark.parametrize("cache", ["warm", "bypass"])
def test_otherwise_one_invocation_does_all(cache: str) -> None:
    (step,) = steps(workload(items=50), cache)
    assert "-C -T -E -r" in words(step)
    assert ("--posix.odirect" in words(step)) is (cache == "bypass")
    assert step.phases[:3] == ("mkdir-tree", "mkdir", "create")


def test_iterations_are_invocations_of_their_own() -> None:
    assert [step.name for step in steps(workload(iterations=2))] == [
        "create",
        "stat",
        "read",
        "remove",
    ] * 2
    made = steps(workload(iterations=3), "warm")
    assert len(made) == 3
    assert all(" -i 1 " in words(step) for step in made)


def test_what_no_phase_makes_or_removes_is_setup() -> None:
    stat = workload(phases=["stat"], iterations=2)
    assert outline(steps(stat, "warm")) == [
        ("create-prepare", "setup", False),
        ("mdtest", "timed", True),
        ("mdtest", "timed", True),
    ]
    remove = workload(phases=["remove"], iterations=2)
    assert [s.name for s in steps(remove)] == ["create-prepare", "remove"] * 2
    create = workload(phases=["create"], iterations=2)
    assert [s.name for s in steps(create)] == ["create", "remove-cleanup", "create"]


@pytest.mark.parametrize("access", [DFS, CEPHFS])
def test_nothing_is_left_where_the_suite_does_not_clean_up(access: Access) -> None:
    for phases in (["create"], ["stat"], ["create", "stat"]):
        made = steps(workload(phases=phases), "warm", access)
        assert made[-1].name == "remove-cleanup"
    assert steps(workload(), "warm", access)[-1].name == "mdtest"


def test_a_dfs_container() -> None:
    options = {"dfs_oclass": "S1", "dfs_dir_oclass": "SX", "dfs_chunk_size": 4096}
    text = words(steps(workload(**options), "warm", DFS)[0])
    assert "-a DFS " in text
    assert "--dfs.pool=bench --dfs.cont=posix1 --dfs.group=sys1" in text
    assert (
        "--dfs.oclass=S1 --dfs.dir_oclass=SX --dfs.chunk_size=4096 -i 1 -d /fsm/{run}/mdtest"
        in text
    )
    newer = engine("4.1", "option:dfs.sys")
    assert "--dfs.sys=sys1" in words(steps(workload(), "warm", DFS, newer)[0])


def test_libcephfs() -> None:
    made = steps(workload(), "cold", CEPHFS)
    assert len(made) == 4  # each invocation is a client of its own
    text = words(made[0])
    assert "--cephfs.user=me --cephfs.conf=/etc/ceph/c.conf --cephfs.prefix=/" in text
    assert "-d /fsm/{run}/mdtest" in text


def test_every_option_has_its_flag() -> None:
    options = {
        "items_per_directory": 7,
        "depth": 2,
        "branching_factor": 3,
        "leaf_only": True,
        "unique_dir": True,
        "files_only": True,
        "write_bytes": "4KiB",
        "read_bytes": 100,
        "stride": 2,
        "sync": True,
        "extra_arguments": ["--random-seed=5", "-R"],
    }
    text = words(steps(workload(**options), "warm")[0])
    assert "-I 7 -z 2 -b 3 -L -u -F -w 4096 -e 100 -N 2 -y" in text
    assert text.endswith("--random-seed=5 -R")
    assert "-n" not in text.split()


def test_later_invocations_know_where_the_stonewall_was() -> None:
    made = steps(workload(**SPLIT))
    assert "-W 1 -x {path}/stonewall" in words(made[0])
    for step in made[1:]:
        assert "-W" not in words(step).split()
        assert "-x {path}/stonewall" in words(step)
    (together,) = steps(workload(**SPLIT), "warm")
    assert "-x" not in words(together).split()
    once = workload(stonewall=1, files_only=True, phases=["create", "stat"])
    assert all("-x" not in words(step).split() for step in steps(once, "warm"))
    again = workload(stonewall=1, files_only=True, iterations=2, phases=["create", "stat"])
    for step in steps(again, "warm", DFS):  # mdtest opens it with the C library
        assert "-x {beside}" in words(step)


def test_an_old_engine_is_not_asked_for_what_it_lacks() -> None:
    made, new = steps(workload(), "cold", PATH, OLD), steps(workload(), "cold", PATH)
    assert len(made) == len(new)
    assert any("saveRank" in words(step) for step in new)
    assert not any("saveRank" in words(step) for step in made)
    assert all(step.what.collect == () for step in made if isinstance(step.what, Argv))


def test_the_number_of_processes_comes_from_the_geometry() -> None:
    assert not {"tasks", "first", "last"} & set(MdtestOptions.model_fields)
    with pytest.raises(ValidationError, match="first is set by the suite"):
        MdtestOptions.model_validate({"extra_arguments": ["-f", "1"]})


# -- options -------------------------------------------------------------------------------------
BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"items": 10, "items_per_directory": 2}, "not both"),
    ({"files_only": True, "dirs_only": True}, "exclude each other"),
    ({"depth": 20, "branching_factor": 10}, "more than 1000000 directories"),
    ({"items": 5, "depth": 2, "branching_factor": 3}, "items 5 are fewer"),
    ({"write_bytes": 10, "read_bytes": 20}, "read_bytes 20B is more than the 10B"),
    ({"dirs_only": True, "write_bytes": 10, "phases": ["create"]}, "need files"),
    ({"sync": True}, "sync .-y. needs write_bytes"),
    ({"stonewall": 1}, "stonewall needs files_only"),
    ({"stonewall": 1.5, "files_only": True}, "whole seconds"),
    ({"stonewall": 1, "files_only": True, "depth": 1}, "flat directory"),
    ({"stonewall": 1, "files_only": True, "phases": ["stat"]}, "time create"),
    ({"phases": []}, "must name some"),
    ({"phases": ["stat", "stat"]}, "each once"),
    ({"phases": ["read"], "dirs_only": True}, "phase read is of files"),
    ({"phases": ["rename"], "files_only": True}, "phase rename is of directories"),
    ({"phases": ["rename"], "items": 1}, "two or more directories"),
    ({"direct": True, "write_bytes": 100}, "multiples of 512"),
    ({"direct": True, "api": "MPIIO"}, "knows no O_DIRECT"),
    ({"dfs_oclass": "S1", "api": "POSIX"}, "need api: DFS"),
    ({"extra_arguments": ["-n", "5"]}, "items is set by the suite"),
    ({"extra_arguments": ["-Z"]}, "print_time is set by the suite"),
    ({"extra_arguments": ["--dfs.pool=x"]}, "dfs.pool is set by the suite"),
    ({"extra_arguments": ["-q"]}, "no option of mdtest"),
    ({"tasks": 3}, "Extra inputs"),
]


@pytest.mark.parametrize(("options", "words_"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_bad_options_are_refused_with_the_reason(options: dict[str, Any], words_: str) -> None:
    with pytest.raises(ValidationError, match=words_):
        MdtestOptions.model_validate(options)


def test_a_default_written_out_is_the_same_case() -> None:
    """Released defaults: none of these may ever enter an id."""
    released = {
        "api": "auto",
        "depth": 0,
        "branching_factor": 1,
        "leaf_only": False,
        "unique_dir": False,
        "files_only": False,
        "dirs_only": False,
        "write_bytes": 0,
        "read_bytes": 0,
        "stride": 0,
        "iterations": 1,
        "stonewall": 0,
        "sync": False,
        "phases": ["remove", "create", "read", "stat"],
        "direct": False,
        "dfs_oclass": "",
        "extra_arguments": [],
    }
    for items in ({"items": 1000}, {"items_per_directory": None}):
        options = MdtestOptions.model_validate(released | items)
        assert options.model_dump(exclude_defaults=True) == {}


def test_every_option_is_described() -> None:
    assert all(field.description for field in MdtestOptions.model_fields.values())


@pytest.mark.parametrize(
    ("options", "case", "words_"),
    [
        ({}, case_of(threads=2), "no threads"),
        ({"stride": 1}, case_of(processes_per_node=1), "single process"),
        ({"write_bytes": 100}, case_of("bypass"), "multiples of 512"),
    ],
)
def test_refusals_say_why(options: dict[str, Any], case: Case, words_: str) -> None:
    assert words_ in workload(**options).refusal(case)
    assert workload(write_bytes=512, stride=1).refusal(case_of("bypass")) == ""


UNSUPPORTED: list[tuple[dict[str, Any], str, str, Engine, str]] = [
    ({}, "cold", "dfs", NEW, "built without DFS .it has DUMMY, POSIX"),
    ({"api": "DFS"}, "cold", "path", NEW, "api DFS does not work on an access of type path"),
    ({}, "cold", "rados", NEW, "does not work on an access of type rados"),
    ({"dfs_oclass": "S1"}, "cold", "path", NEW, "DFS containers only"),
    ({}, "bypass", "path", OLD, "no option for O_DIRECT"),
    ({"api": "MPIIO"}, "bypass", "path", OLD, "no O_DIRECT for MPIIO"),
    ({"phases": ["create", "rename"]}, "cold", "path", OLD, "cannot be told to rename"),
    (SPLIT, "cold", "path", OLD, "does not tell how many"),
    (SPLIT, "cold", "cephfs", NEW, "needs a path for their status"),
    (SPLIT | {"phases": ["create"]}, "warm", "dfs", NEW, "needs a path for their status"),
]


@pytest.mark.parametrize(("options", "cache", "access", "program", "words_"), UNSUPPORTED)
def test_what_an_engine_cannot_do_is_said(
    options: dict[str, Any], cache: str, access: str, program: Engine, words_: str
) -> None:
    assert re.search(words_, workload(**options).unsupported(case_of(cache), access, program))


def test_what_can_be_done_is_not_refused() -> None:
    assert workload(**SPLIT).unsupported(case_of(), "path", NEW) == ""
    assert workload().unsupported(case_of("bypass"), "path", NEW) == ""
    assert workload(api="MPIIO").unsupported(case_of(), "path", OLD) == ""
    assert workload().unsupported(case_of(), "path", Engine("mdtest", "")) == ""


def test_footprint() -> None:
    case = case_of(nodes=2, processes_per_node=2)
    tree = {"depth": 1, "branching_factor": 2, "items": 10, "write_bytes": 100}
    needs = workload(**tree, iterations=3).footprint(case)
    assert needs.space == 4 * 9 * 100  # 10 is rounded down to the three directories
    assert needs.written == 3 * needs.space
    assert needs.files == 4 * 9 * 2 + 3 + 2
    assert workload(dirs_only=True, phases=["create"]).footprint(case).space == 0
    assert workload(**tree, phases=["stat"], iterations=3).footprint(case).written == needs.space
    assert workload(unique_dir=True, files_only=True, items=1).footprint(case).files == 4 + 4 + 2
