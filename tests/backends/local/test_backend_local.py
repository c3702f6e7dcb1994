"""Managed local file systems, for real: each is provisioned, used, described, taken down."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from fsmatrix.backends import contract
from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.cache import WARM_SHARE
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.journal.proof import PlannedPaths
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.local.local import LocalBackend
from fsmatrix.backends.system import devices, mounts, tools
from fsmatrix.results.units import parse_size

MIB = 1 << 20
SIZES = {"xfs": 300 * MIB, "ext4": 128 * MIB, "ext2": 128 * MIB, "btrfs": 128 * MIB}
# Where the kernel has them; elsewhere they run in a guest that has (test_guest.py).
RARE = {"f2fs": 160 * MIB, "nilfs2": 160 * MIB}
SIZES |= {name: size for name, size in RARE.items() if not own_mounts.kernel_refusal(name)}
pytestmark = pytest.mark.loop


def backend(name: str, **options: Any) -> LocalBackend:
    kind = contract.load(name)
    usable = kind.check()
    if not usable.ok:
        pytest.skip(f"{name}: {usable.reason}")
    return cast(LocalBackend, kind(kind.Options(**{"size": SIZES[name], **options})))


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProvisionContext]:
    yield ProvisionContext(
        "target", tmp_path / "state", Journal(tmp_path / "journals/host.jsonl"), "tag1"
    )
    left = undo_pending(tmp_path / "journals")
    assert not [text for text in left if text.startswith("left alone")], left
    assert not mounts.mounted_below(tmp_path.resolve())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """A block device of the user's own: a loop device with direct I/O."""
    image = tmp_path / "disk"
    image.touch()
    os.truncate(image, 128 * MIB)
    argv = ["losetup", "--find", "--show", "--direct-io=on", str(image)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_whole_life(name: str, context: ProvisionContext) -> None:
    local = backend(name)
    access = local.provision({}, context)
    assert PathAccess.from_json(json.loads(json.dumps(access.to_json()))) == access
    local.mount(access, context.journal)
    local.mount(access, context.journal)  # harmless
    path = Path(access.path)
    (path / "file").write_bytes(os.urandom(8 * MIB))

    facts = local.describe(access)
    assert json.dumps(facts)
    assert facts["filesystem"] == name
    assert {"nosuid", "nodev"} <= set(facts["mount_options"].split(","))
    assert facts["devices"][0]["loop"]["direct_io"] is True
    assert facts["devices"][0]["capacity"] == SIZES[name]
    assert facts["mkfs_version"]
    assert facts["image_rewritten"] is not None
    free, estimate = local.space(access), local.space()
    assert free.bytes is not None
    assert estimate.bytes is not None
    assert 0 < free.bytes < SIZES[name]
    assert estimate.bytes <= free.bytes + 9 * MIB  # never promises more than there is

    settled = local.settle(access, 20.0)
    assert settled.reached or settled.seconds >= 20.0  # else others keep the disk busy
    assert local.health(access) == []
    local.unmount(access, context.journal)
    local.unmount(access, context.journal)  # harmless
    assert "nothing is mounted" in local.health(access)[0]
    local.release(access, context)
    assert devices.loop_backing(access.details["device"]) is None or not devices.loops_attached_to(
        *_image(access)
    )
    local.finish(context)
    assert list(context.state.iterdir()) == []
    assert context.journal.pending() == []


def test_busy_mount_names_who_uses_it(
    context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "PATIENCE", 0.2)
    local = backend("ext4")
    access = local.provision({}, context)
    local.mount(access, context.journal)
    descriptor = os.open(access.path, os.O_RDONLY)
    try:
        with pytest.raises(BackendError, match=f"in use by .*pid {os.getpid()}"):
            local.unmount(access, context.journal)
        assert mounts.mounted_at(access.details["point"]) is not None
    finally:
        os.close(descriptor)
    local.release(access, context)
    local.finish(context)


def _image(access: PathAccess) -> tuple[int, int]:
    facts = Path(access.details["image"]).stat()
    return facts.st_ino, facts.st_dev


@pytest.mark.parametrize("name", ["xfs", "btrfs"])
def test_cache_states_show_at_the_devices(name: str, context: ProvisionContext) -> None:
    local = backend(name)
    access = local.provision({}, context)
    local.mount(access, context.journal)
    size, path = 8 * MIB, Path(access.path) / "file"
    path.write_bytes(os.urandom(size))

    def read() -> dict[str, float]:
        before = local.counters(access)
        assert len(path.read_bytes()) == size
        after = local.counters(access)
        return {key: after[key] - before[key] for key in before}

    for method in ("auto", "fadvise", "drop_caches"):
        evidence = local.cache(access, "cold", ["file"], method=method)  # type: ignore[arg-type]
        assert (evidence.state, evidence.facts["files"]) == ("cold", 1)
        assert evidence.facts["resident_after"] == 0
        assert evidence.method == ("drop_caches" if method == "drop_caches" else "fadvise")
        moved = read()
        assert moved["device_read_bytes"] >= size
        assert moved["backing_read_bytes"] >= size  # the disk below was really read
    evidence = local.cache(access, "warm", ["file"])
    assert evidence.state == "warm"
    assert evidence.facts["resident_after"] >= WARM_SHARE * size  # the kernel may take some back
    assert read()["device_read_bytes"] <= (1 - WARM_SHARE) * size
    assert local.cache(access, "bypass", ["file"]).state == "bypass"
    with pytest.raises(BackendError, match="unknown cache state"):
        local.cache(access, "lukewarm", ["file"])
    local.unmount(access, context.journal)
    local.release(access, context)
    local.finish(context)


def test_settling_waits_for_what_was_written(context: ProvisionContext) -> None:
    local = backend("ext4")
    access = local.provision({}, context)
    local.mount(access, context.journal)
    before = local.counters(access)["device_written_bytes"]
    (Path(access.path) / "file").write_bytes(os.urandom(16 * MIB))
    settled = local.settle(access, 30.0)
    assert settled.reached or settled.seconds >= 30.0  # else others keep the disk busy
    assert local.counters(access)["device_written_bytes"] - before >= 16 * MIB
    local.unmount(access, context.journal)
    local.release(access, context)
    local.finish(context)


def test_next_attachment_is_fresh_on_the_same_image(context: ProvisionContext) -> None:
    local = backend("ext4", owner="nobody", mount_options="noatime")
    images = []
    for _ in range(2):
        access = local.provision({}, context)
        local.mount(access, context.journal)
        path = Path(access.path)
        assert list(path.iterdir()) == []
        assert path.owner() == "nobody"
        assert "noatime" in local.describe(access)["mount_options"]
        (path / "file").write_text("old")
        images.append((access.details["image"], Path(access.details["image"]).stat().st_ino))
        local.release(access, context)  # also unmounts, as after a session that died
        assert not mounts.mounted_below(context.state.resolve())
    assert images[0] == images[1]
    local.finish(context)
    assert not Path(images[0][0]).exists()


def test_bypass_is_refused_without_direct_io(
    context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = backend("ext4", direct_io="preferred")
    monkeypatch.setattr(devices, "loop_direct_io", lambda *_: False)
    access = local.provision({}, context)
    assert access.details["direct_io"] is False
    local.mount(access, context.journal)
    (Path(access.path) / "file").write_bytes(bytes(MIB))
    with pytest.raises(BackendError, match="bypass is refused"):
        local.cache(access, "bypass", ["file"])
    assert local.cache(access, "cold", ["file"]).state == "cold"
    local.release(access, context)
    local.finish(context)


def test_mkfs_says_why(context: ProvisionContext) -> None:
    local = backend("xfs", size=32 * MIB)
    with pytest.raises(BackendError, match=r"mkfs\.xfs .* must be larger than 300MB"):
        local.provision({}, context)
    assert context.journal.pending("loop") == []
    local.finish(context)
    assert context.journal.pending() == []


@pytest.mark.parametrize(
    ("name", "options", "small", "said"),
    [
        ("xfs", (), 100 * MIB, r"size 100MiB: mkfs\.xfs needs 300MiB or more$"),
        ("xfs", ("-l", "size=400m"), 300 * MIB, r"needs \d+MiB or more with these mkfs_options$"),
        ("btrfs", (), 64 * MIB, r"mkfs\.btrfs needs \d+MiB or more$"),
        ("btrfs", ("--mixed",), 64 * MIB, "^$"),
        ("ext4", (), 32 << 10, r"mkfs\.ext4 needs 1MiB or more$"),
        ("f2fs", (), 32 * MIB, r"mkfs\.f2fs needs \d+MiB or more$"),
        ("nilfs2", (), 128 * MIB, r"mkfs\.nilfs2 needs 129MiB or more$"),
    ],
)
def test_an_image_that_mkfs_refuses_is_refused_with_the_size_that_it_takes(
    name: str, options: tuple[str, ...], small: int, said: str
) -> None:
    kind = cast(type[LocalBackend], contract.load(name))
    if reason := tools.missing(kind.program):
        pytest.skip(reason)
    refusal = kind.size_refusal(small, options)
    assert re.search(said, refusal), refusal
    if least := re.search(r"needs (\w+) ", refusal):
        assert kind.size_refusal(parse_size(least[1]), options) == ""
    chosen = kind(kind.Options.model_validate({"size": small, "mkfs_options": options}))
    assert chosen.unusable().startswith(refusal)


def test_another_kernel_cannot_mount_it(context: ProvisionContext) -> None:
    local = backend("ext4")
    access = local.provision({}, context)
    foreign = PathAccess(
        access.backend, access.target, {**access.details, "boot_id": "x"}, access.path
    )
    with pytest.raises(BackendError, match="cannot be reached from"):
        local.mount(foreign, context.journal)
    local.release(access, context)
    local.finish(context)


def test_mount_point_with_files_is_refused(context: ProvisionContext) -> None:
    local = backend("ext4")
    access = local.provision({}, context)
    sentinel = Path(access.details["point"]) / "sentinel"
    sentinel.write_text("keep")
    with pytest.raises(BackendError, match="is not empty"):
        local.mount(access, context.journal)
    with pytest.raises(BackendError, match="cannot be removed"):
        local.release(access, context)
    sentinel.unlink()
    local.release(access, context)
    local.finish(context)


# -- devices ---------------------------------------------------------------------------------
def test_empty_device_is_formatted_and_left_empty(context: ProvisionContext, disk: str) -> None:
    local = backend("ext4", device=disk)
    assert local.refusal() == ""
    for _ in range(2):  # the second time it carries our own file system
        access = local.provision({}, context)
        local.mount(access, context.journal)
        (Path(access.path) / "file").write_text("x")
        assert local.counters(access)["device_written_bytes"] > 0
        assert "in use: it is mounted" in local.refusal()
        local.unmount(access, context.journal)
        local.release(access, context)
    assert "carries ext4" in backend("ext2", device=disk).refusal()
    local.finish(context)
    assert devices.signatures(disk) == []
    assert context.journal.pending() == []


def test_device_of_a_crash_is_wiped_by_uuid_only(
    context: ProvisionContext, disk: str, tmp_path: Path
) -> None:
    local = backend("ext4", device=disk)
    local.provision({}, context)
    uuid = context.journal.pending("device")[0].facts["uuid"]
    assert devices.signatures(disk)[0].uuid == uuid
    named = PlannedPaths(devices={"target": disk})
    assert f"erased our file system on {disk}" in undo_pending(tmp_path / "journals", named)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    context.journal.begin("device", device=disk, uuid=uuid, target="target")
    assert undo_pending(tmp_path / "journals", named) == []
    assert [found.type for found in devices.signatures(disk)] == ["ext4"]  # somebody else's


def test_device_with_data_is_refused_even_with_its_serial(
    context: ProvisionContext, disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "serial", lambda *_: "S1")
    subprocess.run(["mkfs.ext2", "-q", "-F", disk], check=True)
    for options in ({}, {"serial": "S1"}):
        local = backend("ext4", device=disk, **options)
        assert "carries ext2" in local.refusal()
        with pytest.raises(BackendError, match="never formats a device with data"):
            local.provision({}, context)
    assert [found.type for found in devices.signatures(disk)] == ["ext2"]


def test_partition_table_needs_the_serial(
    context: ProvisionContext, disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(disk, "r+b") as device:  # noqa: PTH123
        device.seek(510)
        device.write(b"\x55\xaa")  # an empty DOS partition table
        os.fsync(device.fileno())
    monkeypatch.setattr(devices, "serial", lambda *_: "S1")
    assert "name its serial number" in backend("ext4", device=disk).refusal()
    assert "has the serial number 'S1'" in backend("ext4", device=disk, serial="S2").refusal()
    local = backend("ext4", device=disk, serial="S1")
    access = local.provision({}, context)
    local.mount(access, context.journal)
    local.release(access, context)
    local.finish(context)
    assert devices.signatures(disk) == []


def test_swap_and_files_are_refused(disk: str, tmp_path: Path) -> None:
    subprocess.run(["mkswap", disk], check=True, capture_output=True)
    assert "carries swap" in backend("ext4", device=disk).refusal()
    assert "no block device" in backend("ext4", device=str(tmp_path / "disk")).refusal()
    assert "no block device" in backend("ext4", device="/dev/no-such").refusal()


def test_loop_device_through_the_page_cache_is_refused(
    context: ProvisionContext, tmp_path: Path
) -> None:
    image = tmp_path / "buffered"
    image.touch()
    os.truncate(image, 64 * MIB)
    argv = ["losetup", "--find", "--show", "--direct-io=off", str(image)]
    device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        with pytest.raises(BackendError, match="without direct I/O"):
            backend("ext4", device=device).provision({}, context)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


# -- options ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"size": "4k"},
        {"device": "/dev/x", "image": "/x"},
        {"serial": "S1"},
        {"image": "relative"},
        {"mount_options": "rw suid"},
        {"mount_options": "suid"},
        {"mount_options": "logdev=/dev/sda"},
        {"mount_options": "remount"},
        {"mkfs_options": ["-l", "logdev=/dev/sda"]},
        {"mkfs_options": ["/dev/sda"]},
        {"direct_io": "maybe"},
        {"no_such": 1},
    ],
)
def test_refused_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        contract.load("xfs").Options(**options)


def test_options_reach_the_tools(context: ProvisionContext) -> None:
    local = backend("ext4", size="128MiB", mkfs_options=["-b", "4096", "-O", "^has_journal"])
    access = local.provision({}, context)
    local.mount(access, context.journal)
    assert local.describe(access)["block_size"] == 4096
    assert os.statvfs(access.path).f_bsize == 4096
    local.release(access, context)
    local.finish(context)


def test_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = contract.load("btrfs")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    usable = kind.check()
    assert not usable.ok
    assert tools.lacking("mkfs.btrfs") in usable.reason


def test_quiet_system_settles_at_once(context: ProvisionContext) -> None:
    local = backend("ext2")
    access = local.provision({}, context)
    local.mount(access, context.journal)
    local.settle(access, 30.0)
    times = []
    for _ in range(9):
        began = time.perf_counter()
        local.settle(access, 30.0)
        times.append(time.perf_counter() - began)
    assert min(times) < 1.0  # a generous bound: the measure is in bench/
    local.release(access, context)
    local.finish(context)


def test_places_and_owners_that_cannot_be_are_refused_before_anything_runs(tmp_path: Path) -> None:
    present, own = tmp_path / "data", tmp_path / "own.img"
    present.write_text("of somebody")
    own.touch()
    os.truncate(own, SIZES["ext4"])  # as a campaign that a crash ended leaves it
    assert "exists and was not made" in backend("ext4", image=str(present)).refusal()
    assert "exists and was not made" in backend("ext4", image=str(tmp_path)).refusal()
    assert "does not exist" in backend("ext4", image=str(tmp_path / "no/new.img")).refusal()
    assert "no such user" in backend("ext4", owner="no-such-user").refusal()
    assert backend("ext4", image=str(own)).refusal() == ""
    assert backend("ext4", image=str(tmp_path / "new.img"), owner="root").refusal() == ""
    assert present.read_text() == "of somebody"
