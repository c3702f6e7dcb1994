"""Levels of the cluster factors by CRUSH on a real cluster that exists: four hosts, two classes."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends import contract
from fsmatrix.backends.ceph import levelstate
from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Cluster
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed, CephTestbedOptions, down, up
from fsmatrix.cli.main import command as command_line
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.evidence.target import of_environment
from fsmatrix.results.files.store import Store
from tests.backends.ceph.typed import as_the_tool_sends, in_a_shell
from tests.backends.ceph_backends import user
from tests.ceph_beds import state
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("ceph"),
]
TWO = {"redundancy": "size=2", "failure_domain": "host", "pg_num": 16, "consent": True}
CODED = {"redundancy": "ec=2+1", "failure_domain": "osd", "pg_num": 16, "consent": True}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephTestbed]:
    """Hosts node1, node2 with an OSD of class slow, node3, node4 with one of class quick."""
    folder = tmp_path_factory.mktemp("levels") / "b"
    options = CephTestbedOptions(nodes=4, redundancy="size=2", pg_num=8, auth="cephx")
    made = up(options, folder)
    with made.cluster() as cluster:
        for osd, name in enumerate(("slow", "slow", "quick", "quick")):
            cluster.mon("osd crush rm-device-class", ids=[str(osd)])
            cluster.mon("osd crush set-device-class", **{"class": name, "ids": [str(osd)]})
    yield made
    assert [line for line in down(folder) if "left" in line] == []


@pytest.fixture
def context(tmp_path: Path, bed: CephTestbed) -> Iterator[ProvisionContext]:
    """What the conductor gives; the cluster must be as it was after a test."""
    before = state(bed)
    yield ProvisionContext(
        "a", tmp_path / "state", Journal(tmp_path / "journal/h.jsonl"), "tag1", block_seed="1/0"
    )
    assert mounts.mounted_below(tmp_path) == []
    assert state(bed) == before


def login(bed: CephTestbed) -> dict[str, str]:
    return {"conf": bed.conf, "keyring": bed.keyring, "user": bed.user}


def backend(name: str, bed: CephTestbed, how: dict[str, Any] = TWO, **options: Any) -> Any:
    kind = contract.load(name)
    return kind(kind.Options.model_validate({**login(bed), "levels": how, **options}))


@contextmanager
def provided(used: Any, level: dict[str, Any], context: ProvisionContext) -> Iterator[Any]:
    access = used.provision(level, context)
    try:
        yield access
    finally:
        used.release(access, context)
        used.finish(context)
        assert context.journal.pending() == []


def objects(cluster: Cluster, pool: str) -> int:
    with cluster.ioctx(pool, "\x01") as context:
        return sum(1 for _ in context.entries())


def test_rados_works_on_the_hosts_of_its_level(bed: CephTestbed, context: ProvisionContext) -> None:
    used = backend("rados", bed)
    with provided(used, {"storage_nodes": 2, "interface": "QUICK"}, context) as access:
        made = access.details["level"]
        assert made["linked"] == ["node3", "node4"]
        assert made["placement"]["osds"] == [2, 3]
        assert made["placement"]["pgs_per_osd"] == [16, 16]
        assert access.pool == made["pool"]
        used.mount(access, context.journal)
        used.make_run(access, "r1")
        facts = used.describe(access)
        assert facts["level"]["placement"]["hosts"] == ["node3", "node4"]
        known = of_environment({"target": facts}).level  # as audits read it
        assert known is not None
        assert known.placement.osds == (2, 3)
        assert facts["ceph"]["pools"][access.pool]["crush_rule"] == access.pool
        assert used.space(access).bytes > 0
        assert used.space().bytes is None, "of a level that is not made nothing is known"


@pytest.mark.parametrize("name", ["libcephfs", "cephfs-fuse"])
@pytest.mark.parametrize("how", [TWO, CODED], ids=["copies", "coded"])
def test_files_lie_in_the_pool_of_the_level(
    name: str, how: dict[str, Any], bed: CephTestbed, context: ProvisionContext
) -> None:
    used = backend(name, bed, how)
    with provided(used, {"storage_nodes": 3}, context) as access:
        made = access.details["level"]
        assert len(made["linked"]) == len(made["placement"]["hosts"]) == 3
        used.mount(access, context.journal)
        used.make_run(access, "r1")
        if name == "cephfs-fuse":
            file = Path(access.path) / "r1/f"
            file.write_bytes(os.urandom(1 << 20))
            assert os.getxattr(file, "ceph.file.layout.pool").decode() == made["pool"]
            with file.open("rb") as again:
                os.fsync(again.fileno())
            with bed.cluster() as cluster:
                assert objects(cluster, made["pool"]) > 0
        assert made["pool"] in str(used.describe(access)["layout"])


def test_levels_of_a_block_share_hosts_and_blocks_draw_anew(
    bed: CephTestbed, context: ProvisionContext
) -> None:
    used = backend("rados", bed, {**TWO, "redundancy": "size=2", "failure_domain": "host"})
    first = used.commands({"storage_nodes": 2}, "1/0")
    others = {tuple(used.commands({"storage_nodes": 2}, f"1/{block}")) for block in range(20)}
    linked = {line for line in first if "crush link" in line}
    larger = {line for line in used.commands({"storage_nodes": 3}, "1/0") if "crush link" in line}
    assert linked < larger
    assert len(others) > 1


@pytest.mark.parametrize(
    ("name", "how", "shell"),
    [("libcephfs", CODED, True), ("libcephfs", TWO, False), ("rados", CODED, False),
     ("rados", TWO, False)],
    ids=["libcephfs-coded-typed", "libcephfs-copies", "rados-coded", "rados-copies"],
)  # fmt: skip
def test_what_a_dry_run_prints_can_be_typed(
    name: str,
    how: dict[str, Any],
    shell: bool,
    bed: CephTestbed,
    context: ProvisionContext,
    parser: Any,
) -> None:
    """The commands make a level and remove it; one that makes the most is really typed."""
    before = state(bed)
    printed = backend(name, bed, how).commands({"storage_nodes": 3}, "1/0")
    assert before == state(bed), "asking makes nothing"

    def give(lines: list[str]) -> None:
        if shell:
            in_a_shell(lines, bed)
        else:
            as_the_tool_sends(parser, lines, bed)

    made = 1 + next(n for n, line in enumerate(printed) if "application set" in line)
    give(printed[:made])
    with bed.cluster() as cluster:
        fresh = levelstate.present(cluster, "fsmatrix-dry-run")
    coded = ["profile"] if how is CODED else []
    assert sorted(fresh) == sorted(["bucket", "rule", "pool", *coded])
    give(printed[made:])


@pytest.mark.parametrize(
    ("how", "level", "reason"),
    [
        ({}, {"storage_nodes": 5}, "storage_nodes=5 needs 5 hosts; CRUSH bucket default has 4"),
        ({}, {"storage_nodes": 3, "interface": "quick"}, "has 2 with OSDs of class quick"),
        ({}, {"interface": "golden"}, "has 0 with OSDs of class golden"),
        ({}, {"storage_nodes": 1}, "failure domain host needs 2 hosts, and there are 1"),
        ({}, {"storage_nodes": "two"}, "a level is a number of hosts"),
        ({"root": "attic"}, {"storage_nodes": 2}, "no CRUSH bucket attic"),
    ],
)
def test_levels_that_cannot_be(
    how: dict[str, Any],
    level: dict[str, Any],
    reason: str,
    bed: CephTestbed,
    context: ProvisionContext,
) -> None:
    used = backend("rados", bed, {**TWO, **how})
    assert reason in used.level_refusal(level)
    with pytest.raises(BackendError, match=re.escape(reason)):
        used.provision(level, context)
    assert context.journal.pending() == []


def test_without_consent_nothing_is_made(bed: CephTestbed, context: ProvisionContext) -> None:
    used = backend("rados", bed, {**TWO, "consent": False})
    assert used.level_refusal({"storage_nodes": 2}) == "", "plan and dry run work"
    assert "levels.consent: true agrees" in used.required_consent()
    with pytest.raises(BackendError, match=r"pg_autoscaler .* \(it is on for: none\)"):
        used.provision({"storage_nodes": 2}, context)
    with bed.cluster() as cluster:
        cluster.mon("osd pool set", pool=bed.pools["rados"], var="pg_autoscale_mode", val="on")
        try:
            assert f"on for: {bed.pools['rados']})" in used.required_consent()
        finally:
            cluster.mon("osd pool set", pool=bed.pools["rados"], var="pg_autoscale_mode", val="off")


def test_rights_of_an_administrator_are_needed(
    bed: CephTestbed, context: ProvisionContext, tmp_path: Path
) -> None:
    caps = {"mon": "allow r", "mgr": "allow r", "osd": "allow rwx"}
    with user(bed, tmp_path, "reader", **caps) as reader:
        used = backend("rados", bed, **reader)
        refusal = used.level_refusal({"storage_nodes": 2})
    assert "client.reader may not: making levels needs" in refusal


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("mon_allow_pool_delete", "false", "ceph config set mon mon_allow_pool_delete true"),
        ("mon_max_pg_per_osd", "20", "mon_max_pg_per_osd is 20: set levels.pg_num, or raise it"),
    ],
)
def test_what_the_monitors_allow(
    name: str, value: str, reason: str, bed: CephTestbed, context: ProvisionContext
) -> None:
    def setting(*words: str) -> str:
        key = ["--keyring", bed.keyring] if bed.keyring else []
        argv = ["ceph", "--conf", bed.conf, *key, "tell", "mon.a", "config", *words]
        return subprocess.run(
            argv, check=True, timeout=PATIENCE, capture_output=True, text=True
        ).stdout

    used, before = backend("rados", bed), str(json.loads(setting("get", name))[name])
    setting("set", name, value)
    try:
        assert reason in _until(lambda: used.level_refusal({"storage_nodes": 2}))
    finally:
        setting("set", name, before)
        _until(lambda: not used.level_refusal({"storage_nodes": 2}))


def _until(look: Callable[[], Any]) -> Any:
    """The manager hears of a changed setting a little later."""
    for _ in range(200):
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError("it never came")


MAKE = """
import os, sys
from fsmatrix.backends import contract
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.ceph import levelstate
from fsmatrix.backends.journal.journal import Journal
from pathlib import Path
import json
options, folder, commands = json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
run, done = levelstate.run, []
def counted(cluster, command):
    if len(done) == commands:
        os._exit(9)
    done.append(command)
    run(cluster, command)
