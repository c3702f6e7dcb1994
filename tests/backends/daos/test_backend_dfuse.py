"""DFUSE by doubles of `daos` and `dfuse`: the mounts, their hanging and their dying are real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import containers, dfuse_mount
from fsmatrix.backends.daos.dfuse import DaosDfuse
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import mounts
from tests.backends.daos.dfuse_targets import client_of, dfuse, mounting
from tests.backends.daos_standin import THEIRS, Standin


@contextmanager
def attached(
    backend: DaosDfuse, context: ProvisionContext, level: dict[str, Any] | None = None
) -> Iterator[PathAccess]:
    """Provisioned and mounted; released at the end, with nothing left."""
    access = backend.provision(level or {}, context)
    assert isinstance(access, PathAccess)
    backend.mount(access, context.journal)
    try:
        yield access
    finally:
        backend.unmount(access, context.journal)
        backend.release(access, context)
    assert context.journal.pending() == []
    assert backend.workers(access) == []


# -- options -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "give exactly one of pool, levels, and path"),
        ({"pool": "p", "path": "/m"}, "give exactly one of pool, levels, and path"),
        ({"path": "m"}, "must be absolute"),
        ({"path": "/m", "caching": "disabled"}, "caching: cannot be set on an existing mount"),
        ({"path": "/m", "oclass": "S1"}, "oclass: cannot be set"),
        ({"pool": "p", "caching": "off"}, "'site', 'write_through' or 'disabled'"),
        ({"pool": "p", "interception": "yes"}, "'none', 'ioil' or 'pil4dfs'"),
        ({"pool": "p", "interception_library": "libioil.so"}, "must be absolute"),
        ({"pool": "p", "cache_attributes": {"acl": "0"}}, "'acl' is not one of attr-time"),
        ({"pool": "p", "cache_attributes": {"attr-time": "1,x:2"}}, "is not a time"),
        ({"pool": "p", "cache_attributes": {"data-cache": "yes"}}, "is not on, off, otoc"),
        ({"pool": "p", "container": "c", "cache_attributes": {"attr-time": "1"}}, "keeps its own"),
        (
            {"pool": "p", "caching": "disabled", "cache_attributes": {"attr-time": "1"}},
            "have no effect where caching is disabled",
        ),
        ({"pool": "p", "thread_count": 1}, "greater than or equal to 2"),
        ({"pool": "p", "eq_count": 0}, "greater than or equal to 1"),
        ({"pool": "-f"}, "pattern"),
    ],
)
def test_bad_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        contract.load("daos-dfuse").Options(**options)


def test_how_dfuse_is_called(standin: Standin) -> None:
    details = {"point": "/m", "pool": "p", "container": "c", "system": "s"}
    options = dfuse(
        caching="disabled", multi_user=True, thread_count=8, eq_count=2, system="s"
    ).options
    argv = dfuse_mount.argv({**details, "flags": options.flags})  # type: ignore[attr-defined]
    assert argv[0].endswith("/standins/dfuse")
    assert argv[1:6] == [
        *("--foreground", "--mountpoint=/m", "--pool=p", "--container=c", "--sys-name=s"),
    ]
    assert argv[6:] == ["--disable-caching", "--multi-user", "--thread-count=8", "--eq-count=2"]


def test_what_makes_two_mounts_differ_is_a_coordinate(standin: Standin) -> None:
    assert dfuse().foreseen().attributes == {"caching": "site", "interception": "none"}
    own = dfuse(cache_attributes={"data-cache": "off", "attr-time": "1s"}, caching="write_through")
    assert own.foreseen().attributes["caching"] == "write_through attr-time=1s data-cache=off"
    assert dfuse(path="/m").foreseen().attributes["caching"] == "as_found"
    assert dfuse().foreseen().level_factors >= {"caching", "interception", "object_class"}
    assert dfuse(path="/m").foreseen().level_factors == {"interception"}
    assert "caching" not in own.foreseen().level_factors  # attributes are one way to cache
    assert dfuse().level_refusal({"caching": "disabled"}) == ""
    assert "off: Input should be 'site', 'write_through' or" in (
        dfuse().level_refusal({"caching": "off"})
    )
    twice = dfuse(caching="site").level_refusal({"caching": "disabled"})
    assert "options.caching: it is also a cluster factor: leave the option out" in twice


def test_no_dfuse(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dfuse_mount, "PROGRAM", "no-such-dfuse")
    assert "no `dfuse` on PATH" in dfuse().refusal()
    # the machine may have some
    monkeypatch.setattr(dfuse_mount, "is_dfuse", lambda _mount: False)
    usable = DaosDfuse.check()
    assert not usable.ok
    assert "install DAOS's client" in usable.reason


# -- mounted by the suite ----------------------------------------------------------------------
@mounting
def test_whole_life(standin: Standin, context: ProvisionContext) -> None:
    backend = dfuse()
    assert DaosDfuse.check().ok
    assert backend.refusal() == ""
    with attached(backend, context) as access:
        assert access == PathAccess.from_json(json.loads(json.dumps(access.to_json())))
        backend.mount(access, context.journal)  # harmless
        point = Path(access.details["point"])
        (container,) = standin.ours
        assert container.startswith("fsmatrix-tag1-a-")
        assert mounts.mounted_at(point) is not None
        backend.make_run(access, "r1")
        file = Path(backend.run_root(access, "r1"), "file")
        file.write_bytes(os.urandom(1 << 20))
        facts = backend.describe(access)
        assert json.dumps(facts)
        assert facts["filesystem"] == "fuse.daos"
        assert (facts["inodes"], facts["inodes_free"]) == (None, None)
        assert (facts["caching"], facts["interception"]) == ("site", "none")
        assert facts["mount_command"][-1] == f"--container={container}"
        assert facts["pool"]["tiers"]["scm"]["total"] == 4000002048
        assert backend.space(access).bytes == 3324566816
        assert backend.space(access).inodes is None
        assert backend.health(access) == []
        assert backend.settle(access, 60.0).reached
        assert backend.workers(access) == [client_of(access)]
        backend.remove_run(access, "r1")
        assert list(Path(access.path).iterdir()) == []
    backend.release(access, context)  # harmless
    backend.finish(context)
    assert standin.containers == {"posix1": THEIRS}
    assert not point.exists()


@mounting
@pytest.mark.parametrize(
    ("caching", "flags"),
    [("site", []), ("write_through", ["--disable-wb-cache"]), ("disabled", ["--disable-caching"])],
)
def test_a_level_of_caching(
    standin: Standin, context: ProvisionContext, caching: str, flags: list[str]
) -> None:
    backend = dfuse()
    with attached(backend, context, {"caching": caching}) as access:
        words = dfuse_mount.argv(access.details)
        assert [word for word in words if "able" in word] == flags
        assert backend.describe(access)["caching"] == caching
        file = Path(access.path, "file")
        file.write_bytes(os.urandom(1 << 20))
        cold = backend.cache(access, "cold", ["file"])
        assert (cold.state, cold.facts["caching"]) == ("cold", caching)
        assert cold.method == ("none" if caching == "disabled" else "remount")
        names = backend.cache(access, "cold", ["file"], method="drop_caches")
        assert (names.state, names.method) == ("cold", cold.method)
        assert cold.facts["server_caches"] == "unknown"
        warm = backend.cache(access, "warm", ["file"])
        assert warm.state == ("unknown" if caching == "disabled" else "warm")
        assert backend.cache(access, "bypass", ["file"]).state == "bypass"
        assert len(file.read_bytes()) == 1 << 20


@mounting
def test_cold_drops_what_the_client_has(standin: Standin, context: ProvisionContext) -> None:
    """What the servers got behind the client's back is seen, and only then."""
    backend = dfuse()
    with attached(backend, context) as access:
        file = Path(access.path, "file")
        file.write_bytes(b"a" * 4096)
        first = client_of(access)
        backend.cache(access, "warm", ["file"])
        (uuid,) = [standin.containers[name]["uuid"] for name in standin.ours]
        (standin.folder / "data" / uuid / "data/file").write_bytes(b"b" * 4096)
        assert file.read_bytes() == b"a" * 4096
        assert backend.cache(access, "cold", ["file"]).facts["metadata_caches"] == "dropped"
        assert file.read_bytes() == b"b" * 4096
        assert client_of(access) != first
        with file.open("rb"):  # in use: its pages only
            held = backend.cache(access, "cold", ["file"])
        assert held.method in ("fadvise", "drop_caches")
        assert "still in use" in held.facts["not_remounted"]


