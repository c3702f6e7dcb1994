"""tmpfs: a reference, mounted as root, else a directory in shared memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends import contract
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.local import tmpfs as module
from fsmatrix.backends.local.tmpfs import Tmpfs
from fsmatrix.backends.system import mounts

needs_shm = pytest.mark.skipif(
    bool(module._path_refusal(module.SHARED_MEMORY)),
    reason=f"not in any registry: {module._path_refusal(module.SHARED_MEMORY)}",
)


def tmpfs(**options: Any) -> Tmpfs:
    kind = contract.load("tmpfs")
    backend = kind(kind.Options(**options))
    assert isinstance(backend, Tmpfs)
    return backend


@pytest.fixture
def context(tmp_path: Path) -> ProvisionContext:
    return ProvisionContext(
        "target", tmp_path / "state", Journal(tmp_path / "journals/host.jsonl"), "tag1"
    )


def test_it_is_a_reference() -> None:
    kind = contract.load("tmpfs")
    assert kind.reference
    assert kind.cache_states == {"warm"}
    assert not contract.load("directory").reference


def use(backend: Tmpfs, context: ProvisionContext) -> Path:
    access = backend.provision({}, context)
    backend.mount(access, context.journal)
    path = Path(access.path)
    (path / "file").write_bytes(b"x" * 100_000)
    evidence = backend.cache(access, "warm", ["file"])
    assert evidence.state == "memory"
    for state in ("cold", "bypass"):
        with pytest.raises(BackendError, match="is memory"):
            backend.cache(access, state, ["file"])
    assert backend.counters(access) == {}
    assert backend.describe(access)["filesystem"] == "tmpfs"
    assert backend.space(access).bytes
    backend.unmount(access, context.journal)
    backend.release(access, context)
    backend.finish(context)
    assert not path.exists()
    assert context.journal.pending() == []
    return path


@pytest.mark.root
def test_own_mount(context: ProvisionContext) -> None:
    backend = tmpfs(size="8MiB")
    access = backend.provision({}, context)
    backend.mount(access, context.journal)
    assert os.statvfs(access.path).f_blocks * os.statvfs(access.path).f_frsize == 8 << 20
    with pytest.raises(OSError, match="No space left"):
        (Path(access.path) / "file").write_bytes(bytes(9 << 20))
    backend.release(access, context)
    assert not mounts.mounted_below(context.state)
    path = use(backend, context)
    assert path.is_relative_to(context.state)
    assert list(context.state.iterdir()) == []


@needs_shm
def test_without_root_in_shared_memory(
    context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_mounts, "root_refusal", lambda: "needs root")
    assert module.Tmpfs.check().ok
    path = use(tmpfs(), context)
    assert str(path).startswith(module.SHARED_MEMORY)
    assert not path.parent.exists()


def test_refusals(tmp_path: Path) -> None:
    if mounts.mount_of(tmp_path).fstype != "tmpfs":
        assert "not tmpfs" in tmpfs(path=str(tmp_path)).refusal()
    assert "does not exist" in tmpfs(path="/no/such").refusal()
    if not own_mounts.root_refusal():
        assert "exceeds the memory" in tmpfs(size="900TiB").refusal()
