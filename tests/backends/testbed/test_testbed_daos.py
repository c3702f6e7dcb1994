"""The DAOS test bed with a real DAOS, where its server is installed; it is in no registry."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.daos import tools
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed import daos_testbed
from fsmatrix.backends.testbed.bed import left_alone
from fsmatrix.backends.testbed.daos_testbed import DaosTestbed, DaosTestbedOptions
from fsmatrix.backends.testbed.home import Home
from fsmatrix.results.files.store import Store

pytestmark = [pytest.mark.root, pytest.mark.daos]

ASKED = DaosTestbedOptions(nodes=2, network="1Gbit")
PATIENCE = 180.0  # seconds; engines poll on all cores: a bound, not a measure
HUGE_PAGES, SHARED = Path("/proc/sys/vm/nr_hugepages"), Path("/dev/shm")
CAMPAIGN = """
campaign: daos-beds
seed: 3
targets:
  bed: {{backend: daos-dfs, testbed: {{pool_percent: 40}}, options: {{library: "{library}"}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 4MiB, chunk: 64KiB, verify: true}}}}
factors:
  storage_nodes: [1, 2]
  pattern: [seq-write, rand-read]
repetitions: 1
order: {{attachments: 1}}
limits: {{time_per_run: 120s}}
"""
KILLED = """
campaign: killed
targets:
  daos: {{backend: daos-dfs, options: {{pool: {pool}, library: "{library}", deadline: 20s}}}}
workloads:
  io: {{workload: pattern, options: {{pattern: seq-write, bytes_per_process: 1GiB, chunk: 1MiB}}}}
repetitions: 1
order: {{attachments: 1}}
limits: {{time_per_run: {limit}s}}
"""


@pytest.fixture(scope="module")
def daos(tmp_path_factory: pytest.TempPathFactory) -> None:
    """DAOS's server and what a bed of it needs."""
    reason = DaosTestbed.refusal(ASKED, tmp_path_factory.mktemp("x") / "bed")
    if reason:
        pytest.skip(f"not in any registry: DAOS, for its test bed: {reason}")


@pytest.fixture(scope="module")
def bed(daos: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaosTestbed]:
    """A bed of two nodes that several tests share; nothing of it may stay."""
    directory = tmp_path_factory.mktemp("daos") / "bed"
    pages, shared = HUGE_PAGES.read_text(), sorted(SHARED.iterdir())
    made = daos_testbed.up(ASKED, directory)
    store, name = Home.at(directory, DaosTestbed.kind).journal.identity.store, made.bridge[:-1]
    try:
        yield made
    finally:
        lines = daos_testbed.down(directory)
    assert left_alone(lines) == []
    assert not directory.exists()
    assert proof.carriers(store) == []
    assert HUGE_PAGES.read_text() == pages
    assert [path for path in SHARED.iterdir() if path not in shared and "daos" in path.name] == []
    assert [path.name for path in Path("/sys/class/net").glob(f"{name}*")] == []
    assert list(Path("/run/netns").glob(f"*{name.removeprefix('fsm')}*")) == []
    assert [mount for mount in mounts.mounts() if str(directory) in mount.point] == []


@pytest.fixture
def clients(bed: DaosTestbed, monkeypatch: pytest.MonkeyPatch) -> DaosTestbed:
    """The bed, with what its clients need in the environment."""
    for name, value in bed.environment().items():
        monkeypatch.setenv(name, value)
    return bed


def test_a_bed_is_a_whole_system(clients: DaosTestbed) -> None:
    found = daos_testbed.status(clients.directory)
    assert (found["state"], found["health"]) == ("up", [])
    assert found["ranks"] == {"0": "joined", "1": "joined"}
    assert sorted([*clients.ranks(1), *clients.ranks(2)]) == [0, 1]
    system = Client().system_query()
    assert system.system_name == clients.system
    assert len(system.rank_uris or ()) == 2
    pool = Client().pool_query(clients.pool)
    assert (pool.state, pool.total_engines, pool.total_targets) == ("Ready", 2, 2)
    assert sum(tier.total for tier in pool.tiers) <= 2 * ASKED.pool_bytes
    domains = {member.fault_domain for member in clients.control.members()}
    assert domains == {"/node1", "/node2"}


