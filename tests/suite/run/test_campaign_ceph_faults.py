"""Campaigns on a real Ceph whose daemons, clients and pools fail in the middle.

One bed with two OSDs, two copies of everything, and a pool of one copy beside them.  After each
test the bed is whole again, and nothing of the campaign is left on it or on this machine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.ceph.ceph_state import restarts
from fsmatrix.backends.testbed.ceph_bed_options import DATA, RADOS
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed, CephTestbedOptions, down, up
from fsmatrix.results.record import window
from fsmatrix.suite.run.health import LAST_LOOK, WATCH_SECONDS
from tests.suite import ceph_campaigns as cluster
from tests.suite.running import fsmatrix, ranks_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("ceph"),
]
SMALL = "object_size: 64KiB"  # so that every file is on both OSDs
STRIPED = f"stripe_unit: 64KiB, {SMALL}"
# backend -> options of the target, of two copies
TWO = {"rados": f"pool: rados, {SMALL}", "libcephfs": STRIPED, "cephfs-fuse": STRIPED}
ONE = f"pool: {cluster.SINGLE}, {SMALL}"
TREE = {"filesystem": "cephfs", "directory": "/", "name": "none", "tag": "none"}
FIO = "ioengine: psync, size: 64MiB, bs: 64KiB, fsync: 16, runtime: 20s"
SILENT = r"the storage (still )?said: osd\.[01] does not answer, and the monitors think"
LONG = "bytes_per_process: 4MiB, chunk: 64KiB, fixed: time, seconds: 3s"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CephTestbed]:
    folder = tmp_path_factory.mktemp("bed") / "b"
    bed = up(CephTestbedOptions(nodes=2, osds_per_node=1, redundancy="size=2", pg_num=16), folder)
    cluster.single_copy(bed)
    yield bed
    assert [line for line in down(folder) if "left" in line] == []


@pytest.fixture
def place(shared: CephTestbed, tmp_path: Path) -> Iterator[Any]:
    """Where a test works; at the end the bed is whole, and nothing of the campaign is left."""
    shared.wait_clean(60)
    there = cluster.Place(tmp_path, shared)
    try:
        yield there
    finally:
        there.stop()
    assert there.left() == []
    assert not there.directory.exists() or os.listdir(there.directory) == []


@contextmanager
def healed(bed: CephTestbed) -> Iterator[None]:
    """Whatever was stopped or killed works again afterwards."""
    try:
        yield
    finally:
        bed.resume("mon.a")
        for osd in (0, 1):
            cluster.revive_osd(bed, osd)
        bed.wait_clean(60)


def by_target(records: list[Any], name: str) -> list[Any]:
    return [record for record in records if record.coordinates["target"] == name]


def resumed(place: Any) -> str:
    """Resume it; what was recovered."""
    done = fsmatrix("run", "-o", place.out, "--resume", "--quiet")
    assert done.returncode == 0, done.stderr
    return str(done.stderr)


# -- OSDs -------------------------------------------------------------------------------------
def test_an_osd_is_killed_and_there_is_another_copy(place: Any) -> None:
    """The run goes on and carries the finding, and so do the next ones."""
    running = place.start(backend="rados", target=TWO["rados"], work=LONG)
    with healed(place.bed):
        place.until_writing(running, RADOS)
        place.bed.kill("osd.1")
        assert running.end() == 0, running.errors
    first, second = place.records()
    for record in (first, second):
        assert record.status == "ok", record.error
        assert "storage-unhealthy" in cluster.audits(record)
        assert any("OSD_DOWN" in text for text in record.evidence.health["write"])
    assert first.evidence.settle["write"].reached
    assert any("came up: 1 of 2" in text for text in first.evidence.health["write"])
    assert "carry-over" in cluster.audits(second)


def test_an_osd_is_away_between_two_looks_only(place: Any) -> None:
    """At the end all is well again, and the run carries it all the same."""
    running = place.start(backend="rados", target=TWO["rados"], work=LONG, repetitions=1)
    with healed(place.bed):
        place.until_writing(running, RADOS)
        place.bed.kill("osd.1")
        place.bed.restart("osd.1")
        assert running.end() == 0, running.errors
    (record,) = place.records()
    assert record.status == "ok", record.error
    looks = record.evidence.health_watch["write"]
    assert looks.looks >= 2
    (event, *_) = (one for one in looks.events if "OSDs went down or came up" in one.says)
    (phase,) = (phase for phase in record.phases if phase.name == "write")
    assert 0 < event.time - phase.began < window(phase) + LAST_LOOK + WATCH_SECONDS
    assert any("OSDs went down or came up" in one for one in record.evidence.health["write"])
    assert "storage-unhealthy" in cluster.audits(record)


def test_an_osd_is_killed_and_it_had_the_only_copy(place: Any) -> None:
    """Runs fail with the reason, the next target's are ok; a resume removes what had to stay."""
    running = place.start(
        backend="rados",
        target=ONE,
        work=LONG,
        limit="7s",
        repetitions=1,
        beside=True,
        seed=cluster.CEPH_FIRST,
    )
    with healed(place.bed):
        place.until_writing(running, cluster.SINGLE)
        session = ranks_of(place.out)
        place.bed.kill("osd.1")
        assert running.end() == 1, running.errors
        assert not [pid for pid in session if Path(f"/proc/{pid}").exists()]
    (lost,) = by_target(place.records(), "ceph")
    assert lost.status == "timeout"
    assert "no answer within" in lost.error
    assert "OSD_DOWN" in lost.error
    assert "storage-unhealthy" in cluster.audits(lost)
    (beside,) = by_target(place.records(), "here")
    assert beside.status == "ok", beside.error
    assert "recovered: removed namespaces" in resumed(place)


