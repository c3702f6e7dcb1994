"""Ceph backends: clients and servers that break, mounts that are found, conductors that die."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fsmatrix.backends.ceph.bindings.capi import CephError
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.ceph.rados import Space
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import undo_pending
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed
from tests.backends.ceph_backends import (
    attached,
    backend,
    fuse_of,
    names_in,
    read,
    whole_filesystem,
)
from tests.ceph_beds import objects
from tests.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.needs("ceph"),
]


# -- faults of the clients --------------------------------------------------------------------
def test_ceph_fuse_killed(bed: CephTestbed, context: ProvisionContext) -> None:
    """The run fails; the next run, or the next mount, finds a clean one."""
    with attached("cephfs-fuse", bed, context) as (used, access):
        used.make_run(access, "r1")
        file = Path(access.path, "r1/file")
        with file.open("wb") as held:
            os.write(held.fileno(), b"x" * 4096)
            os.fsync(held.fileno())
            (pid,) = fuse_of(access)
            os.kill(pid, signal.SIGKILL)
            until(lambda: fuse_of(access) == [])
            with pytest.raises(OSError, match="not connected") as failure:
                os.write(held.fileno(), b"x")
            assert failure.value.errno == errno.ENOTCONN
            assert "its client has died" in used.health(access)[0]
            with suppress(OSError):
                held.close()
        used.remove_run(access, "r1")
        assert used.health(access) == []
        assert list(Path(access.path).iterdir()) == []
        (pid,) = fuse_of(access)
        os.kill(pid, signal.SIGKILL)
        until(lambda: fuse_of(access) == [])
        used.mount(access, context.journal)
        used.make_run(access, "r2")
        assert Path(access.path, "r2").is_dir()
        assert len(context.journal.pending("cephfs-mount")) == 1


def test_a_client_that_hangs_is_ended(
    bed: CephTestbed, context: ProvisionContext, fast: None
) -> None:
    with attached("cephfs-fuse", bed, context) as (used, access):
        (pid,) = fuse_of(access)
        os.kill(pid, signal.SIGSTOP)
        assert "does not answer" in used.health(access)[0]
        with pytest.raises(BackendError, match="does not answer"):
            used.make_run(access, "r")
        used.unmount(access, context.journal)
        assert fuse_of(access) == []
        used.mount(access, context.journal)
        assert used.health(access) == []


def test_a_mount_in_use_is_said(bed: CephTestbed, context: ProvisionContext, fast: None) -> None:
    with attached("cephfs-fuse", bed, context) as (used, access):
        descriptor = os.open(access.path, os.O_RDONLY)
        try:
            with pytest.raises(BackendError, match=f"still in use by pid {os.getpid()}"):
                used.unmount(access, context.journal)
            assert len(context.journal.pending("cephfs-mount")) == 1
        finally:
            os.close(descriptor)


def test_another_mount_at_our_point_stays(bed: CephTestbed, context: ProvisionContext) -> None:
    with attached("cephfs-fuse", bed, context) as (used, access):
        used.unmount(access, context.journal)
        point = access.details["point"]
        subprocess.run(["mount", "-t", "tmpfs", "theirs", point], check=True)
        try:
            for action in (used.mount, used.unmount):
                with pytest.raises(BackendError, match="theirs is mounted there, not ours"):
                    action(access, context.journal)
        finally:
            subprocess.run(["umount", point], check=True)


def test_an_mds_that_hangs(bed: CephTestbed, context: ProvisionContext, fast: None) -> None:
    """Nothing waits for ever, the child that did is gone, and what it held is given up."""
    os.kill(bed.pid("mds.a"), signal.SIGSTOP)
    try:
        with pytest.raises(BackendError, match=r"ETIMEDOUT|nothing happened"):
            backend("libcephfs", bed).provision({}, context)
        (entry,) = context.journal.pending()
        assert entry.kind == "cephfs-tree"
    finally:
        os.kill(bed.pid("mds.a"), signal.SIGCONT)
    assert not [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if b"ceph.treetool" in read(path)
    ]
    bed.wait_clean(60)
    backend("libcephfs", bed).finish(context)
    assert context.journal.pending() == []


# -- found mounted ----------------------------------------------------------------------------
def test_found_mounted(bed: CephTestbed, context: ProvisionContext, tmp_path: Path) -> None:
    with whole_filesystem(bed, tmp_path / "theirs") as place:
        (place / "sentinel").write_text("keep")
        striped = {"path": str(place), "stripe_count": 2}
        with attached("cephfs-fuse", bed, context, **striped) as (used, access):
            assert access.path == f"{place}/fsmatrix-tag1/data"
            used.make_run(access, "r")
            file = Path(access.path, "r/file")
            file.write_bytes(bytes(1 << 20))
            assert b"stripe_count=2" in os.getxattr(file, "ceph.file.layout")
            assert used.health(access) == []
            assert used.settle(access, 60.0).reached
            facts = used.describe(access)
            assert facts["managed"] is False
            assert facts["ceph"]["filesystem"]["active_mds"] == 1
            assert "stripe_count=2" in facts["layout"]
            evidence = used.cache(access, "cold", ["r"])
            assert evidence.state == "unknown"  # its object cache is not ours to empty
            assert used.cache(access, "warm", ["r"]).state == "warm"
            assert used.space(access).bytes
            used.unmount(access, context.journal)
            assert tree.read_marker(place / "fsmatrix-tag1") == "tag1"
        assert [path.name for path in place.iterdir()] == ["sentinel"]
        assert mounts.mounted_at(place) is not None
        (place / "sentinel").unlink()


def test_found_mounted_without_the_cluster(
    bed: CephTestbed, context: ProvisionContext, tmp_path: Path, fast: None
) -> None:
    conf = tmp_path / "ceph.conf"
    conf.write_text("[global]\nmon_host = 127.99.99.99:3300\nauth_client_required = none\n")
    with whole_filesystem(bed, tmp_path / "theirs") as place:
        options = {"path": str(place), "conf": str(conf)}
        with attached("cephfs-fuse", bed, context, **options) as (used, access):
            assert "no monitor answered" in used.describe(access)["ceph"]["error"]
            assert used.health(access) == []
            used.make_run(access, "r")
            assert used.cache(access, "cold", ["r"]).facts["server_caches"] == "unknown"


def test_a_path_on_something_else_is_refused(bed: CephTestbed, tmp_path: Path) -> None:
    refusal = backend("cephfs-fuse", bed, path=str(tmp_path)).refusal()
    assert "not fuse.ceph or fuse.ceph-fuse" in refusal
    assert "does not exist" in backend("cephfs-fuse", bed, path=f"{tmp_path}/no").refusal()


# -- crashes ----------------------------------------------------------------------------------
CONDUCTOR = """
import json, os, signal, sys
from pathlib import Path
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal import journal as module
from fsmatrix.backends.contract import load

