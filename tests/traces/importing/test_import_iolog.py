"""fio's iologs: small ones whose trace is known, and one that fio writes here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fsmatrix.backends.player.ops import Flag, Kind
from fsmatrix.traces.importing.importer import import_traces
from fsmatrix.traces.trace_model import MOST_BYTES, NOT_CAPTURED, UNKNOWN, TraceError
from tests.traces.importing.imported import imported, imported_files
from tests.waiting import PATIENCE

V2, V3 = "fio version 2 iolog\n", "fio version 3 iolog\n"
LOG = """10 /d/a add
20 /d/a open
30 /d/a read 4096 4096
45 /d/a write 8192 100
46 /d/a read 8192 100
50 /d/a sync 0 0
60 /d/a datasync 8192 0
70 /d/a trim 0 4096
90 /d/a close
"""


def test_a_log_of_version_3_has_times_in_microseconds(tmp_path: Path) -> None:
    trace = imported(tmp_path, V3 + LOG)
    assert trace.did("kind", "time", "offset", "size", "flags") == [
        (Kind.OPEN, 0, 0, 0, 0),
        (Kind.READ, 10_000, 4096, 4096, 0),
        (Kind.WRITE, 25_000, 8192, 100, 0),
        (Kind.READ, 26_000, 8192, 100, 0),
        (Kind.FSYNC, 30_000, 0, 0, 0),
        (Kind.FSYNC, 40_000, 0, 0, Flag.DATA_ONLY),
        (Kind.CLOSE, 70_000, 0, 0, 0),
    ]
    assert {row.name for row in trace.rows} == {b"d/a"}
    assert {(row.latency, row.result) for row in trace.rows} == {(NOT_CAPTURED, UNKNOWN)}
    assert trace.header.timed
    assert trace.header.source == "fio-iolog"
    assert trace.header.unseen == {"trim": 1}
    # the first read needs 8192 bytes; what the second one reads was written before
    assert trace.files == {b"d/a": (8192, False), b"d": (0, True)}


def test_waits_of_version_2_are_milliseconds_after_the_start(tmp_path: Path) -> None:
    waits = "/a add\n/a open\n/a read 0 10\n/a wait 500 0\n/a read 0 20\n/a wait 300 0\n"
    trace = imported(tmp_path, V2 + waits + "/a read 0 30\n/a close\n")
    assert trace.did("kind", "time", "size")[1:4] == [
        (Kind.READ, 0, 10),
        (Kind.READ, 500_000_000, 20),
        (Kind.READ, 500_000_000, 30),
    ]
    assert trace.header.timed
    plain = imported(tmp_path, V2 + "/a add\n/a open\n/a read 0 10\n/a close\n")
    assert not plain.header.timed


def test_times_that_repeat_are_none(tmp_path: Path) -> None:
    waits = "".join(f"/a wait {at // 5} 0\n/a read {at} 1\n" for at in range(20))
    trace = imported(tmp_path, f"{V2}/a add\n/a open\n{waits}/a close\n")
    assert not trace.header.timed
    assert "that of the operation before" in str(trace.header.facts["no_times"])


def test_a_second_log_in_a_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 4: another log begins here: cut it off"):
        imported(tmp_path, V2 + "/a add\n/a open\n" + V2 + "/a add\n")


def test_a_wait_ends_before_2_to_the_63_ns(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"in-0: line 4: the time .* not below 2\^63 ns"):
        imported(tmp_path, f"{V2}/a add\n/a open\n/a wait {1 << 50} 0\n/a close\n")


def test_several_logs_are_threads_that_begin_together(tmp_path: Path) -> None:
    first = "0 /a add\n10 /a open\n30 /a read 0 1\n50 /a close\n"
    second = "0 /a add\n20 /a open\n40 /a write 0 2\n60 /a close\n"
    trace = imported(tmp_path, V3 + first, V3 + second)
    assert trace.did("thread", "kind", "time") == [
        (0, Kind.OPEN, 0),
        (1, Kind.OPEN, 10_000),
        (0, Kind.READ, 20_000),
        (1, Kind.WRITE, 30_000),
        (0, Kind.CLOSE, 40_000),
        (1, Kind.CLOSE, 50_000),
    ]
    assert len({row.slot for row in trace.rows}) == 2
    assert trace.threads == [[0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/b", b"a/b"),
        ("a/./b//c", b"a/b/c"),
        ("/a/../../../etc/x", b"etc/x"),
        ("../x", b"x"),
        ("/with space/x y", b"with space/x y"),
    ],
)
def test_no_path_leads_above_the_root(tmp_path: Path, path: str, name: bytes) -> None:
    trace = imported(tmp_path, f"{V3}0 {path} add\n1 {path} open\n2 {path} read 0 1\n")
    assert {row.name for row in trace.rows} == {name}


def test_only_what_is_below_the_root(tmp_path: Path) -> None:
    text = "".join(f"{i} {name} open\n" for i, name in enumerate(("/r/a", "/r/b/../c", "/rr/a")))
    trace = imported(tmp_path, V3 + text + "9 /r open\n9 /r/../x open\n", roots=[Path("/r")])
    assert [row.name for row in trace.rows] == [b"a", b"c"]
    assert trace.header.unseen == {"outside the root": 3}


def test_names_begin_with_the_root_where_there_are_several(tmp_path: Path) -> None:
    text = V3 + "0 /x/r/a open\n1 /s/a open\n"
    trace = imported(tmp_path, text, roots=[Path("/x/r"), Path("/s")])
    assert [row.name for row in trace.rows] == [b"r/a", b"s/a"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("5 /a", "neither"),
        ("5 wait 1000", "`wait` needs a file before it: neither"),
        ("5 /a read 1", "neither"),
        ("5 /a read -1 1", "no whole number"),
        ("5 /a read 0x10 1", "no whole number"),
        (f"5 /a read {1 << 63} 1", "2\\^63 or more"),
        (f"5 /a read {(1 << 63) - 1} 1", "2\\^63 or more"),
        (f"5 /a read 0 {MOST_BYTES + 1}", "are allowed"),
        ("5 /a frob 0 1", "unknown action 'frob'; known: add, close, open"),
        ("5 /a wait 0 1", "not allowed in version 3"),
        ("5 /a open", "which is open"),
        ("5 /b read 0 1", "not open"),
        ("5 /b close", "not open"),
        ("5 /a/b open", "not there"),
        ("1 /a read 0 1", "before that of the line before"),
        ("-1 /a read 0 1", "no whole number"),
        (f"{1 << 60} /a read 0 1", "not below 2\\^63 ns"),
        (f"5 /{'n' * 5000} open", "a path of 5000 bytes"),
        ("5 /a\0 open", "NUL"),
        ("5 /" + "n" * (1 << 17), "longer than"),
    ],
)
def test_what_fio_does_not_write_is_an_error_with_file_and_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    with pytest.raises(TraceError, match=rf"in-0: line 4: .*{reason}"):
        imported(tmp_path, f"{V3}2 /a add\n3 /a open\n{line}\n")
    assert not (tmp_path / "t.h5").exists()


def test_an_error_of_the_second_of_two_logs_names_it(tmp_path: Path) -> None:
    good = "".join(f"{i} /a {word}\n" for i, word in enumerate(("add", "open", "close")))
    with pytest.raises(TraceError, match=r"in-1: line 3: .*not open"):
        imported(tmp_path, V3 + good, f"{V3}0 /a open\n1 /b read 0 1\n5 /a close\n")


def test_a_log_that_was_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    trace = imported(tmp_path, V3 + "0 /a add\n1 /a open\n2 /a read 0 4096\n")
    assert [row.kind for row in trace.rows] == [Kind.OPEN, Kind.READ]
    with pytest.raises(TraceError, match="in-0: line 4: neither"):
        imported(tmp_path, V3 + "0 /a add\n1 /a open\n2 /a read 0\n")


@pytest.mark.parametrize("text", [V3, V3 + "0 /a add\n"])
def test_a_log_without_operations_is_no_trace(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match="in-0: no operation of it"):
        imported(tmp_path, text)


@pytest.mark.needs("fio")
def test_what_fio_logs_is_what_it_counts(tmp_path: Path) -> None:
    """Two jobs of fio: reads and writes, syncs of both kinds, and pauses that times show."""
    pause = 2000  # microseconds
    words = [
        *("fio", "--output-format=json", f"--directory={tmp_path}", "--size=256k", "--bs=4k"),
        *("--name=mix", "--rw=randrw", "--fsync=8", f"--write_iolog={tmp_path}/mix.log"),
        *("--name=write", "--rw=write", "--fdatasync=4", f"--thinktime={pause}"),
        f"--write_iolog={tmp_path}/write.log",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True)
    jobs = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    logs = [tmp_path / "mix.log", tmp_path / "write.log"]
    trace = imported_files(tmp_path, logs)
    for thread, job in enumerate(jobs):
        rows = [row for row in trace.rows if row.thread == thread]
        count = Counter(row.kind for row in rows)
        assert count[Kind.READ] == job["read"]["total_ios"]
        assert count[Kind.WRITE] == job["write"]["total_ios"]
        assert sum(row.size for row in rows if row.kind == Kind.READ) == job["read"]["io_bytes"]
        lines = Counter(line.split()[2] for line in logs[thread].read_text().splitlines()[1:])
        assert count[Kind.FSYNC] == lines["sync"] + lines["datasync"]
        assert (count[Kind.OPEN], count[Kind.CLOSE]) == (lines["open"], lines["close"])
    assert trace.header.facts["versions"] == [3, 3]
    assert trace.header.timed
    times = [row.time for row in trace.rows if (row.thread, row.kind) == (1, Kind.WRITE)]
    assert times[-1] - times[0] > (len(times) - 1) * pause * 1000 / 2  # and not a thousandth


def test_an_importer_reads_in_constant_memory(tmp_path: Path) -> None:
    """What grows with the text would be some hundred bytes for each line."""
    script = """
import resource, sys
from pathlib import Path
from fsmatrix.traces.importing.importer import import_traces
import_traces([Path(sys.argv[1])], Path(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for lines in (70_000, 350_000):
        path = tmp_path / f"{lines}.log"
        with path.open("w", encoding="ascii") as file:
            file.write(V3 + "0 /a add\n0 /a open\n")
            file.writelines(f"{i} /a read {i * 4096 % (1 << 30)} 4096\n" for i in range(lines))
        command = [sys.executable, "-P", "-c", script, str(path), str(tmp_path / "t.h5")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        peaks.append(int(done.stdout))
    assert (peaks[1] - peaks[0]) * 1024 < 280_000 * 50


def test_the_trace_is_none_of_its_inputs(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(V3 + LOG, encoding="ascii")
    with pytest.raises(TraceError, match="one of the inputs"):
        import_traces([path], path)
    assert path.read_text(encoding="ascii") == V3 + LOG