levelstate.run = counted
kind = contract.load("libcephfs")
journal = Journal(folder / "journal/h.jsonl")
context = ProvisionContext("a", folder / "state", journal, "tag1", block_seed="1/0")
kind(kind.Options.model_validate(options)).provision({"storage_nodes": 3}, context)
os._exit(9)
"""


@pytest.mark.parametrize("commands", [0, 1, 4, 5, 7, 99])
def test_what_a_crash_left_is_removed(
    commands: int, bed: CephTestbed, context: ProvisionContext, tmp_path: Path
) -> None:
    options = {**login(bed), "levels": CODED if commands in (5, 99) else TWO}
    argv = [sys.executable, "-P", "-c", MAKE, json.dumps(options), str(tmp_path), str(commands)]
    died = subprocess.run(argv, timeout=PATIENCE, check=False, capture_output=True, text=True)
    assert died.returncode == 9, died.stderr
    entries = context.journal.pending("ceph-level")
    assert len(entries) == 1
    with bed.cluster() as cluster:
        there = levelstate.present(cluster, entries[0].facts["name"])
    assert bool(there) == (commands > 0)
    said = undo_pending(tmp_path / "journal")
    assert [line for line in said if line.startswith("left alone")] == []
    assert any("removed CRUSH root" in line for line in said) == (commands > 0)
    assert undo_pending(tmp_path / "journal") == []


def test_a_foreign_root_or_pool_is_never_touched(
    bed: CephTestbed, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda number: "0" * 2 * number)
    name = "fsmatrix-tag1-a-00000000"
    used = backend("rados", bed)
    with bed.cluster() as cluster:
        cluster.mon("osd crush add-bucket", name=name, type="root")
        with pytest.raises(CephError, match="exists and is not the suite's: left alone"):
            used.provision({"storage_nodes": 2}, context)
        assert levelstate.present(cluster, name) == ["bucket"]
        cluster.mon("osd crush rm", name=name)
        cluster.mon("osd pool create", pool=name, pg_num=1, pgp_num=1, size=2)
        cluster.mon("osd pool application enable", pool=name, app="rados")
        mark = {"pool": name, "app": "rados", "key": "fsmatrix", "value": "another"}
        cluster.mon("osd pool application set", **mark)
        known = {"name": name, "tag": "tag1", "linked": [], "filesystem": "", "coded": False}
        entry = context.journal.begin("ceph-level", target="a", path=name, **known, **login(bed))
        with pytest.raises(CephError, match="belongs to 'another': not touched"):
            levelstate.remove(read(levelstate.Recorded, entry.facts, "facts"))
        assert levelstate.present(cluster, name) == ["pool"]
        cluster.mon("osd pool delete", pool=name, pool2=name, yes_i_really_really_mean_it=True)
    context.journal.end(entry)


def test_prepared_pools(bed: CephTestbed, context: ProvisionContext) -> None:
    pools = [{"pool": bed.pools["rados"], "storage_nodes": nodes} for nodes in (4, 3)]
    used = backend("rados", bed, {"pools": pools})
    assert used.required_consent() == ""
    assert used.commands({"storage_nodes": 4}, "") == []
    plain = backend("rados", bed, levels=None, pool=bed.pools["rados"]).space()
    assert 0 < (used.space().bytes or 0) == pytest.approx(plain.bytes, rel=0.1)
    assert "lies on 4 hosts, not on 3" in used.level_refusal({"storage_nodes": 3})
    assert "must name exactly one pool" in used.level_refusal({"storage_nodes": 2})
    with provided(used, {"storage_nodes": 4}, context) as access:
        assert access.pool == bed.pools["rados"]
        assert access.details["level"]["made"] is False
    with bed.cluster() as cluster:
        pools_there = [pool["poolname"] for pool in cluster.mon("osd lspools")]
    assert bed.pools["rados"] in pools_there, "a prepared pool stays"
    other = backend("libcephfs", bed, {"pools": pools})
    assert "is no data pool of file system" in other.level_refusal({"storage_nodes": 4})


CAMPAIGN = """
campaign: levels
seed: 1
targets:
  rados: {{backend: rados, options: {{conf: {conf}, keyring: '{keyring}', levels: &how {how}}}}}
  fuse: {{backend: cephfs-fuse, options: {{conf: {conf}, keyring: '{keyring}', levels: *how}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_total: 4MiB, chunk: 64KiB, verify: true}}}}
