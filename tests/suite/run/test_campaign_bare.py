"""Whole campaigns on a bare device, by the player and by fio, and what may happen meanwhile."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from fsmatrix.backends.access import Access
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.local.devices import emulated
from fsmatrix.backends.system import devices
from fsmatrix.results.files.store import Store
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session.messages import Call
from fsmatrix.suite.workloads.workload import (
    Argv,
    Footprint,
    Output,
    Step,
    Workload,
    WorkloadOptions,
)
from tests.backends.bare_devices import MIB, attached, bare, digest, out_of
from tests.suite.running import Running, fsmatrix
from tests.suite.sessions import runner_on, started
from tests.waiting import PATIENCE

CAMPAIGN = """
campaign: bare
seed: 7
targets:
  dev: {{backend: device, options: {{device: {device}, destroy: no-signature}}}}
workloads:
  io:
    workload: {workload}
    options: {{{options}}}
    geometry: {{processes_per_node: 2}}
factors:
  {name}: {levels}
repetitions: {repetitions}
cache: {cache}
order: {{attachments: 1, block: {repetitions}}}
limits: {{time_per_run: 60s}}
"""
PLAYER = {
    "workload": "pattern",
    "options": "chunk: 4KiB, bytes_per_process: 2MiB, verify: true",
    "name": "pattern",
    "levels": "[seq-read, seq-write, rand-read, rand-write]",
}
FIO = {
    "workload": "fio",
    "options": "bs: 4KiB, size: 2MiB",
    "name": "rw",
    "levels": "[read, write, randread, randwrite]",
}
limited = pytest.mark.skipif(
    bool(emulated.limits_refusal()), reason=emulated.limits_refusal() or "can"
)
pytestmark = pytest.mark.loop


def write(
    folder: Path, device: str, work: dict[str, str], cache: str = "bypass", repetitions: int = 1
) -> Path:
    path = folder / "bare.yaml"
    text = CAMPAIGN.format(device=device, cache=cache, repetitions=repetitions, **work)
    path.write_text(text)
    return path


def trees(out: Path) -> list[Path]:
    """Folders below /dev that the campaign's journals name."""
    lines = [line for file in out.glob("journal/*.jsonl") for line in file.read_text().splitlines()]
    entries = [json.loads(line) for line in lines]
    return [Path(entry["facts"]["path"]) for entry in entries if entry.get("kind") == "tree"]


def is_clean(out: Path, device: str) -> bool:
    """Nothing of ours below /dev, no claim on the device, no signature on it."""
    assert trees(out)
    os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    return not any(map(os.path.lexists, trees(out))) and devices.signatures(device) == []


@pytest.mark.parametrize(
    ("work", "wrong"),
    [
        pytest.param(
            PLAYER | {"options": "chunk: 2KiB, bytes_per_process: 2MiB"},
            "chunk is 2048",
            id="chunk",
        ),
        pytest.param(
            FIO | {"options": "bssplit: 4k/50:512/50, size: 2MiB"}, "bssplit 512 is 512", id="split"
        ),
    ],
)
def test_sizes_that_are_no_blocks_of_the_device_are_refused(
    work: dict[str, str], wrong: str, tmp_path: Path
) -> None:
    image = tmp_path / "disk"
    with attached(image, "--sector-size", "4096", "--direct-io=on") as device:
        refused = fsmatrix("plan", write(tmp_path, device, work, "cold"))
    assert refused.returncode == 2
    said = " ".join((refused.stdout + refused.stderr).split())
    assert f"{wrong}, and must be a multiple" in said
    assert "target dev: its device works in blocks of 4096 bytes" in said
    assert "bare.yaml:" in said


