"""Where a session has no network of its own, nothing of it listens to other machines: by ss."""

from __future__ import annotations

import ipaddress
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.system import libc
from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.launcher import Probe, find_library
from fsmatrix.suite.launchers.local import Local
from fsmatrix.suite.launchers.mpiexec import Mpiexec
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.launchers.srun import Srun
from fsmatrix.suite.session import client, programs
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.programs import StopFlag
from tests.suite.session.test_session import EMULATED, function, launcher

NO_NETWORK = "no network namespace can be made here"
pytestmark = pytest.mark.skipif(shutil.which("ss") is None, reason="no ss: install iproute2")


@pytest.fixture(autouse=True)
def no_network_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for ordinary users, and in most containers."""
    monkeypatch.setattr(libc, "network_refusal", lambda _link=False: NO_NETWORK)


@pytest.fixture
def stop() -> Iterator[StopFlag]:
    yield StopFlag()


def listeners(pid: int) -> list[str]:
    """Local addresses that a process and all below it listen on, as ss shows them."""
    family = {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    text = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    return [
        line.split()[3]
        for line in text.splitlines()
        if family & {int(number) for number in re.findall(r"pid=(\d+)", line)}
    ]


def reachable(addresses: list[str]) -> list[str]:
    """Those that another machine could connect to."""
    return [one for one in addresses if not re.match(r"127\.|\[::1\]|\S+%lo:", one)]


@pytest.mark.parametrize(
    ("name", "geometry", "fields"),
    [
        ("mpirun", Geometry(1, 2), {}),
        ("mpiexec", Geometry(1, 2), {}),
        ("openmpi-4", Geometry(1, 2), {}),
        pytest.param("mpirun", Geometry(1, 2), EMULATED, marks=pytest.mark.root),
    ],
)
def test_no_listener_of_a_session_is_open_to_other_machines(
    name: str, geometry: Geometry, fields: dict[str, Any], stop: StopFlag
) -> None:
    made = four(**fields) if name == "openmpi-4" else launcher(name, **fields)
    session = Session(made, geometry, stop)
    try:
        session.start()
        assert session.exposure == NO_NETWORK
        found = listeners(session.pids[0])
        assert found, "there are listeners, else this shows nothing"
        assert reachable(found) == []
        answers = function(session, geometry)  # it still works
        assert len(answers) == geometry.processes
        assert reachable(listeners(session.pids[0])) == []
    finally:
        session.close()


def four(**fields: Any) -> Mpirun:
    program = Path("/usr/bin/mpirun.openmpi")
    if not program.exists():
        pytest.skip("no Open MPI 4: install openmpi-bin (Debian, Ubuntu)")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    version = (told.stdout + told.stderr).splitlines()[0].split()[-1]
    library = find_library(str(program), ("libmpi.so.40",))
    return Mpirun(Probe(True, str(program), version, library=library), **fields)


STAYS = """
import os, sys, time
from mpi4py import MPI
MPI.COMM_WORLD.allgather(0)
deadline = time.monotonic() + 12
while time.monotonic() < deadline and not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
MPI.COMM_WORLD.allgather(0)
"""


def test_an_mpi_program_is_kept_local_while_it_starts(tmp_path: Path) -> None:
    """As IOR and mdtest are started: by the conductor, not by a rank."""
    made, seen = launcher("mpirun"), tmp_path / "seen"
    argv = made.command([sys.executable, "-c", STAYS, str(seen)], Geometry(1, 2), {})
    ended: list[programs.Finished] = []
    watch = client.WhileStarting(lambda: False, programs.running)
    thread = threading.Thread(
        target=lambda: ended.append(programs.run(argv, "/", 60.0, made.environment(), stop=watch))
    )
    thread.start()
    try:
        deadline = time.monotonic() + 11
        found: list[str] = []
        while time.monotonic() < deadline:
            found = [one for pid in programs.running() for one in listeners(pid)]
            if len(found) > 3 and not reachable(found):
                break
            time.sleep(0.1)
        assert len(found) > 3
        assert reachable(found) == []
    finally:
        seen.touch()
        thread.join()
    assert ended[0].returncode == 0, ended[0].stderr


def test_several_nodes_keep_their_network() -> None:
    found = Probe(True, "/x/mpirun", "5.0")
    assert not Mpirun(found, hosts=("a", "b")).stays_here(Geometry(2, 2))
    assert not Mpirun(found, hosts=("a", "b"), emulated=True).stays_here(Geometry(2, 2))
    assert Mpirun(found, hosts=("a", "b"), emulated=True).stays_here(Geometry(1, 2))
    assert not Srun(found).stays_here(Geometry(1, 2))  # slurmctld talks to srun
    assert Srun(found).exposure(Geometry(1, 2)) == "srun needs the network here"
    assert Mpirun(found, hosts=("a", "b")).exposure(Geometry(2, 2)) != NO_NETWORK
    for alone in (Mpirun(found), Mpirun(found, hosts=(platform.node(),)), Mpiexec(found)):
        assert alone.exposure(Geometry(1, 2)) == NO_NETWORK
    assert Mpiexec(found, hosts=(platform.node(),)).exposure(Geometry(1, 2)) != NO_NETWORK
    assert Local(found).exposure(Geometry()) == ""  # it starts nothing that listens


@given(st.ip_addresses())
def test_addresses_as_the_kernel_writes_them(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    packed = address.packed
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    assert client.address_of("".join(f"{word:08X}" for word in words)) == address


def test_what_is_not_below_us_is_left_alone() -> None:
    assert client.keep_local(2**22 + 1) == []  # no such process
    assert os.getpid() not in programs.running()
