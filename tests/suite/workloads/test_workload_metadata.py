"""The workload `metadata`: options, refusals, footprints, and its steps really played."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import Kind, Place
from fsmatrix.backends.player.player import PlayerResult, open_player
from fsmatrix.results import record
from fsmatrix.results.record import Case, Geometry, Phase
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.metadata import PHASES, Metadata, MetadataOptions
from fsmatrix.suite.workloads.workload import Output, Step, Stream

ACCESS = PathAccess("directory", "t")
ENGINE = Engine("player-c", "1")


def workload(**options: Any) -> Metadata:
    return Metadata(MetadataOptions.model_validate(options))


def case_of(**geometry: int) -> Case:
    return Case("t", "metadata", geometry=Geometry(**geometry))


def steps(work: Metadata, case: Case) -> list[Step]:
    return work.steps(case, ACCESS, ENGINE)


def play(step: Step, case: Case, root: Path) -> list[PlayerResult]:
    """Play a step of all ranks, one after the other; no operation may fail."""
    what = step.what
    assert isinstance(what, Stream)
    module, function = what.generator.split(":")
    generator = getattr(importlib.import_module(module), function)
    geometry = case.geometry
    results = []
    for rank in range(geometry.processes):
        node = rank // geometry.processes_per_node
        place = Place(rank, geometry.processes, node, geometry.nodes, geometry.threads, 3)
        player = open_player(
            "posix",
            str(root),
            PlayerOptions(
                slots=what.slots,
                threads=geometry.threads,
                seed=5,
                max_op_bytes=what.max_op_bytes,
                count_metadata=what.metadata,
            ),
        )
        try:
            for chunk in generator(json.loads(json.dumps(what.params)), place):
                assert player.play(chunk) == len(chunk.ops), player.result().first_error
            results.append(player.result())
        finally:
            player.close()
    return results


def found(root: Path) -> tuple[set[str], set[str]]:
    """Files, and directories that are items (not of the tree)."""
    files = {path.name for path in root.rglob("*") if path.is_file()}
    items = {path.name for path in root.rglob("s.*") if path.is_dir()}
    return files, items


def test_every_phase_does_what_it_says(tmp_path: Path) -> None:
    case = case_of(nodes=2, processes_per_node=2, threads=2)
    work = workload(
        files_per_process=23,
        dirs_per_process=9,
        depth=2,
        branching=3,
        write_bytes=100,
        read_bytes=60,
        fsync=True,
        shift="node",
    )
    assert work.refusal(case) == ""
    after = {}
    for step in steps(work, case):
        results = play(step, case, tmp_path)
        after[step.name] = (*map(len, found(tmp_path)), results)
    assert list(after) == [
        "make-tree",
        "mkdir",
        "create",
        "stat",
        "open-read",
        "rename",
        "remove",
        "rmdir",
    ]
    counts = {name: value[:2] for name, value in after.items()}
    assert counts == {
        "make-tree": (0, 0),
        "mkdir": (0, 36),
        "create": (92, 36),
        "stat": (92, 36),
        "open-read": (92, 36),
        "rename": (92, 36),
        "remove": (0, 36),
        "rmdir": (0, 0),
    }
    assert sum(int(r.counts[Kind.READ].sum()) for r in after["open-read"][2]) == 92
    assert sum(r.bytes for r in after["open-read"][2]) == 92 * 60
    assert sum(r.bytes for r in after["create"][2]) == 92 * 100
    assert sum(int(r.counts[Kind.FSYNC].sum()) for r in after["create"][2]) == 92


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    phases=st.sets(st.sampled_from(PHASES), min_size=1),
    files=st.integers(1, 12),
    dirs=st.integers(1, 6),
    depth=st.integers(0, 2),
    branching=st.integers(1, 3),
    unique=st.booleans(),
    size=st.integers(0, 9),
    shift=st.sampled_from(["none", "rank", "node"]),
)
def test_any_phases_alone_find_what_they_need(
    tmp_path_factory: pytest.TempPathFactory,
    phases: set[str],
    files: int,
    dirs: int,
    depth: int,
    branching: int,
    unique: bool,
    size: int,
    shift: str,
) -> None:
    """Any subset runs without an error, and the footprint is exact at its fullest."""
    root = tmp_path_factory.mktemp("run")
    case = case_of(nodes=2, processes_per_node=1)
    work = workload(
        phases=list(phases),
        files_per_process=files,
        dirs_per_process=dirs,
        depth=depth,
        branching=branching,
        unique_dir=unique,
        write_bytes=size,
        shift=shift,
    )
    needs = work.footprint(case)
    made = steps(work, case)
    assert [s.name for s in made if s.role == "timed"] == [
        {"read": "open-read"}.get(phase, phase) for phase in PHASES if phase in phases
    ]
    most = 0
    kinds: set[str] = set()
    for step in made:
        results = play(step, case, root)
        most = max(most, len(list(root.rglob("*"))))
        for result in results:
            kinds |= {Kind(int(k)).name.lower() for k in np.flatnonzero(result.counts.sum(axis=1))}
    assert needs.files == most
    assert needs.kinds == kinds
    assert needs.written == (2 * files * size if needs.kinds & {"create"} else 0)


def test_unique_directories(tmp_path: Path) -> None:
    case = case_of(processes_per_node=3)
    work = workload(
        files_per_process=2, dirs_per_process=0, unique_dir=True, phases=["create", "stat"]
    )
    for step in steps(work, case):
        play(step, case, tmp_path)
    trees = sorted(path.name for path in (tmp_path / "meta").iterdir())
    assert trees == ["r.00000000", "r.00000001", "r.00000002"]
    assert {len(list((tmp_path / "meta" / tree).iterdir())) for tree in trees} == {2}


def test_phases_are_timed_and_reads_get_their_cache_state() -> None:
    timed = [step for step in steps(workload(), case_of()) if step.role == "timed"]
    assert [step.name for step in timed if step.reads] == ["stat", "open-read"]
    assert all(isinstance(s.what, Stream) and s.what.metadata for s in timed)
    assert all(step.files == ("meta",) for step in timed)


def test_rates_count_files_not_calls(tmp_path: Path) -> None:
    """Creating a file is a create, two writes, an fsync and a close: one operation."""
    case = case_of()
    work = workload(
        files_per_process=50,
        dirs_per_process=50,
        fsync=True,
        write_bytes=(1 << 20) + 1,
        phases=["mkdir", "create"],
    )
    outputs = []
    for step in steps(work, case):
        (result,) = play(step, case, tmp_path)
        if step.role == "timed":
            phase = Phase(
                step.name,
                start=np.zeros(1),
                end=np.full(1, 2.0),
                bytes=np.array([result.bytes]),
                operations=np.array([result.operations]),
                errors=np.zeros(1, dtype=np.int64),
                facts={"clock": "tsc"},
            )
            outputs.append(Output(step.name, "", 0, phase=phase))
    mkdir, create = work.parse(case, outputs).phases
    assert (record.iops(mkdir), record.iops(create)) == (25.0, 25.0)
    assert create.facts == {"clock": "tsc", "calls": 250, "calls_per_item": 5}
    assert mkdir.facts["calls_per_item"] == 1


def test_outputs_without_a_phase_are_passed_over() -> None:
    assert workload().parse(case_of(), [Output("create", "", 0)]).phases == ()


def test_phases_with_nothing_to_do_are_left_out() -> None:
    names = [s.name for s in steps(workload(dirs_per_process=0), case_of())]
    assert names == ["make-tree", "create", "stat", "open-read", "rename", "remove"]
    names = [s.name for s in steps(workload(files_per_process=0), case_of())]
    assert names == ["make-tree", "mkdir", "rmdir"]


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"files_per_process": 0, "dirs_per_process": 0}, "nothing to do"),
    ({"phases": []}, "nothing to do"),
    ({"phases": ["mkdir"], "dirs_per_process": 0}, "nothing to do"),
    ({"phases": ["stat", "stat"]}, "twice"),
    ({"phases": ["chmod"]}, "mkdir"),
    ({"read_bytes": 5, "write_bytes": 4}, "read_bytes 5B"),
    ({"write_bytes": "2GiB"}, "at most 1GiB"),
    ({"depth": 20, "branching": 10}, "more than 1000000 directories"),
    ({"depth": 64, "branching": 10_000}, "more than 1000000 directories"),
    ({"depth": -1}, "greater than or equal to 0"),
    ({"branching": 0}, "greater than or equal to 1"),
    ({"files_per_process": -3}, "greater than or equal to 0"),
    ({"items": 3}, "Extra inputs"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_bad_options_are_refused_with_the_reason(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        MetadataOptions.model_validate(options)


def test_the_same_phases_in_any_order_are_the_same_case() -> None:
    one = MetadataOptions.model_validate({"phases": ["stat", "create"]})
    two = MetadataOptions.model_validate({"phases": ["create", "stat"]})
    assert one == two
    every = MetadataOptions.model_validate({"phases": list(reversed(PHASES))})
    assert every.model_dump(exclude_defaults=True) == {}


def test_options_survive_the_canonical_json() -> None:
    options = MetadataOptions(phases=("stat",), write_bytes=10)
    stored = json.loads(json.dumps(options.model_dump(mode="json", exclude_defaults=True)))
    assert MetadataOptions.model_validate(stored) == options


def test_refusals_say_why() -> None:
    many = case_of(processes_per_node=4)
    assert "single client node" in workload(shift="node").refusal(many)
    assert "single process" in workload(shift="rank").refusal(case_of())
    assert "threads" in workload(files_per_process=2).refusal(case_of(threads=3))
    deep = workload(depth=5, branching=10, unique_dir=True)
    assert "trees" in deep.refusal(case_of(nodes=100))
    assert workload(shift="node").refusal(case_of(nodes=2)) == ""
    assert workload(shift="rank").refusal(many) == ""


def test_params_are_small_whatever_the_case() -> None:
    """What is sent to the ranks does not grow with the number of items or ranks."""
    case = replace(case_of(nodes=1000, processes_per_node=128))
    made = steps(workload(files_per_process=10**9, depth=3, branching=10), case)
    assert made
    for step in made:
        assert isinstance(step.what, Stream)
        assert len(json.dumps(dict(step.what.params))) < 400
