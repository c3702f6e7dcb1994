"""The workload `ior`: its command lines, its runs, its engine; with the real one where it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import Access, CephfsAccess, DfsAccess, PathAccess, RadosAccess
from fsmatrix.results.case import Case, Geometry
from fsmatrix.results.formats.base import Parsed, ParseError
from fsmatrix.results.metrics import bandwidth, window
from fsmatrix.suite.engines.base import EngineError
from fsmatrix.suite.engines.ior import KIND, read
from fsmatrix.suite.workloads.base import Argv, Engine, Output, Step
from fsmatrix.suite.workloads.ior import Ior
from fsmatrix.suite.workloads.ior.options import IorOptions

DATA = Path(__file__).parents[1] / "data" / "ior"
MIB = 1 << 20
PATH = PathAccess("directory", "t", path="/mnt/x")
DFS = DfsAccess("daos-dfs", "t", pool="p", container="c", system="s", prefix="/own")
VERSIONS = {"3.2.1": "3.2.1", "3.3.0": "3.3.0", "4.0.0": "4.0.0", "4.1": "4.1.0+dev"}


def text_of(name: str) -> str:
    return (DATA / name).read_text(errors="replace")


def engine_of(release: str = "4.1", *more: str) -> Engine:
    """The engine as the real release's own words describe it."""
    version, features = read([text_of(f"help-{release}.txt"), text_of(f"banner-{release}.txt")])
    return Engine("ior", version, "/opt/ior/bin/ior", features | set(more))


def workload(**options: Any) -> Ior:
    return Ior(IorOptions.model_validate(options))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case("t", "ior", geometry=Geometry(**geometry), cache=cache)


def steps(work: Ior, case: Case, access: Access = PATH, engine: Engine | None = None) -> list[Step]:
    return work.steps(case, access, engine or engine_of())


def argv(step: Step) -> tuple[str, ...]:
    assert isinstance(step.what, Argv)
    return step.what.argv


def words(step: Step) -> str:
    return " ".join(argv(step))


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
        "read", "timed", True, "r5",
    )  # fmt: skip


def test_the_cern_commands() -> None:
    """Figures 2-3: -a POSIX -b 16m..1g -t 4m -F -C -i 10; figure 4: -a DFS -r -w -t 1MB -b NG."""
    first = workload(
        block_size="16MiB", transfer_size="4MiB", file_per_process=True, reorder_tasks=True,
        iterations=10,
    )  # fmt: skip
    (step,) = steps(first, case_of("warm", processes_per_node=4))
    assert words(step).startswith("/opt/ior/bin/ior -a POSIX -t 4194304 -b 16777216 -s 1 -F -C")
    assert "-i 10" in words(step)
    second = workload(api="DFS", transfer_size="1MiB", block_size="2GiB", iterations=5)
    engine = engine_of("4.1", "api:DFS")
    assert second.unsupported(case_of(), "dfs", engine) == ""
    (step,) = steps(second, case_of(nodes=2), DFS, engine)
    assert "-a DFS -t 1048576 -b 2147483648 -s 1 -w -r -i 5" in words(step)
    assert "--dfs.pool=p --dfs.cont=c --dfs.group=s -o /own/{run}.testfile" in words(step)
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
        for step in steps(workload(), case_of(), engine=engine_of(release)):
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


# -- outputs ---------------------------------------------------------------------------------
RANKS_WORK = {
    "block_size": "8MiB", "segments": 2, "file_per_process": True, "reorder_tasks": True,
    "fsync": True, "iterations": 3,
}  # fmt: skip
TWO = case_of("warm", processes_per_node=2)


def output(
    name: str = "ior-4.1-ranks.txt", step: str = "write+read", ranks: str = "", error: str = ""
) -> Output:
    files = {"ranks.csv": text_of(ranks)} if ranks else {}
    return Output(step, "", 0, stdout=text_of(name), stderr=error, files=files)


def parsed(*outputs: Output, case: Case = TWO, **options: Any) -> Parsed:
    return workload(**(options or RANKS_WORK)).parse(case, outputs)


def test_a_run_of_three_iterations() -> None:
    run = parsed(output(ranks="ior-4.1-ranks.csv"))
    assert (run.engine, run.version, run.failure) == ("ior", "4.1.0+dev", "")
    assert [p.name for p in run.phases] == ["write", "read"]
    for made in run.phases:
        assert made.bytes.tolist() == [96 * MIB]
        assert [part["slowest_rank"] for part in made.facts["iterations"]]
    assert {note.key for note in run.notes} == {"reorder-shifts-nothing", "minimum-latency"}


def test_invocations_add_up_and_are_nested() -> None:
    write, _, rest = text_of("ior-4.1-ranks.txt").partition("read      6122")
    assert write
    assert rest
    options = {**RANKS_WORK, "operations": "both", "iterations": 6}
    run = parsed(output(), output(), case=TWO, **options)
    assert run.failure == ""
    made = run.phases[0]
    assert [part["iteration"] for part in made.facts["iterations"]] == list(range(6))
    once = parsed(output()).phases[0]
    assert window(made) == pytest.approx(2 * window(once))
    assert bandwidth(made) == pytest.approx(bandwidth(once))
    assert run.options["iterations"] == 6


