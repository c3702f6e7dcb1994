"""Ceph backends on the bed of conftest.py: made, attached, and looked at from beside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends import contract
from fsmatrix.backends.access import Access
from fsmatrix.backends.ceph import ceph_state, mounts
from fsmatrix.backends.ceph.bindings.librados import Login
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed

NAMES = ("rados", "libcephfs", "cephfs-fuse", "cephfs-kernel")


def backend(name: str, bed: CephTestbed, **options: Any) -> Any:
    """A backend on the bed, as a new conductor has it; a skip if this machine cannot have it."""
    login = Login(bed.conf, bed.user, bed.keyring)
    ceph_state.forget(login)  # other tests stop and restart OSDs: what they counted is another's
    kind = contract.load(name)
    usable = kind.check()
    if not usable.ok:
        assert usable.reason
        if name == "cephfs-kernel":  # no registry has another kernel for this machine
            pytest.skip(
                f"not in any registry: {usable.reason}; see tests/backends/local/test_guest.py"
            )
        pytest.skip(usable.reason)
    needed = {"pool": bed.pools["rados"]} if name == "rados" else {}
    cluster = {"conf": bed.conf, "keyring": bed.keyring, "user": bed.user}
    return kind(kind.Options(**(cluster | needed | options)))


@contextmanager
def whole_filesystem(bed: CephTestbed, folder: Path) -> Iterator[Path]:
    """The root of the bed's file system, mounted by another ceph-fuse than the suite's."""
    folder.mkdir(exist_ok=True)
    mine = Login(bed.conf, bed.user, bed.keyring)
    argv = mounts.fuse_argv(mine, bed.filesystem, "/", str(folder), "ceph-fuse", {})
    mounts.start_fuse(argv, folder)
    try:
        yield folder
    finally:
        own_mounts.detach_mount(folder, argv)


def names_in(bed: CephTestbed, folder: Path) -> list[str]:
    with whole_filesystem(bed, folder) as root:
        return sorted(path.name for path in root.iterdir())


def fuse_of(access: Access) -> list[int]:
    return own_mounts.client_processes(contract.load("cephfs-fuse").argv(access.details))  # type: ignore[attr-defined]


@contextmanager
def attached(
    name: str, bed: CephTestbed, context: ProvisionContext, **options: Any
) -> Iterator[tuple[Any, Any]]:
    """(backend, access), mounted; everything is taken down afterwards."""
    used = backend(name, bed, **options)
    access = used.provision({}, context)
    try:
        used.mount(access, context.journal)
        yield used, access
    finally:
        used.release(access, context)
        used.finish(context)
        assert context.journal.pending() == []


@contextmanager
def user(
    bed: CephTestbed, folder: Path, name: str, **capabilities: str
) -> Iterator[dict[str, str]]:
    """Options for a new user with these capabilities."""
    keyring = folder / f"{name}.keyring"
    with bed.cluster() as cluster:
        caps = [word for pair in capabilities.items() for word in pair]
        (made,) = cluster.mon("auth get-or-create", entity=f"client.{name}", caps=caps)
        keyring.write_text(f"[client.{name}]\n\tkey = {made['key']}\n")
        try:
            yield {"user": name, "keyring": str(keyring)}
        finally:
            cluster.mon("auth rm", entity=f"client.{name}")


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