@pytest.mark.parametrize(
    ("work", "cache"),
    [
        pytest.param(PLAYER, "bypass", id="player"),
        pytest.param(FIO, "cold", id="fio", marks=pytest.mark.needs("fio")),
    ],
)
def test_good_runs(work: dict[str, str], cache: str, tmp_path: Path) -> None:
    image, out = tmp_path / "disk", tmp_path / "out"
    with attached(image) as device:
        before = image.read_bytes()
        campaign = write(tmp_path, device, work, cache)
        planned = fsmatrix("plan", campaign, "--json")
        (warning,) = [w for w in json.loads(planned.stdout)["warnings"] if "DESTROYS" in w]
        assert f"DESTROYS what is on {device} ({Path(device).name}, no serial number" in warning
        assert "its first 4.0MiB are overwritten" in warning
        assert image.read_bytes() == before  # looking writes nothing
        done = fsmatrix("run", campaign, "-o", out, "--quiet")
        assert done.returncode == 0, done.stderr
        assert "its first 4.0MiB are overwritten" in done.stderr
        assert is_clean(out, device)
    after = image.read_bytes()
    assert after[4 * MIB :] == before[4 * MIB :]  # not a byte more than was said
    blocks = [slice(at, at + 4096) for at in range(0, 4 * MIB, 4096)]
    assert all(after[block] != before[block] for block in blocks)
    store = Store.open(out)
    records = [store.read(run) for run in store.ids()]
    assert len(records) == 4
    for record in records:
        (phase,) = record.phases
        assert record.environment["target"]["destroy"] == "no-signature"
        assert "range of its own" in record.environment["target"]["division"]
        assert list(phase.bytes) == [2 * MIB, 2 * MIB]
        (kernel,) = record.evidence.counters[phase.name]
        moved = {"read": "device_read_bytes", "write": "device_written_bytes"}[phase.name]
        assert kernel.after[moved] - kernel.before[moved] >= 4 * MIB  # nothing came from memory
        seconds = float(np.max(phase.end) - np.min(phase.start))
        assert phase.operations.sum() == 1024
        assert phase.errors.sum() == 0
        assert 0 < seconds / 1024 < 1


def test_what_is_refused_is_said_before_anything_is_made(tmp_path: Path) -> None:
    image = tmp_path / "disk"
    with attached(image) as device:
        before, out = digest(image), tmp_path / "out"
        campaign = write(tmp_path, device, PLAYER)
        campaign.write_text(campaign.read_text().replace("no-signature", "S4EWNX0R123456"))
        done = fsmatrix("run", campaign, "-o", out)
        assert done.returncode == 2
        assert "tells no serial number" in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
        campaign.write_text(campaign.read_text().replace(", destroy: S4EWNX0R123456", ""))
        done = fsmatrix("plan", campaign)
        assert done.returncode == 2
        assert "bare.yaml:5" in done.stderr
        assert "destroy must name the serial number" in " ".join(done.stderr.split())
        assert not out.exists()
        assert digest(image) == before
        much = PLAYER | {"options": "bytes_per_process: 32MiB"}
        done = fsmatrix("plan", write(tmp_path, device, much))
        assert done.returncode == 2
        assert "must hold 64.0MiB at once; size of the device gives 32.0MiB" in done.stderr


def test_the_device_shrinks_in_a_run(tmp_path: Path) -> None:
    """A disk that loses its medium: runs fail with the reason, and nothing of ours stays."""
    image, out = tmp_path / "disk", tmp_path / "out"
    endless = PLAYER | {
        "levels": "[seq-write]",
        "options": "chunk: 4KiB, bytes_per_process: 8MiB, fixed: time, seconds: 8s",
    }
    with attached(image) as device:
        number = devices.number_of(device)
        begin = devices.device_stat(number).written_bytes
        running = Running(write(tmp_path, device, endless, repetitions=2), "-o", out)
        running.until("run")
        deadline = time.monotonic() + 120
        while devices.device_stat(number).written_bytes < begin + MIB:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.truncate(image, 0)
        out_of("losetup", "--set-capacity", device)
        assert running.end() == 1
        assert is_clean(out, device)
    reasons = [event["text"] for event in running.events if event["event"] == "failed"]
    assert len(reasons) == 2
    assert "ENOSPC in write" in reasons[0] or "EIO in write" in reasons[0], reasons
    assert "not the device that was looked at before: other size" in reasons[1], reasons


class Two(Workload):
    """Two programs, one after the other."""

    name: ClassVar[str] = "two"

    def __init__(self, *programs: tuple[str, ...]) -> None:
        super().__init__(WorkloadOptions())
        self.programs = programs

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        return [Step(argv[0], "once", "setup", Argv(argv)) for argv in self.programs]

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        return Parsed()

    def footprint(self, case: Case) -> Footprint:
        return Footprint(0, 0, 0)


