"""The ranks' group over a real MPI."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fsmatrix.results.record import Geometry
from fsmatrix.suite.session import programs
from tests.suite.session.test_session import launcher

NAMES = """
import json, os
from mpi4py import MPI
from fsmatrix.suite.session.comm import MpiComm

lines = open("/proc/self/maps").read().splitlines()
names = {line.split()[-1] for line in lines if "/dev/shm/sm_segment." in line}
comm = MpiComm(MPI.COMM_WORLD)
before = [os.path.exists(name) for name in names]
comm.barrier()
place = comm.place()
comm.barrier()
told = comm.gather([before, [os.path.exists(name) for name in names], comm.rank])
if comm.rank == 0:
    print(json.dumps(told))
"""


@pytest.mark.needs("mpirun")
def test_shared_memory_has_no_name_once_all_have_mapped_it(tmp_path: Path) -> None:
    """What is killed leaves none then; the ranks go on to speak by it."""
    made, ranks = launcher("mpirun"), 3
    script = tmp_path / "names.py"
    script.write_text(NAMES)
    argv = made.command([sys.executable, str(script)], Geometry(1, ranks), {})
    done = programs.run(argv, str(tmp_path), 120.0, made.environment())
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [rank for _, _, rank in told] == list(range(ranks))
    for before, after, _ in told:
        assert before == [True] * ranks
        assert after == [False] * ranks
