"""The workload `mdtest`: runs read from recorded outputs of real ones.

The split-* outputs in tests/data/mdtest are of the very command lines that `steps` gives, on
one node with two processes.  With a real mdtest on PATH or in FSMATRIX_MDTEST, and the
mpirun of its MPI, the last test runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.access import PathAccess
from fsmatrix.results.formats.parsed import Parsed, ParseError
from fsmatrix.results.record import Case, iops, window
from fsmatrix.suite.engines.engine import Engine, EngineError
from fsmatrix.suite.engines.mdtest import KIND
from fsmatrix.suite.workloads.workload import Argv, Output, Step
from tests.suite.mdtest_workload import DATA, SPLIT, case_of, steps, words, workload
from tests.waiting import PATIENCE


# -- reading -------------------------------------------------------------------------------------
def recorded(step: str, **changes: Any) -> Output:
    values: dict[str, Any] = {
        "step": step,
        "host": "",
        "rank": 0,
        "stdout": (DATA / f"split-{step}.txt").read_text(),
        "files": {"ranks.csv": (DATA / f"split-{step}.csv").read_text()},
    }
    return Output(**(values | changes))


def outputs(**changed: Output) -> list[Output]:
    names = ("create", "stat", "read", "remove")
    return [changed.get(name, recorded(name)) for name in names]


def parse(made: list[Output], case: Case | None = None, **options: Any) -> Parsed:
    return workload(**(SPLIT | options)).parse(case or case_of(), made)


def test_phases_of_all_invocations_are_one_run() -> None:
    run = parse(outputs())
    assert [phase.name for phase in run.phases] == [
        "mkdir-tree",
        "create",
        "stat",
        "read",
        "remove",
        "rmdir-tree",
    ]
    assert run.failure == ""
    assert (run.processes, run.nodes, run.options["iterations"]) == (2, 1, 1)
    found = {phase.name: phase for phase in run.phases}
    for name in ("create", "stat", "read", "remove"):
        assert found[name].operations.tolist() == [1940, 1940]
    assert found["create"].bytes.tolist() == [1940 * 512] * 2
    assert iops(found["stat"]) == pytest.approx(3880 / 0.0319828987, rel=0.01)


def test_the_recorded_command_lines_are_those_that_steps_gives() -> None:
    made = {step.name: words(step) for step in steps(workload(**SPLIT))}
    assert list(made) == ["create", "stat", "read", "remove"]
    for name, text in made.items():
        line = text.replace("{path}", "/mnt/scratch").replace("{scratch}", "/scratch")
        quoted = " ".join(f"'{word}'" for word in line.split()[1:])
        assert f"Command line used: /opt/ior/bin/mdtest {quoted}\n" in recorded(name).stdout


def test_iterations_add_up() -> None:
    run = parse(outputs() + outputs(), iterations=2)
    assert run.failure == ""
    single = {phase.name: phase for phase in parse(outputs()).phases}
    for phase in run.phases:
        assert int(phase.operations.sum()) == 2 * int(single[phase.name].operations.sum())
        assert window(phase) == pytest.approx(2 * window(single[phase.name]))
        assert phase.iterations["number"].tolist() == [0, 1]


def test_setups_are_checked_and_give_no_phase() -> None:
    broken = (DATA / "probe-3.2.1.txt").read_text()
    setup = Output("create-prepare", "", 0, stdout=broken)
    run = parse(
        [setup, recorded("stat")], case_of(processes_per_node=2), phases=["stat"], stonewall=0
    )
    assert "create-prepare: " in run.failure
    assert [phase.name for phase in run.phases] == ["stat"]


@pytest.mark.parametrize(
    ("geometry", "words_"),
    [
        ({"processes_per_node": 4}, "saw 2 tasks, 4 were started"),
        ({"nodes": 2, "processes_per_node": 1}, "saw 1 client nodes, 2 were asked for"),
    ],
)
def test_another_geometry_fails_the_run(geometry: dict[str, int], words_: str) -> None:
    assert words_ in parse(outputs(), case_of("cold", **geometry)).failure


def test_worlds_of_one_task_say_what_to_do() -> None:
    alone = recorded("create").stdout.replace("with 2 total", "with 1 total")
    alone = alone.replace("2 tasks, 2000000", "1 tasks, 1000000")
    run = parse(outputs(create=recorded("create", stdout=alone + alone, files={})))
    assert "worlds of 1 task instead of one of 2" in run.failure
    assert "srun --mpi=pmix" in run.failure


def test_a_missing_phase_fails_the_run() -> None:
    assert parse(outputs()[:2]).failure == (
        "read is there 0 of 1 times; remove is there 0 of 1 times; rmdir-tree is there 0 of 1 times"
    )


def test_a_cut_output_fails_the_run_and_keeps_the_rest() -> None:
    cut = recorded("read").stdout.split("SUMMARY")[0]
    run = parse(outputs(read=recorded("read", stdout=cut)))
    assert run.failure.startswith("read: the output is cut")
    assert {"create", "stat", "remove"} <= {phase.name for phase in run.phases}


def test_no_output_is_an_error_with_what_the_program_says() -> None:
    with pytest.raises(ParseError, match="no timed invocation"):
        parse([])
    with pytest.raises(ParseError, match=r"it says: libmpi\.so\.40: cannot open"):
        parse(outputs(stat=recorded("stat", stdout="", stderr="libmpi.so.40: cannot open\n")))


# -- for real --------------------------------------------------------------------------------------
def real() -> tuple[Engine, str]:
    try:
        found = KIND.probe()
    except EngineError as error:
        pytest.skip(f"not in any registry: mdtest (part of IOR): {error}")
    launcher = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if launcher is None:
        pytest.skip("no mpirun: install openmpi-bin")
    return found, launcher


def perform(step: Step, launcher: str, root: Path, scratch: Path) -> Output:
    assert isinstance(step.what, Argv)
    scratch.mkdir()
    fill = {"{path}": str(root), "{scratch}": str(scratch)}
    argv = list(step.what.argv)
    for name, value in fill.items():
        argv = [word.replace(name, value) for word in argv]
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    command = [launcher, "--oversubscribe", "--bind-to", "none", "-n", "2", *argv]
    done = subprocess.run(
        command,
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    files = {path.name: path.read_text() for path in scratch.iterdir()}
    return Output(step.name, "", 0, done.returncode, done.stdout, done.stderr, files)


@pytest.mark.parametrize(
    ("options", "cache"),
    [
        ({"items": 30, "unique_dir": True, "write_bytes": 100, "read_bytes": 100}, "cold"),
        ({"items_per_directory": 5, "depth": 2, "branching_factor": 2, "iterations": 2}, "warm"),
        ({"items": 40, "phases": ["stat"], "leaf_only": True, "depth": 1}, "cold"),
    ],
)
def test_a_real_mdtest(options: dict[str, Any], cache: str, tmp_path: Path) -> None:
    found, launcher = real()
    work, case = workload(**options), case_of(cache)
    root = tmp_path / "run"
    root.mkdir()
    done = []
    files = 0
    for number, step in enumerate(
        work.steps(case, PathAccess("directory", "t", path=str(root)), found)
    ):
        done.append(perform(step, launcher, root, tmp_path / f"scratch-{number}"))
        assert done[-1].returncode == 0, done[-1].stderr
        files = max(files, sum(path.is_file() for path in root.rglob("*")))
    run = work.parse(case, done)
    assert run.failure == ""
    assert run.version == found.version
    wanted = 2 * work.options.tree.items
    made = {phase.name: phase for phase in run.phases}
    for name in ("create", "stat", "read", "remove"):
        if name in made:
            assert int(made[name].operations.sum()) == wanted * work.options.iterations
    if cache == "cold":  # between invocations the files can be seen
        assert files == wanted
    assert work.footprint(case).files >= files
