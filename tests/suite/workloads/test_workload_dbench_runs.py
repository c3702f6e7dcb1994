"""Real runs of dbench on emulated nodes, also where it may not write or has no space."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path

import pytest

from fsmatrix.results.record import Case
from fsmatrix.suite.engines.dbench import KIND
from fsmatrix.suite.session.programs import run as run_program
from fsmatrix.suite.workloads.dbench import Dbench
from fsmatrix.suite.workloads.workload import Argv, Output, Step
from tests.suite.dbench_workload import ACCESS, NEEDED, case_of, workload


def execute(step: Step, root: Path, nodes: int) -> list[Output]:
    """As node leaders do it: all nodes at the same time, here on one kernel."""
    what = step.what
    assert isinstance(what, Argv)
    done: list[Output] = []

    def start(node: int) -> None:
        words = [w.replace("{path}", str(root)).replace("{node}", str(node)) for w in what.argv]
        end = run_program(words, str(root), 60.0, {"LC_ALL": "C", **what.env})
        done.append(
            Output(
                step.name,
                f"n{node}",
                node,
                end.returncode,
                end.stdout,
                end.stderr,
                began=end.began,
                ended=end.ended,
            )
        )

    threads = [threading.Thread(target=start, args=(node,)) for node in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(done, key=lambda output: output.host)


def play(work: Dbench, case: Case, root: Path) -> list[Output]:
    engine = KIND.probe()
    assert work.refusal(case) == ""
    assert work.unsupported(case, "path", engine) == ""
    return [
        output
        for step in work.steps(case, ACCESS, engine)
        for output in execute(step, root, case.geometry.nodes)
    ]


@NEEDED
def test_a_real_dbench_on_two_nodes(tmp_path: Path) -> None:
    case = case_of(nodes=2, processes_per_node=2)
    work = workload(runtime=3, skip_cleanup=True)
    seen = play(work, case, tmp_path)
    assert [output.returncode for output in seen] == [0] * 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node0", "node1"]
    assert len(list((tmp_path / "node1" / "clients").iterdir())) == 2
    parsed = work.parse(case, seen)
    (phase,) = parsed.phases
    assert (parsed.failure, parsed.nodes, parsed.processes) == ("", 2, 4)
    assert phase.bytes.min() > 0
    assert phase.operations.min() > 0
    timed = [output for output in seen if output.step == "mixed"]
    began, ended = min(o.began for o in timed), max(o.ended for o in timed)
    slack = phase.clock_uncertainty
    assert began - slack <= phase.began <= phase.began + phase.end.max() <= ended + slack
    assert 0 < phase.facts["overlap"] <= 1
    assert len(parsed.facts["loadfile_sha256"]) == 1
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert stored <= work.footprint(case).space * 1.1  # sizes of what is there at the end


@NEEDED
def test_a_real_dbench_with_a_loadfile_of_ones_own(tmp_path: Path, small: str) -> None:
    case = case_of(processes_per_node=1)
    work = workload(runtime=2, loadfile=small)
    parsed = work.parse(case, play(work, case, tmp_path))
    assert parsed.failure == ""
    (phase,) = parsed.phases
    operations = phase.facts["operations"]
    assert set(operations) >= {"WriteX", "ReadX", "Rename", "Unlink", "Deltree"}
    assert operations["WriteX"]["count"] == pytest.approx(3 * operations["ReadX"]["count"], abs=3)


@NEEDED
def test_a_real_dbench_where_it_may_not_write(tmp_path: Path) -> None:
    step = workload(runtime=2).steps(case_of(), ACCESS, KIND.probe())[-1]
    (output,) = execute(step, tmp_path, 1)  # no directory was made
    assert output.returncode != 0
    assert "No such file or directory" in workload(runtime=2).parse(case_of(), [output]).failure


@NEEDED
@pytest.mark.root
def test_a_real_dbench_without_space(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", tmp_path], check=True)
    try:
        case = case_of(processes_per_node=2)
        parsed = workload(runtime=3).parse(case, play(workload(runtime=3), case, tmp_path))
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert re.search("No space left on device|the file system or a quota is full", parsed.failure)
