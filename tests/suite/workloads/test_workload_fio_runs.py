"""Workload fio with the real fio."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case
from fsmatrix.suite.engines.fio import KIND
from fsmatrix.suite.workloads.fio import Fio
from fsmatrix.suite.workloads.fio_options import FioOptions
from fsmatrix.suite.workloads.workload import Output, Step
from tests.suite.workloads.fio_workload import MIB, PATH, argv, case_of, workload
from tests.waiting import PATIENCE

needs_fio = pytest.mark.needs("fio")


def place(word: str, root: Path, number: int, scratch: Path) -> str:
    """As the runner fills in an Argv."""
    for key, value in (("path", root), ("node", number), ("scratch", scratch)):
        word = word.replace(f"{{{key}}}", str(value))
    return word


def play(work: Fio, case: Case, root: Path, scratch: Path) -> tuple[Parsed, list[Step]]:
    """All steps on all nodes at once, on one machine."""
    steps = work.steps(case, PATH, KIND.probe())
    outputs = []
    data = root / "run"
    data.mkdir()
    for step in steps:
        what, started = argv(step), []
        for number in range(case.geometry.nodes):
            own = scratch / f"{step.name}-{number}"
            own.mkdir(parents=True)
            for name, text in what.files.items():
                (own / name).write_text(place(text, data, number, own))
            words_ = [place(word, data, number, own) for word in what.argv]
            process = subprocess.Popen(
                words_, cwd=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            started.append((number, own, time.time(), process))
        for number, own, began, process in started:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, err
            files = {p.name: p.read_text() for glob in what.collect for p in own.glob(glob)}
            assert {p.name for p in own.iterdir()} == set(files) | set(what.files)
            if step.role == "timed":
                outputs.append(
                    Output(
                        step.name,
                        f"node{number}",
                        number,
                        0,
                        out,
                        err,
                        files,
                        {},
                        None,
                        began,
                        time.time(),
                    )
                )
    return work.parse(case, outputs), steps


REAL: list[tuple[dict[str, Any], Case]] = [
    ({"rw": "read", "bs": 65536}, case_of("warm", processes_per_node=2)),
    ({"rw": "write", "end_fsync": True}, case_of("warm", nodes=2)),
    ({"rw": "randwrite", "nrfiles": 2}, case_of("warm", nodes=2, processes_per_node=2)),
    ({"rw": "randrw", "rwmixread": 70}, case_of("warm", nodes=2)),
    (
        {"job": "[a]\nsize=1m\nbs=4k\nrw=randread\n[b]\nsize=2m\nrw=write\n"},
        case_of("warm", nodes=2, processes_per_node=2),
    ),
]


@needs_fio
@pytest.mark.parametrize(("options", "case"), REAL, ids=lambda value: str(value)[:40])
def test_fixed_work_is_done_exactly(tmp_path: Path, options: dict[str, Any], case: Case) -> None:
    """Bytes, files and workers are what the footprint says; only our own files are made."""
    work = Fio(FioOptions.model_validate(options if "job" in options else {"size": MIB} | options))
    assert work.refusal(case) == ""
    assert work.unsupported(case, "path", KIND.probe()) == ""
    run, _ = play(work, case, tmp_path, tmp_path / "scratch")
    assert run.failure == ""
    files = list((tmp_path / "run").iterdir())
    needs = work.footprint(case)
    assert (needs.files, needs.space) == (len(files), sum(f.stat().st_size for f in files))
    assert sum(int(phase.bytes.sum()) for phase in run.phases) == needs.space
    assert sum(len(phase.bytes) for phase in run.phases) == case.geometry.processes
    for phase in run.phases:
        counted = sum(int(latency.counts.sum()) for latency in phase.latency.values())
        assert counted == int(phase.operations.sum())
        assert phase.began > 0
        assert (phase.end > phase.start).all()
    assert not {note.key for note in run.notes} & {"contradiction", "clock-shifted", "no-window"}


@needs_fio
def test_fixed_time_on_two_nodes(tmp_path: Path) -> None:
    case = case_of("warm", nodes=2, processes_per_node=2)
    work = workload(rw="randread", runtime=1, rate_iops=500)
    run, _ = play(work, case, tmp_path, tmp_path / "scratch")
    (phase,) = run.phases
    assert run.failure == ""
    assert (phase.end - phase.start >= 0.98).all()
    assert phase.interval_bytes is not None
    assert int(phase.interval_bytes.sum()) == int(phase.bytes.sum())
    assert 0 <= phase.facts["overlap"] <= 1
    assert "ended-early" not in {note.key for note in run.notes}


@needs_fio
def test_the_layout_writes_every_byte(tmp_path: Path) -> None:
    """No holes: a read of a hole costs nothing, and would be measured as the file system's."""
    work = workload(rw="randread", size=4 * MIB)
    play(work, case_of("warm"), tmp_path, tmp_path / "scratch")
    (file,) = (tmp_path / "run").iterdir()
    data = file.read_bytes()
    assert len(data) == 4 * MIB
    assert all(any(data[at : at + 4096]) for at in range(0, len(data), 4096))