def test_what_appears_on_the_device_within_a_run_ends_it(tmp_path: Path) -> None:
    """The device is looked at before each step, and not only where the run begins."""
    image, theirs, later = tmp_path / "disk", tmp_path / "theirs", tmp_path / "later"
    out, one = tmp_path / "out", Geometry(1, 1)
    theirs.write_bytes(bytes(32 * MIB))
    out_of("mkfs.ext4", theirs)
    out.mkdir()
    journal = Journal(tmp_path / "journals/host.jsonl")
    with attached(image) as device, started(one) as session:
        target = bare(device)
        context = ProvisionContext("dev", tmp_path / "state", journal, "within")
        access = target.provision({}, context)
        kernels = session.hello.kernels
        session.call(Call.of(kernels, "mount", access, out / "journal"), PATIENCE)
        like = runner_on(session, tmp_path, out, Settings(60.0, 5.0, out=out))
        runner = Runner(replace(like.context, access=access), like.quiet, like.written)
        write = ("dd", f"if={theirs}", f"of={device}", "conv=notrunc,fsync")
        case = Case("dev", "two", {}, one, cache="bypass")
        player = Engines({}).get("player")
        work = Two(write, ("touch", str(later)))
        record, _ = runner.run(RunSpec(case, work, player, {"target": "dev"}, 0, 1, 0, "a", 1))
        assert record.status == "failed"
        assert f"{device} carries ext4 at 0x438" in record.error
        assert not later.exists()
        session.call(Call.of(kernels, "unmount", access, out / "journal"), PATIENCE)
        with pytest.raises(BackendError, match=r"after the runs, .* carries ext4"):
            target.release(access, context)


def test_a_second_campaign_and_resume(tmp_path: Path) -> None:
    """While one holds the device another is refused; what a dead one left, --resume takes down."""
    image, out = tmp_path / "disk", tmp_path / "out"
    work = PLAYER | {"levels": "[seq-write, rand-read]"}
    with attached(image) as device:
        campaign = write(tmp_path, device, work, repetitions=2)
        running = Running(campaign, "-o", out)
        running.until("run")
        running.process.send_signal(signal.SIGSTOP)
        try:
            before = list(trees(out))
            other = fsmatrix("run", campaign, "-o", tmp_path / "other")
            assert other.returncode == 2
            assert "somebody has claimed it" in " ".join(other.stderr.split())
            assert [tree for tree in before if tree.exists()]
        finally:
            running.process.kill()
            running.process.communicate(timeout=PATIENCE)
        done = fsmatrix("run", "-o", out, "--resume", "--json")
        assert done.returncode == 0, done.stdout
        recovered = [
            event["text"]
            for event in map(json.loads, done.stdout.splitlines())
            if event["event"] == "recovered"
        ]
        assert any("/dev/fsmatrix-" in text for text in recovered), recovered
        assert is_clean(out, device)
    store = Store.open(out)
    records = [store.read(run) for run in store.ids()]
    assert [record.status for record in records].count("ok") == 4


@limited
def test_an_emulated_device(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = fsmatrix(
        *("run", "flash-device", "-o", out, "--quiet", "--only", "target=ssd"),
        *("--set", "targets.ssd.options={emulated: {size: 16MiB, iops: {read: 300, write: 200}}}"),
        *("--set", "workloads.raw.options.bytes_per_process=8MiB", "--set", "repetitions=1"),
        *("--set", "workloads.raw.options.seconds=1s"),
        *("--set", "factors.pattern=[rand-read, seq-write]"),
    )
    assert done.returncode == 0, done.stderr
    assert "DESTROYS" not in done.stderr  # it is the suite's own
    assert not any(map(os.path.lexists, trees(out)))
    assert not list(out.glob("state/*/*"))
    store = Store.open(out)
    for record in [store.read(run) for run in store.ids()]:
        (phase,) = record.phases
        limit = {"read": 300, "write": 200}[phase.name]
        seconds = float(np.max(phase.end) - np.min(phase.start))
        assert 0 < phase.operations.sum() <= limit * (seconds + 0.3)
        assert record.environment["realised"] == {"device_class": "emulated"}
        assert record.coordinates["device_class"] == "emulated"
