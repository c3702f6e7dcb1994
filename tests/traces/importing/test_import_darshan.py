"""Darshan's logs, by a double of the package darshan (doubles/darshan)."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.player.ops import Kind
from fsmatrix.results.evidence.trace import gaps
from fsmatrix.traces.importing import darshan
from fsmatrix.traces.importing.darshan import MAGIC
from fsmatrix.traces.trace_model import NOT_CAPTURED, UNKNOWN, TraceError
from tests.suite.running import fsmatrix
from tests.traces.importing.imported import Trace, imported

HEAD = b"3.41\0\0\0\0" + MAGIC.to_bytes(8, "little")
DOUBLES = Path(__file__).parent / "doubles"
LOG: dict[str, Any] = {
    "modules": {"POSIX": False, "DXT_POSIX": False, "DXT_MPIIO": False},
    "names": {"1": "/scratch/in", "2": "/scratch/out"},
    "records": {
        "DXT_POSIX": [
            [1, 0, [[0, 100, 0.5, 0.75], [100, 50, 1.0, 1.25]], []],
            [2, 0, [[0, 10, 2.0, 2.5]], [[0, 10, 1.5, 1.75]]],
            [2, 1, [], [[10, 10, 1.25, 1.5]]],
        ],
        "DXT_MPIIO": [[2, 1, [], [[10, 10, 1.0, 2.0]]]],
    },
}


@pytest.fixture(autouse=True)
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The double stands before any real package, here and in the process that reads logs."""
    monkeypatch.syspath_prepend(str(DOUBLES))
    monkeypatch.setenv("PYTHONPATH", str(DOUBLES), prepend=os.pathsep)
    yield


def of(folder: Path, log: dict[str, Any], **more: Any) -> Trace:
    return imported(folder, HEAD + json.dumps(log).encode(), **more)


def with_segment(*segment: object, rank: int = 0, name: str = "/scratch/in") -> dict[str, Any]:
    """A log of one read."""
    records = {"DXT_POSIX": [[1, rank, [list(segment)], []]]}
    return {"modules": {"DXT_POSIX": False}, "names": {"1": name}, "records": records}


def test_segments_of_all_ranks_in_the_order_of_their_starts(tmp_path: Path) -> None:
    trace = of(tmp_path, LOG)
    assert trace.did("name", "thread", "kind", "offset", "size", "time", "latency", "result") == [
        (b"scratch/in", 0, Kind.OPEN, 0, 0, 0, NOT_CAPTURED, UNKNOWN),
        (b"scratch/in", 0, Kind.READ, 0, 100, 0, 250_000_000, 100),
        (b"scratch/in", 0, Kind.READ, 100, 50, 500_000_000, 250_000_000, 50),
        (b"scratch/in", 0, Kind.CLOSE, 0, 0, 500_000_000, NOT_CAPTURED, UNKNOWN),
        (b"scratch/out", 1, Kind.OPEN, 0, 0, 750_000_000, NOT_CAPTURED, UNKNOWN),
        (b"scratch/out", 1, Kind.WRITE, 10, 10, 750_000_000, 250_000_000, 10),
        (b"scratch/out", 1, Kind.CLOSE, 0, 0, 750_000_000, NOT_CAPTURED, UNKNOWN),
        (b"scratch/out", 0, Kind.OPEN, 0, 0, 1_000_000_000, NOT_CAPTURED, UNKNOWN),
        (b"scratch/out", 0, Kind.WRITE, 0, 10, 1_000_000_000, 250_000_000, 10),
        (b"scratch/out", 0, Kind.READ, 0, 10, 1_500_000_000, 500_000_000, 10),
        (b"scratch/out", 0, Kind.CLOSE, 0, 0, 1_500_000_000, NOT_CAPTURED, UNKNOWN),
    ]
    assert trace.files == {
        b"scratch/in": (150, False),
        b"scratch": (0, True),
        b"scratch/out": (0, False),
    }
    assert trace.threads == [[0, 0, 0], [1, 0, 1]]
    facts = trace.header.facts
    assert (facts["module"], facts["opened_by_import"]) == ("DXT_POSIX", 3)
    assert gaps(facts) == ["Guessed: 3 opens and 3 closes that were not traced."]


def test_mpiio_only_where_there_is_no_posix(tmp_path: Path) -> None:
    log = {**LOG, "modules": {"DXT_MPIIO": False}}
    trace = of(tmp_path, log)
    assert [row.kind for row in trace.rows] == [Kind.OPEN, Kind.WRITE, Kind.CLOSE]
    assert trace.header.facts["module"] == "DXT_MPIIO"


def test_a_log_that_darshan_cut_says_so(tmp_path: Path) -> None:
    log = {**LOG, "modules": {"DXT_POSIX": True}}
    trace = of(tmp_path, log)
    assert trace.header.facts["partial"]
    assert any("room" in what for what in trace.header.unseen)


