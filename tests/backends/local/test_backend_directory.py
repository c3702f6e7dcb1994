"""Directories: what is refused, what is made, and that only that is removed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local import directory as module
from fsmatrix.backends.local.directory import Directory, DirectoryOptions, place_refusal
from fsmatrix.backends.system import mounts

NOBODY = 65534


def as_nobody(question: Callable[[], str]) -> str:
    """The answer of `question` in a child process without privileges."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writer, question().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "sentinel").write_text("keep")
    return place


@pytest.fixture
def context(tmp_path: Path) -> ProvisionContext:
    return ProvisionContext(
        "target", tmp_path / "state", Journal(tmp_path / "journals/host.jsonl"), "tag1"
    )


def directory(path: Path | str, **options: Any) -> Directory:
    return Directory(DirectoryOptions(path=str(path), **options))


def test_whole_life(place: Path, context: ProvisionContext) -> None:
    backend = directory(place)
    assert backend.refusal() == ""
    access = backend.provision({}, context)
    assert access.path == str(place.resolve() / "fsmatrix-tag1/data")
    assert tree.read_marker(place / "fsmatrix-tag1") == "tag1"
    backend.mount(access, context.journal)
    path = Path(access.path)
    (path / "file").write_bytes(os.urandom(1 << 20))
    (path / "out").symlink_to(place)
    facts = backend.describe(access)
    assert json.dumps(facts)
    assert facts["filesystem"] == mounts.mount_of(place).fstype
    assert facts["kernel"] == os.uname().release
    sizes = os.statvfs(place)
    free = sizes.f_bavail * sizes.f_frsize
    assert backend.space(access).bytes == pytest.approx(free, rel=0.5)
    assert backend.health(access) == []
    counters = backend.counters(access)
    again = backend.counters(access)
    assert all(again[name] >= value >= 0 for name, value in counters.items())
    assert backend.cache(access, "warm", ["file"]).facts["server_caches"] in ("none", "unknown")
    backend.unmount(access, context.journal)
    backend.release(access, context)
    backend.release(access, context)  # harmless
    backend.finish(context)
    assert [path.name for path in place.iterdir()] == ["sentinel"]
    assert (place / "sentinel").read_text() == "keep"
    assert context.journal.pending() == []
    assert "has gone" in backend.health(access)[0]


def test_refused_places(place: Path, tmp_path: Path) -> None:
    assert "does not exist" in directory(place / "no").refusal()
    assert "is a file" in directory(place / "sentinel").refusal()
    (tmp_path / "link").symlink_to(place)
    refusal = directory(tmp_path / "link").refusal()
    assert "is a symbolic link to" in refusal
    assert str(place.resolve()) in refusal
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refusal = directory(tmp_path / "loop").refusal()
    assert "symbolic link" in refusal or "cannot be looked at" in refusal
    with pytest.raises(BackendError, match="does not exist"):
        directory(place / "no").provision(
            {}, ProvisionContext("t", place, Journal(place / "j"), "tag1")
        )
    assert sorted(path.name for path in place.iterdir()) == ["sentinel"]


@pytest.mark.parametrize("name", [tree.MARKER, tree.STORE_MARKER])
def test_place_inside_another_run(place: Path, name: str) -> None:
    (place / "a/b").mkdir(parents=True)
    (place / name).write_text("{}")
    refusal = directory(place / "a/b").refusal()
    assert f"inside another run's directory, {place.resolve()}" in refusal


@pytest.mark.setuid
def test_place_that_is_not_writable() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own are closed to others
        place = Path(name)
        place.chmod(0o755)
        assert f"not writable for user {NOBODY}" in as_nobody(lambda: place_refusal(place))
        place.chmod(0o700)
        assert "not writable" in as_nobody(lambda: place_refusal(place))
        assert place_refusal(place) == ""


def test_promised_mount(place: Path) -> None:
    mount = mounts.mount_of(place)
    refusal = directory(place, expect_mount=True).refusal()
    assert ("on the root file system" in refusal) == (mount.point == "/")
    assert directory(place, expect_fs=mount.fstype).refusal() == ""
    assert f"is {mount.fstype}, mounted at" in directory(place, expect_fs="lustre").refusal()
    if Path("/dev/shm").is_dir() and mounts.mount_of("/dev/shm").point == "/dev/shm":
        assert directory("/dev/shm", expect_mount=True, expect_fs="tmpfs").refusal() == ""


