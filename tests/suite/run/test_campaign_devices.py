"""Whole campaigns on several devices: the level's curve, and a device that breaks on the way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.backends.local.devices import emulated
from fsmatrix.backends.system import mounts
from fsmatrix.results.evidence.replay import replayed
from fsmatrix.results.files.store import Store
from tests.suite.replay_workload import program, trace
from tests.suite.running import Running, fsmatrix

MIB = 1 << 20
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, linux/ext4.h
NO_LOG_FLUSH = (2).to_bytes(4, "little")
CAMPAIGN = """
campaign: devices
seed: 7
targets:
  ssds: {{backend: devices, options: {{{target}}}}}
workloads:
  io:
    workload: pattern
    options: {{bytes_per_process: {size}, chunk: 4KiB, fsync: none, {options}}}
    geometry: {{processes_per_node: {processes}}}
factors:
  pattern: [{pattern}]
  ssds_per_hba: {levels}
repetitions: {repetitions}
cache: bypass
order: {{attachments: {repetitions}, block: {repetitions}}}
limits: {{time_per_run: 60s}}
"""
RATES = "device_iops: {read: 400, write: 400}, adapter_iops: {read: 500, write: 500}"
EMULATED = f"emulated: {{count: 2, size: 128MiB, filesystem: ext4, {RATES}}}"
limited = pytest.mark.skipif(
    bool(emulated.limits_refusal()), reason=emulated.limits_refusal() or "can"
)
pytestmark = [pytest.mark.loop, pytest.mark.needs("ext4")]


def write_campaign(
    folder: Path,
    target: str = EMULATED,
    *,
    levels: str = "[2]",
    pattern: str = "rand-read",
    size: str = "4MiB",
    repetitions: int = 1,
    processes: int = 2,
    options: str = "fixed: time, seconds: 2s",
) -> Path:
    campaign = folder / "devices.yaml"
    campaign.write_text(
        CAMPAIGN.format(
            target=target,
            levels=levels,
            pattern=pattern,
            size=size,
            repetitions=repetitions,
            processes=processes,
            options=options,
        )
    )
    return campaign


def reasons(running: Running) -> list[str]:
    return [event["text"] for event in running.events if event["event"] == "failed"]


def is_clean(out: Path) -> bool:
    """Nothing of a campaign is mounted, attached or kept."""
    files = [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]
    place = out.resolve()
    attached = [file for file in files if file.startswith(str(place))]
    return not attached and not mounts.mounted_below(place) and not list(out.glob("state/*/*"))


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)


@limited
def test_levels_share_the_adapter(tmp_path: Path) -> None:
    campaign, out = write_campaign(tmp_path, levels="[1, 2]"), tmp_path / "out"
    done = fsmatrix("run", campaign, "-o", out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert is_clean(out)
    store = Store.open(out)
    records = [store.read(run) for run in store.ids()]
    assert sorted(record.coordinates["ssds_per_hba"] for record in records) == [1, 2]
    for record in records:
        number = record.coordinates["ssds_per_hba"]
        (phase,) = record.phases
        assert record.environment["realised"] == {"ssds_per_hba": "emulated"}
        assert len(record.environment["target"]["devices"]) == number
        (kernel,) = record.evidence.counters["read"]
        for device in record.environment["target"]["device_numbers"]:
            name = f"device_{device}_read_bytes"
            read = kernel.after[name] - kernel.before[name]
            assert read >= 0.9 * phase.bytes.sum() / number * (number == 1)
            assert read > 0
        seconds = float(np.max(phase.end) - np.min(phase.start))
        assert phase.operations.sum() <= {1: 400, 2: 500}[number] * (seconds + 0.3)
    answer = fsmatrix("adapters", out)
    assert answer.returncode == 0, answer.stderr
    assert "an adapter with 2 devices does" in answer.stdout
    assert "Emulated" in answer.stdout


REPLAYS = """
campaign: replays
targets:
  ssds: {{backend: devices, options: {{{target}}}}}
workloads:
  app: {{workload: replay, options: {{trace: {trace}, clients: {clients}}}}}
