"""Targets on a test bed: planned anywhere, brought up for real where Ceph is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.backends.contract import NO_LEVEL, Foreseen, ProvisionContext
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local.directory import Directory
from fsmatrix.backends.testbed.bed import TESTBEDS
from fsmatrix.backends.testbed.daos_testbed import DaosTestbed
from fsmatrix.backends.testbed.home import Home
from fsmatrix.results.files.store import Store
from fsmatrix.results.process import Process
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.cases import target
from fsmatrix.suite.plan.plan import Installation, Plan, Request, build_plan
from tests.waiting import PATIENCE

AGENT = "DAOS_AGENT_DRPC_DIR"
MISSING = {"evidence-missing", "read-served-by-cache", "cache-state-not-reached"}
CAMPAIGN = """
campaign: beds
seed: 3
targets:
  bed: {{backend: {backend}, testbed: {{{bed}}}, options: {{{options}}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 4MiB, chunk: 64KiB, verify: true}}}}
factors:
  storage_nodes: {nodes}
  pattern: [seq-write, rand-read]
repetitions: 1
order: {{attachments: 1}}
limits: {{time_per_run: 60s}}
"""


def text(
    backend: str = "rados",
    bed: str = "osds_per_node: 1, pg_num: 16",
    options: str = "",
    nodes: str = "[1, 2]",
) -> str:
    return CAMPAIGN.format(backend=backend, bed=bed, options=options, nodes=nodes)


def with_facts(facts: str) -> str:
    """The campaign with something declared of its target."""
    return text().replace("options: {}}", f"options: {{}}, {facts}}}")


def planned(campaign: str) -> Plan:
    return build_plan(Source(campaign), Request(), installation=Installation(root=True), here=False)


def test_levels_of_a_bed_are_whole_plots_and_emulated() -> None:
    made = planned(text())
    assert [dict(plot.level) for plot in made.plots()] in (
        [{"storage_nodes": 1}, {"storage_nodes": 2}],
        [{"storage_nodes": 2}, {"storage_nodes": 1}],
    )
    assert {case.realised["storage_nodes"] for case in made.cases} == {"emulated"}
    assert {case.coordinates["storage_nodes"] for case in made.cases} == {1, 2}


def test_what_a_bed_is_becomes_coordinates_and_no_part_of_the_ids() -> None:
    plain, other = planned(text()), planned(text(bed="osds_per_node: 2, failure_domain: osd"))
    for case in other.cases:
        told = {name: case.coordinates[name] for name in ("redundancy", "failure_domain")}
        assert told == {"redundancy": "size=1", "failure_domain": "osd"}
        assert case.coordinates["osds_per_node"] == 2
        assert (case.coordinates["interface"], case.coordinates["network"]) == ("none", "none")
        assert case.realised == {"storage_nodes": "emulated"}
        assert "drive_scale" not in case.coordinates
    assert {c.case.case_id for c in plain.cases} == {c.case.case_id for c in other.cases}
    # as released before beds told anything
    assert {c.case.case_id for c in plain.cases} == {
        "1db4662d6a4454c6",
        "3befb988db119a06",
        "48a0fb2640d1a1ea",
        "8a1593b0c91a5a63",
    }


def test_a_daos_bed_has_levels_and_attributes_of_its_own() -> None:
    made = planned(text(backend="daos-dfs", bed="targets_per_node: 2, network: 1Gbit"))
    seen = {(c.coordinates["storage_nodes"], c.coordinates["targets_per_node"]) for c in made.cases}
    assert seen == {(1, 2), (2, 2)}
    emulated = dict.fromkeys(("storage_nodes", "network"), "emulated")
    assert all(case.realised == emulated for case in made.cases)
    assert {plot.level["storage_nodes"] for plot in made.plots()} == {1, 2}


def test_what_the_backend_makes_of_a_level_stays_for_it() -> None:
    classes = text(backend="daos-dfs", bed="").replace(
        "  pattern:", "  object_class: [S1, SX]\n  pattern:"
    )
    made = planned(classes)
    plan = made.target("bed").testbed
    assert plan is not None
    levels = [plot.level for plot in made.plots()]
    assert len(levels) == 4
    assert {plan.at(level).nodes for level in levels} == {1, 2}
    assert {str(plan.rest(level)) for level in levels} == {
        "{'object_class': 'S1'}", "{'object_class': 'SX'}",
    }  # fmt: skip


def test_what_clients_need_to_reach_a_bed_is_there_while_it_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(text(backend="daos-dfs", bed="")).target("bed").testbed
    assert plan is not None
    bed = DaosTestbed(
        directory="/b", conf="/b/c", options=plan.at({}), facts={}, agent="/b/run", bridge="x",
        _home=Home.at(tmp_path / "b", DaosTestbed.kind),
    )  # fmt: skip
    monkeypatch.setattr(DaosTestbed, "up", lambda *_: bed)
    monkeypatch.setattr(DaosTestbed, "down", lambda _: [])
    room = ProvisionContext("bed", tmp_path / "bed", Journal(tmp_path / "j.jsonl"), "0" * 16)
    for before in (None, "/site"):
        monkeypatch.delenv(AGENT, raising=False)
        if before is not None:
            monkeypatch.setenv(AGENT, before)
        backend, there = plan.up({"storage_nodes": 2}, room)
        assert there is bed
        told = backend.options.model_dump()
        assert (told["pool"], told["system"]) == ("fsmatrix", "daos_server")
        assert os.environ[AGENT] == "/b/run"
        plan.down(room)
        plan.down(room)  # harmless
        assert os.environ.get(AGENT) == before


def test_attributes_follow_the_level_of_a_bed() -> None:
    drives = "osds_per_node: study, scale: 0.05, network: 1Gbit, interface: sata"
    made = planned(text(bed=drives).replace("  pattern:", "  interface: [PCIe, SATA]\n  pattern:"))
    seen = {(c.coordinates["interface"], c.coordinates["osds_per_node"]) for c in made.cases}
    assert seen == {("PCIe", 3), ("SATA", 6)}
    assert {c.coordinates["drive_scale"] for c in made.cases} == {0.05}
    emulated = dict.fromkeys(("storage_nodes", "interface", "network"), "emulated")
    assert all(case.realised == emulated for case in made.cases)


def test_what_a_backend_tells_is_an_attribute_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Foreseen(attributes={"redundancy": "size=3"})
    monkeypatch.setattr(Directory, "foreseen", lambda _self, _level=NO_LEVEL: told)
    target = "{backend: directory, options: {path: /mnt/x}%s}"
    campaign = re.sub(r"\{backend: rados.*", target % "", text())
    campaign = campaign.replace("  storage_nodes: [1, 2]\n", "")
    made = planned(campaign)
    assert {case.coordinates["redundancy"] for case in made.cases} == {"size=3"}
    declared = campaign.replace("/mnt/x}", "/mnt/x}, attributes: {redundancy: size=2}")
    with pytest.raises(CampaignError, match="backend directory says size=3: leave it out"):
        planned(declared)


def test_cold_on_a_bed_empties_the_servers_caches_unless_told_not_to() -> None:
    chosen = [
        planned(text(options=o)).target("bed").options for o in ("", "drop_server_caches: false")
    ]
    assert [options.model_dump()["drop_server_caches"] for options in chosen] == [True, False]


@pytest.mark.parametrize(
    ("campaign", "says"),
    [
        (with_facts("attributes: {redundancy: size=3}"), "the test bed says size=1: leave it out"),
        (with_facts("attributes: {osds_per_node: 2}"), "the test bed says 1: leave it out"),
        (with_facts("realised: {storage_nodes: hardware}"), "the test bed says emulated"),
        (with_facts("realised: {interlace: emulated}"), "did you mean 'interface'?"),
        (text(bed="redundancy: size=3"), "needs 3 hosts, and there are 1"),
        (text(bed="colour: red"), "colour"),
        (text(bed="nodes: 0"), "nodes"),
        (text(options="pool: mine"), "options.pool comes from the test bed"),
        (text(backend="daos-dfs", bed="", options="pool: mine"), "options.pool comes from the"),
        (text(backend="daos-dfs", bed="interface: sata"), "interface"),
        (text(backend="daos-dfs", bed="", options="oclass: RP_2G1"), "RP_2G1"),
        (text(backend="tmpfs"), "tmpfs has no test bed"),
        (text(nodes="[many]"), "no test bed has"),
    ],
)
def test_a_bed_that_cannot_be_is_refused_by_plan(campaign: str, says: str) -> None:
    with pytest.raises(CampaignError) as caught:
        planned(campaign)
    assert says in str(caught.value)


def test_beds_of_dead_conductors_are_taken_down_also_if_their_pid_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down: list[Path] = []
    for system in map(TESTBEDS.load, TESTBEDS.names()):
        monkeypatch.setattr(system, "down", lambda place: down.append(place) or [])
    room = ProvisionContext("rados", tmp_path / "rados", Journal(tmp_path / "j.jsonl"), "0" * 16)
    own = target.folder(room)
    host, me = os.uname().nodename, Process.of(os.getpid())
    assert me is not None
    dead = [
        own.with_name(f"bed-{host}-{me.boot_id}-{me.pid}-{me.start + 1}"),
        own.with_name(f"bed-{host}-{'0' * 36}-{me.pid}-{me.start}"),
    ]
    others = [own, own.with_name(f"bed-{host}-somebody's"), own.with_name("bed-elsewhere-1-1")]
    for place in (*dead, *others):
        place.mkdir(parents=True)
    assert list(target.down_all(tmp_path)) == []
    assert sorted(set(down)) == sorted(dead)  # whichever system it is
    assert len(down) == len(dead) * len(TESTBEDS.names())
    monkeypatch.setitem(TESTBEDS.builtin, "gone", "no.such.module:Bed")
    lines = list(target.down_all(tmp_path))
    assert len(lines) == len(dead)
    assert all(re.match(r"left alone: .*'gone'.* cannot be loaded", line) for line in lines)


@pytest.mark.root
@pytest.mark.needs("ceph")
def test_a_campaign_brings_its_beds_up_and_takes_them_down(tmp_path: Path) -> None:
    (tmp_path / "beds.yaml").write_text(text())
    out = tmp_path / "out"
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "fsmatrix.cli.main",
            "run",
            str(tmp_path / "beds.yaml"),
            "-o",
            str(out),
            "--quiet",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(out)
    records = [store.read(run_id) for run_id in store.ids()]
    assert len(records) == 4
    for record in records:
        assert record.status == "ok", record.error
        assert record.engine.startswith("player")
        assert record.environment["realised"]["storage_nodes"] == "emulated"
        assert record.phases[0].bytes.sum() == 4 << 20
        assert record.evidence.health
        assert record.coordinates["redundancy"] == "size=1"
        assert not {f.audit for f in record.findings} & MISSING
        if record.coordinates["pattern"] == "rand-read":
            servers = record.evidence.cache["read"].facts
            assert servers["server_caches"] == "dropped"
            assert servers["server_data_caches"] == "dropped"
        (looks,) = record.evidence.counters.values()
        assert looks[0].after["network_counting_osds"] == record.coordinates["storage_nodes"]
        daemons = looks[0].after["storage_user_seconds"]
        assert daemons > 0, "what the bed's own daemons use is known, and no foreign load"
        name = "received" if record.coordinates["pattern"] == "rand-read" else "sent"
        sides = (looks[0].before, looks[0].after)
        before, after = (counters[f"network_{name}_bytes"] for counters in sides)
        assert 4 << 20 <= after - before < 5 << 20
    assert {record.coordinates["storage_nodes"] for record in records} == {1, 2}
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(out) not in listed.stdout
    assert not list(out.glob("state/*/bed-*/**/*"))