def test_a_single_iteration_has_its_ranks() -> None:
    text = text_of("ior-4.1-verify-wrong.txt").replace("WARNING: Incorrect", "Incorrect")
    text = text.replace("-r -R -k", "-r -k")
    ranks = (
        "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput\n"
        "read,0,1.0e-03,9.0e-04,1.0,1.0\nread,1,1.4e-03,1.3e-03,1.0,1.0\n"
    )
    made = Output("read", "", 0, stdout=text, files={"ranks.csv": ranks})
    run = parsed(
        made, block_size="2MiB", transfer_size="1MiB", file_per_process=True, operations="read"
    )
    assert run.failure == ""
    (read_phase,) = run.phases
    assert read_phase.bytes.tolist() == [2 * MIB, 2 * MIB]
    assert bandwidth(read_phase) / MIB == pytest.approx(2831.12, abs=0.005)


@pytest.mark.parametrize(
    ("change", "case", "reason"),
    [
        ({}, case_of("warm", processes_per_node=4), "saw 2 tasks, 4 were started"),
        ({}, case_of("warm", nodes=2, processes_per_node=1), "saw 1 client nodes, 2 were"),
        ({"iterations": 4}, TWO, "write has 3 of 4 iterations; read has 3 of 4"),
        ({"block_size": "16MiB"}, TWO, "iteration 0: moved 33554432 of 67108864 bytes"),
    ],
)
def test_another_run_than_asked_for_is_a_failure(
    change: dict[str, Any], case: Case, reason: str
) -> None:
    assert reason in parsed(output(), case=case, **{**RANKS_WORK, **change}).failure


def test_worlds_of_one_name_the_cure() -> None:
    """Without a matching MPI each process is a world of its own and ior exits with 0."""
    one = text_of("ior-4.1-ranks.txt").replace("tasks               : 2", "tasks               : 1")
    one = one.replace("clients per node    : 2", "clients per node    : 1")
    for text in (one + one, one):
        run = parsed(replace(output(), stdout=text))
        assert "another MPI" in run.failure
        assert "mpirun or srun --mpi=pmix" in run.failure


def test_a_cut_output_fails_and_keeps_what_is_whole() -> None:
    text = text_of("ior-4.1-ranks.txt")
    run = parsed(replace(output(), stdout=text[: text.index("read      5365")]))
    assert "the output is cut" in run.failure
    assert [len(made.facts["iterations"]) for made in run.phases] == [3, 2]


def test_a_damaged_file_of_ranks_is_left_out_and_noted() -> None:
    made = output(ranks="ior-4.1-ranks.csv")
    cut = replace(made, files={"ranks.csv": made.files["ranks.csv"][:-30]})
    run = parsed(cut)
    assert run.failure == ""
    assert "slowest_rank" not in run.phases[0].facts["iterations"][0]
    assert "file of ranks is not used" in " ".join(n.message for n in run.notes)


def test_an_output_without_result_says_why() -> None:
    broken = Output("write", "", 0, stdout="", stderr=text_of("ior-enospc.err"))
    with pytest.raises(ParseError, match="POSIX_Xfer"):
        parsed(broken)
    with pytest.raises(ParseError, match="no timed invocation"):
        parsed()
    explain = workload().explain
    assert explain(replace(broken, stdout=text_of("ior-enospc.json"))) == "no space left on device"
    assert explain(Output("write", "", 0)) == ""


def test_stonewalled_bytes_are_not_held_against_it() -> None:
    run = parsed(
        output("ior-4.1-wearout.txt"), block_size="1GiB", transfer_size="64KiB", stonewall=1,
        stonewall_wear_out=True, fsync_per_write=True, file_per_process=True, iterations=2,
    )  # fmt: skip
    assert run.failure == ""
    assert run.phases[0].bytes.tolist() == [459538432 + 436469760]


# -- the real one ----------------------------------------------------------------------------
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(scope="module")
def real() -> Engine:
    try:
        return KIND.probe()
    except EngineError as error:
        pytest.skip(f"not in any registry: {error}")


def carried_out(work: Ior, case: Case, engine: Engine, root: Path) -> Parsed:
    """The steps as a runner does them, by the mpirun on PATH."""
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun is missing: install openmpi-bin")
    outputs = []
    for index, step in enumerate(steps(work, case, PathAccess("directory", "t"), engine)):
        scratch = root / f"scratch{index}"
        scratch.mkdir()
        assert isinstance(step.what, Argv)
        given = [
            word.replace("{path}", str(root)).replace("{scratch}", str(scratch))
            for word in step.what.argv
        ]
        command = [mpirun, "-n", str(case.geometry.processes), *given]
        extra = {**ROOT, "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                 "OMPI_MCA_rmaps_base_oversubscribe": "1", "LC_ALL": "C"}  # fmt: skip
        done = subprocess.run(
            command, cwd=root, env=os.environ | extra, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        files = {path.name: path.read_text() for path in scratch.iterdir()}
        outputs.append(
            Output(step.name, "", 0, 0, stdout=done.stdout, stderr=done.stderr, files=files)
        )
    return work.parse(case, outputs)


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize(
    "options",
    [
        {"file_per_process": True, "reorder_tasks": True, "fsync": True, "iterations": 2},
        {"segments": 2, "check_read": True, "check_write": True},
        {"random_offset": True},
        {"operations": "read", "file_per_process": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_the_real_ior(real: Engine, tmp_path: Path, cache: str, options: dict[str, Any]) -> None:
    work = workload(block_size="1MiB", transfer_size="64KiB", **options)
    case = case_of(cache, processes_per_node=2)
    assert work.unsupported(case, "path", real) == ""
    run = carried_out(work, case, real, tmp_path)
    assert (run.failure, run.version, run.processes) == ("", real.version, 2)
    space = work.footprint(case).space
    names = ["read"] if options.get("operations") == "read" else ["write", "read"]
    assert [made.name for made in run.phases] == names
    for made in run.phases:
        assert made.bytes.sum() == space * options.get("iterations", 1)
        assert window(made) > 0
