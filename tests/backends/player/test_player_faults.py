"""The player on a full file system, its clock, and its choice of implementation."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.player import player
from fsmatrix.backends.player.lanes import PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Kind
from fsmatrix.backends.player.player import engine_name, open_player, tsc_is_invariant
from fsmatrix.backends.system import files
from tests import asking

BOTH = ["c", "python"]


def need(implementation: str) -> Any:
    if implementation == "c" and (reason := asking.why_not("c player")):
        pytest.skip(reason)
    return implementation


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "fsmatrix-test", str(tmp_path)]
    subprocess.run(mount, check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("implementation", BOTH)
def test_a_full_file_system(small: Path, implementation: str) -> None:
    ops = np.zeros(31, dtype=OP)
    ops["kind"], ops["size"] = Kind.WRITE, 100_000
    ops["offset"] = (np.arange(31, dtype=np.uint64) - np.uint64(1)) * np.uint64(100_000)
    ops[0] = (Kind.CREATE, 0, 0, 0, 0, 0, 0, 0)
    one = open_player(
        "posix", str(small), PlayerOptions(slots=1, max_op_bytes=100_000), need(implementation)
    )
    executed = one.play(Chunk(ops, (b"f",)))
    result = one.result()
    one.close()
    assert executed == result.ops == 12
    assert result.errors_by_errno == {"ENOSPC": 1}
    assert result.operations == 10
    # the eleventh write got a part of its bytes to the file: those count
    assert result.bytes == (small / "f").stat().st_size == 1 << 20
    assert result.first_error is not None
    assert result.first_error.offset == 1_000_000


@pytest.mark.parametrize("implementation", BOTH)
def test_moments_are_those_of_the_monotonic_clock(implementation: str, tmp_path: Path) -> None:
    one = open_player(
        "posix", str(tmp_path), PlayerOptions(slots=1, max_op_bytes=0), need(implementation)
    )
    before = time.monotonic_ns()
    ops = np.zeros(5000, dtype=OP)
    ops["kind"], ops["kind"][0] = Kind.STAT, Kind.CREATE
    one.play(Chunk(ops, (b"f",)))
    after = time.monotonic_ns()
    result = one.result()
    one.close()
    slack = 100_000 + (after - before) // 1000  # the rate is known to far better than 1/1000
    assert before - slack <= result.first_ns < result.last_ns <= after + slack
    busy = int(result.total_ns.sum())
    # the overhead is sampled: a delay inside a sample counts many times
    assert abs(result.last_ns - result.first_ns - busy - result.overhead_ns) <= max(
        (after - before) // 2, 2 * slack
    )
    kinds = [Kind.CREATE, Kind.STAT]
    assert (result.min_ns[kinds] <= result.max_ns[kinds]).all()
    edges = result.counts[Kind.STAT].nonzero()[0]
    from fsmatrix.results.histogram import bin_of

    assert edges[0] == bin_of(result.min_ns[Kind.STAT])
    assert edges[-1] == bin_of(result.max_ns[Kind.STAT])


def test_the_counter_is_taken_only_where_it_is_invariant(tmp_path: Path) -> None:
    info, source = tmp_path / "cpuinfo", tmp_path / "source"
    source.write_text("tsc\n")
    info.write_text("processor : 0\nflags\t\t: fpu constant_tsc nonstop_tsc sse\n")
    assert tsc_is_invariant(info, source)
    source.write_text("kvm-clock\n")
    assert not tsc_is_invariant(info, source)
    source.write_text("tsc\n")
    info.write_text("flags : fpu constant_tsc sse\n")
    assert not tsc_is_invariant(info, source)
    assert not tsc_is_invariant(tmp_path / "no", source)


def test_engine_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert engine_name("python") == "player-python"
    with pytest.raises(ValueError, match="auto, c or python"):
        engine_name("rust")  # type: ignore[arg-type]
    monkeypatch.setattr(player, "_native", None)
    assert engine_name() == "player-python"
    one = open_player("posix", str(tmp_path), PlayerOptions(slots=1, max_op_bytes=0))
    assert one.result().engine == "player-python"
    one.close()
    with pytest.raises(ValueError, match="not built"):
        open_player("posix", str(tmp_path), PlayerOptions(slots=1, max_op_bytes=0), "c")


def resident_bytes(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return files.resident_pages(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("implementation", BOTH)
def test_evict_empties_the_page_cache_and_counts_as_overhead(
    implementation: str, tmp_path: Path
) -> None:
    """Resident pages go from all to none."""
    size = 4 << 20
    need(implementation)
    opened = open_player(
        "posix", str(tmp_path), PlayerOptions(slots=1, max_op_bytes=size), implementation
    )  # type: ignore[arg-type]
    kinds = [Kind.CREATE, Kind.WRITE, Kind.FSYNC]
    ops = np.zeros(len(kinds), dtype=OP)
    ops["kind"] = kinds
    ops["size"][1] = size
    assert opened.play(Chunk(ops, [b"f"])) == len(kinds)
    before = resident_bytes(tmp_path / "f")
    evict = np.zeros(1, dtype=OP)
    evict["kind"] = Kind.EVICT
    assert opened.play(Chunk(evict)) == 1
    assert before == size
    assert resident_bytes(tmp_path / "f") == 0
    result = opened.result()
    assert result.overhead_ns >= result.total_ns[Kind.EVICT] > 0
    assert result.operations == 1  # the write
    opened.close()
