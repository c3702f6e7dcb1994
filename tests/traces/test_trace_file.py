"""Trace files: what is written is read again, and what no trace may hold is refused."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fsmatrix.backends.player.ops import Kind
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.traces.trace_model import (
    BLOCK,
    COLUMNS,
    UNKNOWN,
    Header,
    Operation,
    Thread,
    TraceError,
)
from fsmatrix.traces.tracefile import Handles, TraceWriter, opened, writing
from tests import peak
from tests.waiting import PATIENCE


def small(path: Path, **header: Any) -> Path:
    """Two files, one open twice; a failed stat; a rename."""
    with writing(path) as trace:
        data = trace.file(b"data/\xff\xfe", 100)
        missing = trace.file(b"missing")
        handles = Handles(trace)
        first, again = handles.opened(data), handles.opened(data)
        name, other = handles.of_name(missing), handles.of_name(trace.file(b"other"))
        worker = trace.thread(Thread(10, 11, 3))
        trace.add(Operation(Kind.OPEN, first, flags=16), 0, thread=worker, latency=5, result=0)
        trace.add(Operation(Kind.OPEN, again), 3, thread=worker)
        trace.add(
            Operation(Kind.READ, first, offset=96, size=8), 3, thread=worker, latency=7, result=4
        )
        trace.add(Operation(Kind.STAT, name), 9, thread=worker, result=-errno.ENOENT)
        trace.add(Operation(Kind.RENAME, first, slot2=other), 10, thread=worker, result=0)
        trace.finish(Header("test", **header))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    header = {
        "command": ("git", "clone"),
        "timed": False,
        "anonymised": True,
        "unseen": {"mmap": 3},
        "facts": {"version": "1"},
    }
    with opened(small(tmp_path / "t.h5", **header)) as trace:
        assert trace.header == Header("test", **header)  # type: ignore[arg-type]
        assert list(trace.files.names()) == [b"data/\xff\xfe", b"missing", b"other"]
        assert trace.files.name(1) == b"missing"
        assert trace.files.size.tolist() == [100, -1, -1]
        assert trace.slots.tolist() == [0, 0, 1, 2]
        assert trace.threads.tolist() == [[10, 11, 3]]
        (block,) = trace.blocks()
        assert block["kind"].tolist() == [0, 0, 2, 6, 10]
        assert block["slot"].tolist() == [0, 1, 0, 2, 0]
        assert block["offset"].tolist() == [0, 0, 96, 0, 0]
        assert block["result"].tolist() == [0, UNKNOWN, 4, -errno.ENOENT, 0]
        assert block["latency"].tolist() == [5, -1, 7, -1, -1]
        assert {name: values.dtype for name, values in block.items()} == dict(COLUMNS)


def test_a_closed_slot_is_taken_again(tmp_path: Path) -> None:
    with writing(tmp_path / "t.h5") as trace:
        handles = Handles(trace)
        row = trace.file(b"a", 1)
        first = handles.opened(row)
        second = handles.opened(row)
        handles.closed(row, first)
        assert handles.opened(row) == first != second
        trace.finish(Header("test"))


def columns(count: int, **given: Any) -> dict[str, Any]:
    values = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
    return values | {name: np.asarray(value, COLUMNS[name]) for name, value in given.items()}


def test_blocks_and_windows(tmp_path: Path) -> None:
    count = 2 * BLOCK + 17
    with writing(tmp_path / "t.h5") as trace:
        trace.slot(trace.file(b"a", 1))
        for first in range(0, count, 50_000):
            size = min(50_000, count - first)
            trace.append(columns(size, time=np.arange(first, first + size)))
        trace.finish(Header("test"))
    with opened(tmp_path / "t.h5") as trace:
        assert trace.operations == count
        times = np.concatenate([block["time"] for block in trace.blocks(("time",))])
        assert np.array_equal(times, np.arange(count))
        part = [block["time"] for block in trace.blocks(("time",), first=5, stop=BLOCK + 9)]
        assert np.array_equal(np.concatenate(part), np.arange(5, BLOCK + 9))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"kind": [2, 14]}, "operation 1 has an unknown kind"),
        ({"slot": [0, 1]}, "operation 1 has a slot"),
        ({"slot2": [1, 0]}, "operation 0 has a second slot"),
        ({"thread": [0, 1]}, "operation 1 has a thread"),
        ({"size": [0, 1 << 31]}, "operation 1 has more than"),
        ({"offset": [0, 1 << 63]}, "operation 1 has an offset"),
        ({"offset": [0, (1 << 63) - 1], "size": [0, 1]}, "operation 1 has an end"),
        ({"time": [5, 4]}, "operation 1 has an issue time before"),
        ({"time": [5, 1 << 63]}, "operation 1 has an issue time of 2"),
    ],
)
def test_operations_that_no_trace_may_have(
    tmp_path: Path, wrong: dict[str, Any], reason: str
) -> None:
    """Refused when written; a file that has them all the same is refused when read."""
    path = tmp_path / "t.h5"

    def write(trace: TraceWriter, values: dict[str, Any]) -> None:
        trace.slot(trace.file(b"a", 1))
        trace.append(columns(2, **values))
        trace.finish(Header("test"))

    with pytest.raises(TraceError, match=reason), writing(path) as trace:
        write(trace, wrong)
    assert list(tmp_path.iterdir()) == []
    with writing(path) as trace:
        write(trace, {})
    with h5py.File(path, "r+") as file:
        for name, values in wrong.items():
            file[f"operations/{name}"][:] = values
    with pytest.raises(TraceError, match=reason), opened(path) as damaged:
        list(damaged.blocks())


@pytest.mark.parametrize(
    "name", [b"", b"/etc/passwd", b"a/../b", b"..", b"a//b", b"a/", b"./a", b"a\0b", b"x" * 4096]
)
def test_names_that_lead_elsewhere(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / "t.h5"
    with pytest.raises(TraceError, match="path"), writing(path) as trace:
        trace.file(name)
    with writing(path) as trace:
        trace.slot(trace.file(b"a", 1))
        trace.finish(Header("test"))
    with h5py.File(path, "r+") as file:
        del file["files/names"]
        file["files/names"] = np.frombuffer(name, np.uint8)
        file["files/ends"][:] = len(name)
    with pytest.raises(TraceError, match=r"path|names"), opened(path):
        pass


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    for name, data in (("empty", b""), ("text", b"no trace"), ("cut", b"\x89HDF\r\n\x1a\n" * 9)):
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(TraceError, match=name), opened(path):
            pass
    with pytest.raises(TraceError, match="cannot be read"), opened(tmp_path / "missing"):
        pass
    with h5py.File(tmp_path / "other.h5", "w"):
        pass
    with pytest.raises(TraceError, match="not a trace of fsmatrix"), opened(tmp_path / "other.h5"):
        pass
    with h5py.File(small(tmp_path / "newer.h5"), "r+") as file:
        file.attrs["version"] = 2
    with pytest.raises(TraceError, match="has format 2"), opened(tmp_path / "newer.h5"):
        pass
    with h5py.File(small(tmp_path / "linked.h5"), "r+") as file:
        file["elsewhere"] = h5py.ExternalLink("/etc/passwd", "/")
    with pytest.raises(ResultError, match="link"), opened(tmp_path / "linked.h5"):
        pass


@pytest.mark.parametrize("chunks", [None, (1 << 16,)])
def test_counts_of_values_that_are_not_stored(
    tmp_path: Path, chunks: tuple[int, ...] | None
) -> None:
    path = small(tmp_path / "t.h5")
    with h5py.File(path, "r+") as file:
        for name, dtype in COLUMNS.items():
            del file[f"operations/{name}"]
            file.create_dataset(f"operations/{name}", (1 << 38,), dtype, chunks=chunks)
    with (
        pytest.raises(TraceError, match=r"operations/kind has more values than the file holds"),
        opened(path),
    ):
        pass


def test_a_kind_that_only_the_suite_uses(tmp_path: Path) -> None:
    with h5py.File(small(tmp_path / "t.h5"), "r+") as file:
        file["operations/kind"][0] = Kind.EVICT
    with (
        pytest.raises(TraceError, match="operation 0 has an unknown kind"),
        opened(tmp_path / "t.h5") as trace,
    ):
        next(trace.blocks())


def test_chunks_that_take_all_memory(tmp_path: Path) -> None:
    path = small(tmp_path / "t.h5")
    with h5py.File(path, "r+") as file:
        del file["operations/offset"]
        file.create_dataset(
            "operations/offset", (5,), "<u8", chunks=(1 << 28,), maxshape=(None,), compression=1
        )
    with (
        pytest.raises(TraceError, match=r"operations/offset has chunks of more than"),
        opened(path),
    ):
        pass


@pytest.mark.parametrize("length", range(0, 4000, 97))
def test_truncated_files(tmp_path: Path, length: int) -> None:
    whole = small(tmp_path / "t.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: min(length, len(whole) - 1)])
    with pytest.raises(TraceError), opened(tmp_path / "cut.h5") as trace:
        list(trace.blocks())


def test_header_that_is_no_json(tmp_path: Path) -> None:
    for value in ("{", json.dumps([1]), "[" * 100_000):
        with h5py.File(small(tmp_path / "t.h5"), "r+") as file:
            file.attrs["unseen"] = value
        with pytest.raises(TraceError), opened(tmp_path / "t.h5"):
            pass


def test_nothing_appears_if_the_block_raises(tmp_path: Path) -> None:
    def broken() -> None:
        with writing(tmp_path / "t.h5") as trace:
            trace.file(b"a")
            raise KeyError

    def unfinished() -> None:
        with writing(tmp_path / "t.h5") as trace:
            trace.file(b"a")

    with pytest.raises(KeyError):
        broken()
    with pytest.raises(ValueError, match="finish"):
        unfinished()
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_operations(tmp_path: Path) -> None:
    """Peak memory of writing and reading 20 and 200 blocks differs by less than 50 of them."""
    script = """