factors: {{storage_nodes: [2, 4], pattern: [seq-write]}}
repetitions: 1
settle: {{timeout: 2s}}
limits: {{time_per_run: 120s}}
"""


def fsmatrix(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "fsmatrix.cli.main", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.fixture
def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process, for what starts no session: (status, out, err)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fsmatrix", *arguments])
        status = int(command_line() or 0)
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


def test_a_campaign_over_storage_nodes(
    bed: CephTestbed,
    context: ProvisionContext,
    tmp_path: Path,
    said: Callable[..., tuple[int, str, str]],
) -> None:
    how = json.dumps({**TWO, "consent": False})
    file, out = tmp_path / "levels.yaml", tmp_path / "out"
    file.write_text(CAMPAIGN.format(conf=bed.conf, keyring=bed.keyring, how=how))
    status, _, complaint = said("run", str(file), "-o", str(out))
    assert status == 2
    assert "levels.consent: true agrees" in " ".join(complaint.split())
    assert not out.exists()
    status, dry, complaint = said("run", str(file), "--dry-run")
    assert status == 0, complaint
    assert dry.count("ceph osd pool create") == 4
    told = json.loads(said("run", str(file), "--dry-run", "--json")[1])
    assert [len(one["commands"]) for one in told] == [
        block.count("\nceph ") for block in dry.split("# block")[1:]
    ]
    consent = ["--set", "targets.rados.options.levels.consent=true",
               "--set", "targets.fuse.options.levels.consent=true"]  # fmt: skip
    done = fsmatrix("run", str(file), "-o", str(out), "--quiet", "--no-report", *consent)
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(out)
    records = [store.read(run) for run in store.ids()]
    assert len(records) == 4
    for record in records:
        assert record.status == "ok", record.error
        level = record.environment["target"]["level"]
        assert len(level["placement"]["hosts"]) == record.coordinates["storage_nodes"]
        assert record.coordinates["redundancy"] == "size=2"
        found = {finding.audit for finding in record.findings}
        assert "shared-machine" in found, "these hosts are one machine, and nobody declared it"
