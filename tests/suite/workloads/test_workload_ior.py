"""The workload `ior`: its engine, its command lines, its options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import Access, CephfsAccess, DfsAccess, RadosAccess
from fsmatrix.results.record import Case
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.engines.ior import KIND, read
from fsmatrix.suite.workloads.ior import Ior, IorOptions
from fsmatrix.suite.workloads.workload import Argv
from tests.suite.ior_workload import (
    MIB,
    PATH,
    argv,
    case_of,
    engine_of,
    steps,
    text_of,
    words,
    workload,
)

DFS = DfsAccess("daos-dfs", "t", pool="p", container="c", system="s", prefix="/own")
VERSIONS = {"3.2.1": "3.2.1", "3.3.0": "3.3.0", "4.0.0": "4.0.0", "4.1": "4.1.0+dev"}


# -- engine ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("release", "version"), VERSIONS.items())
def test_probe_of_real_releases(release: str, version: str) -> None:
    engine = engine_of(release)
    assert engine.version == version
    assert "api:POSIX" in engine.features
    assert "api:DFS" not in engine.features
    assert ("api:MPIIO" in engine.features) is (release != "3.3.0")
    assert ("api:?" in engine.features) is (release == "3.3.0")  # prints its list wrongly
    assert ("option:B" in engine.features) is (release == "3.2.1")
    assert ("option:posix.odirect" in engine.features) is (release != "3.2.1")
    assert ("option:ranks-csv" in engine.features) is release.startswith("4.")
    assert "option:stonewall-status-file" in engine.features
    assert ("option:random-offsets" in engine.features) is (release == "4.1")


def test_probe_reads_modules_and_their_options() -> None:
    told = text_of("help-4.1.txt").replace("POSIX|DUMMY", "POSIX|DFS|DUMMY")
    told += "\n\nModule DFS\n\nOptional arguments\n  --dfs.group=STRING     DAOS system name\n"
    _, features = read([told, text_of("banner-4.1.txt")])
    assert {"api:DFS", "option:dfs.group"} <= features


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("IOR-3.0.1: MPI Coordinated Test of Parallel I/O", "3.0.1 is too old, 3.2 or later"),
        ("ior: error while loading shared libraries: libmpi.so.12: no", "IOR cannot start: libmpi"),
        ("Attempting to use an MPI routine before init", "says: Attempting to use"),
        ("", "says: nothing"),
    ],
)
def test_engines_that_cannot_be_used(answer: str, reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        read(["", answer])


def test_a_missing_engine_says_what_to_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FSMATRIX_IOR", raising=False)
    with pytest.raises(EngineError, match=r"(?s)module.*Spack.*FSMATRIX_IOR"):
        KIND.find()


# -- steps -----------------------------------------------------------------------------------
def outline(work: Ior, case: Case, access: Access = PATH) -> list[tuple[str, str, bool, str]]:
    """Name, role, reads, and -w/-r with -i and -k of each step."""
    made: list[tuple[str, str, bool, str]] = []
    for step in steps(work, case, access):
        assert step.where == "mpi"
        given = argv(step)
        flags = "".join(letter for letter in "wrk" if f"-{letter}" in given)
        made.append((step.name, step.role, step.reads, flags + given[given.index("-i") + 1]))
    return made


def test_cold_paths_write_and_read_apart_in_each_iteration() -> None:
    pair = [("write", "timed", False, "wk1"), ("read", "timed", True, "rk1")]
    assert outline(workload(iterations=3), case_of()) == pair * 3
    assert outline(workload(operations="write", iterations=3), case_of()) == [
        ("write", "timed", False, "w3")
    ]
    prepared = ("write-prepare", "setup", False, "wk1")
    reading = workload(operations="read", iterations=2)
    assert outline(reading, case_of()) == [prepared, pair[1], pair[1]]


@pytest.mark.parametrize("cache", ["warm", "bypass"])
def test_otherwise_one_invocation_does_all(cache: str) -> None:
    (step,) = steps(workload(iterations=5), case_of(cache))
    assert (step.name, step.phases, step.reads) == ("write+read", ("write", "read"), False)
    assert "-w -r -i 5" in words(step)
    assert outline(workload(operations="read", iterations=5), case_of(cache)) == [
        ("write-prepare", "setup", False, "wk1"),
        ("read", "timed", True, "rk5"),
    ]


def test_dfs_is_one_invocation_and_leaves_no_file() -> None:
    assert outline(workload(iterations=5), case_of(), DFS) == [
        ("write+read", "timed", False, "wr5")
    ]
    assert outline(workload(operations="read", iterations=5), case_of(), DFS)[-1] == (
        "read",
        "timed",
        True,
        "r5",
    )


def test_the_cern_commands() -> None:
    """Figures 2-3: -a POSIX -b 16m..1g -t 4m -F -C -i 10; figure 4: -a DFS -r -w -t 1MB -b NG."""
    first = workload(
        block_size="16MiB",
        transfer_size="4MiB",
        file_per_process=True,
        reorder_tasks=True,
        iterations=10,
    )
    (step,) = steps(first, case_of("warm", processes_per_node=4))
    assert words(step).startswith("/opt/ior/bin/ior -a POSIX -t 4194304 -b 16777216 -s 1 -F -C")
    assert "-i 10" in words(step)
    second = workload(api="DFS", transfer_size="1MiB", block_size="2GiB", iterations=5)
    engine = engine_of("4.1", "api:DFS")
    assert second.unsupported(case_of(), "dfs", engine) == ""
    (step,) = steps(second, case_of(nodes=2), DFS, engine)
    assert "-a DFS -t 1048576 -b 2147483648 -s 1 -w -r -i 5" in words(step)
    assert "--dfs.pool=p --dfs.cont=c --dfs.group=s -o /own/{run}/testfile" in words(step)
    assert "-F" not in argv(step)


@pytest.mark.parametrize(
    ("access", "api", "expected"),
    [
        (PATH, "POSIX", "-o {path}/testfile"),
        (
            RadosAccess("rados", "t", pool="p", conf="/c/ceph.conf", prefix="own"),
            "RADOS",
            "--rados.user=admin --rados.conf=/c/ceph.conf --rados.pool=p -o own.{run}.testfile",
        ),
        (
            CephfsAccess("libcephfs", "t", path="/own", user="u"),
            "CEPHFS",
            "--cephfs.user=u --cephfs.conf=/etc/ceph/ceph.conf --cephfs.prefix=/ "
            "-o /own/{run}/testfile",
        ),
    ],
)
def test_accesses(access: Access, api: str, expected: str) -> None:
    work = workload(operations="write")
    engine = engine_of("4.1", f"api:{api}")
    assert work.unsupported(case_of(), access.type, engine) == ""
    (step,) = steps(work, case_of(), access, engine)
    assert f"-a {api} " in words(step)
    assert expected in words(step)


def test_options_of_dfs() -> None:
    options = {"dfs_oclass": "SX", "dfs_dir_oclass": "S1", "dfs_chunk_size": "1MiB"}
    (step,) = steps(workload(**options), case_of(), DFS)
    assert "--dfs.oclass=SX --dfs.dir_oclass=S1 --dfs.chunk_size=1048576" in words(step)
    own = engine_of("4.1", "option:dfs.sys")
    assert "--dfs.sys=s" in words(steps(workload(), case_of(), DFS, own)[0])
    no_system = replace(DFS, system="")
    assert "dfs.group" not in words(steps(workload(), case_of(), no_system)[0])


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ({"fsync": True}, "-e"),
        ({"fsync_per_write": True}, "-Y"),
        ({"segments": 7}, "-s 7"),
        ({"reorder_random": True}, "-Z"),
        ({"random_offset": True}, "-z"),
        ({"collective": True, "api": "MPIIO"}, "-c"),
        ({"direct": True}, "--posix.odirect"),
        ({"stonewall": "30s"}, "-D 30"),
        ({"stonewall": 30, "stonewall_wear_out": True}, "-D 30 -O stoneWallingWearOut=1"),
        ({"check_write": True}, "-W -G 573"),
        ({"check_read": True}, "-R -G 573"),
        ({"data_packet": "incompressible"}, "-l incompressible"),
        ({"extra_arguments": ["--posix.rangelocks", "-g"]}, "--posix.rangelocks -g"),
    ],
)
def test_options_on_the_command_line(options: dict[str, Any], there: str) -> None:
    case = case_of("warm", processes_per_node=2)
    (plain,) = steps(workload(), case)
    (step,) = steps(workload(**options), case)
    assert f" {there}" in words(step)
    assert f" {there} " not in f"{words(plain)} "
    if "extra_arguments" in options:
        assert words(step).endswith(there)


def test_bypass_is_o_direct_by_the_versions_own_option() -> None:
    for release, option in (("3.2.1", "-B"), ("3.3.0", "--posix.odirect"), ("4.1", "--posix.od")):
        (step,) = steps(workload(), case_of("bypass"), engine=engine_of(release))
        assert option in words(step)
    prepare, timed = steps(workload(operations="read"), case_of("bypass"))
    assert "odirect" not in words(prepare)
    assert "odirect" in words(timed)


def test_ranks_are_asked_for_where_they_can_be() -> None:
    for release, there in (("3.3.0", False), ("4.0.0", True)):
        made = steps(workload(), case_of(), engine=engine_of(release))
        assert [step.name for step in made] == ["write", "read"]
        for step in made:
            assert isinstance(step.what, Argv)
            assert ("{scratch}/ranks.csv" in words(step)) is there
            assert step.what.collect == (("ranks.csv",) if there else ())


def test_setup_writes_everything_whatever_the_stonewall_and_syncs_it() -> None:
    work = workload(operations="read", stonewall=5, reorder_tasks=True)
    prepare, timed = steps(work, case_of(nodes=2))
    assert {"-e", "-k"} <= set(argv(prepare))
    assert not {"-D", "-C"} & set(argv(prepare))
    assert {"-D", "-C"} <= set(argv(timed))


def test_reading_apart_knows_how_far_writing_got() -> None:
    work = workload(stonewall=5, stonewall_wear_out=True)
    for step in steps(work, case_of()):
        assert "-O stoneWallingStatusFile={path}/stonewall" in words(step)
    (step,) = steps(work, case_of("warm"))
    assert "StatusFile" not in words(step)


# -- what cannot be --------------------------------------------------------------------------
BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"transfer_size": "3MiB"}, "no multiple of transfer_size 3MiB"),
    ({"transfer_size": 4, "block_size": 8}, "multiples of 8"),
    ({"transfer_size": "1m"}, "ambiguous"),
    ({"direct": True, "transfer_size": 1000, "block_size": 8000}, "multiples of 512"),
    ({"reorder_tasks": True, "reorder_random": True}, "exclude each other"),
    ({"random_offset": True, "block_size": MIB}, "must exceed"),
    ({"random_offset": True, "reorder_tasks": True}, "shared file"),
    ({"random_offset": True, "check_read": True}, "cannot be checked"),
    ({"random_offset": True, "stonewall": 3}, "leaves holes"),
    ({"stonewall_wear_out": True}, "needs stonewall"),
    ({"stonewall": 1.5}, "whole seconds"),
    ({"check_write": True, "operations": "read"}, "needs writing"),
    ({"check_read": True, "operations": "write"}, "needs reading"),
    ({"collective": True}, "needs api: MPIIO"),
    ({"direct": True, "api": "DFS"}, "knows no O_DIRECT"),
    ({"dfs_oclass": "SX", "api": "POSIX"}, "need api: DFS"),
    ({"extra_arguments": ["-i", "3"]}, "-i is set by the suite"),
    ({"extra_arguments": ["-O", "summaryFormat=JSON"]}, "-O is set by the suite"),
    ({"extra_arguments": ["-vo=/tmp/x"]}, "-vo=/tmp/x is set by the suite"),  # -v -o
    ({"extra_arguments": ["--dryRun"]}, "--dryRun is set by the suite"),
    ({"api": "HDF5"}, "POSIX"),
    ({"iterations": 0}, "greater than or equal to 1"),
    ({"keep": True}, "Extra inputs"),
]


@pytest.mark.parametrize(("options", "reason"), BAD_OPTIONS, ids=lambda v: str(v)[:40])
def test_bad_options_are_refused_with_the_reason(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        IorOptions.model_validate(options)


UNSUPPORTED: list[tuple[dict[str, Any], Case, str, str, str]] = [
    ({"api": "DFS"}, case_of(), "path", "4.1", "does not work on an access of type path"),
    ({}, case_of(), "dfs", "4.1", "built without DFS (it has DUMMY, MMAP, MPIIO, POSIX)"),
    ({}, case_of(), "device", "4.1", "does not work on an access of type device"),
    ({"dfs_oclass": "SX"}, case_of(), "path", "4.1", "DFS containers only"),
    ({"api": "MPIIO"}, case_of("bypass"), "path", "4.1", "no O_DIRECT for MPIIO"),
    ({"stonewall": 5}, case_of(), "path", "4.1", "would not know how far"),
    ({"data_packet": "random"}, case_of(), "path", "3.3.0", "needs ior 4.0"),
    (
        {"data_packet": "incompressible", "check_read": True},
        case_of(),
        "path",
        "3.2.1",
        "every byte of incompressible data wrong",
    ),
]


@pytest.mark.parametrize(("options", "case", "access", "release", "reason"), UNSUPPORTED)
def test_what_an_engine_cannot_do(
    options: dict[str, Any], case: Case, access: str, release: str, reason: str
) -> None:
    assert reason in workload(**options).unsupported(case, access, engine_of(release))


def test_what_can_be_done_is_not_refused() -> None:
    assert workload(stonewall=5).unsupported(case_of("warm"), "path", engine_of()) == ""
    assert workload(direct=True).unsupported(case_of("bypass"), "path", engine_of()) == ""
    # 3.3.0 does not tell its APIs: ior itself will say
    assert workload(api="MPIIO").unsupported(case_of(), "path", engine_of("3.3.0")) == ""
    assert workload().unsupported(case_of("bypass"), "path", engine_of("3.2.1")) == ""
    assert workload().unsupported(case_of("bypass"), "dfs", engine_of("4.1", "api:DFS")) == ""
    assert workload().unsupported(case_of(), "dfs", Engine("ior", "")) == ""  # not probed yet


def test_refusals() -> None:
    assert "no threads" in workload().refusal(case_of(threads=2))
    odd = workload(transfer_size=1000, block_size=8000)
    assert "multiples of 512" in odd.refusal(case_of("bypass"))
    assert odd.refusal(case_of()) == ""


def test_a_default_written_out_is_the_same_case() -> None:
    """Released defaults: none of these may ever enter an id."""
    released = {
        "api": "auto", "transfer_size": "1MiB", "block_size": "64MiB", "segments": 1,
        "operations": "both", "file_per_process": False, "reorder_tasks": False,
        "reorder_random": False, "random_offset": False, "fsync": False, "fsync_per_write": False,
        "stonewall": 0, "stonewall_wear_out": False, "iterations": 1, "collective": False,
        "direct": False, "check_write": False, "check_read": False, "data_packet": "",
        "dfs_oclass": "", "dfs_dir_oclass": "", "dfs_chunk_size": None, "bind_to": "none",
        "extra_arguments": [],
    }  # fmt: skip
    assert set(released) == set(IorOptions.model_fields)
    assert IorOptions.model_validate(released).model_dump(exclude_defaults=True) == {}
    made = IorOptions(transfer_size=4096, extra_arguments=("-g",))
    stored = json.loads(json.dumps(made.model_dump(mode="json", exclude_defaults=True)))
    assert IorOptions.model_validate(stored) == made
    assert all(field.description for field in IorOptions.model_fields.values())


def test_footprint() -> None:
    needs = workload(iterations=3, segments=2, file_per_process=True).footprint(
        case_of(nodes=2, processes_per_node=2)
    )
    assert (needs.space, needs.written, needs.files) == (512 * MIB, 3 * 512 * MIB, 4)
    assert needs.seconds is None
    needs = workload(operations="read", iterations=3, stonewall=10).footprint(case_of())
    assert (needs.written, needs.seconds) == (64 * MIB, 30.0)
