"""Bare block devices for tests: loop devices on files of the test's own."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import secrets
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.local.devices.bare_device import Device, DeviceOptions

MIB = 1 << 20
BLKPG, BLKPG_ADD, BLKPG_DELETE = 0x1269, 1, 2  # linux/blkpg.h


def out_of(*argv: object) -> str:
    done = subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@contextmanager
def attached(image: Path, *words: str) -> Iterator[str]:
    """A loop device on a file (made if it is not there, random), with direct I/O."""
    if not image.exists():
        image.write_bytes(os.urandom(32 * MIB))
    device = out_of("losetup", "--find", "--show", *(words or ("--direct-io=on",)), image)
    try:
        yield device
    finally:
        out_of("losetup", "--detach", device)


def digest(image: Path) -> str:
    return hashlib.sha256(image.read_bytes()).hexdigest()


def partition(device: str, number: int, start: int, length: int, do: int = BLKPG_ADD) -> None:
    """Add or delete a partition in the kernel alone (bytes); nothing is written."""
    given = struct.pack("=qqi64s64s4x", start, length, number, b"", b"")
    held = ctypes.create_string_buffer(given, len(given))
    argument = struct.pack("@iiiP", do, 0, len(given), ctypes.addressof(held))
    descriptor = os.open(device, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, BLKPG, argument)
    finally:
        os.close(descriptor)


def bare(device: str, **options: Any) -> Device:
    return Device(DeviceOptions(**{"device": device, "destroy": "no-signature", **options}))


@contextmanager
def provisioning(folder: Path) -> Iterator[ProvisionContext]:
    """What the conductor gives; at the end nothing of its tag is left below /dev."""
    folder.mkdir(exist_ok=True)
    tag = secrets.token_hex(8)  # a node of that name is one on a machine
    yield ProvisionContext("t", folder / "state", Journal(folder / "journals/host.jsonl"), tag)
    left = undo_pending(folder / "journals")
    assert not [text for text in left if text.startswith("left alone")], left
    assert not list(Path("/dev").glob(f"fsmatrix-{tag}*"))
