"""Several devices emulated: throttled loop devices under one throttle, their life and faults."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import Journal, undo_pending
from fsmatrix.backends.local.devices.emulated import KIND, limits_refusal
from fsmatrix.backends.local.devices.several import FACTOR
from fsmatrix.backends.local.local import LocalBackend
from fsmatrix.backends.system import cgroups, devices, mounts
from fsmatrix.backends.system.cgroups import Limits
from fsmatrix.results.evidence.target import of_environment
from tests.backends.local.devices_target import (
    MIB,
    attached_below,
    emulated,
    provisioning,
)

LIFE = """
import os, signal, sys
from pathlib import Path
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.journal import journal as module
from fsmatrix.backends.contract import load

real, calls = module.Journal._append, []
def append(self, line):
    real(self, line)
    calls.append(line)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
module.Journal._append = append
base = Path(sys.argv[1])
journal = module.Journal(base / "journals/host.jsonl")
rates = {"read": 150, "write": 150}
emulated = {"count": 2, "size": "16MiB", "filesystem": "ext4"}
emulated |= {"device_iops": rates, "adapter_iops": rates}
kind = load("devices")
backend = kind(kind.Options(emulated=emulated))
context = ProvisionContext("t", base / "state/t", journal, "0123456789abcdef")
access = backend.provision({}, context)
backend.mount(access, journal)
backend.make_run(access, "run")
print(len(calls))
backend.unmount(access, journal)
backend.release(access, context)
backend.finish(context)
print(len(calls))
"""
LINES = 27  # of the journal in such a life
limited = pytest.mark.skipif(bool(limits_refusal()), reason=limits_refusal() or "can")


@pytest.fixture
def context(tmp_path: Path) -> Iterator[ProvisionContext]:
    """What the conductor gives; at the end nothing is left, and nothing had to be left alone."""
    with provisioning(tmp_path) as made:
        yield made


def in_force(device: str) -> Limits:
    return cgroups.drive_limits_of(
        cgroups.own(cgroups.drive_hierarchy()), devices.number_of(device)
    )


@pytest.mark.loop
@limited
class TestEmulated:
    def test_whole_life(self, context: ProvisionContext) -> None:
        target = emulated()
        access = target.provision({FACTOR: 2}, context)
        target.mount(access, context.journal)
        target.mount(access, context.journal)  # harmless
        made = access.details["emulated"]
        assert in_force(made["device"]) == Limits(read_operations=200, write_operations=200)
        for part in made["parts"]:
            assert in_force(part["device"]) == Limits(read_operations=150, write_operations=150)
            assert part["device"] != made["device"]
        facts = target.describe(access)
        assert json.dumps(facts)
        assert [device["capacity"] for device in facts["devices"]] == [32 * MIB] * 2
        assert all(device["loop"]["direct_io"] for device in facts["devices"])
        known = of_environment({"target": facts}).emulated  # as audits read it
        assert known is not None
        assert known.adapter_limits["read_operations"] == 200
        before = target.counters(access)
        first, second = access.details["numbers"]
        target.make_run(access, "run")
        file = Path(target.run_place(access, "run").roots[1]) / "f"
        with file.open("wb") as stream:
            stream.write(os.urandom(MIB))
            os.fsync(stream.fileno())
        settled = target.settle(access, 2.0)  # others may keep the machine busy
        assert settled.reached or settled.state
        after = target.counters(access)
        moved = {name: after[name] - before[name] for name in after}
        assert moved[f"device_{second}_written_bytes"] >= MIB
        assert moved[f"device_{first}_written_bytes"] < MIB
        assert moved["device_written_bytes"] >= MIB
        assert moved["backing_written_bytes"] >= MIB
        assert target.cache(access, "bypass", ["run/f"]).state == "bypass"
        target.remove_run(access, "run")
        target.unmount(access, context.journal)
        target.unmount(access, context.journal)  # harmless
        assert in_force(made["device"]) == Limits()
        assert len(target.health(access)) == 2
        target.release(access, context)
        assert devices.loop_backing(made["device"]) is None
        target.finish(context)
        assert list(context.state.iterdir()) == []
        assert context.journal.pending() == []

    def test_adapter_is_shared(self, context: ProvisionContext) -> None:
        """Two devices of 150 reads a second, and 200 for both: no more than those pass."""
        target = emulated()
        access = target.provision({FACTOR: 2}, context)
        target.mount(access, context.journal)
        parts = access.details["emulated"]["parts"]
        alone, seconds = _reads([parts[0]["device"]], 1.0)
        assert alone[0] <= 150 * (seconds + 0.3)
        both, seconds = _reads([part["device"] for part in parts], 1.0)
        assert sum(both) <= 200 * (seconds + 0.3)
        target.release(access, context)
        target.finish(context)

    def test_what_a_crash_left_is_undone(self, context: ProvisionContext, tmp_path: Path) -> None:
        target = emulated()
        access = target.provision({}, context)
        target.mount(access, context.journal)
        report = undo_pending(tmp_path / "journals")
        assert not [line for line in report if line.startswith("left alone")], report
        words = ("lifted the limit", "unmounted", "detached", "removed image", "removed directory")
        assert [sum(line.startswith(word) for line in report) for word in words] == [4, 3, 4, 1, 3]
        assert not attached_below(tmp_path.resolve())

    @pytest.mark.parametrize("line", range(1, LINES + 1))
    def test_killed_after_any_line_of_the_journal(self, tmp_path: Path, line: int) -> None:
        """Death right after it was written: what was meant is known, perhaps it was not done."""
        base = tmp_path.resolve()
        argv = [sys.executable, "-P", "-c", LIFE, str(base), str(line)]
        killed = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
        report = undo_pending(base / "journals")
        assert not [text for text in report if text.startswith("left alone")], report
        assert mounts.mounted_below(base) == []
        assert not attached_below(base)
        assert not list(base.glob("state/*/*"))
        assert undo_pending(base / "journals") == []

    def test_limit_that_somebody_changed_stays(self, context: ProvisionContext) -> None:
        target = emulated()
        access = target.provision({FACTOR: 1}, context)
        target.mount(access, context.journal)
        device = access.details["emulated"]["parts"][0]["device"]
        folder, number = cgroups.own(cgroups.drive_hierarchy()), devices.number_of(device)
        cgroups.limit_drive(folder, number, Limits(read_operations=7))
        with pytest.raises(BackendError, match="another limit than the recorded one"):
            target.unmount(access, context.journal)
        assert in_force(device) == Limits(read_operations=7)
        assert not mounts.mounted_below(context.state.resolve())  # all else was undone
        assert in_force(access.details["emulated"]["device"]) == Limits()
        cgroups.limit_drive(folder, number, Limits())
        target.release(access, context)
        target.finish(context)

    def test_limits_of_foreign_loop_devices_stay(self, tmp_path: Path) -> None:
        image = tmp_path / "theirs"
        image.write_bytes(bytes(MIB))
        argv = ["losetup", "--find", "--show", str(image)]
        device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
        folder, number = cgroups.own(cgroups.drive_hierarchy()), devices.number_of(device)
        limit = Limits(read_operations=900)
        try:
            cgroups.limit_drive(folder, number, limit)
            journal = Journal(tmp_path / "journals/host.jsonl")
            for cgroup in (folder, tmp_path):
                facts = {"device": device, "cgroup": str(cgroup), "limits": vars(limit)}
                journal.begin(KIND, **facts)
            report = undo_pending(tmp_path / "journals")
            assert len(report) == 2
            assert all("its limit stays" in line for line in report), report
            assert in_force(device) == limit
        finally:
            cgroups.limit_drive(folder, number, Limits())
            subprocess.run(["losetup", "--detach", device], check=True)

    def test_failing_mkfs_leaves_nothing(
        self, context: ProvisionContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = emulated(filesystem="xfs")  # 32 MiB are not enough for it
        assert target.refusal() == "size 32MiB: mkfs.xfs needs 300MiB or more"
        monkeypatch.setattr(LocalBackend, "size_refusal", classmethod(lambda *_: ""))
        with pytest.raises(ToolError, match=r"mkfs\.xfs"):
            target.provision({}, context)
        assert {entry.kind for entry in context.journal.pending()} == {"image"}
        target.finish(context)
        assert not attached_below(tmp_path.resolve())

    def test_one_in_use_keeps_no_other(
        self, context: ProvisionContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mounts, "PATIENCE", 0.2)
        target = emulated()
        access = target.provision({}, context)
        target.mount(access, context.journal)
        descriptor = os.open(access.paths[0], os.O_RDONLY)
        try:
            with pytest.raises(BackendError, match=f"in use by .*pid {os.getpid()}"):
                target.unmount(access, context.journal)
            (left,) = mounts.mounted_below(context.state.resolve())
            assert left.point == access.details["emulated"]["parts"][0]["point"]
        finally:
            os.close(descriptor)
        target.release(access, context)
        target.finish(context)

    def test_one_that_is_detached_while_mounted(self, context: ProvisionContext) -> None:
        """The kernel keeps it until it is unmounted; then it is gone by itself."""
        target = emulated()
        access = target.provision({}, context)
        target.mount(access, context.journal)
        device = access.details["emulated"]["parts"][1]["device"]
        subprocess.run(["losetup", "--detach", device], check=True)
        assert target.health(access) == []
        target.release(access, context)
        target.finish(context)
        assert context.journal.pending() == []

    def test_one_that_is_unmounted_is_named(self, context: ProvisionContext) -> None:
        target = emulated()
        access = target.provision({}, context)
        target.mount(access, context.journal)
        gone = access.details["emulated"]["parts"][2]
        subprocess.run(["umount", "--lazy", gone["point"]], check=True)
        with pytest.raises(BackendError, match=f"device {gone['number']} .* is not mounted"):
            target.make_run(access, "run")
        assert gone["device"] in target.health(access)[0]
        target.release(access, context)
        target.finish(context)


def _reads(paths: Sequence[str], seconds: float) -> tuple[list[int], float]:
    """How many random 4 KiB reads four threads did on each device, and how long that took."""
    counts, began = [0] * len(paths), time.monotonic()

    def work(index: int) -> None:
        draw, page = random.Random(index), mmap.mmap(-1, 4096)
        descriptor = os.open(paths[index], os.O_RDONLY | os.O_DIRECT)
        try:
            while time.monotonic() - began < seconds:
                os.preadv(descriptor, [page], draw.randrange(4096) * 4096)
                counts[index] += 1
        finally:
            os.close(descriptor)

    threads = [threading.Thread(target=work, args=(i % len(paths),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, time.monotonic() - began
