"""What `run --dry-run` says that a target on this machine makes."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.backends import contract

MIB = 1 << 20


def commands(backend: str, **options: Any) -> list[str]:
    kind = contract.load(backend)
    return kind(kind.Options(**options)).commands({}, "1/0")


def test_an_image_is_made_attached_and_formatted(tmp_path: Path) -> None:
    path = tmp_path / "of mine.img"
    made, attach, mkfs = commands("xfs", size=512 * MIB, image=str(path))
    assert made == f"fallocate --length {512 * MIB} '{path}'  # once"
    assert attach.endswith(f"'{path}'")
    assert mkfs.startswith("mkfs.xfs ")
    assert mkfs.endswith(" /dev/loopN")


def test_a_device_is_formatted_and_a_directory_needs_nothing(tmp_path: Path) -> None:
    (mkfs,) = commands("ext4", device="/dev/sdq", serial="S1")
    assert mkfs.endswith(" /dev/sdq")
    assert commands("directory", path=str(tmp_path)) == []


def test_emulated_devices_are_parts_of_one_image() -> None:
    rates = {"read": 100, "write": 100}
    four = {"count": 4, "size": "32MiB", "filesystem": "ext4"}
    of_four = commands("devices", emulated=four | {"device_iops": rates, "adapter_iops": rates})
    assert of_four[0].startswith(f"fallocate --length {128 * MIB} ")
    assert sum("--sizelimit" in line for line in of_four) == 4
    assert sum(line.startswith("mkfs.ext4 ") for line in of_four) == 4
    assert len(commands("device", emulated={"size": "64MiB", "iops": rates})) == 2


@pytest.mark.loop
def test_what_is_printed_can_be_typed(tmp_path: Path) -> None:
    made, attach, mkfs = commands("ext4", size=64 * MIB, image=str(tmp_path / "image"))
    subprocess.run(["sh", "-ec", made], check=True)
    device = subprocess.run(["sh", "-ec", attach], check=True, capture_output=True, text=True)
    loop = device.stdout.strip()
    try:
        typed = mkfs.replace("/dev/loopN", loop).replace("UUID", str(uuid.uuid4()))
        subprocess.run(["sh", "-ec", typed], check=True, capture_output=True)
    finally:
        subprocess.run(["losetup", "--detach", loop], check=True)
