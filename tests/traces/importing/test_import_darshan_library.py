"""Darshan's own library and real logs, which its package brings: whole, and damaged."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fsmatrix.traces.importing.darshan import MISSING
from fsmatrix.traces.trace_model import TraceError
from tests.suite.running import fsmatrix
from tests.traces.importing.imported import imported

LOG = "examples/example_logs/ior_hdf5_example.darshan"
AT = 1 << 10  # a byte of the compressed names and records


@pytest.fixture(scope="module")
def log() -> bytes:
    spec = find_spec("darshan")
    if spec is None or spec.origin is None:
        pytest.skip(MISSING)
    return Path(spec.origin).parent.joinpath(LOG).read_bytes()


def test_a_real_log(tmp_path: Path, log: bytes) -> None:
    trace = imported(tmp_path, log)
    assert trace.header.facts["module"] == "DXT_POSIX"
    assert len(trace.rows) - 2 * trace.header.facts["opened_by_import"] == 59


@pytest.mark.parametrize("length", [24, 1200, -1000])
def test_a_log_that_was_cut(tmp_path: Path, log: bytes, length: int) -> None:
    with pytest.raises(TraceError, match="in-0: "):
        imported(tmp_path, log[:length])
    assert not (tmp_path / "t.h5").exists()


def test_a_log_with_wrong_bits(tmp_path: Path, log: bytes) -> None:
    (tmp_path / "bad").write_bytes(log[:AT] + bytes(each ^ 0x55 for each in log[AT : AT + 999]))
    done = fsmatrix("trace", "import", tmp_path / "bad", "-o", tmp_path / "t.h5")
    assert done.returncode == 2
    assert "bad: Darshan's library cannot read it" in done.stderr
    assert not (tmp_path / "t.h5").exists()
