"""What a trace is like: hand-made traces whose statistics are known."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.backends.player.ops import Kind
from fsmatrix.results.evidence import stored
from fsmatrix.results.evidence.trace import Frequent, Order, TraceStatistics
from fsmatrix.traces import statistics, touched_pages
from fsmatrix.traces.page_cache import NAMES, generate
from fsmatrix.traces.statistics import DIRECTORY, NONE, OTHER, classes, extension, survey
from fsmatrix.traces.touched_pages import Spectrum
from fsmatrix.traces.trace_model import COLUMNS, UNKNOWN, Header
from fsmatrix.traces.tracefile import copy, opened
from tests import peak
from tests.traces.listed import Listed, listed
from tests.traces.test_page_cache_generators import PRINTED
from tests.waiting import PATIENCE

PAGE = 4096
UNTIMED = Header("test", timed=False)


@pytest.mark.parametrize("name", NAMES)
def test_published_workloads_have_the_published_statistics(name: str) -> None:
    """The same figures as the generators' own tests, by the statistics."""
    of = survey(generate(name, 0.01))
    printed = {quantity: value * 0.01 for quantity, value in PRINTED[name].items()}
    counts = {kind.kind: kind for kind in of.kinds}
    assert of.reuse is not None
    assert of.reuse.unique == pytest.approx(printed["unique_pages"], rel=0.01)
    for kind in ("read", "write"):
        expected = printed.get(f"{kind}s", 0)
        if expected:
            assert counts[kind].operations == max(1, round(expected))
            assert counts[kind].moved == counts[kind].asked
        else:
            assert kind not in counts
    means = {"uniform-random": 128, "ycsb-zipfian": 4096, "neo4j-dijkstra": 57,
             "synapse-labelling": 1000}  # fmt: skip
    of_most = of.kinds[0].sizes
    assert of_most is not None
    assert of_most.mean == pytest.approx(means[name], rel=0.005)
    assert of.threads == (16 if name == "synapse-labelling" else 1)
    assert (of.seconds, of.windows.unit) == (None, "operations")
    if name == "uniform-random":  # no cache hits
        assert set(of.reuse.miss_ratio) == {1.0}


def test_kinds() -> None:
    """Three reads (short, failed, of unknown outcome), a failed stat, an fsync with a latency."""
    of = survey(
        listed(
            5,
            sizes=[10_000],
            kind=[Kind.READ, Kind.READ, Kind.READ, Kind.STAT, Kind.FSYNC],
            size=[100, 50, 7, 0, 0],
            result=[60, -errno.EIO, UNKNOWN, -errno.ENOENT, 0],
            latency=[1_000, 3_000, -1, -1, 5_000_000],
        )
    )
    kinds = {kind.kind: kind for kind in of.kinds}
    read, stat, fsync = kinds["read"], kinds["stat"], kinds["fsync"]
    assert (read.operations, read.failed, read.short, read.asked, read.moved) == (3, 1, 1, 157, 67)
    assert read.sizes is not None
    assert (read.sizes.smallest, read.sizes.p50, read.sizes.largest) == (7, 50, 100)
    assert read.sizes.by_bits == (0, 0, 0, 1, 0, 0, 1, 1)
    assert read.latencies is not None
    assert (read.latencies.operations, read.latencies.mean) == (2, 2e-6)
    assert read.latencies.longest == 3e-6
    assert read.latencies.p50 is None  # of two operations
    assert (stat.operations, stat.failed, stat.sizes, stat.latencies) == (1, 1, None, None)
    assert fsync.latencies is not None
    assert (fsync.failed, fsync.latencies.total) == (0, 5e-3)
    assert of.kinds[0].kind == "read"


def test_a_result_of_more_than_was_asked_for_counts_as_what_was_asked_for() -> None:
    of = survey(listed(1, kind=Kind.READ, size=8, result=np.iinfo(np.int64).max))
    assert of.kinds[0].moved == 8
    assert of.reuse is not None
    assert of.reuse.accesses == 1


