"""Texts of blkparse: events whose operations are known, as blkparse 1.2 prints them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fsmatrix.backends.player.ops import Kind
from fsmatrix.traces.importing import blkparse
from fsmatrix.traces.trace_model import NOT_CAPTURED, UNKNOWN, TraceError
from tests.traces.importing.imported import imported

TEXT = """\
  8,0    0        1     1.000000000    77  Q   R 1000 + 8 [cat]
  8,0    0        2     1.000001000    77  D   R 1000 + 8 [cat]
  8,0    0        3     1.000005000    77  D FWFS 2000 + 16 [cat]
  8,0    0        4     1.000009000     0  C   R 1000 + 8 [0]
  8,0    0        5     1.000011000     0  C FWFS 2000 + 8 [0]
  8,0    0        6     1.000012000     0  C FWFS 2008 + 8 [0]
  8,0    0        7     1.000013000    78  D  FN [sync]
  8,0    0        8     1.000014000     0  C  FN 0 [0]
  8,0    0        0     1.000014500    78  m   N cfq78 merged
  8,0    0        9     1.000017000    78  D   D 4000 + 128 [trim]
  8,0    0       10     1.000018000     0  C   D 4000 + 128 [0]
  8,0    0       11     1.000019000    78  D RAM 5000 + 8 [find]
  8,0    0       12     1.000020000     0  C RAM 5000 + 8 [65531]
  8,0    0       13     1.000021000    78  D   R 6000 + 8 [find]
  8,0    0       14     1.000022000    78  R   R 6000 + 8 [0]
  8,0    0       15     1.000023000    78  D   R 6000 + 8 [find]
  8,0    0       16     1.000024000     0  C   R 6000 + 8 [0]
  8,0    0       17     1.000025000    79  D   N 0 (12 00 00 00 24 00 ..) [sg]
  8,0    0       18     1.000026000    79  C   R (12 00 00 00 24 00 ..) [0]
  8,0    0       19     1.000027000    79  D   R 7000 + 8 [end]
CPU0 (sda):
 Reads Queued:           1,        4KiB	 Writes Queued:           0,        0KiB

