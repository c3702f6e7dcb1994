"""The workload `ior`: runs read from recorded outputs; with the real one where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.access import PathAccess
from fsmatrix.results import iterations
from fsmatrix.results.formats.parsed import Parsed, ParseError
from fsmatrix.results.record import Case, bandwidth, window
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.engines.ior import KIND
from fsmatrix.suite.workloads.ior import Ior
from fsmatrix.suite.workloads.workload import Argv, Output
from tests.suite.ior_workload import MIB, case_of, steps, text_of, workload

# -- outputs ---------------------------------------------------------------------------------
RANKS_WORK = {
    "block_size": "8MiB",
    "segments": 2,
    "file_per_process": True,
    "reorder_tasks": True,
    "fsync": True,
    "iterations": 3,
}
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
        assert np.isfinite(made.iterations["slowest_rank"]).all()
    assert {note.key for note in run.notes} == {"reorder-shifts-nothing", "minimum-latency"}


def test_invocations_add_up_and_are_nested() -> None:
    write, _, rest = text_of("ior-4.1-ranks.txt").partition("read      6122")
    assert write
    assert rest
    options = {**RANKS_WORK, "operations": "both", "iterations": 6}
    run = parsed(output(), output(), case=TWO, **options)
    assert run.failure == ""
    made = run.phases[0]
    assert made.iterations["number"].tolist() == list(range(6))
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
    assert [iterations.size(made.iterations) for made in run.phases] == [3, 2]


def test_a_damaged_file_of_ranks_is_left_out_and_noted() -> None:
    made = output(ranks="ior-4.1-ranks.csv")
    cut = replace(made, files={"ranks.csv": made.files["ranks.csv"][:-30]})
    run = parsed(cut)
    assert run.failure == ""
    assert "slowest_rank" not in run.phases[0].iterations
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
        output("ior-4.1-wearout.txt"),
        block_size="1GiB",
        transfer_size="64KiB",
        stonewall=1,
        stonewall_wear_out=True,
        fsync_per_write=True,
        file_per_process=True,
        iterations=2,
    )
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
        pytest.skip("no mpirun: install openmpi-bin")
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
        extra = {
            **ROOT,
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "LC_ALL": "C",
        }
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