def test_order_of_reads_and_writes_on_a_handle() -> None:
    """Two handles of one file; one is opened again in the middle."""
    rows = [  # kind, slot, offset, size: what it is
        (Kind.OPEN, 0, 0, 0),
        (Kind.READ, 0, 0, 10),  # first
        (Kind.READ, 1, 500, 10),  # first of the other handle
        (Kind.READ, 0, 10, 10),  # consecutive
        (Kind.WRITE, 0, 20, 5),  # consecutive to a read
        (Kind.READ, 0, 100, 1),  # ahead
        (Kind.READ, 1, 510, 10),  # consecutive
        (Kind.READ, 0, 50, 1),  # back
        (Kind.OPEN, 0, 0, 0),
        (Kind.READ, 0, 51, 9),  # first again
        (Kind.WRITE, 0, 0, 9),  # back
    ]
    kind, slot, offset, size = zip(*rows, strict=True)
    for block in (1, 3, 100):
        of = survey(
            listed(
                len(rows), slots=[0, 0], block=block, kind=kind, slot=slot, offset=offset, size=size
            )
        )
        assert of.read_order == Order(first=3, consecutive=2, ahead=1, back=1)
        assert of.write_order == Order(first=0, consecutive=1, ahead=0, back=1)
    assert of.read_order.consecutive_share == 0.5
    assert of.read_order.sequential_share == 0.75
    assert Order(first=4, consecutive=0, ahead=0, back=0).sequential_share is None


def test_what_a_short_read_moved_is_where_the_next_one_is_expected() -> None:
    of = survey(listed(2, kind=Kind.READ, offset=[0, 60], size=100, result=[60, 0]))
    assert of.read_order == Order(first=1, consecutive=0, ahead=0, back=0)  # nothing was moved
    of = survey(listed(2, kind=Kind.READ, offset=[0, 60], size=100, result=[60, 5]))
    assert of.read_order == Order(first=1, consecutive=1, ahead=0, back=0)


def test_windows_by_time() -> None:
    """Half of the operations in the first hundredth of the time."""
    count = 192
    time = np.append(np.arange(96) * 10, 96_000 + np.arange(96) * 1_000)
    of = survey(
        listed(
            count,
            time=time,
            kind=np.where(np.arange(count) % 3, Kind.READ, Kind.WRITE),
            size=512,
            offset=np.arange(count) * PAGE,
        )
    )
    windows = of.windows
    assert (windows.unit, len(windows.reads)) == ("s", 96)
    assert windows.length == pytest.approx((time[-1] + 1) / 96 / 1e9)
    edges = np.arange(97) * (time[-1] + 1) / 96
    reads = np.histogram(time[np.arange(count) % 3 > 0], edges)[0]
    assert windows.reads == tuple(reads.tolist())
    assert sum(windows.reads) + sum(windows.writes) == count
    assert np.array_equal(np.multiply(windows.reads, 512), windows.read_bytes)
    touched = np.add(windows.reads, windows.writes)
    assert np.array_equal(windows.working_set, touched * PAGE)
    assert np.array_equal(windows.new_pages, touched)
    assert of.seconds == time[-1] / 1e9


def test_windows_by_number_where_times_mean_nothing() -> None:
    of = survey(listed(960, header=UNTIMED, kind=Kind.WRITE, size=1, time=np.arange(960) ** 2))
    assert of.windows.unit == "operations"
    assert of.windows.length == 10
    assert set(of.windows.writes) == {10}
    assert set(of.windows.working_set) == {PAGE}
    assert sum(of.windows.new_pages) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"a.c", ".c"),
        (b"dir.d/Makefile", NONE),
        (b"x.PNG", ".png"),
        (b".git/config", NONE),
        (b".bashrc", NONE),
        (b".hidden.txt", ".txt"),
        (b"libc.so.6", ".so"),
        (b"data.00042", NONE),
        (b"base/16384/2619", NONE),
        (b"a.tar.gz", ".gz"),
        (b"a.", NONE),
        (b"a.this-is-no-extension", NONE),
        (b"a.\xff\n", ".\\xff\n"),
    ],
)
def test_extensions(name: bytes, expected: str) -> None:
    assert extension(name) == expected


def test_classes_of_files() -> None:
    names = [b"a.c", b"b.c", b"d", b"x.pack", b"never.used"]
    trace = listed(
        6,
        names=names,
        sizes=[10] * 5,
        kind=[Kind.READ, Kind.WRITE, Kind.READ, Kind.READDIR, Kind.STAT, Kind.READ],
        slot=[0, 1, 3, 2, 3, 3],
        size=[5, 6, 7, 0, 0, 8],
    )
    trace.files.directory[2] = True
    of = survey(trace)
    by_name = {each.name: each for each in of.classes}
    assert list(by_name) == [".pack", ".c", DIRECTORY, ".used"]
    assert (by_name[".c"].files, by_name[".c"].operations) == (2, 2)
    assert (by_name[".c"].read_bytes, by_name[".c"].written_bytes) == (5, 6)
    assert (by_name[".pack"].reads, by_name[".pack"].read_bytes) == (2, 15)
    assert by_name[DIRECTORY].operations == 1
    assert (of.files, of.files_used, of.directories) == (5, 4, 1)


