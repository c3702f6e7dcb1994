"""`fsmatrix trace info` and `fsmatrix trace generate`: what they print, draw, write and refuse."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from fsmatrix.analysis.traces import TraceShown
from fsmatrix.backends.player.ops import Kind
from fsmatrix.cli import trace as capture
from fsmatrix.results.evidence import stored
from fsmatrix.results.evidence.trace import TraceStatistics
from fsmatrix.traces.statistics import survey
from fsmatrix.traces.touched_pages import Pages
from fsmatrix.traces.trace_model import Header
from fsmatrix.traces.tracefile import copy, opened, writing
from tests.analysis.commands import call
from tests.traces.listed import Listed, listed

Patch = pytest.MonkeyPatch


def program() -> Listed:
    """Opens, reads and failed stats of a captured program, of several classes of files."""
    count = 400
    row = np.arange(count)
    names = [b"src/$a$.c", b"src/b.c", b"obj/a.o", b"x\x1b[2J.pack", b"log", b"e.y", b"f.z"]
    return listed(
        count,
        names=names,
        sizes=[10_000, 5_000, -1, 1 << 20, -1, 7, 7],
        threads=2,
        header=Header("strace", ("git", "\x1b[2Jx"), unseen={"mmap": 3}),
        kind=np.select(
            [row < 7, row % 10 == 0, row % 3 == 0], [Kind.OPEN, Kind.STAT, Kind.WRITE], Kind.READ
        ),
        slot=row % 7,
        thread=row % 2,
        offset=np.where(row < 7, 0, row // 7 * 512),
        size=np.where(row < 7, 0, 512),
        time=row * 10**6,
        latency=row * 100,
        result=np.where(row < 7, 0, np.where(row % 10 == 0, -errno.ENOENT, 512)),
    )


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    copy(program(), tmp_path / "program.h5")
    return tmp_path / "program.h5"


def test_info_says_what_a_trace_is_like(trace: Path, monkeypatch: Patch, capsys: Any) -> None:
    assert call(monkeypatch, "trace", "info", trace) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0].startswith("400 operations from strace (git ")
    assert lines[0].endswith("in 0.399 s: by 2 threads, on 7 files.")
    assert lines[1] == "Seen, but not in the trace: mmap (3)."
    pages = {(row % 7, row // 7 * 512 // 4096) for row in range(7, 400) if row % 10}
    assert lines[2].startswith(f"They touch {len(pages)} unique pages of 4 KiB ")
    assert "\x1b" not in printed
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["stat"][1:3] == ["39", "39"]  # operations, failed
    assert rows["open"][1] == "7"
    assert rows[".c"][1] == "2"  # files


def test_json_is_what_is_stored(trace: Path, monkeypatch: Patch, capsys: Any) -> None:
    assert call(monkeypatch, "trace", "info", trace, "--json") == 0
    printed = capsys.readouterr()
    given = json.loads(printed.out)
    assert given.pop("says")[1] == "Seen, but not in the trace: mmap (3)."
    again = stored.read(TraceStatistics, given, "trace")
    with opened(trace) as operations:
        assert again == survey(operations)


@pytest.mark.parametrize("suffix", ["png", "svg", "csv"])
def test_the_picture(trace: Path, monkeypatch: Patch, capsys: Any, suffix: str) -> None:
    out = trace.with_name(f"out.{suffix}")
    assert call(monkeypatch, "trace", "info", trace, "-o", out) == 0
    assert str(out) in capsys.readouterr().err
    if suffix == "png":
        assert imread(out).std() > 0.05
    elif suffix == "csv":
        assert out.read_text().splitlines()[0].startswith("kind,operations,failed,short,")


def texts(figure: Any) -> list[str]:
    """All that is written in a figure."""
    return [item.get_text() for item in figure.findobj(mpl.text.Text) if item.get_text()]


def test_six_panels_with_units() -> None:
    figure = TraceShown("a$b$.h5", survey(program())).figure()
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [
        "Where in the files",
        "Operations by kind",
        "Sizes of reads and writes",
        "Misses of an LRU page cache",
        "Operations issued per second",
        "Working set of 1/96 of the trace",
    ]
    written = texts(figure)
    assert r"Trace a\$b\$.h5" in written
    assert "time, ms" in written
    assert "39, 39 failed" in written
    assert any(text.startswith(".c\n2 files, ") for text in written)
    assert "Seen, but not in the trace: mmap." in written
    assert not any("\x1b" in text for text in written)
    assert {line.get_label() for line in figure.axes[4].patches} >= {"reads", "writes", "others"}


def test_pictures_of_traces_with_little_in_them(tmp_path: Path) -> None:
    """No panel fails for want of operations, times, reads or writes."""
    for number, little in enumerate((
        listed(0),
        listed(1, kind=Kind.STAT),
        listed(1, kind=Kind.WRITE, size=1),
        listed(3, kind=Kind.READ, size=0, header=Header("test", timed=False)),
        listed(2, kind=Kind.READ, offset=(1 << 63) - 9, size=8, time=(1 << 63) - 1),
    )):  # fmt: skip
        shown = TraceShown("little", survey(little))
        shown.figure().savefig(tmp_path / f"{number}.png")
        assert shown.says
        assert json.dumps(shown.to_dict())
        assert shown.classes() is not None


def test_estimates_carry_their_errors(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Pages.__init__, "__defaults__", (500, 1 << 22))
    offset = np.random.default_rng(1).integers(0, 3_000, 20_000) * 4096
    shown = TraceShown("t", survey(listed(20_000, kind=2, size=9, offset=offset, block=999)))
    says = " ".join(shown.says)
    assert " unique pages" in says
    assert "± " in says
    assert "One page in 8 was followed" in says
    assert any(text.startswith("Pages: one in 8") for text in texts(shown.figure()))


def test_generate_writes_what_info_reads(tmp_path: Path, monkeypatch: Patch, capsys: Any) -> None:
    out = tmp_path / "ycsb.h5"
    words = ("trace", "generate", "ycsb-zipfian", "--scale", "0.001", "--seed", "3", "-o", out)
    assert call(monkeypatch, *words) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 39190 operations on ")
    assert call(monkeypatch, "trace", "info", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ycsb-zipfian --scale=0.001 --seed=3" in lines[0]
    assert "only their order means anything" in lines[0]
    published = next(line for line in lines if line.startswith("Published, at this scale"))
    assert "39188 reads, 5749 unique pages" in published
    assert "zipfian constant" in published


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("zipf", "-o", "t.h5"), "known are uniform-random, ycsb-zipfian"),
        (("ycsb-zipfian", "--scale", "0", "-o", "t.h5"), "above 0"),
        (("ycsb-zipfian", "--scale", "nan", "-o", "t.h5"), "above 0"),
        (("ycsb-zipfian", "--scale", "0.001", "-o", "no/t.h5"), "is not a directory"),
    ],
)
def test_generate_refuses(
    tmp_path: Path, monkeypatch: Patch, capsys: Any, words: tuple[str, ...], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "trace", "generate", *words) == 2
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_info_refuses_what_is_no_trace(trace: Path, monkeypatch: Patch, capsys: Any) -> None:
    other = trace.with_name("other.h5")
    other.write_bytes(trace.read_bytes()[:3000])
    picture = trace.with_name("out.png")
    assert call(monkeypatch, "trace", "info", other, "-o", picture) == 2
    assert "other.h5" in capsys.readouterr().err
    assert call(monkeypatch, "trace", "info", trace.with_name("missing.h5")) == 2
    assert "missing.h5: cannot be read" in capsys.readouterr().err
    assert call(monkeypatch, "trace", "info", trace, "-o", "out.gif") == 2
    assert "must end in" in capsys.readouterr().err
    assert not picture.exists()


@pytest.mark.parametrize("foreign", ["text", "hdf5", "directory", "fifo"])
@pytest.mark.parametrize("command", ["capture", "import", "anonymise", "generate"])
def test_no_file_but_a_trace_is_replaced(
    tmp_path: Path,
    command: str,
    foreign: str,
    monkeypatch: Patch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine, source, trace = (tmp_path / name for name in ("thesis", "load.txt", "t.h5"))
    {
        "text": lambda: mine.write_text("of somebody"),
        "hdf5": lambda: h5py.File(mine, "w").close(),
        "directory": mine.mkdir,
        "fifo": lambda: os.mkfifo(mine),
    }[foreign]()
    before = mine.stat().st_ino, mine.stat().st_mtime_ns
    source.write_text('Mkdir "/d" NT_STATUS_OK\n')
    assert call(monkeypatch, "trace", "import", source, "-o", trace) == 0
    every: dict[str, list[Any]] = {
        "capture": ["--", "touch", tmp_path / "ran"],
        "import": [source],
        "anonymise": [trace],
        "generate": ["uniform-random", "--scale", "0.0001"],
    }
    words = every[command]
    capsys.readouterr()
    assert call(monkeypatch, "trace", command, "-o", mine, *words) == 2
    message = " ".join(capsys.readouterr().err.split())
    why = "is a directory" if foreign == "directory" else "is there already and is no whole trace"
    assert why in message
    assert (mine.stat().st_ino, mine.stat().st_mtime_ns) == before
    assert not (tmp_path / "ran").exists()
    if command == "import":  # a trace is replaced by a newer one
        assert call(monkeypatch, "trace", command, "-o", trace, *words) == 0


def test_an_empty_capture_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    empty = capture.Summary("t.h5", operations=0, kinds={}, files=1, threads=1, unseen={}, facts={})
    capture._say(empty)
    text = " ".join(capsys.readouterr().err.split())
    assert text.startswith("t.h5: 0 operations on 1 name by 1 thread nothing was done below the")
    capture._say(replace(empty, operations=1))
    assert "nothing was done" not in capsys.readouterr().err


def test_a_trace_without_operations_has_no_threads(tmp_path: Path) -> None:
    with writing(tmp_path / "t.h5") as writer:
        writer.finish(Header("strace"))
    assert capture.summary(tmp_path / "t.h5").threads == 0
