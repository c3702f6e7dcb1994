"""Messages on the wire: what is sent comes back; what is no message is named by its key."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.access import PathAccess
from fsmatrix.results.evidence.stored import Stored, StoredError
from fsmatrix.suite.session import wire
from fsmatrix.suite.session.messages import (
    COMMANDS,
    Argv,
    Call,
    Command,
    Finished,
    Function,
    Hello,
    KernelUse,
    Merged,
    OperationError,
    Playing,
    Quit,
    RankOutput,
    SampledKernel,
    StepAnswer,
    StepCommand,
    Stream,
    Watch,
    in_rows,
)
from tests.ranks import rank

ACCESS = PathAccess("directory", "here", {"tag": "t"}, "/data")
STEP = StepCommand(
    to=in_rows(range(0, 40, 5)),
    roots=("/data/a", "/data/b"),
    access=ACCESS.to_json(),
    nodes=2,
    threads=1,
    seed=1 << 62,
    affinity="core",
    sample=True,
    oversubscribed=False,
    timeout=3,
)
PLAYING = Playing(
    stream=Stream("a:b", {"x": [1, {"y": None}]}, seconds=0.5, stop_on_error=False),
    seed=(1 << 64) - 1,
    driver="posix",
    implementation="auto",
)
USE = KernelUse(
    before={"a": 1}, after={"a": 2.5}, cpu={}, cpu_seconds=1, user_seconds=0, storage_user_seconds=0
)
ERROR = OperationError(
    rank=1, kind="read", file="f", offset=0, errno="EIO", number=5, op=3, thread=0
)
MERGED = Merged(interval=0.01, errors_by_errno={"EIO": 1}, failures=(ERROR,), clock_uncertainty=0.0)
MESSAGES: list[Stored] = [
    Quit(to=in_rows([])),
    Call.of([3, 1], "cache", ACCESS, Path("/out"), state="cold", files=["a"]),
    Watch(to=in_rows([0]), begin=True, access=ACCESS.to_json()),
    replace(STEP, playing=PLAYING),
    replace(STEP, function=Function("a:b", {})),
    replace(STEP, program=Argv(("sh", "-c", "x"), {"A": "b"}, collect=("*.log",))),
    Hello(ranks=(rank("a", links=0.0), rank("b")), mpi="none", kernels=(0,)),
    StepAnswer(merged=MERGED, cpus=((0, 1), ())),
    StepAnswer(
        outputs=(RankOutput(host="a", rank=0, done=Finished(-9, "é", "", 1.5, 2), value=[1]),),
        kernels=(SampledKernel(host="a", use=USE, samples={"time": (1.0, 2)}, user=0.5),),
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_sent_comes_back(message: Stored) -> None:
    arrays = {"counts": np.arange(6).reshape(2, 3), "none": np.zeros(0)}
    again, given = wire.unpack(wire.pack(message, arrays), *COMMANDS, Hello, StepAnswer)
    assert again == message
    assert type(again) is type(message)
    assert {name: array.tolist() for name, array in given.items()} == {
        "counts": [[0, 1, 2], [3, 4, 5]], "none": [],
    }  # fmt: skip


def changed(message: Command, **changes: Any) -> bytes:
    """Its frame, with other values at keys such as `playing__stream__slots`."""
    document = message.document()
    for path, value in changes.items():
        *parents, last = path.split("__")
        inside = document
        for name in parents:
            inside = inside[name]
        inside[last] = value
    header = {"kind": type(message).__name__, "message": document, "arrays": []}
    text = json.dumps(header).encode()
    return struct.pack("<II", len(text), 0) + text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threads": "2"}, "StepCommand.threads is '2', not of type int"),
        ({"roots": [1]}, r"StepCommand.roots\[0\] is 1, not of type str"),
        ({"playing__stream__slots": 1.5}, "StepCommand.playing.stream.slots is 1.5, not of type"),
        ({"playing__stream__slot": 1}, "StepCommand.playing.stream.slot is unknown"),
        ({"playing__implementation": "rust"}, "playing.implementation is 'rust', not one of auto"),
        ({"kind": "x"}, "StepCommand.kind is unknown"),
    ],
)
def test_what_is_no_message_is_named_by_its_key(changes: dict[str, Any], reason: str) -> None:
    message = replace(STEP, playing=PLAYING)
    assert wire.unpack(changed(message), *COMMANDS)[0] == message
    with pytest.raises(StoredError, match=reason):
        wire.unpack(changed(message, **changes), *COMMANDS)


def test_another_message_than_was_expected() -> None:
    with pytest.raises(StoredError, match="a message is a StepCommand, not Hello or StepAnswer"):
        wire.unpack(wire.pack(STEP), Hello, StepAnswer)


def test_a_frame_that_was_cut() -> None:
    frame = wire.pack(STEP, {"a": np.arange(9)})
    with pytest.raises(ValueError, match="of arrays, it tells of"):
        wire.unpack(frame[:-8], *COMMANDS)
