"""A bare device from provision to release: claimed, looked at again, and left without a trace."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.backends.access import DeviceAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local.devices import bare_device, emulated
from fsmatrix.backends.local.devices.bare_device import Device, DeviceOptions
from fsmatrix.backends.system import cgroups, devices
from fsmatrix.suite.workloads.streams.pattern import SHARED
from tests.backends.bare_devices import MIB, attached, bare, digest, out_of, provisioning

pytestmark = [pytest.mark.loop, pytest.mark.needs("ext4")]
limited = pytest.mark.skipif(
    bool(emulated.limits_refusal()), reason=emulated.limits_refusal() or "can"
)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProvisionContext]:
    with provisioning(tmp_path) as made:
        yield made


def test_whole_life(context: ProvisionContext, tmp_path: Path) -> None:
    image = tmp_path / "disk"
    with attached(image) as device:
        target, before = bare(device), digest(image)
        access = target.provision({}, context)
        assert DeviceAccess.from_json(json.loads(json.dumps(access.to_json()))) == access
        target.mount(access, context.journal)
        target.mount(access, context.journal)  # harmless
        with pytest.raises(OSError, match="busy"):  # nobody else may format or mount it
            os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        target.make_run(access, "run")
        target.make_run(access, "run")  # harmless
        node = Path(target.run_root(access, "run"), SHARED)
        assert node.name == DeviceAccess.NODE
        assert stat.S_IMODE(node.lstat().st_mode) == 0o600
        assert devices.number_of(node) == devices.number_of(device)
        target.make_run(access, "run")
        facts = target.describe(access)
        assert facts["devices"][0]["name"] == Path(device).name
        assert target.deployment(facts).media == "file"
        assert target.deployment(facts).data_cache == "none"
        assert target.space().bytes == target.space(access).bytes == 32 * MIB
        settled = target.settle(access, 20.0)
        assert settled.reached or settled.seconds >= 20.0  # else others keep the disk busy
        assert target.health(access) == []
        assert digest(image) == before  # nothing of this has written
        target.remove_run(access, "run")
        target.unmount(access, context.journal)
        target.unmount(access, context.journal)  # harmless
        with pytest.raises(BackendError, match="is not claimed"):
            target.make_run(access, "run")
        target.release(access, context)
        target.finish(context)
        assert context.journal.pending() == []
        assert digest(image) == before


def test_what_the_page_cache_has_is_dropped(context: ProvisionContext, tmp_path: Path) -> None:
    with attached(tmp_path / "disk") as device:
        target = bare(device, buffered=True)
        access = target.provision({}, context)
        assert access.direct is False
        target.mount(access, context.journal)
        target.make_run(access, "run")
        node = Path(target.run_root(access, "run"), SHARED)
        with node.open("rb") as file:
            assert len(file.read(8 * MIB)) == 8 * MIB
        evidence = target.cache(access, "cold", ["run/data"])
        assert evidence.state == "cold"
        assert evidence.facts["resident_before"] >= 8 * MIB
        assert evidence.facts["resident_after"] <= 0.01 * 32 * MIB
        before = target.counters(access)["device_read_bytes"]
        with node.open("rb") as file:
            file.read(8 * MIB)
        assert target.counters(access)["device_read_bytes"] - before >= 8 * MIB
        with pytest.raises(BackendError, match="cannot reach"):
            target.cache(access, "warm", [])
        target.release(access, context)


def test_a_link_that_leads_elsewhere_later(context: ProvisionContext, tmp_path: Path) -> None:
    """The other device, which could be anybody's, is neither claimed nor written to."""
    link = Path(f"/dev/fsmatrix-test-{os.getpid()}")
    with attached(tmp_path / "mine") as mine, attached(tmp_path / "theirs") as theirs:
        before = digest(tmp_path / "theirs")

        def point(device: str) -> None:
            link.unlink(missing_ok=True)
            link.symlink_to(device)

        try:
            point(mine)
            target = bare(str(link))
            access = target.provision({}, context)
            point(theirs)
            with pytest.raises(BackendError, match="not the device that was looked at before"):
                target.mount(access, context.journal)
            os.close(os.open(theirs, os.O_RDONLY | os.O_EXCL))  # not claimed
            point(mine)
            target.mount(access, context.journal)
            point(theirs)
            target.make_run(access, "run")
            node = Path(target.run_root(access, "run"), SHARED)
            assert devices.number_of(node) == devices.number_of(mine)
            target.unmount(access, context.journal)
            point(mine)
            target.release(access, context)
        finally:
            link.unlink(missing_ok=True)
        assert digest(tmp_path / "theirs") == before


