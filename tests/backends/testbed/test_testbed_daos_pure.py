"""The DAOS test bed without a DAOS: its files, its refusals, and its life with a double."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from fsmatrix.backends.contract import SpeedEstimate
from fsmatrix.backends.daos import daos_state
from fsmatrix.backends.daos.tools import Member
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof
from fsmatrix.backends.local import provenance
from fsmatrix.backends.system import libc, mounts, tools
from fsmatrix.backends.testbed import daemons, daos_bringup, daos_testbed
from fsmatrix.backends.testbed.bed import left_alone
from fsmatrix.backends.testbed.daos_testbed import DaosTestbed, DaosTestbedOptions
from fsmatrix.backends.testbed.home import Home
from fsmatrix.backends.testbed.network import Network
from tests.waiting import PATIENCE

DOUBLES = Path(__file__).parent / "doubles"
NETWORK = Network("10.9.8.1", ("10.9.8.11", "10.9.8.12"), ("ns1", "ns2"), "fsmabcdefb")
TWO, THREE = DaosTestbedOptions(), DaosTestbedOptions(nodes=3, network="1Gbit")
PROOF = {"FSMATRIX_STORE": "5" * 32}


def as_read(facts: dict[str, Any]) -> dict[str, Any]:
    """What a program reads of a configuration that is written."""
    return dict(YAML(typ="safe").load(daos_bringup.conf_text(facts)))


def a_server(options: DaosTestbedOptions = TWO, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"core": 0, "huge_pages": False, "environment": {}} | more
    return as_read(daos_bringup.server_conf(options, NETWORK, folder=Path("/b/node1"), **given))


# Files


def test_a_server_has_one_engine_in_memory_and_the_first_node_as_access_point() -> None:
    asked = DaosTestbedOptions(targets_per_node=2, memory=6 << 30)
    read = a_server(asked, core=1, environment=daos_bringup.engine_environment(PROOF))
    assert read["access_points"] == ["10.9.8.11:10001"]
    assert read["transport_config"] == {"allow_insecure": True}
    assert (read["name"], read["disable_hugepages"], read["system_ram_reserved"]) == (
        "daos_server", True, 1,
    )  # fmt: skip
    (engine,) = read["engines"]
    assert (engine["first_core"], engine["targets"]) == (1, 2)
    assert "pinned_numa_node" not in engine
    assert set(engine["env_vars"]) == {
        "DAOS_MD_CAP=128", "DAOS_TARGET_OVERSUBSCRIBE=1", f"FSMATRIX_STORE={'5' * 32}",
    }  # fmt: skip
    (tier,) = engine["storage"]
    assert (tier["class"], tier["scm_size"], tier["scm_mount"]) == ("ram", 6, "/b/node1/scm")
    assert all(read[name].startswith("/b/node1/") for name in ("control_log_file",))


def test_transparent_huge_pages_are_allowed_only_where_the_kernel_uses_them() -> None:
    assert "allow_thp" not in a_server()  # older servers do not know the word
    assert a_server(huge_pages=True)["allow_thp"] is True


def test_the_agent_and_dmg_know_the_nodes_and_the_bridge_only() -> None:
    agent = as_read(daos_bringup.agent_conf(NETWORK, Path("/s"), Path("/b/log/agent.log")))
    assert agent["access_points"] == ["10.9.8.11:10001"]
    assert (agent["runtime_dir"], agent["log_file"]) == ("/s", "/b/log/agent.log")
    (numa,) = agent["fabric_ifaces"]
    assert numa["devices"] == [{"iface": "fsmabcdefb", "domain": "fsmabcdefb"}]
    control = as_read(daos_bringup.control_conf(NETWORK.nodes))
    assert control["hostlist"] == ["10.9.8.11:10001", "10.9.8.12:10001"]
    assert control["name"] == agent["name"] == a_server()["name"]


@pytest.mark.parametrize("odd", ["/b/it's: #1", "/b/a\tb", "/b/{x}", "/b/ä"])
def test_a_folder_of_any_name_is_written_as_it_is(odd: str) -> None:
    read = as_read(daos_bringup.agent_conf(NETWORK, Path(odd), Path(odd) / "log"))
    assert (read["runtime_dir"], read["log_file"]) == (odd, f"{odd}/log")


# Options, refusals, warnings


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": 0},
        {"memory": "1GiB"},
        {"memory": (4 << 30) + 1},
        {"pool": "-x"},
        {"pool": "a b"},
        {"pool_percent": 101},
        {"network": "fast"},
        {"colour": "red"},
    ],
)
def test_what_no_bed_can_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DaosTestbedOptions.model_validate(wrong)


def test_a_bed_tells_its_attributes_and_how_fast_it_can_be() -> None:
    asked = DaosTestbedOptions(nodes=3, network="80Mbit")
    assert DaosTestbed.attributes(asked) == {
        "storage_nodes": 3, "targets_per_node": 1, "network": "80Mbit",
    }  # fmt: skip
    assert DaosTestbed.pace(asked, SpeedEstimate()).bandwidth == 3 * 10e6
    assert DaosTestbed.pace(TWO, SpeedEstimate()).bandwidth == SpeedEstimate().bandwidth
    assert (
        DaosTestbed.pace(asked, SpeedEstimate()).attach
        > DaosTestbed.pace(TWO, SpeedEstimate()).attach
    )


def test_more_targets_than_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daos_bringup, "cores", lambda: 2)
    monkeypatch.setattr(daos_testbed, "FUSE", Path("/dev/null"))
    assert DaosTestbed.warnings(TWO) == []
    for many in ({"nodes": 3}, {"targets_per_node": 2}):
        (line,) = DaosTestbed.warnings(DaosTestbedOptions.model_validate(many))
        assert "targets poll on 2 cores" in line
    monkeypatch.setattr(daos_testbed, "FUSE", Path("/none"))
    assert DaosTestbed.warnings(TWO) == [
        "/none is missing: DFUSE cannot mount here (modprobe fuse)"
    ]


def test_what_is_missing_is_said_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root: run it with sudo" in daos_testbed.missing()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(libc, "has", lambda capability: capability.value != 12)
    monkeypatch.setattr(tools, "find", lambda name: None if name == "dmg" else f"/bin/{name}")
    assert "needs CAP_NET_ADMIN" in daos_testbed.missing()
    monkeypatch.setattr(libc, "has", lambda _: True)
    assert daos_testbed.missing().startswith("dmg: not on PATH; install")
    monkeypatch.setattr(tools, "find", lambda name: f"/bin/{name}")
    assert daos_testbed.missing() == ""


def test_too_little_memory_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Memory(NamedTuple):
        available: int

    monkeypatch.setattr(DaosTestbed, "missing", lambda: "")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(9 << 30))
    assert DaosTestbed.refusal(TWO, tmp_path / "bed") == ""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory((9 << 30) - 1))
    with pytest.raises(BackendError, match=r"2 nodes keep up to 4 GiB each.*use fewer nodes"):
        DaosTestbed.up(TWO, tmp_path / "bed")
    assert list(tmp_path.iterdir()) == []


def test_ranks_are_those_of_an_address() -> None:
    members = [
        Member(rank=rank, state="joined", fault_domain="/x", addr=f"10.9.8.{host}:10001")
        for rank, host in ((1, 11), (2, 1), (0, 11))
    ]
    assert daos_bringup.ranks_at(members, "10.9.8.11") == [0, 1]
    assert daos_bringup.ranks_at(members, "10.9.8.12") == []


# Its life, with a double of DAOS's programs


class Double(NamedTuple):
    """Programs that are called as DAOS's, first on PATH."""

    programs: Path
    calls: Path  # what dmg was asked

    @property
    def asked(self) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return [line for line in lines if line != "system query"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doubles")
    source, made = DOUBLES / "daos.c", folder / "daos_server"
    subprocess.run(["cc", "-Wall", "-Werror", source, "-o", made], check=True)
    for name in ("daos_agent", "daos_engine", "daos"):
        shutil.copy(made, folder / name)
    shutil.copy(DOUBLES / "dmg", folder)
    return folder


@pytest.fixture
def double(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    folders = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setenv("DAOS_DOUBLE_CALLS", str(tmp_path / "calls"))
    monkeypatch.setattr(daos_testbed, "_crowded", lambda _: "")  # the double keeps nothing
    return Double(programs, tmp_path / "calls")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory for a bed that does not outlive the test."""
    directory = tmp_path / "bed"
    yield directory
    DaosTestbed.down(directory)
    assert not directory.exists()


def traces(bed: str) -> list[str]:
    """What of a bed the kernel and /run know, by its id."""
    folders = (Path("/sys/class/net"), Path("/run/netns"), Path("/run"))
    names = [path.name for folder in folders if folder.exists() for path in folder.iterdir()]
    return [name for name in names if bed in name]


def whose(directory: Path) -> tuple[str, str]:
    """The id of a bed and its proof."""
    home = Home.at(directory, DaosTestbed.kind)
    recorded = home.read()
    assert recorded is not None
    return recorded.id, home.journal.identity.store


real_life = [pytest.mark.root, pytest.mark.needs("compiler", "emulated nodes")]


class TestLife:
    """Needs root: namespaces and links are real."""

    pytestmark = real_life

    def test_a_bed_comes_up_in_order_and_leaves_nothing(self, double: Double, place: Path) -> None:
        bed = daos_testbed.up(THREE, place)
        addresses = [node["address"] for node in bed.facts["nodes"].values()]
        assert double.asked == [
            f"storage format --host-list={addresses[0]}",
            f"storage format --host-list={addresses[1]},{addresses[2]}",
            f"pool create fsmatrix --ranks=0,1,2 --size={3 * THREE.pool_bytes}B",
        ]
        assert [step.name for step in bed.steps] == [
            "network", "servers", "first engine", "other engines", "agent", "pool", "facts",
        ]  # fmt: skip
        assert (bed.pool, bed.system, bed.ranks(2)) == ("fsmatrix", "daos_server", [1])
        assert bed.environment() == {"DAOS_AGENT_DRPC_DIR": bed.agent}
        assert Path(bed.agent, "daos_agent.sock").is_socket()
        factors = bed.facts["factors"]
        assert factors["storage_nodes"]["realised"] == factors["network"]["realised"] == "emulated"
        found = daos_testbed.status(place)
        assert (found["state"], found["ranks"]) == (
            "up",
            {"0": "joined", "1": "joined", "2": "joined"},
        )
        kinds = ("engine", "server")
        roles = ["agent", *(f"{kind}.{node}" for kind in kinds for node in (1, 2, 3))]
        assert [daemon["role"] for daemon in found["daemons"]] == roles
        self._apart(bed)
        for node, address in enumerate(addresses, 1):
            pids = [bed.pid(f"{what}.{node}") for what in ("server", "engine")]
            assert daos_state.engines_here([address]) == sorted(pids)
            assert provenance.interfaces((address,)) == (bed.bridge,)
        assert not {bed.pid("engine.1"), bed.pid("server.2")} & set(
            daos_state.engines_here(["127.0.0.1", ""])
        )
        identity_, store = whose(place)
        assert len(traces(identity_)) == 7  # a bridge, three links, three namespaces
        assert mounts.mounted_below(place) == []
        lines = daos_testbed.down(place)
        assert left_alone(lines) == []
        assert lines[0] == f"ended {', '.join(roles)}"
        assert (traces(identity_), proof.carriers(store)) == ([], [])

    @staticmethod
    def _apart(bed: DaosTestbed) -> None:
        """Each node has namespaces of its own; no name of a process is DAOS's; links are slow."""
        kinds = ("net", "mnt", "uts", "ipc")
        own = {kind: Path(f"/proc/self/ns/{kind}").readlink() for kind in kinds}
        for kind in kinds:
            of_node = [
                Path(f"/proc/{bed.pid(f'{what}.{node}')}/ns/{kind}").readlink()
                for node in (1, 2)
                for what in ("server", "engine")
            ]
            assert of_node[0] == of_node[1] != of_node[2] == of_node[3]
            assert own[kind] not in of_node
        agent = Path(f"/proc/{bed.pid('agent')}/ns/net").readlink()
        assert agent == own["net"]
        for role in ("server.1", "server.2", "agent"):
            seen = daemons.look(bed.pid(role))
            assert seen is not None
            assert Path(seen.argv[0]).name.startswith("fsmatrix-")
        for node in (1, 2):
            queue = tools.run(["tc", "qdisc", "show", "dev", f"{bed.bridge[:-1]}n{node}"]).stdout
            assert "tbf" in queue

    def test_links_are_not_limited_unless_asked(self, double: Double, place: Path) -> None:
        bed = daos_testbed.up(DaosTestbedOptions(nodes=1, pool_percent=0), place)
        assert bed.pool == ""
        assert not any(line.startswith("pool") for line in double.asked)
        queue = tools.run(["tc", "qdisc", "show", "dev", f"{bed.bridge[:-1]}n1"]).stdout
        assert "tbf" not in queue
        assert "realised" not in bed.facts["factors"]["network"]

    def test_a_long_directory_keeps_its_sockets_elsewhere(
        self, double: Double, tmp_path: Path
    ) -> None:
        place = tmp_path / ("x" * 60) / ("y" * 60)
        bed = daos_testbed.up(DaosTestbedOptions(nodes=1), place)
        folder = Path(bed.agent)
        assert folder.parent == Path("/run")
        assert (folder / "daos_agent.sock").is_socket()
        assert left_alone(daos_testbed.down(place)) == []
        assert not folder.exists()

    def test_a_pool_that_cannot_be_made_takes_all_down(self, double: Double, place: Path) -> None:
        with pytest.raises(BackendError, match="604 no space"):
            daos_testbed.up(DaosTestbedOptions(pool="full"), place)
        assert not place.exists()
        assert daos_testbed.status(place)["state"] == "none"

    def test_a_server_that_ends_is_an_error_with_its_words(
        self, double: Double, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "broken").mkdir()
        found = tools.find("ls")  # knows no option --config
        assert found is not None
        shutil.copy(found, tmp_path / "broken" / "daos_server")
        monkeypatch.setenv("PATH", f"{tmp_path}/broken{os.pathsep}{os.environ['PATH']}")
        with pytest.raises(BackendError, match=r"server\.1 ended: .*unrecognized option"):
            daos_testbed.up(TWO, place)
        assert not place.exists()

    def test_faults_are_seen(self, double: Double, place: Path) -> None:
        bed = daos_testbed.up(TWO, place)
        bed.stop("engine.1")
        bed.kill("engine.2")
        bed.kill("agent")
        states = {one["role"]: one["state"] for one in daos_testbed.status(place)["daemons"]}
        assert (states["engine.1"], states["engine.2"], states["agent"]) == (
            "stopped", "gone", "gone",
        )  # fmt: skip
        assert daos_testbed.status(place)["state"] == "degraded"
        bed.resume("engine.1")
        bed.restart("agent")
        states = {one["role"]: one["state"] for one in daos_testbed.status(place)["daemons"]}
        assert (states["engine.1"], states["agent"]) == ("running", "running")

    def test_what_nobody_wrote_down_is_ended_too(self, double: Double, place: Path) -> None:
        bed = daos_testbed.up(TWO, place)
        home = Home.at(place, DaosTestbed.kind)
        server, store = bed.pid("server.2"), home.journal.identity.store
        for role in ("engine.2", "server.2"):
            home.journal.end(daemons.entry_of(home, role))
        lines = daos_testbed.down(place)
        assert any(f"process {server} (fsmatrix-" in line for line in lines)
        assert proof.carriers(store) == []  # its engine has ended with it

    @pytest.mark.parametrize("step", ["network", "servers", "first engine", "pool"])
    def test_a_bring_up_that_is_killed_is_taken_down(
        self, step: str, double: Double, place: Path
    ) -> None:
        program = (
            "import os, signal, sys\n"
            "from fsmatrix.backends.testbed import daos_testbed as testbed\n"
            "testbed._crowded = lambda _: ''\n"
            "def ended(step):\n"
            f"    if step.name == {step!r}: os.kill(os.getpid(), signal.SIGKILL)\n"
            "testbed.up(testbed.DaosTestbedOptions(), sys.argv[1], ended=ended)\n"
        )
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, str(place)], timeout=PATIENCE, check=False
        )
        assert done.returncode == -signal.SIGKILL
        assert daos_testbed.status(place)["state"] == "interrupted"
        identity_, store = whose(place)
        assert left_alone(daos_testbed.down(place)) == []
        deadline = time.monotonic() + PATIENCE
        while proof.carriers(store) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (traces(identity_), proof.carriers(store)) == ([], [])
        assert not place.exists()