def test_what_dxt_did_not_trace_is_said_by_the_counters(tmp_path: Path) -> None:
    """As of darshan-hpc/darshan 864: 65,536 of 1,000,000 reads; here 3 of 10, some elsewhere."""
    counters = {
        "POSIX": [
            [1, {"POSIX_READS": 8, "POSIX_WRITES": 0}],
            [2, {"POSIX_READS": 2, "POSIX_WRITES": 2}],
            [3, {"POSIX_READS": 99, "POSIX_WRITES": 0}],
        ]
    }
    names = {"1": "/scratch/in", "2": "/scratch/out", "3": "/etc/hosts"}
    log = {**LOG, "modules": {"POSIX": False, "DXT_POSIX": True}, "names": names}
    trace = of(tmp_path, {**log, "counters": counters}, roots=[Path("/scratch")])
    assert trace.header.unseen == {"reads that Darshan counted and DXT did not trace": 7}
    facts = trace.header.facts
    assert (facts["traced_reads"], facts["counted_reads"]) == (3, 10)
    assert (facts["traced_writes"], facts["counted_writes"]) == (2, 2)
    done = fsmatrix("trace", "info", tmp_path / "t.h5")
    assert "Only 3 of 10 reads were traced." in done.stdout
    done = fsmatrix(
        "trace", "import", tmp_path / "in-0", "--root", "/scratch", "-o", tmp_path / "2.h5"
    )
    assert "Only 3 of 10 reads were traced." in done.stdout
    whole = {"POSIX": [[1, {"POSIX_READS": 2}], [2, {"POSIX_READS": 1, "POSIX_WRITES": 2}]]}
    trace = of(tmp_path, {**LOG, "counters": whole})
    assert not trace.header.unseen


def test_without_dxt_there_are_no_operations(tmp_path: Path) -> None:
    log = {"modules": {"POSIX": False, "STDIO": False}, "names": {}, "records": {}}
    with pytest.raises(TraceError, match=r"in-0: has no DXT .* DXT_ENABLE_IO_TRACE=1 .*STDIO"):
        of(tmp_path, log)


def test_only_what_is_below_the_root(tmp_path: Path) -> None:
    trace = of(tmp_path, LOG, roots=[Path("/scratch/in/..")])
    assert {row.name for row in trace.rows} == {b"in", b"out"}
    trace = of(tmp_path, with_segment(0, 1, 0.0, 1.0, name="/x/../y"))
    assert {row.name for row in trace.rows} == {b"y"}


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        ((-1, 1, 0.0, 1.0), "1 bytes at -1"),
        ((0, -1, 0.0, 1.0), "-1 bytes at 0"),
        (((1 << 63) - 1, 1, 0.0, 1.0), "2\\^63 or more"),
        ((0, 1 << 32, 0.0, 1.0), "are allowed"),
        ((0, 1, -1.0, 1.0), "begins at -1.0"),
        ((0, 1, 1.0, 0.5), "ends at 0.5"),
        ((0, 1, 0.0, float("nan")), "ends at nan"),
        ((0, 1, 0.0, 1e300), "ends at 1e\\+300"),
    ],
)
def test_a_lying_log(tmp_path: Path, segment: tuple[float, ...], reason: str) -> None:
    with pytest.raises(TraceError, match=rf"in-0: operation 0 by start \(rank 0, file .*{reason}"):
        of(tmp_path, with_segment(*segment))


def test_a_rank_or_a_name_that_none_can_have(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="in-0: has a rank"):
        of(tmp_path, with_segment(0, 1, 0.0, 1.0, rank=-1))
    with pytest.raises(TraceError, match=r"in-0: operation 0 .*5000 bytes"):
        of(tmp_path, with_segment(0, 1, 0.0, 1.0, name="n" * 5000))


def test_a_log_that_kills_darshans_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"in-0: Darshan's library .* signal 11"):
        of(tmp_path, {"die": True})
    with pytest.raises(TraceError, match=r"in-0: Darshan's library cannot read it: .*cannot open"):
        imported(tmp_path, HEAD)
    with pytest.raises(TraceError, match=r"in-0: Darshan's library cannot read it"):
        imported(tmp_path, HEAD + b"[")


def test_a_log_that_darshans_library_never_ends_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(darshan, "DEADLINE_S", 1)
    with pytest.raises(TraceError, match=r"in-0: Darshan's library .* not end within 1 s"):
        of(tmp_path, {"hang": True})


def test_a_log_that_would_take_most_of_the_memory(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"in-0: Darshan's library .*MemoryError"):
        of(tmp_path, {"greed": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 5})


def test_the_begin_of_a_damaged_log_is_not_taken_for_all_of_it(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"in-0: Darshan's library .*failed to read module"):
        of(tmp_path, {**LOG, "damaged": True})
    assert not (tmp_path / "t.h5").exists()


def test_one_log_at_a_time(tmp_path: Path) -> None:
    text = HEAD + json.dumps(LOG).encode()
    with pytest.raises(TraceError, match="in-1: one at a time"):
        imported(tmp_path, text, text)


def test_without_the_package_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "darshan" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(TraceError, match=r"in-0: .* pip install 'fsmatrix\[darshan\]'"):
        of(tmp_path, LOG)
