"""Anonymised traces: nothing of the names is left in the file, and everything else is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.player.ops import Kind
from fsmatrix.cli import main as cli
from fsmatrix.traces.trace_model import Header, Operation, Thread, TraceError
from fsmatrix.traces.tracefile import Pseudonyms, anonymise, opened, writing

NAMES = (
    b"projectSaturn/merger.docx",
    b"projectSaturn/merger.d/alice.tar.gz",
    b"projectSaturn",
    b".secretrc",
    b"v1.confidentialversion",
    b"merger.docx",
    b"\xff\xfelatin",
)
SECRETS = (
    b"Saturn", b"merger", b"alice", b"secret", b"confidential", b"latin", b"/home/bob", b"acquire",
    b"target", b"\xff\xfelat", b"13371", b"13373",
)  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files of all kinds of names, of two processes on two ranks."""
    path = tmp_path / "source.h5"
    with writing(path) as trace:
        rows = [trace.file(name, 10 * at, at == 2) for at, name in enumerate(NAMES)]
        slots = [trace.slot(row) for row in (*rows, rows[0])]
        threads = [
            trace.thread(Thread(*ids))
            for ids in ((13371, 13371, 0), (13371, 13373, 0), (13371, 13371, 1))
        ]
        for at in range(1000):
            trace.add(
                Operation(Kind(at % 12), slots[at % len(slots)], offset=at, size=7),
                5 * at,
                thread=threads[at % 3],
                latency=at,
                result=at % 5,
            )
        facts = {"roots": ["/home/bob"], "lines": 12, "host": "saturn", "texts": 1.5}
        command = ("acquire", "--what", "target")
        trace.finish(Header("strace", command=command, unseen={"mmap": 3}, facts=facts))
    return path


@pytest.mark.parametrize("extensions", [False, True])
def test_no_name_is_left_in_the_file(source: Path, tmp_path: Path, extensions: bool) -> None:
    out = tmp_path / "out.h5"
    header = anonymise(source, out, extensions)
    data = out.read_bytes()
    assert b"projectSaturn" in _unpacked(source)  # so the search does see names
    for secret in SECRETS:
        assert secret not in data, secret
        assert secret not in _unpacked(out), secret
    assert header == Header(
        "strace", anonymised=True, unseen={"mmap": 3}, facts={"lines": 12, "texts": 1.5}
    )
    with opened(out) as trace:
        assert trace.header == header
        ends = [name.rpartition(b".")[2] for name in trace.files.names() if b"." in name]
        assert ends == ([b"docx", b"gz", b"docx"] if extensions else [])


def _unpacked(path: Path) -> bytes:
    """The names and all numbers as they are in memory: in the file they are compressed."""
    with opened(path) as trace:
        return b"\0".join(
            [
                *trace.files.names(),
                repr(trace.header).encode(),
                repr(trace.threads.tolist()).encode(),
            ]
        )


def test_the_rest_stays_as_it_is(source: Path, tmp_path: Path) -> None:
    anonymise(source, tmp_path / "out.h5")
    with opened(source) as before, opened(tmp_path / "out.h5") as after:
        assert after.slots.tolist() == before.slots.tolist()
        assert after.files.size.tolist() == before.files.size.tolist()
        assert after.files.directory.tolist() == before.files.directory.tolist()
        assert after.threads.tolist() == [[1, 1, 0], [1, 2, 0], [2, 3, 1]]
        for ours, theirs in zip(before.blocks(), after.blocks(), strict=True):
            for column, values in ours.items():
                np.testing.assert_array_equal(values, theirs[column])
        parts = [name.split(b"/") for name in after.files.names()]
        assert [len(part) for part in parts] == [2, 3, 1, 1, 1, 1, 1]
        assert parts[0][0] == parts[1][0] == parts[2][0]  # projectSaturn
        assert parts[0][1] == parts[5][0]  # merger.docx
        assert len({part for path in parts for part in path}) == 7


def test_another_time_the_names_are_others(source: Path, tmp_path: Path) -> None:
    for name in "ab":
        anonymise(source, tmp_path / f"{name}.h5")
    with opened(tmp_path / "a.h5") as one, opened(tmp_path / "b.h5") as other:
        assert not set(one.files.names()) & set(other.files.names())


def test_a_path_whose_pseudonym_is_too_long(tmp_path: Path) -> None:
    with writing(tmp_path / "deep.h5") as trace:
        trace.file(b"/".join([b"a"] * 1000))
        trace.finish(Header("test"))
    with pytest.raises(TraceError, match=r"deep\.h5: file 0: its pseudonym is too long"):
        anonymise(tmp_path / "deep.h5", tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


@given(paths=st.lists(st.binary(min_size=1, max_size=20), max_size=30, unique=True))
def test_different_names_stay_different(paths: list[bytes]) -> None:
    for extensions in (False, True):
        pseudonyms = Pseudonyms(extensions)
        made = [pseudonyms.path(path) for path in paths]
        assert len(set(made)) == len(paths)
        assert [pseudonyms.path(path) for path in paths] == made


def test_the_command(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.h5"
    for words, status in (
        ([source, "-o", out, "--keep-extensions"], 0),
        ([tmp_path / "none", "-o", out], 2),
        ([source, "-o", tmp_path / "none" / "out.h5"], 2),
    ):
        monkeypatch.setattr(sys, "argv", ["fsmatrix", "trace", "anonymise", *map(str, words)])
        assert int(cli.command() or 0) == status
    with opened(out) as trace:
        assert trace.header.anonymised