def test_memory_file_systems_are_the_nodes_own(clients: DaosTestbed) -> None:
    assert mounts.mounted_below(Path(clients.directory)) == []
    for node in (1, 2):
        lines = Path(f"/proc/{clients.pid(f'engine.{node}')}/mounts").read_text()
        assert f"{clients.directory}/node{node}/scm tmpfs" in lines
        assert f"{clients.directory}/node{3 - node}/scm tmpfs" not in lines


def test_pools_on_some_nodes_and_containers(clients: DaosTestbed) -> None:
    (rank,) = clients.ranks(2)
    made = clients.control.create("one", [rank], 256 << 20)
    try:
        assert made.tgt_ranks == [rank]
        assert Client().pool_query("one").total_engines == 1
        container = Client().create("one", "c")
        assert container.container_type in ("", "POSIX")
        found = Client().container_query("one", "c")
        assert found is not None
        assert found.container_uuid == container.container_uuid
    finally:
        clients.control.destroy("one")
    assert clients.control.pool("one") is None


def test_an_agent_that_is_gone_or_hangs_is_an_error_in_time(clients: DaosTestbed) -> None:
    clients.stop("agent")
    began = time.monotonic()
    with pytest.raises(BackendError, match="daos_agent"):
        Client(deadline=20.0).system_query()
    clients.resume("agent")
    clients.kill("agent")
    with pytest.raises(BackendError, match="daos_agent"):
        Client(deadline=20.0).system_query()
    assert time.monotonic() - began < PATIENCE
    clients.restart("agent")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            assert Client().system_query().system_name == clients.system
            return
        except (BackendError, tools.DaosError):
            time.sleep(0.2)
    raise AssertionError("the agent does not answer again")


def test_a_campaign_brings_its_beds_up_and_takes_them_down(daos: None, tmp_path: Path) -> None:
    library = os.environ.get("FSMATRIX_DAOS_LIBRARY", "")
    (tmp_path / "beds.yaml").write_text(CAMPAIGN.format(library=library))
    out = tmp_path / "out"
    words: list[str] = [sys.executable, "-P", "-m", "fsmatrix.cli.main", "run"]
    done = subprocess.run(
        [*words, str(tmp_path / "beds.yaml"), "-o", str(out), "--quiet"],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(out)
    records: list[Any] = [store.read(run_id) for run_id in store.ids()]
    assert len(records) == 4
    for record in records:
        assert record.status == "ok", record.error
        assert record.environment["realised"]["storage_nodes"] == "emulated"
        assert record.phases[0].bytes.sum() == 4 << 20
        (looks,) = record.evidence.counters.values()
        assert looks[0].after["storage_user_seconds"] > 0  # engines are no foreign load
        name = "received" if record.coordinates["pattern"] == "rand-read" else "sent"
        before, after = (
            counters[f"network_{name}_bytes"] for counters in (looks[0].before, looks[0].after)
        )
        assert 4 << 20 <= after - before < 6 << 20
    assert {record.coordinates["storage_nodes"] for record in records} == {1, 2}
    assert not list(out.glob("state/*/bed-*/**/*"))
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(out) not in listed.stdout


def test_an_engine_killed_while_a_timed_write_goes(daos: None, tmp_path: Path) -> None:
    """The run ends within its limit and says why; nothing waits for the pool for ever."""
    limit, bed = 40, daos_testbed.up(ASKED, tmp_path / "bed")
    try:
        library = os.environ.get("FSMATRIX_DAOS_LIBRARY", "")
        text = KILLED.format(pool=bed.pool, library=library, limit=limit)
        (tmp_path / "killed.yaml").write_text(text)
        out, bridge = tmp_path / "out", Path(f"/sys/class/net/{bed.bridge}/statistics")
        words = [sys.executable, "-P", "-m", "fsmatrix.cli.main", "run", "--quiet", "--no-report"]
        campaign = subprocess.Popen(
            [*words, str(tmp_path / "killed.yaml"), "-o", str(out)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **bed.environment()},
        )  # fmt: skip
        deadline, sent = time.monotonic() + PATIENCE, bridge / "tx_bytes"
        while int(sent.read_text()) < 64 << 20:  # of 1 GiB: the write is under way
            assert campaign.poll() is None, campaign.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        bed.kill("engine.2")
        output = campaign.communicate(timeout=PATIENCE)
        assert campaign.returncode == 1, output
        (record,) = map(Store.open(out).read, Store.open(out).ids())
        assert record.status == "timeout"
        assert "no answer within limits.time_per_run" in record.error
        assert "the storage said:" in record.error
    finally:
        lines = daos_testbed.down(tmp_path / "bed")
    assert left_alone(lines) == []