import sys
from pathlib import Path
import numpy as np
from fsmatrix.traces.trace_model import COLUMNS, Header
from fsmatrix.traces.tracefile import opened
from fsmatrix.traces.trace_model import BLOCK
from fsmatrix.traces.tracefile import writing
path = Path(sys.argv[1])
with writing(path) as trace:
    trace.slot(trace.file(b"a", 1))
    for number in range(int(sys.argv[2])):
        trace.append({name: np.full(BLOCK, number * (name == "time"), dtype)
                      for name, dtype in COLUMNS.items()})
    trace.finish(Header("test"))
with opened(path) as trace:
    assert sum(len(block["kind"]) for block in trace.blocks()) == int(sys.argv[2]) * BLOCK
print(PEAK)
""".replace("PEAK", peak.KILOBYTES)
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-P", "-c", script, str(tmp_path / "t.h5"), str(blocks)],
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE,
            ).stdout
        )
        for blocks in (20, 200)
    ]
    block = sum(dtype.itemsize for dtype in COLUMNS.values()) * BLOCK
    assert (peaks[1] - peaks[0]) * 1024 < 50 * block


def test_a_full_device_is_an_error_of_the_system(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from fsmatrix.traces.trace_model import COLUMNS, Header
from fsmatrix.traces.tracefile import writing
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    with writing(Path(sys.argv[1])) as trace:
        trace.slot(trace.file(b"a", 1))
        random = np.random.default_rng(0)
        for number in range(100):
            trace.append({name: np.full(60_000, 0, dtype) if name != "offset"
                          else random.integers(0, 1 << 40, 60_000).astype(dtype)
                          for name, dtype in COLUMNS.items()})
        trace.finish(Header("test"))
except OSError as error:
    print(type(error).__name__, error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path / "t.h5")],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["OSError", str(errno.EFBIG)])
    assert os.listdir(tmp_path) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 200_000


def test_an_error_of_who_reads_a_trace_is_not_the_traces(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^mine$"), opened(small(tmp_path / "t.h5")):
        raise ValueError("mine")
