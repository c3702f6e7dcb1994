"""Targets of several devices for tests, and what the conductor gives them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.local.devices.emulated import DevicesOptions
from fsmatrix.backends.local.devices.several import Devices
from fsmatrix.backends.system import mounts

MIB = 1 << 20
SLOW = {"read": 150, "write": 150}
BOTH = {"read": 200, "write": 200}


def emulated(**changes: Any) -> Devices:
    options = {"count": 3, "size": 32 * MIB, "filesystem": "ext4"}
    options |= {"device_iops": SLOW, "adapter_iops": BOTH}
    return Devices(DevicesOptions(emulated=options | changes))


def on(*paths: Path) -> Devices:
    return Devices(DevicesOptions(paths=tuple(map(str, paths))))


@contextmanager
def provisioning(tmp_path: Path) -> Iterator[ProvisionContext]:
    """What the conductor gives; at the end nothing is left, and nothing had to be left alone."""
    yield ProvisionContext(
        "target",
        tmp_path / "state",
        Journal(tmp_path / "journals/host.jsonl"),
        "0123456789abcdef",
        block_seed="7/0",
    )
    left = undo_pending(tmp_path / "journals")
    assert not [text for text in left if text.startswith("left alone")], left
    assert not mounts.mounted_below((tmp_path / "state").resolve())
    assert not attached_below(tmp_path.resolve())


def attached_below(folder: Path) -> list[str]:
    files = {path: path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")}
    return [file for file in files.values() if file.startswith(str(folder))]