geometry: {{threads: 2}}
factors: {{ssds_per_hba: [1, 2], processes_per_node: [2]}}
repetitions: 1
cache: bypass
order: {{attachments: 1}}
limits: {{time_per_run: 60s}}
"""


@limited
def test_a_replay_has_its_own_threads_and_tree_on_each_device(tmp_path: Path) -> None:
    made = trace(tmp_path / "t.h5", program)
    text = REPLAYS.format(target=EMULATED, trace=made, clients="private")
    campaign, out = tmp_path / "c.yaml", tmp_path / "out"
    campaign.write_text(text)
    done = fsmatrix("run", campaign, "-o", out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert is_clean(out)
    store = Store.open(out)
    records = [store.read(run) for run in store.ids()]
    assert sorted(record.coordinates["ssds_per_hba"] for record in records) == [1, 2]
    for record in records:
        (phase,) = record.phases
        seen = replayed(phase.facts)
        assert seen is not None
        assert (seen.clients, seen.played, seen.agreed) == (2, 32, 32)
        (kernel,) = record.evidence.counters["replay"]
        numbers = record.environment["target"]["device_numbers"]
        names = [f"device_{number}_written_bytes" for number in numbers]
        assert len(names) == record.coordinates["ssds_per_hba"]
        # `program` writes 5000 bytes, and O_DIRECT moves whole blocks
        each = 8192 * 2 // len(names)
        assert all(kernel.after[name] - kernel.before[name] >= each for name in names)
    assert "an adapter with 2 devices does" in fsmatrix("adapters", out).stdout


def test_a_tree_that_processes_share_lies_on_no_several_devices(tmp_path: Path) -> None:
    made = trace(tmp_path / "t.h5", program)
    campaign = tmp_path / "c.yaml"
    target = f"paths: [{tmp_path}, /dev/shm]"
    campaign.write_text(REPLAYS.format(target=target, trace=made, clients="shared"))
    done = fsmatrix("plan", campaign)
    assert done.returncode == 2
    assert "use clients: private" in " ".join(done.stderr.split())


@limited
def test_lazily_unmounted_device_fails_the_run_by_name(tmp_path: Path) -> None:
    campaign, out = write_campaign(tmp_path), tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    point = out / "state/ssds/mnt-2"
    wait_for(next(iter_run(point)) / "data.00000001")
    subprocess.run(["umount", "--lazy", point], check=True)
    assert running.end() == 1, running.errors
    assert [str(point) in reason for reason in reasons(running)] == [True], running.events
    assert is_clean(out)


@limited
def test_dying_device_fails_the_run_by_name(tmp_path: Path) -> None:
    """A file system that is shut down gives EIO from then on, as one whose disk has gone."""
    campaign, out = write_campaign(tmp_path, options="fixed: time, seconds: 20s"), tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    point = out / "state/ssds/mnt-2"
    wait_for(next(iter_run(point)) / "data.00000001")
    time.sleep(3)  # most often the timed step is reached then: it does not matter
    descriptor = os.open(point, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN, NO_LOG_FLUSH)
    finally:
        os.close(descriptor)
    assert running.end() == 1, running.errors
    (reason,) = reasons(running)
    assert "EIO" in reason or "Input/output error" in reason
    assert str(point) in reason
    assert is_clean(out)


def iter_run(point: Path) -> Iterator[Path]:
    """The run's folder on a device, as soon as it is there."""
    wait_for(point / "data")
    while True:
        yield from (point / "data").iterdir()
        time.sleep(0.02)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[list[Path]]:
    """Two small file systems of the user's, each with a sentinel."""
    points = [(tmp_path / f"disk{number}").resolve() for number in range(2)]
    for point in points:
        image = point.with_suffix(".img")
        image.touch()
        os.truncate(image, 64 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        point.mkdir()
        subprocess.run(["mount", "-o", "loop", image, point], check=True)
        (point / "sentinel").write_text("keep")
    yield points
    left = [sorted(os.listdir(point)) for point in points]
    for point in points:  # also after a failed test
        subprocess.run(["umount", point], check=True)
    assert left == [["lost+found", "sentinel"]] * 2


def test_full_device_fails_the_run_by_name(tmp_path: Path, disks: list[Path]) -> None:
    target = f"paths: [{disks[0]}, {disks[1]}]"
    campaign = write_campaign(
        tmp_path, target, pattern="seq-write", size="8MiB", repetitions=6, options="fixed: work"
    )
    running = Running(campaign, "-o", tmp_path / "out")
    running.until("finished")
    with filled(disks[1] / "filler"):
        assert running.end() == 1, running.errors
    found = reasons(running)
    assert found
    for reason in found:
        assert "ENOSPC" in reason or "No space left on device" in reason  # also for its folder
        assert str(disks[1]) in reason
        assert str(disks[0]) not in reason


@contextmanager
def filled(filler: Path) -> Iterator[None]:
    """Its file system is full meanwhile, also when a run's files have just been removed."""
    over = threading.Event()

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            while not over.wait(0.001):
                with contextlib.suppress(OSError):
                    while file.write(bytes(MIB)):
                        pass

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        filler.unlink()


@limited
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"levels": "[1, 3]"}, "ssds_per_hba: 3 devices are asked for, and there are 2"),
        ({"processes": 3}, "2 devices cannot have the same number of 3 processes each"),
        ({"options": "layout: shared-strided"}, "each process works in a file of its own"),
        ({"target": EMULATED.replace("read: 500, ", "")}, "options.emulated.adapter_iops"),
    ],
)
def test_refused_by_plan(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    done = fsmatrix("plan", write_campaign(tmp_path, **changes))
    assert done.returncode == 2
    assert reason in done.stderr


def test_missing_device_is_refused_before_anything_is_made(
    tmp_path: Path, disks: list[Path]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    for paths, reason in (
        (f"{disks[0]}, {gone}, {tmp_path}", "on the same file system"),
        (f"{disks[0]}, {tmp_path}/none", f"{tmp_path}/none does not exist"),
    ):
        campaign = write_campaign(tmp_path, f"paths: [{paths}]")
        done = fsmatrix("run", campaign, "-o", tmp_path / "out")
        assert done.returncode == 2
        assert reason in done.stderr
        assert not (tmp_path / "out/runs").exists()
