"""Bits that flip where no checksum tells: no traceback, no hang, little memory.

Each file is read by a process of its own, since the HDF5 library itself may crash on what is
neither sealed nor whole; that is not ours to prevent, but it must stay rare and it is counted.
FSMATRIX_SEED=<number> repeats a run, FSMATRIX_EXAMPLES=<number> makes it longer.
"""

import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.results.files import hdf, runfile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store
from tests.results import hostile
from tests.results.hostile import record

SEED = int(os.environ.get("FSMATRIX_SEED", random.SystemRandom().randrange(1 << 32)))
MEMORY = 512 << 20  # bytes more than the process has
SECONDS = 60  # of one file
EXAMPLES = int(os.environ.get("FSMATRIX_EXAMPLES", "60"))


def in_a_child(read: Callable[[], object]) -> str:
    """ok, error (a ResultError), traceback, or the signal that ended it."""
    child = os.fork()
    if child == 0:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            read()
            os._exit(0)
        except ResultError:
            os._exit(1)
        except BaseException:  # noqa: BLE001
            traceback.print_exc(file=sys.__stderr__)
            os._exit(2)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done and os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        if done:
            return ("ok", "error", "traceback")[os.WEXITSTATUS(status)]
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hang"


def flipped(data: bytes, places: list[tuple[int, int]]) -> bytes:
    broken = bytearray(data)
    for place, bit in places:
        broken[8 + place % (len(data) - 8)] ^= 1 << bit
    return bytes(broken)


PLACES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 7)), min_size=1, max_size=4)


@pytest.mark.parametrize("sealed", [False, True])
def test_run_files(tmp_path: Path, sealed: bool) -> None:
    path = tmp_path / f"{record().run_id}.h5"
    runfile.write_run(path, record())
    whole = path.read_bytes()[: -hdf.SEAL_SIZE]
    _try(path, whole, sealed, lambda: runfile.read_run(path))


def test_campaign_files(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "out")
    store.append([record(), record("ext4")])
    path = store.merge()
    _try(path, path.read_bytes(), False, lambda: open_campaign(path))


def _try(path: Path, whole: bytes, sealed: bool, read: Callable[[], object]) -> None:
    print(f"FSMATRIX_SEED={SEED}")
    ends: Counter[str] = Counter()

    @hypothesis.seed(SEED)
    @hypothesis.settings(max_examples=EXAMPLES, database=None, deadline=None)
    @hypothesis.given(PLACES)
    def one(places: list[tuple[int, int]]) -> None:
        path.write_bytes(flipped(whole, places))
        if sealed:
            hostile.reseal(path)
        end = in_a_child(read)
        ends[end] += 1
        assert end not in ("traceback", "hang"), f"FSMATRIX_SEED={SEED}"

    one()
    print(dict(ends))
    crashed = sum(number for end, number in ends.items() if end.startswith("SIG"))
    assert crashed <= EXAMPLES // 10, f"the HDF5 library crashed: {dict(ends)}"
