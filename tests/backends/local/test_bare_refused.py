"""A bare device that may not be overwritten: why, in words, and not a byte of it changes."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.local.devices import claims
from fsmatrix.backends.local.devices.bare_device import DeviceOptions
from tests.backends.bare_devices import (
    BLKPG_DELETE,
    MIB,
    attached,
    bare,
    digest,
    out_of,
    partition,
    provisioning,
)

pytestmark = [pytest.mark.loop, pytest.mark.needs("ext4")]
LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81  # linux/loop.h
MBR = bytes(446) + bytes.fromhex("00 20 21 00 83 aa 28 02 00 08 00 00 00 20 00 00") + bytes(48)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@contextmanager
def untouched(image: Path) -> Iterator[None]:
    """What is on it stays what it was, byte for byte."""
    before = digest(image)
    yield
    assert digest(image) == before


def refused(device: str, tmp_path: Path, **options: str) -> str:
    """The reason, which planning gives and attaching as well."""
    target = bare(device, **options)
    reason = target.refusal()
    with provisioning(tmp_path) as context, pytest.raises(BackendError) as error:
        target.provision({}, context)
    assert str(error.value) == reason
    return reason


def foreign(image: Path, what: str) -> None:
    """Somebody's file system, swap space or partition table."""
    image.write_bytes(bytes(32 * MIB))
    if what == "dos":
        with image.open("r+b") as file:
            file.write(MBR + b"\x55\xaa")
    else:
        out_of({"ext4": "mkfs.ext4", "swap": "mkswap"}[what], image)


@pytest.mark.parametrize("what", ["ext4", "swap", "dos"])
def test_a_signature(what: str, image: Path, tmp_path: Path) -> None:
    foreign(image, what)
    with attached(image) as device, untouched(image):
        reason = refused(device, tmp_path)
        assert f"{device} carries {what} at 0x" in reason
        assert f"wipefs --all {device}" in reason


@pytest.mark.parametrize("namespace", ["own", "other"])
def test_a_mount(namespace: str, image: Path, tmp_path: Path) -> None:
    foreign(image, "ext4")
    point = tmp_path / "point"
    point.mkdir()
    with attached(image) as device:
        words = ["mount", "-o", "ro,noload", device, str(point)]
        if namespace == "own":
            out_of(*words)
            try:
                with untouched(image):
                    assert f"it is mounted at {point}" in refused(device, tmp_path)
            finally:
                out_of("umount", point)
            return
        script = '"$@" && echo mounted && read line'
        argv = ["unshare", "--mount", "sh", "-c", script, "sh", *words]
        other = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "mounted\n"
        with untouched(image):
            reason = refused(device, tmp_path)
        other.communicate("\n")
        assert f"it is mounted at {point} (mount namespace of process {other.pid})" in reason


def test_swap_space(image: Path, tmp_path: Path) -> None:
    foreign(image, "swap")
    with attached(image) as device:
        out_of("swapon", device)
        try:
            assert "it is swap space" in refused(device, tmp_path)
        finally:
            out_of("swapoff", device)


def test_what_is_built_on_it(image: Path, tmp_path: Path) -> None:
    with attached(image) as device, untouched(image), attached(Path(device)) as above:
        assert f"{Path(above).name} is built on it" in refused(device, tmp_path)


def test_its_file_behind_another_loop_device(image: Path, tmp_path: Path) -> None:
    """That one is mounted, and the kernel claims nothing of this one for it."""
    foreign(image, "ext4")
    point = tmp_path / "point"
    point.mkdir()
    with attached(image) as device, attached(image) as other:
        out_of("mount", "-o", "ro,noload", other, point)
        try:
            with untouched(image):
                assert f"the file behind it, is behind {other} too" in refused(device, tmp_path)
        finally:
            out_of("umount", point)