@pytest.mark.root
def test_mount_below_the_tree_stops_the_removal(place: Path, context: ProvisionContext) -> None:
    backend = directory(place)
    access = backend.provision({}, context)
    inside = Path(access.path) / "inside"
    inside.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "theirs", str(inside)], check=True)
    try:
        (inside / "sentinel").write_text("keep")
        with pytest.raises(BackendError, match="is mounted in it"):
            backend.release(access, context)
        assert (inside / "sentinel").read_text() == "keep"
        assert context.journal.pending() != []
    finally:
        subprocess.run(["umount", str(inside)], check=True)
    backend.release(access, context)
    assert [path.name for path in place.iterdir()] == ["sentinel"]


@pytest.mark.root
def test_read_only_place(place: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "theirs", str(place)], check=True)
    try:
        assert directory(place).refusal() != ""
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_node_that_does_not_see_the_tree(place: Path, context: ProvisionContext) -> None:
    backend = directory(place)
    access = backend.provision({}, context)
    (place / "fsmatrix-tag1" / tree.MARKER).write_text('{"tag": "another"}')
    with pytest.raises(BackendError, match="is the same file system mounted there"):
        backend.mount(access, context.journal)
    with pytest.raises(BackendError, match="belongs to 'another'"):
        backend.release(access, context)
    assert Path(access.path).is_dir()


def test_release_never_leaves_the_tree_by_a_forged_access(
    place: Path, context: ProvisionContext
) -> None:
    backend = directory(place)
    access = backend.provision({}, context)
    forged = PathAccess("directory", "t", {"tree": str(place), "tag": "tag1"}, str(place))
    with pytest.raises(BackendError, match="has no marker"):
        backend.release(forged, context)
    backend.release(access, context)
    assert (place / "sentinel").exists()


def test_a_path_with_nul_is_refused_for_that() -> None:
    with pytest.raises(ValidationError, match="must not contain a NUL character"):
        DirectoryOptions(path="/a\0b")


@pytest.mark.parametrize("path", ["relative", "", "~other/x", "a$HOME"])
def test_refused_options(path: str) -> None:
    with pytest.raises(ValidationError, match="must be absolute, or begin with"):
        DirectoryOptions(path=path)
    with pytest.raises(ValidationError):
        contract.load("directory").Options(path="/tmp", typo=1)


def test_variables_of_the_node_are_kept_as_written_and_as_resolved(
    place: Path, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", str(place.parent))
    monkeypatch.setenv("WHO", place.name)
    backend = directory("$SCRATCH/${WHO}")
    access = backend.provision({}, context)
    assert access.path == str(place.resolve() / "fsmatrix-tag1/data")
    facts = backend.describe(access)
    assert facts["path_written"] == "$SCRATCH/${WHO}"
    assert facts["path"] == str(place.resolve())
    backend.release(access, context)


@pytest.mark.parametrize("value", [None, ""])
def test_a_variable_that_is_not_set_is_named_with_the_node(
    value: str | None, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one too: what follows it would be below /."""
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    if value is not None:
        monkeypatch.setenv("SLURM_TMPDIR", value)
    backend = directory("$SLURM_TMPDIR/tmp")
    said = f"$SLURM_TMPDIR/tmp: $SLURM_TMPDIR is not set on {socket.gethostname()}"
    assert backend.refusal() == said
    assert backend.space().bytes is None  # a plan on another machine asks
    with pytest.raises(BackendError, match="is not set on"):
        backend.provision({}, context)


def test_network_file_systems_count_the_network(
    place: Path, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = directory(place)
    access = backend.provision({}, context)
    lustre = module.underneath.CLIENTS[0]
    monkeypatch.setattr(module.underneath, "recognise_at", lambda *_: lustre)
    assert set(backend.counters(access)) == {"network_received_bytes", "network_sent_bytes"}
    facts = backend.describe(access)
    assert facts["network_filesystem"] == "lustre"
    assert "error" in facts["striping"] or facts["striping"]
    backend.release(access, context)