def die():
    os.kill(os.getpid(), signal.SIGKILL)

base, line, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
options = json.loads(sys.argv[4])
append, lines = module.Journal._append, []

def counted(self, text):
    append(self, text)
    lines.append(text)
    if len(lines) == line:
        die()

module.Journal._append = counted
kind = load(name)
backend = kind(kind.Options(**options))
journal = module.Journal(base / "journals/host.jsonl")
context = ProvisionContext("a", base / "state", journal, "tag1")
access = backend.provision({}, context)
backend.mount(access, context.journal)
backend.make_run(access, "r")
if name == "cephfs-fuse":
    (Path(access.path) / "r/file").write_bytes(bytes(4096))
if line:
    backend.unmount(access, context.journal)
    backend.release(access, context)
die()
"""


@pytest.mark.parametrize(
    ("name", "line"),
    [("rados", 0), ("rados", 1), ("libcephfs", 0), ("libcephfs", 1),
     *(("cephfs-fuse", line) for line in (0, 1, 3, 4))],
)  # fmt: skip
def test_killed_conductor(
    name: str, line: int, bed: CephTestbed, context: ProvisionContext, tmp_path: Path
) -> None:
    """With everything attached (0), and after each line of the journal."""
    options = {"conf": bed.conf, "keyring": bed.keyring}
    if name == "rados":
        options["pool"] = bed.pools["rados"]
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), str(line), name]
    killed = subprocess.run([*argv, json.dumps(options)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    said = undo_pending(tmp_path / "journals")
    assert [text for text in said if text.startswith("left alone")] == []
    assert (line != 0) or said
    assert mounts.mounted_below(tmp_path) == []
    assert not [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if os.fsencode(tmp_path) in read(path) and b"ceph-fuse" in read(path)
    ]
    assert objects(bed) == []
    assert names_in(bed, tmp_path / "all") == []
    assert undo_pending(tmp_path / "journals") == []


def test_a_crash_and_then_no_cluster(
    bed: CephTestbed, context: ProvisionContext, tmp_path: Path, fast: None
) -> None:
    """Said, and kept for the next time."""
    conf = tmp_path / "ceph.conf"
    shutil.copyfile(bed.conf, conf)
    options = {"conf": str(conf), "keyring": bed.keyring, "pool": bed.pools["rados"]}
    argv = [sys.executable, "-P", "-c", CONDUCTOR, str(tmp_path), "0", "rados"]
    subprocess.run([*argv, json.dumps(options)], check=False)
    conf.write_text("[global]\nmon_host = 127.99.99.99:3300\nauth_client_required = none\n")
    (said,) = undo_pending(tmp_path / "journals")
    assert said.startswith("left alone: ")
    assert "no monitor answered" in said
    shutil.copyfile(bed.conf, conf)
    (said,) = undo_pending(tmp_path / "journals")
    assert said.startswith("removed namespaces fsmatrix-tag1-a-")
    assert objects(bed) == []


def test_marker_of_a_namespace_is_required(bed: CephTestbed) -> None:
    space = Space(Login(bed.conf, "admin", bed.keyring), bed.pools["rados"], "fsmatrix-x", "x")
    with bed.cluster() as cluster, cluster.ioctx(space.pool, space.prefix) as theirs:
        theirs.write_full("keep", b"x")
        for action in (space.make, space.remove, lambda: space.make_run("r")):
            with pytest.raises(CephError, match=r"left alone|not touched"):
                action()
        assert list(theirs.names()) == ["keep"]
        theirs.remove("keep")