def test_the_disk_behind_it_is_mounted(image: Path, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    with attached(image) as below, attached(Path(below)) as device:
        assert bare(device).refusal() == ""
        out_of("mkfs.ext4", "-q", below)
        out_of("mount", "-o", "ro,noload", below, point)
        try:
            with untouched(image):
                said = f"of {below}, which is behind it, it is mounted at {point}"
                assert said in refused(device, tmp_path)
        finally:
            out_of("umount", point)


def test_an_exclusive_open(image: Path, tmp_path: Path) -> None:
    with attached(image) as device, untouched(image):
        descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
        try:
            assert "somebody has claimed it" in refused(device, tmp_path)
        finally:
            os.close(descriptor)
        assert bare(device).refusal() == ""


def test_partitions(image: Path, tmp_path: Path) -> None:
    """A disk with partitions; a partition while another one of its disk is in use."""
    with attached(image, "--direct-io=on", "--partscan") as device, untouched(image):
        for number in (1, 2):
            partition(device, number, number * 8 * MIB, 8 * MIB)
        parts = [f"{device}p{number}" for number in (1, 2)]
        try:
            names = ", ".join(Path(part).name for part in parts)
            assert f"it has partitions ({names})" in refused(device, tmp_path)
            assert bare(parts[0]).refusal() == ""
            descriptor = os.open(parts[1], os.O_RDONLY | os.O_EXCL)
            try:
                sibling = f"{Path(parts[1]).name}, of the same disk, cannot be claimed"
                assert sibling in refused(parts[0], tmp_path)
            finally:
                os.close(descriptor)
        finally:
            for number in (1, 2):
                partition(device, number, 0, 0, BLKPG_DELETE)


def test_the_root_disk(tmp_path: Path) -> None:
    numbers = claims.root_disks()
    assert numbers  # a test machine's root is on a disk
    for number in numbers:
        name = (claims.SYS_BLOCK / number).resolve().name
        reason = bare(f"/dev/{name}", destroy=_serial(f"/dev/{name}")).refusal()
        assert "is of the disk that the root file system is on" in reason


def _serial(device: str) -> str:
    status = Path(device).stat().st_rdev
    return claims.disk_of(status, device).serial or "no-signature"


def test_what_is_no_device(image: Path, tmp_path: Path) -> None:
    for name, reason in (
        ("/dev/null", "is not a block device"),
        ("/dev/shm", "is not a block device"),
        ("/dev/fsmatrix-no-such-device", "No such file or directory"),
    ):
        assert reason in refused(name, tmp_path)
    image.write_bytes(b"mine")
    link = Path(f"/dev/fsmatrix-test-{os.getpid()}")
    link.symlink_to(image)
    try:
        with untouched(image):
            assert "is not a block device" in refused(str(link), tmp_path)
    finally:
        link.unlink()


def test_no_size(tmp_path: Path) -> None:
    number = 5000 + os.getpid() % 1000
    with Path("/dev/loop-control").open("rb") as control:
        fcntl.ioctl(control, LOOP_CTL_ADD, number)
        try:
            assert "has no size" in refused(f"/dev/loop{number}", tmp_path)
        finally:
            fcntl.ioctl(control, LOOP_CTL_REMOVE, number)


def test_read_only_and_not_direct(image: Path, tmp_path: Path) -> None:
    with attached(image, "--read-only", "--direct-io=on") as device:
        assert "is read-only" in refused(device, tmp_path)
    with attached(image, "--direct-io=off") as device, untouched(image):
        assert "without direct I/O" in refused(device, tmp_path)


def test_another_serial_number(image: Path, tmp_path: Path) -> None:
    with attached(image) as device, untouched(image):
        reason = refused(device, tmp_path, destroy="S4EWNX0R123456")
        assert "tells no serial number, and destroy says 'S4EWNX0R123456'" in reason
    found = claims.Disk("7:0", "loop0", "7:0", MIB, False, "S4EWNX0R123456", "1")
    assert claims.consent_refusal(found, "/dev/d", "S4EWNX0R123456") == ""
    for said in ("no-signature", "S4EWNX0R123457", "s4ewnx0r123456"):
        assert "has the serial number" in claims.consent_refusal(found, "/dev/d", said)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"device": "/dev/sdz"}, "destroy must name the serial number"),
        ({"device": "/dev/sdz", "destroy": 12345}, "as text in quotes"),
        ({"device": "/dev/sdz", "destroy": True}, "as text in quotes"),
        ({"device": "disk.img", "destroy": "S"}, "a path below /dev"),
        ({"device": "/dev/../etc/passwd", "destroy": "S"}, "a path below /dev"),
        ({"destroy": "S"}, "either device or emulated"),
        ({"emulated": {"iops": {"read": 1, "write": 1}}, "destroy": "S"}, "needs device"),
    ],
)
def test_options(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        DeviceOptions.model_validate(options)
