"""`fsmatrix trace import`: what it prints, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsmatrix.backends.player.ops import Kind
from fsmatrix.results.registry import UnknownName
from fsmatrix.traces.importing.importer import IMPORTERS, import_traces
from fsmatrix.traces.trace_model import TraceError
from tests.suite.running import fsmatrix
from tests.traces.importing.imported import trace_of

LOG = "fio version 3 iolog\n0 /d/a add\n1 /d/a open\n2 /d/a read 0 10\n3 /d/a trim 0 1\n"
LOAD = 'Mkdir "\\a" NT_STATUS_OK\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.write_text(LOG, encoding="ascii")
    return path


def test_what_was_imported_and_what_was_not(tmp_path: Path, log: Path) -> None:
    done = fsmatrix("trace", "import", log, "-o", tmp_path / "t.h5")
    assert done.returncode == 0, done.stderr
    assert "2 operations of fio-iolog in" in done.stdout
    assert "not in the trace: 1 x trim" in done.stdout
    words = ("trace", "import", "--format", "fio-iolog", "--root", "/d", log)
    done = fsmatrix(*words, "-o", tmp_path / "t.h5", "--json")
    answer = json.loads(done.stdout)
    assert (answer["format"], answer["operations"], answer["timed"]) == ("fio-iolog", 2, True)
    assert answer["unseen"] == {"trim": 1}


def test_what_is_guessed_is_printed(tmp_path: Path) -> None:
    lines = [
        'execve("/bin/sh", ["sh"], 0x1 /* 9 vars */) = 0',
        'openat(AT_FDCWD, "/r/log", O_WRONLY|O_CREAT|O_APPEND, 0666) = 3',
        'write(3, ""..., 10) = 10',
        'write(4</r/old>, ""..., 10) = 10',
        'truncate("/r/old", 5) = 0',
        "+++ exited with 0 +++",
    ]
    text, trace = tmp_path / "a.strace", tmp_path / "t.h5"
    text.write_text("".join(f"1 {line}\n" for line in lines), encoding="ascii")
    guesses = "Guessed: offsets of 1 append; 2 opens and 3 closes that were not traced."
    done = fsmatrix("trace", "import", text, "--root", "/r", "-o", trace)
    assert guesses in done.stdout.splitlines(), done.stderr
    assert guesses in fsmatrix("trace", "info", trace).stdout.splitlines()


def test_bad_input_is_status_2_with_file_and_line(tmp_path: Path, log: Path) -> None:
    log.write_text(LOG + "1 /d/a close\n", encoding="ascii")
    done = fsmatrix("trace", "import", log, "-o", tmp_path / "t.h5")
    assert done.returncode == 2
    assert f"{log}: line 6: its time is before" in done.stderr
    assert "Traceback" not in done.stderr
    for words in (
        (tmp_path / "none", "-o", tmp_path / "t.h5"),
        (tmp_path, "-o", tmp_path / "t.h5"),
        (log, "-o", tmp_path / "none" / "t.h5"),
        (log, "-o", tmp_path / "t.h5", "--root", "/a", "--root", "/a/b"),
        (log, "-o", tmp_path / "t.h5", "--format", "fio-iolgo"),
    ):
        done = fsmatrix("trace", "import", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
    assert "did you mean 'fio-iolog'?" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]


def test_every_format_is_recognised_by_content(tmp_path: Path, log: Path) -> None:
    texts = {
        "fio-iolog": LOG.encode(),
        "dbench": LOAD.encode(),
        "blkparse": b"  8,0    3        1     0.000000000   697  D   W 223490 + 8 [kjournald]\n",
        "strace": b'12 1795436031.000001 openat(AT_FDCWD, "/a", O_RDONLY) = 3</a> <0.000010>\n',
        "darshan": b"3.41\0\0\0\0" + (6567223).to_bytes(8, "big"),
    }
    for name, text in texts.items():
        others = {each for each in IMPORTERS.names() if IMPORTERS.load(each).recognises(text)}
        assert others == {name}
    for nothing in (b"\0" * 100, b"words\n", b"fio version 1 iolog\n", b'"" "" ""\n'):
        log.write_bytes(nothing)
        with pytest.raises(TraceError, match=r"a.log: not a trace of a known format"):
            import_traces([log], tmp_path / "t.h5")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (b"% time     seconds  usecs/call     calls    errors syscall\n", "strace -c; .* -f -ttt"),
        (b"# darshan log version: 3.41\n# compression method: ZLIB\n", "import the log itself"),
        (b"# darshan log version: 3.41\n# DXT, file_id: 5, ...\n", "darshan-dxt-parser"),
        (b"\x07tae\0\0\0\0", "blkparse -i"),
    ],
)
def test_what_is_nearly_a_trace_gets_the_advice_that_applies(
    tmp_path: Path, log: Path, text: bytes, advice: str
) -> None:
    log.write_bytes(text)
    with pytest.raises(TraceError, match=f"a.log: .*{advice}"):
        import_traces([log], tmp_path / "t.h5")


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [
        ("utf-16", "is UTF-16 or UTF-32; turn it into UTF-8"),
        ("utf-16-le", "is UTF-16 or UTF-32"),
        ("utf-16-be", "is UTF-16 or UTF-32"),
        ("utf-32", "is UTF-16 or UTF-32"),
        ("utf-8-sig", "begins with a byte order mark"),
    ],
)
@pytest.mark.parametrize("format", ["", "fio-iolog"])
def test_a_text_in_another_encoding_is_refused_as_that(
    tmp_path: Path, log: Path, encoding: str, reason: str, format: str
) -> None:
    log.write_text(LOG, encoding=encoding)
    with pytest.raises(TraceError, match=f"a.log: {reason}"):
        import_traces([log], tmp_path / "t.h5", format)


def test_an_empty_file_is_refused_as_that(tmp_path: Path, log: Path) -> None:
    log.write_bytes(b"")
    with pytest.raises(TraceError, match=r"a.log: is empty"):
        import_traces([log], tmp_path / "t.h5")


def test_a_text_of_strace_is_read_as_a_capture_reads_it(tmp_path: Path, log: Path) -> None:
    log.write_text(
        '12 100000000.000001 openat(AT_FDCWD, "/d/a", O_RDONLY) = 3 <0.000010>\n'
        '12 100000000.000021 read(3, ""..., 100) = 100 <0.000020>\n'
        "12 100000000.000051 close(3) = 0 <0.000005>\n",
        encoding="ascii",
    )
    import_traces([log], tmp_path / "t.h5", roots=[Path("/d")])
    trace = trace_of(tmp_path / "t.h5")
    assert trace.did("kind", "name", "time", "latency", "result") == [
        (Kind.OPEN, b"a", 0, 10_000, 0),
        (Kind.READ, b"a", 20_000, 20_000, 100),
        (Kind.CLOSE, b"a", 50_000, 5_000, 0),
    ]
    with pytest.raises(TraceError, match="give the root"):
        import_traces([log], tmp_path / "t.h5")


def test_inputs_are_of_one_format(tmp_path: Path, log: Path) -> None:
    (tmp_path / "load").write_text(LOAD, encoding="ascii")
    with pytest.raises(TraceError, match=r"load: has the format dbench, but .*a.log has fio-iolog"):
        import_traces([log, tmp_path / "load"], tmp_path / "t.h5")
    with pytest.raises(UnknownName, match="unknown trace format 'x'"):
        import_traces([log], tmp_path / "t.h5", "x")