def test_osds_hang(place: Any) -> None:
    """The run ends at its deadline, no process holds the campaign, and the next run is ok.

    A rank inside a fsync of FUSE cannot even be killed before its ceph-fuse is.
    """
    running = place.start(backend="cephfs-fuse", target=TWO["cephfs-fuse"], work=LONG, limit="8s")
    with healed(place.bed):
        place.until_writing(running, DATA)
        session = ranks_of(place.out)
        for osd in (0, 1):
            place.bed.stop(f"osd.{osd}")
        running.until("warning")  # the session has been ended
        for osd in (0, 1):
            place.bed.resume(f"osd.{osd}")
        assert running.end() == 1, running.errors
        assert not [pid for pid in session if Path(f"/proc/{pid}").exists()]
    hung, after = place.records()
    assert (hung.status, after.status) == ("timeout", "ok"), after.error
    assert "no answer within" in hung.error


def test_osds_hang_under_a_long_limit(place: Any) -> None:
    """It is told after seconds, by the OSD that does not answer, of which no monitor knows yet;
    the next run asks first, and what cannot be removed is named."""
    limit = "1h, time_without_progress: 2s"
    running = place.start(backend="rados", target=TWO["rados"], work=LONG, limit=limit)
    with healed(place.bed):
        place.until_writing(running, RADOS)
        session = ranks_of(place.out)
        for osd in (0, 1):
            place.bed.stop(f"osd.{osd}")
        assert running.end() == 1, running.errors
        assert not [pid for pid in session if Path(f"/proc/{pid}").exists()]
    hung, after = place.records()
    assert hung.status == "failed"
    assert re.search(rf"no operation was seen to complete for \d+ s, and {SILENT}", hung.error)
    assert (after.status, after.session) == ("failed", "")
    assert re.search(SILENT, after.error)
    told = [event["text"] for event in running.events if event["event"] == "warning"]
    assert any(text.startswith("still there: rados-space") for text in told), told
    assert any("`run --resume` removes it" in text for text in told)
    assert "recovered: removed namespaces" in resumed(place)


@pytest.mark.needs("fio")
def test_osds_hang_below_a_program(place: Any) -> None:
    """Of fio it is told as soon: by the kernel's counters of its processes."""
    limit = "1h, time_without_progress: 2s"
    target = TWO["cephfs-fuse"]
    running = place.start(
        backend="cephfs-fuse", target=target, workload="fio", work=FIO, limit=limit, repetitions=1
    )
    with healed(place.bed):
        place.until_writing(running, DATA)
        for osd in (0, 1):
            place.bed.stop(f"osd.{osd}")
        assert re.search(SILENT, running.until("warning")["text"])  # the session has been ended
        for osd in (0, 1):
            place.bed.resume(f"osd.{osd}")
        assert running.end() == 1, running.errors
    (hung,) = place.records()
    assert re.search(rf"no operation was seen to complete for \d+ s, and {SILENT}", hung.error)


# -- MDS and clients --------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["cephfs-fuse", "libcephfs"])
def test_the_mds_is_killed_and_restarted(place: Any, backend: str) -> None:
    running = place.start(backend=backend, target=TWO[backend], work=LONG)
    with healed(place.bed):
        place.until_writing(running, DATA)
        place.bed.kill("mds.a")
        place.bed.restart("mds.a")
        running.end()
    first, second = place.records()
    assert first.status == "failed" or "storage-unhealthy" in cluster.audits(first)
    assert any("MDS of rank 0" in text for text in first.evidence.health["write"])
    assert second.status == "ok", second.error
    assert not any("MDS" in text for text in second.evidence.health["write"])