@pytest.mark.quiet  # somebody else may be given that number in between
def test_another_device_under_the_same_number(tmp_path: Path) -> None:
    """Detached, and the number was given to somebody's file: the kernel's sequence tells."""
    with provisioning(tmp_path) as context, attached(tmp_path / "mine") as device:
        target = bare(device)
        access = target.provision({}, context)
        os.close(target._lock or 0)  # as if the conductor had died: the lock keeps it attached
        target._lock = None
        out_of("losetup", "--detach", device)
        theirs = tmp_path / "theirs"
        theirs.write_bytes(os.urandom(32 * MIB))
        out_of("losetup", "--direct-io=on", device, theirs)
        with pytest.raises(BackendError, match="other sequence"):
            target.mount(access, context.journal)
        assert "other sequence" in target.health(access)[0]
        target.release(access, context)


def test_somebody_writes_a_file_system_over_a_claim(
    context: ProvisionContext, tmp_path: Path
) -> None:
    """Nothing more is written there, and what stays is said at the end."""
    image, theirs = tmp_path / "disk", tmp_path / "theirs"
    theirs.write_bytes(bytes(32 * MIB))
    out_of("mkfs.ext4", theirs)
    with attached(image) as device:
        target = bare(device)
        access = target.provision({}, context)
        target.mount(access, context.journal)
        with Path(device).open("r+b") as file:  # dd asks for no claim
            file.write(theirs.read_bytes())
            file.flush()
            os.fsync(file.fileno())
        before = digest(image)
        with pytest.raises(BackendError, match=f"{device} carries ext4 at 0x438"):
            target.make_run(access, "run")
        with pytest.raises(BackendError, match="carries ext4"):
            target.make_run(access, "next")
        target.unmount(access, context.journal)
        with pytest.raises(BackendError, match=r"after the runs, .* carries ext4"):
            target.release(access, context)
        assert digest(image) == before


def test_two_campaigns(tmp_path: Path) -> None:
    with (
        provisioning(tmp_path / "a") as one,
        provisioning(tmp_path / "b") as other,
        attached(tmp_path / "disk") as device,
    ):
        first, second = bare(device), bare(device)
        access = first.provision({}, one)
        with pytest.raises(BackendError, match="has locked it"):
            second.provision({}, other)
        first.mount(access, one.journal)
        assert "somebody has claimed it" in second.refusal()
        first.unmount(access, one.journal)
        first.release(access, one)
        second.release(second.provision({}, other), other)


@limited
def test_emulated(context: ProvisionContext) -> None:
    options = {"emulated": {"size": 32 * MIB, "iops": {"read": 200, "write": 100}}}
    target = Device(DeviceOptions.model_validate(options))
    assert target.refusal() == ""
    assert target.space().overwritten == ""
    access = target.provision({}, context)
    device = access.device
    folder = cgroups.own(cgroups.drive_hierarchy())
    target.mount(access, context.journal)
    rates = cgroups.drive_limits_of(folder, devices.number_of(device))
    assert rates == cgroups.Limits(read_operations=200, write_operations=100)
    assert target.describe(access)["managed"] is True
    target.unmount(access, context.journal)
    assert cgroups.drive_limits_of(folder, devices.number_of(device)) == cgroups.Limits()
    target.release(access, context)
    assert (
        devices.loop_backing(device) is None
        or devices.loop_backing(device).file != access.details["emulated"]["image"]
    )  # type: ignore[union-attr]
    target.finish(context)
    assert list(context.state.iterdir()) == []
    assert bare_device.Held.ALL == {}
