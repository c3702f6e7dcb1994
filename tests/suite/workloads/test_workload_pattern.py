"""The workload `pattern`: options, refusals, footprints, and its steps really played."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.player import content
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import DRIVERS, OP, Chunk, Flag, Kind, Place
from fsmatrix.backends.player.player import open_player
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions
from fsmatrix.suite.workloads.streams.pattern import name_of
from fsmatrix.suite.workloads.workload import Step, Stream

KIB = 1024
ACCESS = PathAccess("directory", "t")
ENGINE = Engine("player-c", "1")
SEED = 77
GENERATION_STEP = 1_000_003


def workload(**options: Any) -> Pattern:
    return Pattern(PatternOptions.model_validate(options))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case("t", "pattern", geometry=Geometry(**geometry), cache=cache)


def steps(work: Pattern, case: Case) -> list[Step]:
    return work.steps(case, ACCESS, ENGINE)


def stream(step: Step) -> Stream:
    assert isinstance(step.what, Stream)
    return step.what


def place(case: Case, rank: int) -> Place:
    geometry = case.geometry
    node = rank // geometry.processes_per_node
    return Place(rank, geometry.processes, node, geometry.nodes, geometry.threads, SEED)


def chunks(step: Step, where: Place) -> Iterator[Chunk]:
    """As a session makes them: by name, from params that went through JSON."""
    what = stream(step)
    module, function = what.generator.split(":")
    params = json.loads(json.dumps(what.params))
    yield from getattr(importlib.import_module(module), function)(params, where)


def play(step: Step, case: Case, root: Path, driver: str = "posix") -> dict[str, Any]:
    """Play a step of all ranks, one after the other; sums over them."""
    what = stream(step)
    seed = (SEED + what.generation * GENERATION_STEP) % 2**64
    sums: dict[str, Any] = {"read": 0, "write": 0, "bytes": 0, "error": None}
    for rank in range(case.geometry.processes):
        player = open_player(
            driver,
            str(root),
            PlayerOptions(
                slots=what.slots,
                threads=case.geometry.threads,
                seed=seed,
                max_op_bytes=what.max_op_bytes,
                fill_ratio=what.fill_ratio,
                count_metadata=what.metadata,
            ),
        )
        try:
            for chunk in chunks(step, place(case, rank)):
                if player.play(chunk) < len(chunk.ops):
                    break
            result = player.result()
        finally:
            player.close()
        for kind in (Kind.READ, Kind.WRITE):
            sums[kind.name.lower()] += int(result.counts[kind].sum())
        sums["bytes"] += result.bytes
        sums["error"] = sums["error"] or result.first_error
    return sums


def play_all(work: Pattern, case: Case, root: Path) -> dict[str, dict[str, Any]]:
    return {step.name: play(step, case, root) for step in steps(work, case)}


def expected_content(name: str, size: int, generation: int) -> bytes:
    seed = (SEED + generation * GENERATION_STEP) % 2**64
    return content.expected(seed, name.encode(), 0, size)


# -- steps -----------------------------------------------------------------------------------
def outline(work: Pattern, case: Case) -> list[tuple[str, str, bool]]:
    return [(step.name, step.role, step.reads) for step in steps(work, case)]


def test_outline_of_every_pattern() -> None:
    case = case_of()
    prepared = ("write-prepare", "setup", False)
    for order in ("seq", "rand"):
        read, mixed = workload(pattern=f"{order}-read"), workload(pattern=f"{order}-mixed")
        assert outline(read, case) == [prepared, ("read", "timed", True)]
        assert outline(mixed, case) == [prepared, ("mixed", "timed", True)]
    new = [("write", "timed", False)]
    into = [prepared, ("write", "timed", True)]
    assert outline(workload(pattern="seq-write"), case) == new
    assert outline(workload(pattern="rand-write"), case) == into
    assert outline(workload(pattern="rand-write", overwrite=False), case) == new
    assert outline(workload(pattern="seq-write", overwrite=True), case) == into
    checked = workload(pattern="seq-write", verify=True)
    assert outline(checked, case) == [*new, ("read-verify", "check", True)]


def test_files_whose_cache_state_matters() -> None:
    case = case_of(nodes=2, processes_per_node=2)
    assert steps(workload(), case)[-1].files == tuple(f"data.{i:08d}" for i in range(4))
    assert steps(workload(layout="shared-strided"), case)[-1].files == ("data",)


def test_bypass_means_direct_and_setup_stays_buffered() -> None:
    prepare, read = steps(workload(), case_of("bypass"))
    assert stream(read).params["direct"] is True
    assert stream(prepare).params["direct"] is False
    assert stream(steps(workload(direct=True), case_of("warm"))[-1]).params["direct"] is True


def test_setup_writes_in_large_pieces_where_data_is_in_one_piece() -> None:
    options = {"chunk": "4KiB", "bytes_per_process": "3MiB"}
    prepare, read = steps(workload(**options), case_of())
    sizes = {int(op["size"]) for chunk in chunks(prepare, place(case_of(), 0)) for op in chunk.ops}
    assert sizes == {0, 1 << 20}
    assert (stream(prepare).max_op_bytes, stream(read).max_op_bytes) == (1 << 20, 4096)


def test_fixed_time() -> None:
    work = workload(fixed="time", seconds="3s", wear_out=1)
    timed = stream(steps(work, case_of("warm"))[-1])
    assert (timed.seconds, timed.wear_out, timed.params["endless"]) == (3.0, 1.0, True)
    assert stream(steps(work, case_of("warm"))[0]).seconds == 0.0
    assert work.footprint(case_of()).seconds == 3.0


@pytest.mark.parametrize("pattern", ["seq-read", "rand-read", "seq-mixed"])
def test_only_a_cold_read_is_evicted_before_it_begins_again(pattern: str) -> None:
    work = workload(pattern=pattern, fixed="time", seconds=3)
    for cache, evicted in (("cold", True), ("warm", False), ("bypass", False)):
        params = stream(steps(work, case_of(cache))[-1]).params
        assert (params["endless"], params["evict"]) == (True, evicted)
    assert "evict" in work.footprint(case_of("cold")).kinds
    fixed_work = workload(pattern=pattern)
    assert stream(steps(fixed_work, case_of("cold"))[-1]).params["evict"] is False


# -- played ----------------------------------------------------------------------------------
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    pattern=st.sampled_from(PatternOptions.model_fields["pattern"].annotation.__args__),  # type: ignore[union-attr]
    layout=st.sampled_from(("file-per-process", "shared-segmented", "shared-strided")),
    chunk=st.integers(500, 9000),
    extra=st.integers(0, 60_000),
    total=st.booleans(),
    fsync=st.sampled_from(["none", "end"]),
    shift=st.sampled_from(["none", "rank", "node"]),
    threads=st.integers(1, 3),
)
def test_footprint_is_what_happens(
    tmp_path_factory: pytest.TempPathFactory,
    pattern: str,
    layout: str,
    chunk: int,
    extra: int,
    total: bool,
    fsync: str,
    shift: str,
    threads: int,
) -> None:
    """Bytes, files and kinds are exact, every byte verifies, and no operation fails."""
    root = tmp_path_factory.mktemp("run")
    case = case_of("warm", nodes=2, processes_per_node=2, threads=threads)
    size = chunk * threads * (4 if total else 1) + extra
    work = workload(
        pattern=pattern,
        layout=layout,
        chunk=chunk,
        fsync=fsync,
        verify=True,
        shift_reads="none" if "mixed" in pattern else shift,
        **{"bytes_total" if total else "bytes_per_process": size},
    )
    assert work.refusal(case) == ""
    played = play_all(work, case, root)
    assert all(sums["error"] is None for sums in played.values())
    needs = work.footprint(case)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert needs.files == len(files)
    assert needs.space == sum(path.stat().st_size for path in files)
    written = 0
    kinds = set()
    for step in steps(work, case):
        for rank in range(4):
            for chunk_made in chunks(step, place(case, rank)):
                ops = chunk_made.ops
                written += int(ops["size"][ops["kind"] == Kind.WRITE].sum())
                kinds |= {Kind(int(kind)).name.lower() for kind in ops["kind"]}
    assert needs.written == written
    assert kinds <= needs.kinds
    assert needs.kinds - kinds <= {"read"}  # a mixture of very few operations may hold no read
    assert kinds <= DRIVERS["posix"].kinds
    timed = played[work.options.operation]
    assert timed["bytes"] == needs.space


def test_content_is_of_the_right_generation(tmp_path: Path) -> None:
    """What is overwritten differs from what was there: a lost write cannot pass."""
    case = case_of()
    work = workload(pattern="rand-write", chunk="4KiB", bytes_per_process="40KiB", verify=True)
    prepare, write, check = steps(work, case)
    play(prepare, case, tmp_path)
    file = tmp_path / name_of("file-per-process", 0)
    assert file.read_bytes() == expected_content(file.name, 40 * KIB, 0)
    assert play(check, case, tmp_path)["error"].errno == "EVERIFY"  # nothing written yet
    play(write, case, tmp_path)
    assert file.read_bytes() == expected_content(file.name, 40 * KIB, 1)
    assert play(check, case, tmp_path)["error"] is None


@pytest.mark.parametrize("layout", ["file-per-process", "shared-segmented", "shared-strided"])
@pytest.mark.parametrize("pattern", ["rand-read", "seq-write"])
def test_one_wrong_byte_is_found(tmp_path: Path, layout: str, pattern: str) -> None:
    case = case_of(nodes=1, processes_per_node=2)
    work = workload(
        pattern=pattern, layout=layout, chunk="4KiB", bytes_per_process="64KiB", verify=True
    )
    *before, last = steps(work, case)
    for step in before:
        play(step, case, tmp_path)
    file = tmp_path / name_of(layout, 1)
    data = bytearray(file.read_bytes())
    data[50_001] ^= 1
    file.write_bytes(data)
    error = play(last, case, tmp_path)["error"]
    assert (error.errno, error.wrong_offset, error.file) == ("EVERIFY", 50_001, file.name)


def test_a_verified_mixture_with_overlapping_threads(tmp_path: Path) -> None:
    case = case_of("warm", threads=2)
    work = workload(
        pattern="rand-mixed",
        chunk=1000,
        bytes_per_process=99_999,
        verify=True,
        random="with-replacement",
        read_fraction=0.3,
    )
    played = play_all(work, case, tmp_path)
    assert played["mixed"]["error"] is None
    assert played["mixed"]["read"] == pytest.approx(30, abs=2)


def test_new_files_of_random_writes_have_no_holes(tmp_path: Path) -> None:
    case = case_of()
    work = workload(pattern="rand-write", overwrite=False, chunk=999, bytes_per_process=50_000)
    play_all(work, case, tmp_path)
    assert (tmp_path / "data.00000000").read_bytes() == expected_content("data.00000000", 50_000, 0)


def test_direct_io_is_asked_for() -> None:
    for pattern in ("rand-read", "seq-write", "seq-mixed"):
        timed = next(
            s for s in steps(workload(pattern=pattern, direct=True), case_of()) if s.role == "timed"
        )
        first = next(chunks(timed, place(case_of(), 0)))
        assert first.ops["flags"][0] & Flag.DIRECT


def test_a_million_operations_without_storage(tmp_path: Path) -> None:
    """The null driver plays a long stream: what arrives is what was asked for."""
    case = case_of("warm", threads=2)
    work = workload(pattern="rand-read", chunk="512B", bytes_per_process=512 * 1_000_003)
    sums = play(steps(work, case)[-1], case, tmp_path, driver="null")
    assert sums["read"] == 1_000_003
    assert sums["bytes"] == 512 * 1_000_003


# -- options ---------------------------------------------------------------------------------
BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"bytes_per_process": "1MiB", "bytes_total": "1MiB"}, "not both"),
    ({"chunk": "2MiB", "bytes_per_process": "1MiB"}, "chunk 2MiB is larger than the file"),
    ({"chunk": "2MiB", "bytes_total": "1MiB"}, "bytes_total is 1MiB"),
    ({"chunk": 0}, "too small"),
    ({"chunk": -1}, "too small"),
    ({"chunk": "4k"}, "ambiguous"),
    ({"chunk": "2GiB", "bytes_per_process": "4GiB"}, "largest operation"),
    ({"bytes_per_process": 0}, "too small"),
    ({"fixed": "time"}, "seconds"),
    ({"seconds": 3}, "fixed: time"),
    ({"wear_out": 3}, "wear_out"),
    ({"direct": True, "chunk": 1000}, "multiples of 512"),
    ({"direct": True, "bytes_per_process": (1 << 20) + 100}, "the file's size is 1048676"),
    ({"read_fraction": 1.1}, "less than or equal to 1"),
    ({"compressible": -0.1}, "greater than or equal to 0"),
    ({"pattern": "backwards"}, "seq-read"),
    ({"chunks": "1MiB"}, "Extra inputs"),
]


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_bad_options_are_refused_with_the_reason(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PatternOptions.model_validate(options)


def test_a_default_written_out_is_the_same_case() -> None:
    """Released defaults: none of these may ever enter an id."""
    released = {
        "pattern": "seq-read",
        "chunk": "1MiB",
        "bytes_per_process": "64MiB",
        "read_fraction": 0.5,
        "layout": "file-per-process",
        "shift_reads": "none",
        "direct": False,
        "fsync": "end",
        "fixed": "work",
        "seconds": 0,
        "wear_out": 0,
        "verify": False,
        "compressible": 0,
        "random": "permutation",
        "overwrite": False,
    }
    assert PatternOptions.model_validate(released).model_dump(exclude_defaults=True) == {}
    written = PatternOptions.model_validate({"pattern": "rand-write", "overwrite": True})
    assert written.model_dump(exclude_defaults=True) == {"pattern": "rand-write"}
    new = PatternOptions.model_validate({"overwrite": False, "pattern": "rand-write"})
    assert new.model_dump(exclude_defaults=True) == {"pattern": "rand-write", "overwrite": False}


def test_options_survive_the_canonical_json() -> None:
    options = PatternOptions(chunk=4096, bytes_total=1 << 30, pattern="rand-mixed")
    stored = json.loads(json.dumps(options.model_dump(mode="json", exclude_defaults=True)))
    assert PatternOptions.model_validate(stored) == options


REFUSED: list[tuple[dict[str, Any], Case, str]] = [
    ({"shift_reads": "node"}, case_of(processes_per_node=4), "on a single client node this"),
    ({"shift_reads": "rank"}, case_of(), "single process"),
    ({"shift_reads": "rank", "pattern": "seq-mixed"}, case_of(processes_per_node=2), "mixture"),
    ({"bytes_total": "4MiB"}, case_of(processes_per_node=8), "8 processes of 1 threads"),
    ({"bytes_per_process": "2MiB"}, case_of(threads=3), "without any work"),
    ({"pattern": "rand-read", "random": "with-replacement"}, case_of("cold"), "cached"),
    ({"pattern": "rand-write", "verify": True, "random": "with-replacement"}, case_of(), "verify"),
    ({"pattern": "seq-write", "verify": True, "fixed": "time", "seconds": 1}, case_of(), "verify"),
    ({"chunk": 1000}, case_of("bypass"), "multiples of 512"),
]


@pytest.mark.parametrize(("options", "case", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_say_why(options: dict[str, Any], case: Case, words: str) -> None:
    assert words in workload(**options).refusal(case)


def test_what_can_be_run_is_not_refused() -> None:
    two = case_of(nodes=2, processes_per_node=2)
    assert workload(shift_reads="node").refusal(two) == ""
    assert workload(shift_reads="rank", pattern="seq-write").refusal(case_of()) == ""
    assert workload(pattern="rand-read", random="with-replacement").refusal(case_of("warm")) == ""
    assert workload(pattern="rand-read", fixed="time", seconds=1).refusal(two) == ""
    assert workload(bytes_total="8MiB").refusal(case_of(processes_per_node=8)) == ""


def test_footprint_of_a_large_case_is_quick_and_exact() -> None:
    case = case_of(nodes=1000, processes_per_node=100)
    needs = workload(pattern="seq-write", bytes_total=10**15 + 1).footprint(case)
    assert (needs.space, needs.written, needs.files) == (10**15 + 1, 10**15 + 1, 100_000)
    shared = workload(pattern="seq-read", layout="shared-strided").footprint(case)
    assert (shared.space, shared.files) == (100_000 * (64 << 20), 1)


def test_op_dtype_is_kept() -> None:
    made = list(chunks(steps(workload(pattern="seq-write"), case_of())[0], place(case_of(), 0)))
    assert made
    assert all(chunk.ops.dtype == OP and isinstance(chunk.ops, np.ndarray) for chunk in made)
