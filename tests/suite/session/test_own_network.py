"""Nobody else on this machine reaches what root's session listens on: tried as another user."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from fsmatrix.backends.system import libc
from fsmatrix.results.record import Geometry
from fsmatrix.suite.launchers.launcher import Launcher
from fsmatrix.suite.session import programs
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.programs import StopFlag
from tests.suite.session.test_loopback import four
from tests.suite.session.test_session import EMULATED, function, launcher
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(libc.network_refusal()), reason=libc.network_refusal()),
]
STRANGER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# connects to every port on every address of this machine that it is told; prints the inodes of
# the listeners that took it: another program of this machine may have the same number in this
# network at any time, so a call that was taken says nothing before it is known by whom
KNOCK = """
import socket, sys
def listeners(port):
    for name in ("tcp", "tcp6"):
        for line in open(f"/proc/self/net/{name}"):
            words = line.split()
            if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]
def knock(address, port):
    while True:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as caller:
            caller.settimeout(2.0)
            if caller.connect_ex((address, port)):
                return
        if found := list(listeners(port)):
            return print(*found)
for place in sys.argv[1:]:
    address, _, port = place.rpartition(":")
    knock(address, int(port))
"""


@pytest.fixture
def stop() -> Iterator[StopFlag]:
    yield StopFlag()


def family(pids: list[int]) -> list[int]:
    """Processes, and all below them."""
    below = (child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True))
    return [*pids, *below]


def sockets(pid: int) -> set[str]:
    """Inodes of a process's sockets."""
    links = (str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return {link[8:-1] for link in links if link.startswith("socket:")}


def listening(pid: int | str) -> dict[str, int]:
    """Inode -> port of every TCP listener in the network of a process."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                found[words[9]] = int(words[1].rpartition(":")[2], 16)
    return found


def own_ports(pids: list[int]) -> set[int]:
    """Ports on which these processes, and all below them, listen."""
    return {
        port
        for pid in family(pids)
        for inode, port in listening(pid).items()
        if inode in sockets(pid)
    }


def assert_out_of_reach(pids: list[int]) -> None:
    """The processes listen, and another user finds none of that and reaches none of it."""
    ports = own_ports(pids)
    assert len(ports) >= 2, "they listen, else this shows nothing"
    ours = set().union(*map(sockets, family(pids)))
    assert not ours & listening("self").keys()
    here = {"127.0.0.1", "::1"} | {
        item.address
        for items in psutil.net_if_addrs().values()
        for item in items
        if item.family.name == "AF_INET"
    }
    places = [f"{address}:{port}" for address in here for port in ports]
    argv = [*STRANGER, "/usr/bin/python3", "-I", "-c", KNOCK, *places]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert places
    assert not ours & set(done.stdout.split())


def any_launcher(name: str, fields: dict[str, Any]) -> Launcher:
    return four(**fields) if name == "openmpi-4" else launcher(name, **fields)


@pytest.mark.parametrize("name", ["mpirun", "mpiexec", "openmpi-4"])
@pytest.mark.parametrize(
    ("geometry", "fields"),
    [
        (Geometry(1, 2), {}),
        pytest.param(Geometry(2, 1), EMULATED, marks=pytest.mark.needs("emulated nodes")),
    ],
)
def test_another_user_reaches_no_listener_of_a_session(
    name: str, geometry: Geometry, fields: dict[str, Any], stop: StopFlag
) -> None:
    if fields and (reason := libc.network_refusal(link=True)):
        pytest.skip(reason)
    session = Session(any_launcher(name, fields), geometry, stop)
    try:
        session.start()
        assert session.exposure == ""
        assert_out_of_reach(session.pids)
        assert len(function(session, geometry)) == geometry.processes  # it works
        assert_out_of_reach(session.pids)
    finally:
        session.close()


@pytest.mark.parametrize("name", ["mpirun", "mpiexec"])
def test_ranks_that_speak_to_servers_are_in_this_machines_network_and_mpi_is_not(
    name: str, stop: StopFlag
) -> None:
    geometry = Geometry(1, 2)
    session = Session(any_launcher(name, {}), geometry, stop, network=True)
    try:
        session.start()
        launcher_pid, *ranks = session.pids
        here = Path("/proc/self/ns/net").readlink()
        assert [Path(f"/proc/{rank}/ns/net").readlink() for rank in ranks] == [here, here]
        assert Path(f"/proc/{launcher_pid}/ns/net").readlink() != here
        assert len(function(session, geometry)) == 2
        ours = set().union(*map(sockets, family(session.pids)))
        assert not ours & listening("self").keys()
    finally:
        session.close()


def test_another_user_reaches_no_listener_of_an_mpi_program() -> None:
    """As IOR and mdtest are started: by the conductor, not by a rank."""
    made = launcher("mpirun")
    code = "from mpi4py import MPI; import time; MPI.COMM_WORLD.allgather(0); time.sleep(3)"
    argv = made.command([sys.executable, "-c", code], Geometry(1, 2), {})
    ended: list[programs.Finished] = []

    def run() -> None:
        ended.append(programs.run(argv, "/", 60.0, made.environment(), network=made.network))

    thread = Thread(target=run)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and len(own_ports(programs.running())) < 2:
            time.sleep(0.1)
        assert_out_of_reach(programs.running())
    finally:
        thread.join()
    assert ended[0].returncode == 0, ended[0].stderr


def test_who_starts_something_in_a_network_of_its_own_stays_in_his() -> None:
    here = Path("/proc/thread-self/ns/net").readlink()
    seen: list[Path] = []
    with libc.own_network():
        inside = Path("/proc/thread-self/ns/net").readlink()
        other = Thread(target=lambda: seen.append(Path("/proc/thread-self/ns/net").readlink()))
    other.start()
    other.join()
    assert inside != here
    assert Path("/proc/thread-self/ns/net").readlink() == seen[0] == here
