"""Texts that lie: a trace that can be read, or an error that names file and line; nothing else."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsmatrix.traces.importing.importer import MOST_UNSEEN, import_traces
from fsmatrix.traces.trace_model import TraceError
from fsmatrix.traces.tracefile import opened
from tests.traces.importing.imported import imported

NUMBERS = st.sampled_from(
    ["0", "1", "4096", "-1", str((1 << 63) - 1), str(1 << 63), str(1 << 64), "1e9", "9" * 30, "٣"]
)
PATHS = st.sampled_from(["/a", "a/b", "/a/b", "../x", "/", "..", ".", "/a/../..", "\udcff", "a b"])
ANY = st.text(max_size=12)


def word(*known: str) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(known), NUMBERS, PATHS, ANY)


def line(*words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*words).map(" ".join)


ACTIONS = word("add", "open", "close", "read", "write", "sync", "datasync", "trim", "wait")
V3_LINES = st.one_of(line(NUMBERS, PATHS, ACTIONS), line(NUMBERS, PATHS, ACTIONS, NUMBERS, NUMBERS))
V2_LINES = st.one_of(line(PATHS, ACTIONS), line(PATHS, ACTIONS, NUMBERS, NUMBERS))
NAMES = st.sampled_from(["\\a", "\\a\\b", "\\..\\x", "\\", "/a/b/c", "*", ""]).map('"{}"'.format)
HANDLES = st.sampled_from(["1", "2", "3"])
STATUS = word("NT_STATUS_OK", "NT_STATUS_OK", "NT_STATUS_NO_SUCH_FILE")
LOAD_LINES = st.one_of(
    line(st.just("NTCreateX"), NAMES, word("0x1", "0x40"), word("1", "2", "5"), HANDLES, STATUS),
    line(word("WriteX", "ReadX"), HANDLES, NUMBERS, NUMBERS, NUMBERS, STATUS),
    line(word("Close", "Flush", "LockX", "QUERY_FILE_INFORMATION"), HANDLES, STATUS),
    line(word("Mkdir", "Rmdir", "Unlink", "Deltree", "FIND_FIRST", "Frob"), NAMES, STATUS),
    line(st.just("Rename"), NAMES, NAMES, STATUS),
    line(NUMBERS, word("Mkdir"), NAMES, STATUS),
    ANY,
)
BLOCK_TIMES = st.integers(-1, 99).map("{}.000000000".format)
BLOCK_LINES = st.one_of(
    line(
        word("8,0", "8,1"), NUMBERS, NUMBERS, st.one_of(BLOCK_TIMES, NUMBERS), NUMBERS,
        word("D", "C", "Q", "R"), word("R", "W", "FWS", "FN", "D", "N"), NUMBERS, st.just("+"),
        NUMBERS, word("[0]", "[-5]", "[65531]", "[x]"),
    ),
    ANY,
)  # fmt: skip
HEADS = {
    "fio-iolog": ("fio version 3 iolog", V3_LINES),
    "fio-iolog 2": ("fio version 2 iolog", V2_LINES),
    "dbench": ('Mkdir "\\a" NT_STATUS_OK', LOAD_LINES),
    "blkparse": ("8,0 0 1 0.000000000 1 D R 8 + 8 [a]", BLOCK_LINES),
}


@pytest.mark.parametrize("name", HEADS)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_a_trace_or_an_error_that_names_file_and_line(name: str, data: st.DataObject) -> None:
    first, lines = HEADS[name]
    text = "\n".join([first, *data.draw(st.lists(lines, max_size=12))]) + "\n"
    check(text.encode("utf-8", "surrogateescape" if "\udcff" in text else "surrogatepass"), name)


@pytest.mark.parametrize("name", HEADS)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.binary(max_size=200))
def test_any_bytes(name: str, data: bytes) -> None:
    check(HEADS[name][0].encode() + b"\n" + data, name)


def check(text: bytes, name: str) -> None:
    """What is imported is a trace that the reader believes; what is not is an error with a line."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "in", Path(folder) / "t.h5"
        path.write_bytes(text)
        reason = ""
        try:
            import_traces([path], out, name.split()[0])
        except TraceError as error:
            reason = str(error)
        if reason:
            assert re.match(rf"{re.escape(str(path))}: (line \d+: |no operation of it)", reason)
            assert [each.name for each in Path(folder).iterdir()] == ["in"]
            return
        with opened(out) as trace:
            assert sum(len(block["kind"]) for block in trace.blocks()) == trace.operations


@pytest.mark.parametrize(
    "text",
    [
        "fio version 3 iolog\n0 /" + "a/" * 2000 + "b open\n",
        'Mkdir "' + "a\\" * 2000 + 'b" NT_STATUS_OK\nDeltree "a" NT_STATUS_OK\n',
        'Mkdir "b" NT_STATUS_OK\nRename "' + "a\\" * 2000 + 'b" "c" NT_STATUS_OK\n',
    ],
)
def test_a_path_may_be_deep(tmp_path: Path, text: str) -> None:
    trace = imported(tmp_path, text)
    assert len(trace.files) > 1000


def test_kinds_of_unseen_things_are_bounded(tmp_path: Path) -> None:
    head = "8,0 0 1 0.000000000 1 D R 8 + 8 [a]\n"
    text = "".join(f"8,0 0 1 0.000000000 1 A{i} R 8 + 8 [a]\n" for i in range(1000))
    unseen = imported(tmp_path, head + text).header.unseen
    assert len(unseen) <= MOST_UNSEEN + 1
    assert sum(unseen.values()) == 1000