def test_more_classes_than_are_named() -> None:
    names = [b"f%d.%c%d" % (i % 300, b"x", i % 300) for i in range(300)] + [b"a.c", b"b.c"]
    known = classes(listed(1, names=names).files)
    assert known.names[0] == ".c"
    assert known.names[-1] == OTHER
    assert len(known.names) == 201
    assert np.count_nonzero(known.of == 200) == 101


def test_threads() -> None:
    of = survey(listed(4, threads=3, thread=[0, 0, 0, 2], kind=Kind.STAT))
    assert (of.threads, of.processes, of.ranks, of.busiest_thread) == (2, 1, 1, 0.75)


def test_map_of_where_in_the_files() -> None:
    """Two classes; the begin of the first file of one, the end of the last of the other."""
    rows = 30  # of each band
    trace = listed(
        4,
        header=UNTIMED,
        names=[b"a.x", b"b.x", b"c.y"],
        sizes=[3_000, 3_000, 0],
        kind=[Kind.READ, Kind.READ, Kind.WRITE, Kind.READ],
        slot=[0, 1, 2, 1],
        offset=[0, 2_990, 5_000, 0],
        size=10,
    )
    x, y = survey(trace).bands
    assert (x.name, x.files, x.bytes, x.rows) == (".x", 2, 6_000, rows)
    assert (y.name, y.files, y.bytes) == (".y", 1, 5_010)
    cells = np.array(x.reads).reshape(rows, 4)
    assert np.argwhere(cells).tolist() == [[0, 0], [rows // 2, 3], [rows - 1, 1]]
    assert not any(x.writes)
    assert np.argwhere(np.array(y.writes).reshape(rows, 4)).tolist() == [[rows - 1, 2]]


def test_the_map_is_of_a_fair_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "SAMPLE", 2_000)
    count = 50_000
    write = np.arange(count) % 4 == 0
    of = survey(
        listed(
            count, header=UNTIMED, block=5_000, size=1, kind=np.where(write, Kind.WRITE, Kind.READ)
        )
    )
    (band,) = of.bands
    sample = sum(band.reads) + sum(band.writes)
    assert 700 <= sample <= 2_000
    assert sum(band.writes) / sample == pytest.approx(0.25, abs=0.05)


def test_more_classes_than_bands() -> None:
    names = [b"f.x%d" % i if i < 3 else b"f.y%c" % (97 + i) for i in range(12)]
    slot = np.repeat(np.arange(12), np.arange(30, 6, -2))
    of = survey(listed(len(slot), names=names, kind=Kind.READ, size=9, slot=slot))
    assert [band.name for band in of.bands] == [".x0", ".x1", ".x2", ".yd", "other files"]
    assert of.bands[-1].files == 8
    assert sum(sum(band.reads) for band in of.bands) == len(slot)


def test_sizes_that_are_frequent() -> None:
    of = Spectrum()
    of.add(np.array([4096] * 60 + [512] * 39 + [7]))
    sizes = of.sizes()
    assert sizes is not None
    assert sizes.frequent == (
        Frequent(bytes=4096, operations=60),
        Frequent(bytes=512, operations=39),
        Frequent(bytes=7, operations=1),
    )
    assert (sizes.p50, sizes.p90, sizes.p99, sizes.exact) == (4096, 4096, 4096, True)


def test_many_sizes_are_rounded_down_by_at_most_a_64th(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched_pages, "MOST_VALUES", 1_000)
    values = np.random.default_rng(1).integers(1, 1 << 31, 20_000)
    of = Spectrum()
    for part in np.array_split(values, 30):
        of.add(part)
    sizes = of.sizes()
    assert sizes is not None
    assert not sizes.exact
    assert (sizes.smallest, sizes.largest) == (values.min(), values.max())
    assert sizes.mean == values.mean()
    true = np.sort(values)[9_999]
    assert true * 63 / 64 - 1 <= sizes.p50 <= true
    bits = np.bincount(np.frexp(values.astype(float))[1])
    assert sizes.by_bits == tuple(bits.tolist())


def random_trace(block: int) -> Listed:
    random = np.random.default_rng(8)
    count = 3_000
    kind = random.choice([0, 1, 2, 2, 2, 3, 3, 5, 6, 10], count)
    size = random.integers(0, 20_000, count)
    result = np.where(random.random(count) < 0.1, -2, np.where(random.random(count) < 0.5, size, 9))
    return listed(
        count,
        names=[b"a.x", b"b.y", b"c"],
        sizes=[0, 1 << 20, -1],
        slots=[0, 0, 1, 2],
        threads=5,
        block=block,
        kind=kind,
        size=size,
        result=result,
        slot=random.integers(0, 4, count),
        thread=random.integers(0, 5, count),
        offset=random.integers(0, 1 << 20, count),
        time=np.cumsum(random.integers(0, 10**6, count)),
        latency=random.integers(-1, 10**6, count),
    )


@pytest.mark.parametrize("block", [1, 64, 1_000])
def test_statistics_do_not_depend_on_blocks(block: int) -> None:
    whole = survey(random_trace(1 << 16)).document()
    assert survey(random_trace(block)).document() == whole


def test_statistics_are_json_and_come_back() -> None:
    of = survey(random_trace(100))
    text = json.dumps(of.document())
    again = stored.read(TraceStatistics, json.loads(text), "trace")
    assert json.dumps(again.document()) == text
    assert again.reuse == of.reuse


def test_traces_with_nothing_in_them(tmp_path: Path) -> None:
    copy(listed(0), tmp_path / "t.h5")
    with opened(tmp_path / "t.h5") as trace:
        of = survey(trace)
    assert (of.operations, of.kinds, of.reuse, of.bands) == (0, (), None, ())
    assert of.busiest_thread is None
    of = survey(listed(3, kind=Kind.STAT))
    assert (of.reuse, of.bands) == (None, ())
    of = survey(listed(2, kind=Kind.READ, size=0))
    assert (of.reuse, of.kinds[0].operations) == (None, 2)


def test_offsets_and_times_at_their_limits() -> None:
    limit = (1 << 63) - 1
    of = survey(
        listed(
            3, kind=Kind.WRITE, offset=[0, limit - 5, limit - 5], size=4, time=[0, 1, limit - 1],
        )
    )  # fmt: skip
    assert of.reuse is not None
    assert (of.reuse.accesses, of.reuse.unique) == (3, 2)
    assert of.write_order == Order(first=1, consecutive=0, ahead=1, back=1)
    assert of.bands[0].bytes >= limit // 2
    assert sum(of.windows.writes) == 3


def test_a_copy_has_the_same_statistics(tmp_path: Path) -> None:
    made = generate("synapse-labelling", 0.002, seed=4)
    told: list[int] = []
    copy(made, tmp_path / "t.h5", told.append)
    assert told[-1] == made.operations
    with opened(tmp_path / "t.h5") as trace:
        assert survey(trace) == survey(made)
        blocks = list(trace.blocks())
    for name in COLUMNS:
        expected = np.concatenate([block[name] for block in made.blocks()])
        assert np.array_equal(np.concatenate([block[name] for block in blocks]), expected)


def test_progress() -> None:
    done: list[int] = []
    survey(listed(20, block=8), done.append)
    assert done == [8, 16, 20]


def test_headers() -> None:
    header = Header("strace", ("git",), anonymised=True, unseen={"mmap": 3}, facts={"a": [1]})
    of = survey(replace(listed(1), header=header))
    assert (of.source, of.command, of.timed, of.anonymised) == ("strace", ("git",), True, True)
    assert (of.unseen, of.facts) == ({"mmap": 3}, {"a": [1]})


def test_memory_does_not_grow_with_operations() -> None:
    """Peak memory of 1 and 4 million operations, both on more pages than are followed."""
    script = """
import sys
from fsmatrix.traces.page_cache import generate
from fsmatrix.traces.statistics import survey
survey(generate("uniform-random", float(sys.argv[1])))
print(PEAK)
""".replace("PEAK", peak.KILOBYTES)
    small, large = (
        int(
            subprocess.run(
                [sys.executable, "-P", "-c", script, scale],
                capture_output=True,
                text=True,
                check=True,
                timeout=PATIENCE,
            ).stdout
        )
        for scale in ("0.1", "0.4")
    )
    assert large - small < 12 << 10
