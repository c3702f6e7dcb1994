"""Random programs, carried out in order: a closed replay by threads has the same outcomes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsmatrix.backends.player.ops import Flag, Kind
from tests.suite.replay_workload import MS, Recorder, case_of, play, trace, workload

NAMES = [b"a/f", b"a/g", b"b/f", b"b/g", b"a/c", b"h"]
FOLDERS = [b"a", b"b", b"a/c"]
KINDS = [
    Kind.OPEN, Kind.CREATE, Kind.READ, Kind.WRITE, Kind.CLOSE, Kind.STAT, Kind.UNLINK,
    Kind.MKDIR, Kind.RMDIR, Kind.RENAME, Kind.TRUNCATE, Kind.READDIR,
]  # fmt: skip
ON_HANDLES = (Kind.READ, Kind.WRITE, Kind.CLOSE, Kind.TRUNCATE)
Step = tuple[Kind, int, int, int, int]  # kind, name, other name, thread, offset


class Program:
    """Carries steps out below a folder, and records them with what came of them."""

    def __init__(self, root: Path, to: Recorder) -> None:
        self.root = os.fsencode(root)
        self.to = to
        self.handles: dict[bytes, int] = {}

    def do(self, step: Step) -> None:
        kind, first, second, thread, offset = step
        name, other = NAMES[first], NAMES[second]
        if kind in (Kind.MKDIR, Kind.RMDIR, Kind.READDIR):
            name = FOLDERS[first % len(FOLDERS)]
        is_open = name in self.handles
        if (kind in (Kind.OPEN, Kind.CREATE) and is_open) or (kind in ON_HANDLES and not is_open):
            return
        more = {"offset": offset} if kind in (Kind.READ, Kind.WRITE, Kind.TRUNCATE) else {}
        size = 100 if kind in (Kind.READ, Kind.WRITE) else 0
        flags = Flag.EXCLUSIVE if kind == Kind.CREATE and offset % 2 else 0
        try:
            result = self.call(kind, name, other, offset, flags)
        except OSError as error:
            result = -(error.errno or 0)
        given = {"to": other} if kind == Kind.RENAME else {}
        self.to.do(kind, name, size, thread=thread, result=result, flags=flags, **more, **given)

    def call(self, kind: Kind, name: bytes, other: bytes, offset: int, flags: int) -> int:
        path = os.path.join(self.root, name)  # noqa: PTH118 - bytes
        calls: dict[Kind, Callable[[], object]] = {
            Kind.STAT: lambda: os.lstat(path),
            Kind.UNLINK: lambda: os.unlink(path),  # noqa: PTH108
            Kind.MKDIR: lambda: os.mkdir(path),  # noqa: PTH102
            Kind.RMDIR: lambda: os.rmdir(path),  # noqa: PTH106
            Kind.READDIR: lambda: os.listdir(path),
            Kind.RENAME: lambda: os.rename(path, os.path.join(self.root, other)),  # noqa: PTH104, PTH118
            Kind.TRUNCATE: lambda: os.ftruncate(self.handles[name], offset),
            Kind.CLOSE: lambda: os.close(self.handles.pop(name)),
        }
        if kind in (Kind.OPEN, Kind.CREATE):
            how = os.O_RDWR | os.O_NOFOLLOW
            if kind == Kind.CREATE:
                how |= os.O_CREAT | (os.O_EXCL if flags else 0)
            self.handles[name] = os.open(path, how)
        elif kind == Kind.READ:
            return len(os.pread(self.handles[name], 100, offset))
        elif kind == Kind.WRITE:
            return os.pwrite(self.handles[name], bytes(100), offset)
        else:
            calls[kind]()
        return 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, len(NAMES) - 1),
        st.integers(0, len(NAMES) - 1),
        st.integers(0, 3),
        st.sampled_from([0, 1, 50, 100, 70_000]),
    ),
    min_size=1,
    max_size=40,
)
PREFIX: list[Step] = [
    (Kind.MKDIR, 0, 0, 0, 0),
    (Kind.MKDIR, 1, 0, 1, 0),
    (Kind.CREATE, 0, 0, 2, 0),
    (Kind.CREATE, 2, 0, 3, 0),
    (Kind.WRITE, 0, 0, 1, 0),
]


@pytest.mark.parametrize("geometry", [{"threads": 4}, {"processes_per_node": 2, "threads": 2}])
@settings(
    max_examples=25, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(steps=STEPS)
def test_outcomes_are_those_of_the_program(geometry: dict[str, int], steps: list[Step]) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "truth").mkdir()
        (folder / "replay").mkdir()

        def record(to: Recorder) -> None:
            program = Program(folder / "truth", to)
            for thread in range(4):  # there are as many threads as lanes, from the start
                to.do(Kind.STAT, b"nothing", thread=thread, result=-2, at=thread)
            to.now = 10 * MS
            for step in (*PREFIX, *steps):
                program.do(step)
            for handle in program.handles.values():
                os.close(handle)

        work = workload(trace=str(trace(folder / "t.h5", record)))
        facts = play(work, case_of(**geometry), folder / "replay")
        assert facts["agreed"] == facts["operations"], facts["kinds"]
    finally:
        shutil.rmtree(folder)