@mounting
def test_attributes_of_an_own_container(standin: Standin, context: ProvisionContext) -> None:
    backend = dfuse(cache_attributes={"data-cache": "otoc", "direct-io-disable": "on"})
    with attached(backend, context) as access:
        facts = backend.describe(access)["cache_attributes"]
        assert facts == {"data-cache": "otoc", "direct-io-disable": "on"}
        Path(access.path, "file").write_bytes(b"x" * 4096)
        assert backend.cache(access, "bypass", ["file"]).state == "unknown"


class Folders:
    """A double of what libdfs does in a container, on the files of the double of dfuse."""

    def __init__(self, standin: Standin) -> None:
        self.root = standin.folder / "data" / THEIRS["uuid"]

    def make(self, path: str) -> None:
        (self.root / path.strip("/")).mkdir(parents=True)

    def remove(self, path: str) -> None:
        shutil.rmtree(self.root / path.strip("/"))


@mounting
def test_a_container_that_is_given(
    standin: Standin, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is mounted as it is, and the runs are in a directory of their own."""
    folders = Folders(standin)
    monkeypatch.setattr(containers, "_folders", lambda _place, _library: folders)
    with attached(dfuse(container="posix1"), context) as access:
        point = Path(access.details["point"])
        (point / "theirs").write_text("keep")
        assert Path(access.path).parent == point
        assert Path(access.path).name.startswith("fsmatrix-tag1-a-")
        DaosDfuse.make_run(access, "r1")
        Path(access.path, "r1/file").write_bytes(b"x")
        assert dfuse(container="posix1").describe(access)["cache_attributes"] == {}
    assert [path.name for path in folders.root.iterdir()] == ["theirs"]
    assert standin.containers == {"posix1": THEIRS}


@mounting
def test_a_container_that_is_not_there(standin: Standin, context: ProvisionContext) -> None:
    backend = dfuse()
    access = backend.provision({}, context)
    standin.keep({"posix1": THEIRS})
    with pytest.raises(BackendError, match="is not in pool bench"):
        backend.mount(access, context.journal)
    assert not (standin.folder / "dfuse.jsonl").exists()
    backend.release(access, context)
    assert context.journal.pending() == []


@mounting
def test_a_mount_point_that_is_not_empty(standin: Standin, context: ProvisionContext) -> None:
    backend = dfuse()
    access = backend.provision({}, context)
    file = Path(access.details["point"], "file")
    file.write_text("keep")
    with pytest.raises(BackendError, match="is not empty: nothing is mounted over files"):
        backend.mount(access, context.journal)
    assert mounts.mounted_at(file.parent) is None
    file.unlink()
    backend.release(access, context)


@mounting
def test_dfuse_that_fails_says_why(standin: Standin, context: ProvisionContext) -> None:
    backend = dfuse(thread_count=4)
    access = backend.provision({}, context)
    Path(access.details["point"]).rmdir()
    Path(access.details["point"]).symlink_to("/tmp")
    with pytest.raises(BackendError, match="is not a directory"):
        backend.mount(access, context.journal)
    Path(access.details["point"]).unlink()
    Path(access.details["point"]).mkdir()
    wrong = PathAccess(
        access.backend, access.target, {**access.details, "flags": ["--no-such"]}, access.path
    )
    with pytest.raises(BackendError, match=r"dfuse failed: .*unrecognized arguments: --no-such"):
        backend.mount(wrong, context.journal)
    assert context.journal.pending("dfuse-mount") == []
    backend.release(access, context)


@mounting
def test_a_pool_that_is_lost_before_the_mount(
    standin: Standin, context: ProvisionContext, fast: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dfuse_mount, "MOUNT_DEADLINE", 4.0)
    backend = dfuse()
    access = backend.provision({}, context)
    (standin.folder / "hang").touch()
    with pytest.raises(BackendError, match=r"it was mounted, and .* does not answer within 2 s"):
        backend.mount(access, context.journal)
    assert backend.workers(access) == []
    assert context.journal.pending("dfuse-mount") == []
    backend.unmount(access, context.journal)
    backend.release(access, context)


@mounting
def test_dfuse_killed(standin: Standin, context: ProvisionContext) -> None:
    """The run fails; the next run, or the next mount, finds a clean one."""
    backend = dfuse()
    with attached(backend, context) as access:
        backend.make_run(access, "r1")
        os.kill(client_of(access), signal.SIGKILL)
        with pytest.raises(OSError, match=r"not connected|connection abort"):
            Path(access.path, "r1/file").write_bytes(b"x")
        assert "its client has died" in backend.health(access)[0]
        backend.remove_run(access, "r1")
        assert backend.health(access) == []
        os.kill(client_of(access), signal.SIGKILL)
        backend.mount(access, context.journal)
        backend.make_run(access, "r2")
        assert len(context.journal.pending("dfuse-mount")) == 1


@mounting
def test_a_pool_that_is_lost(standin: Standin, context: ProvisionContext, fast: None) -> None:
    """Nothing waits for it for ever; who is stuck in it is free when it is taken down."""
    backend = dfuse()
    with attached(backend, context) as access:
        backend.make_run(access, "r1")
        (standin.folder / "hang").touch()
        stuck = subprocess.Popen(["ls", access.path], stdout=subprocess.PIPE)
        assert "does not answer within 2 s" in backend.health(access)[0]
        for action in (
            lambda: backend.make_run(access, "r2"),
            lambda: backend.remove_run(access, "r1"),
            lambda: backend.cache(access, "cold", ["file"]),
        ):
            with pytest.raises(BackendError, match="does not answer within 2 s"):
                action()
        assert not backend.settle(access, 60.0).reached
        assert "does not answer" in backend.describe(access)["error"]
        backend.unmount(access, context.journal)
        assert stuck.wait(60) != 0
        (standin.folder / "hang").unlink()