def test_ceph_fuse_is_killed(place: Any) -> None:
    """The run fails with the kernel's word for it; the next one is on a clean mount."""
    running = place.start(backend="cephfs-fuse", target=TWO["cephfs-fuse"], work=LONG)
    place.until_writing(running, DATA)
    started = cluster.processes_of(place.folder)
    (client,) = [pid for pid, words in started if "ceph-fuse -f" in words]
    os.kill(client, signal.SIGKILL)
    assert running.end() == 1, running.errors
    first, second = place.records()
    assert first.status == "failed"
    assert "ENOTCONN" in first.error or "ECONNABORTED" in first.error
    assert second.status == "ok", second.error


def test_nothing_of_a_killed_rank_waits_for_an_mds(place: Any) -> None:
    """What it started to look into CephFS ends with it, also inside a call that hangs."""
    login = Login(place.bed.conf)
    look = (
        "from fsmatrix.backends.ceph import trees; trees.TIMEOUT = trees.QUIET = 600.0; "
        f"trees.Tree.of({TREE | login.facts}).found_tag()"
    )  # it would hang far longer than is waited here
    os.kill(place.bed.pid("mds.a"), signal.SIGSTOP)
    try:
        rank = subprocess.Popen([sys.executable, "-P", "-c", look], stderr=subprocess.DEVNULL)
        cluster.until(lambda: len(cluster.processes_of(place.folder)) == 2)
        time.sleep(1)  # into the call
        rank.kill()
        rank.wait()
        cluster.until(lambda: cluster.processes_of(place.folder) == [])
    finally:
        os.kill(place.bed.pid("mds.a"), signal.SIGCONT)


# -- pools ------------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["rados", "libcephfs", "cephfs-fuse"])
def test_a_pool_becomes_full(place: Any, backend: str) -> None:
    """By quota, in the middle: a failed run that says so, and nothing waits for the space."""
    pool = RADOS if backend == "rados" else DATA
    # objects that grow are refused, some seconds later; writing again what is there is not
    chunk = "4KiB" if backend == "rados" else "512"  # clients of CephFS write behind
    options = f"bytes_per_process: 768MiB, chunk: {chunk}"  # tens of seconds
    running = place.start(
        backend=backend, target=TWO[backend], work=options, limit="60s", repetitions=2
    )
    place.until_writing(running, pool)
    with place.bed.cluster() as ceph:
        ceph.mon("osd pool set-quota", pool=pool, field="max_bytes", val="1")
        try:
            assert running.end() == 1, running.errors
        finally:
            ceph.mon("osd pool set-quota", pool=pool, field="max_bytes", val="0")
    place.bed.wait_clean(60)
    for record in place.records():
        assert record.status == "failed"
        assert "ENOSPC" in record.error or "EDQUOT" in record.error, record.error
    assert "storage-unhealthy" in cluster.audits(place.records()[0])


# -- the monitor ------------------------------------------------------------------------------
def test_the_monitor_hangs_between_attachments(place: Any) -> None:
    running = place.start(
        backend="rados", target=TWO["rados"], attachments=2, beside=True, seed=cluster.CEPH_AROUND
    )
    with healed(place.bed):
        while "here" not in running.until("attach")["text"]:
            pass
        place.bed.stop("mon.a")
        assert running.end() == 1, running.errors
    first, second = by_target(place.records(), "ceph")
    assert first.status == "ok", first.error
    assert second.status == "failed"
    assert "no monitor answered within" in second.error
    assert [record.status for record in by_target(place.records(), "here")] == ["ok", "ok"]


def test_the_monitor_hangs_before_the_campaign(place: Any) -> None:
    campaign = place.campaign("rados", target=TWO["rados"], beside=True)
    with healed(place.bed):
        place.bed.stop("mon.a")
        done = fsmatrix("run", campaign, "-o", place.out, "--quiet")
    assert done.returncode == 2, done.stderr
    assert "no monitor answered within" in done.stderr
    assert "Traceback" not in done.stderr


# -- what a restart changes -------------------------------------------------------------------
def status(since: int, *gids: int) -> dict[str, Any]:
    ranks = [{"filesystem_id": 1, "rank": n, "gid": gid} for n, gid in enumerate(gids)]
    osds = {"osd_up_since": since, "num_up_osds": 2, "num_osds": 2, "epoch": since}
    return {"osdmap": osds, "fsmap": {"by_rank": ranks}}


def test_restarts_are_told_from_two_answers() -> None:
    assert restarts(status(5, 71, 72), status(5, 71, 72)) == []
    assert restarts(status(5, 71), status(5, 71, 72)) == []  # one more rank is no fault
    (text,) = restarts(status(5, 71, 72), status(5, 71, 73))
    assert "MDS of rank 1" in text
    (text,) = restarts(status(5, 71), status(5))
    assert "MDS of rank 0" in text
    (text,) = restarts(status(5), status(6))
    assert "2 of 2 are up" in text