Throughput (R/W): 0KiB/s / 0KiB/s
Events (sda): 19 entries
"""


def test_operations_go_from_the_driver_to_their_completion(tmp_path: Path) -> None:
    trace = imported(tmp_path, TEXT)
    columns = ("kind", "offset", "size", "time", "latency", "result")
    assert trace.did(*columns) == [
        (Kind.OPEN, 0, 0, 0, NOT_CAPTURED, UNKNOWN),
        (Kind.READ, 512_000, 4096, 0, 8000, 4096),
        (Kind.WRITE, 1_024_000, 8192, 4000, 7000, 8192),  # completed in two parts
        (Kind.FSYNC, 0, 0, 12_000, 1000, 0),
        (Kind.READ, 2_560_000, 4096, 18_000, 1000, -errno.EIO),
        (Kind.READ, 3_072_000, 4096, 22_000, 1000, 4096),  # after it was requeued
        (Kind.READ, 3_584_000, 4096, 26_000, NOT_CAPTURED, UNKNOWN),
        (Kind.CLOSE, 0, 0, 26_000, NOT_CAPTURED, UNKNOWN),
    ]
    assert trace.files == {b"8,0": (7008 * 512, False)}
    assert [row.thread for row in trace.rows] == [0, 0, 0, 1, 1, 1, 2, 0]
    assert trace.threads == [[77, 77, 0], [78, 78, 0], [79, 79, 0]]
    assert trace.header.unseen == {
        "flush before a write": 1,
        "forced unit access": 1,
        "discard": 1,
        "neither read nor write": 1,
    }
    assert trace.header.facts == {
        "issue": "D",
        "opened_by_import": 1,
        "closed_without_a_call": 1,
        "not_completed": 1,
    }


def test_a_text_without_driver_begins_when_queued(tmp_path: Path) -> None:
    text = (
        "253,0 1 1 0.000000100 5 Q W 8 + 8 [a]\n253,1 1 2 0.000000200 5 Q R 0 + 1 [a]\n"
        "253,1 0 1 0.000000300 0 C R 0 + 1 [0]\n253,0 0 2 0.000000400 0 C W 8 + 8 [0]\n"
    )
    trace = imported(tmp_path, text)
    assert trace.did("name", "kind", "time", "latency") == [
        (b"253,0", Kind.OPEN, 0, NOT_CAPTURED),
        (b"253,0", Kind.WRITE, 0, 300),
        (b"253,1", Kind.OPEN, 100, NOT_CAPTURED),
        (b"253,1", Kind.READ, 100, 100),
        (b"253,0", Kind.CLOSE, 100, NOT_CAPTURED),
        (b"253,1", Kind.CLOSE, 100, NOT_CAPTURED),
    ]
    assert trace.files == {b"253,0": (0, False), b"253,1": (512, False)}
    assert trace.header.facts["issue"] == "Q"


def test_what_was_begun_before_the_text_is_counted(tmp_path: Path) -> None:
    text = "8,0 0 1 0.000000100 5 C W 8 + 8 [0]\n8,0 0 2 0.000000200 5 D R 8 + 8 [a]\n"
    trace = imported(tmp_path, text)
    assert trace.header.unseen == {"completed without a begin": 1}
    assert len(trace.rows) == 3


def test_ends_that_never_come_hold_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blkparse, "MOST_HELD", 2)
    text = "".join(f"8,0 0 {i} 0.00000{i}000 5 D R {i * 8} + 8 [a]\n" for i in range(1, 6))
    text += "8,0 0 6 0.000006000 0 C R 8 + 8 [0]\n8,0 0 7 0.000007000 0 C R 40 + 8 [0]\n"
    trace = imported(tmp_path, text)
    assert [row.latency for row in trace.rows] == [NOT_CAPTURED] * 5 + [2000, NOT_CAPTURED]
    assert trace.header.unseen == {"completed without a begin": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("some words", "no event in blkparse's default format"),
        ("8,0 0 1 2.000000000 1 D R -8 + 8 [a]", None),
        ("8,0 0 1 2.000000000 1 D R 8 + -8 [a]", "no whole number"),
        (f"8,0 0 1 2.000000000 1 D R {1 << 54} + 8 [a]", "2\\^63"),
        (f"8,0 0 1 2.000000000 1 D R {1 << 63} + 8 [a]", "2\\^63"),
        ("8,0 0 1 2.000000000 1 D R 8 + 4194304 [a]", "are allowed"),
        ("8,0 0 1 0.500000000 1 D R 8 + 8 [a]", "before that of the event before it"),
        ("8,0 0 1 -2.000000000 1 D R 8 + 8 [a]", "no whole number"),
        ("8,0 0 1 2.5 1 D R 8 + 8 [a]", "SECONDS.NANOSECONDS"),
        ("8,0 0 1 9999999999.000000000 1 D R 8 + 8 [a]", "2\\^63"),
        ("8,0 0 1 2.000000000 x D R 8 + 8 [a]", "no whole number"),
    ],
)
def test_what_blkparse_does_not_print(tmp_path: Path, line: str, reason: str | None) -> None:
    text = f"8,0 0 1 1.000000000 1 D R 8 + 8 [a]\n{line}\n"
    if reason is None:  # no sector: like an event without data
        assert imported(tmp_path, text).header.unseen == {"neither read nor write": 1}
        return
    with pytest.raises(TraceError, match=rf"in-0: line 2: .*{reason}"):
        imported(tmp_path, text)


def test_one_text_and_no_roots(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="in-1: one at a time"):
        imported(tmp_path, TEXT, TEXT)
    with pytest.raises(TraceError, match="--root cannot be used"):
        imported(tmp_path, TEXT, roots=[Path("/a")])
