"""Whole campaigns by the command line: what breaks on the way, and what is left afterwards.

Every campaign here runs on real file systems under a real mpirun.  A sentinel that the suite
did not make lies beside its data and must survive all of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

from fsmatrix.results.files.store import Store
from tests.suite.running import DEADLINE, Running, fsmatrix, ranks_of

CAMPAIGN = """
campaign: faults
seed: 7
targets:
  here: {{backend: directory, options: {{path: {path}}}}}
workloads:
  io: {{workload: pattern, options: {{bytes_per_process: 4MiB, chunk: 64KiB, {options}}}}}
factors:
  pattern: [seq-write, rand-read]
  processes_per_node: [2]
repetitions: {repetitions}
order: {{attachments: 2, block: {block}}}
limits: {{time_per_run: {limit}}}
"""


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """A directory with a sentinel that must be there, alone, at the end."""
    place = tmp_path / "target"
    place.mkdir()
    (place / "sentinel").write_text("not yours")
    yield place
    assert (place / "sentinel").read_text() == "not yours"
    assert sorted(os.listdir(place)) == ["sentinel"]


def write_campaign(
    folder: Path,
    path: Path,
    *,
    repetitions: int = 2,
    options: str = "fsync: end",
    limit: str = "30s",
    block: int = 1,
) -> Path:
    campaign = folder / "faults.yaml"
    campaign.write_text(
        CAMPAIGN.format(
            path=path, repetitions=repetitions, options=options, limit=limit, block=block
        )
    )
    return campaign


def statuses(out: Path) -> dict[str, str]:
    store = Store.open(out)
    return {run: store.status(run) for run in store.ids()}


def test_campaign_runs_and_resumes_to_nothing(tmp_path: Path, target: Path) -> None:
    campaign, out = write_campaign(tmp_path, target), tmp_path / "out"
    done = fsmatrix("run", campaign, "-o", out, "--quiet")
    assert done.returncode == 0, done.stderr
    assert list(statuses(out).values()) == ["ok"] * 4
    assert (out / "report.html").stat().st_size > 1000
    record = Store.open(out).read(Store.open(out).ids()[0])
    assert [rank["rank"] for rank in record.ranks] == [0, 1]
    assert sum(int(phase.bytes.sum()) for phase in record.phases) == 8 << 20
    again = fsmatrix("run", "-o", out, "--resume", "--quiet")
    assert again.returncode == 0, again.stderr
    assert "4 were there before" in again.stderr
    refused = fsmatrix("run", campaign, "-o", out)
    assert refused.returncode == 2
    assert "resume it" in refused.stderr
    other = fsmatrix("run", campaign, "-o", out, "--resume", "--seed", "8")
    assert other.returncode == 2
    assert "another campaign" in other.stderr


def test_killed_rank_fails_one_run_and_the_rest_goes_on(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 3s")
    out = tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    time.sleep(1)
    os.kill(ranks_of(out)[2], signal.SIGKILL)
    assert running.end() == 1, running.errors
    assert sorted(statuses(out).values()) == ["failed", "ok", "ok", "ok"]
    (failed,) = (event for event in running.events if event["event"] == "failed")
    assert "rank 1 on" in failed["text"]
    assert "SIGKILL" in failed["text"]
    retried = fsmatrix("run", "-o", out, "--resume", "--retry-failed", "--quiet")
    assert retried.returncode == 0, retried.stderr
    assert sorted(statuses(out).values()) == ["failed", "ok", "ok", "ok", "ok"]


def test_stopped_rank_is_a_timeout(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(
        tmp_path, target, repetitions=1, limit="15s", options="fixed: time, seconds: 2s"
    )
    out = tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    time.sleep(0.5)
    os.kill(ranks_of(out)[2], signal.SIGSTOP)
    assert running.end() == 1, running.errors
    assert sorted(statuses(out).values()) == ["ok", "timeout"]


def test_interrupt_and_resume_do_every_run_once(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 1s")
    out = tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("finished")
    running.until("run")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130, running.errors
    before = statuses(out)
    assert set(before.values()) == {"ok"}
    assert 1 <= len(before) < 4
    kept = {run: Store.open(out).path(run).stat().st_mtime_ns for run in before}
    assert fsmatrix("run", "-o", out, "--resume", "--quiet").returncode == 0
    after = statuses(out)
    assert list(after.values()) == ["ok"] * 4
    assert all(run.endswith("-a1") for run in after)
    assert {run: Store.open(out).path(run).stat().st_mtime_ns for run in before} == kept


def test_two_conductors_on_one_directory(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 1s")
    out = tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    second = fsmatrix("run", "-o", out, "--resume")
    assert second.returncode == 2
    assert f"pid {running.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert running.end() == 0, running.errors


def test_two_shards_run_side_by_side(tmp_path: Path, target: Path) -> None:
    """Neither ends the other's session, and together they do every run once."""
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 1s")
    out = tmp_path / "out"
    shards = [Running(campaign, "-o", out, "--resume", "--shard", "1/2")]
    shards[0].until("run")
    shards.append(Running(campaign, "-o", out, "--resume", "--shard", "2/2"))
    assert [shard.end() for shard in shards] == [0, 0], [shard.errors for shard in shards]
    assert list(statuses(out).values()) == ["ok"] * 4
    assert {event["event"] for shard in shards for event in shard.events} == {
        "attach", "run", "finished",
    }  # fmt: skip


def test_shards_come_to_the_same_seed_by_themselves(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target)
    campaign.write_text(campaign.read_text().replace("seed: 7\n", ""))
    out = tmp_path / "out"
    shards = [Running(campaign, "-o", out, "--shard", f"{k}/2") for k in (1, 2)]
    assert [shard.end() for shard in shards] == [0, 0], [shard.errors for shard in shards]
    assert list(statuses(out).values()) == ["ok"] * 4


def test_a_directory_in_memory_is_found_out(tmp_path: Path) -> None:
    """A directory target on tmpfs that nobody declared a reference is refused; one is marked."""
    place = Path("/dev/shm") / f"fsmatrix-test-{os.getpid()}"
    place.mkdir()
    try:
        campaign = write_campaign(tmp_path, place, repetitions=1)
        for cache in ("cold", "bypass", "warm"):
            out = tmp_path / cache
            done = fsmatrix("run", campaign, "-o", out, "--quiet", "--no-report", "--set",
                            f"cache={cache}")  # fmt: skip
            assert (done.returncode, out.exists()) == (2, False)
            assert "targets.here: cannot be had here: its files would lie in memory (tmpfs)" in (
                done.stderr
            )
            done = fsmatrix("run", campaign, "-o", out, "--quiet", "--no-report", "--set",
                            f"cache={cache}", "--set", "targets.here.reference=true")  # fmt: skip
            assert done.returncode == 0, done.stderr
            store = Store.open(out)
            assert any(store.ids())
            for run in store.ids():
                found = {f.audit: f.severity for f in store.read(run).findings}
                assert found["memory-reference"] == "info"
        assert os.listdir(place) == []
    finally:
        place.rmdir()


def test_hang_up_is_like_an_interrupt(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 1s")
    out = tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    running.process.send_signal(signal.SIGHUP)
    assert running.end() == 130, running.errors
    assert sorted(os.listdir(target)) == ["sentinel"]


def test_torn_files_of_a_crash_do_not_stop_a_resume(tmp_path: Path, target: Path) -> None:
    campaign, out = write_campaign(tmp_path, target, repetitions=1), tmp_path / "out"
    assert fsmatrix("run", campaign, "-o", out, "--quiet", "--no-report").returncode == 0
    (out / "journal" / "session-elsewhere-1.json").write_text('{"boot_id": "x", "proc')
    half = out / "runs" / f".x.h5.{os.uname().nodename}.4194304.tmp"  # of no process: pid_max
    half.write_text("half a run file")
    again = fsmatrix("run", "-o", out, "--resume", "--quiet", "--no-report")
    assert again.returncode == 0, again.stderr
    assert not half.exists()
    text = (out / "campaign.json").read_text()
    (out / "campaign.json").write_text(text[:100])
    torn = fsmatrix("run", "-o", out, "--resume")
    assert torn.returncode == 2
    assert "campaign.json" in torn.stderr
    assert "Traceback" not in torn.stderr


def test_output_on_the_system_under_test_is_a_finding(tmp_path: Path, target: Path) -> None:
    campaign, out = write_campaign(tmp_path, target, repetitions=1), tmp_path / "out"
    assert fsmatrix("run", campaign, "-o", out, "--quiet").returncode == 0
    store = Store.open(out)
    for run in store.ids():
        assert "output-on-target" in {finding.audit for finding in store.read(run).findings}


def test_a_target_that_goes_in_the_middle_is_said_once(tmp_path: Path, target: Path) -> None:
    campaign, out = write_campaign(tmp_path, target, repetitions=3), tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("attach")
    running.until("attach")  # the first block is done
    away = target.rename(tmp_path / "away")
    status = running.end()
    away.rename(target)
    assert status == 1
    given_up = [event for event in running.events if event["event"] == "given_up"]
    last = [event for event in given_up if "does not exist" in event["text"]]
    assert last
    assert "2 runs of here: " in last[0]["text"]
    assert [event["again"] for event in last] == [False, *[True] * (len(last) - 1)]
    shown = fsmatrix("show", out)
    told = [line for line in shown.stdout.splitlines() if "does not exist" in line]
    assert len(told) == 1
    assert f"{2 * len(last)} runs (" in told[0]
    # what was attached when it went is removed by the next run, if it was not already
    assert fsmatrix("run", "-o", out, "--resume", "--quiet", "--no-report").returncode == 0


def test_damaged_foreign_and_newer_files_are_named_and_left_out(
    tmp_path: Path, target: Path
) -> None:
    campaign, out = write_campaign(tmp_path, target), tmp_path / "out"
    assert fsmatrix("run", campaign, "-o", out, "--quiet", "--no-report").returncode == 0
    store = Store.open(out)
    cut, newer, *_ = (store.path(run) for run in store.ids())
    cut.write_bytes(cut.read_bytes()[:2000])
    with h5py.File(newer, "r+") as file:
        file.attrs["schema_version"] = 99
    with h5py.File(cut.with_name("foreign.h5"), "w") as file:
        file["x"] = 1
    collected = fsmatrix("collect", out, "--json")
    assert collected.returncode == 0, collected.stderr
    left = {Path(e["path"]).name: e["reason"] for e in json.loads(collected.stdout)["left_out"]}
    assert set(left) == {cut.name, newer.name, "foreign.h5"}
    assert "newer" in left[newer.name]
    shown = fsmatrix("show", out, "--json")
    assert shown.returncode == 0, shown.stderr
    json.loads(shown.stdout, parse_constant=pytest.fail)  # NaN is no JSON


def test_bytes_written_are_limited_while_it_runs(tmp_path: Path, target: Path) -> None:
    """A fixed time writes more than was planned; the limit holds all the same."""
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 1s")
    out = tmp_path / "out"
    limit = ["--set", "limits.bytes_written=48MiB", "--only", "pattern=seq-write"]
    done = fsmatrix("run", campaign, "-o", out, "--quiet", *limit)
    assert done.returncode == 1, done.stderr
    assert "bytes were written, more than limits.bytes_written" in done.stderr
    assert list(statuses(out).values()) == ["ok"]


@pytest.mark.needs("emulated nodes")
@pytest.mark.parametrize(
    "launcher",
    [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("mpirun", "mpiexec")],
)
def test_emulated_client_nodes(tmp_path: Path, target: Path, launcher: str) -> None:
    """Two UTS namespaces are two nodes to MPI, one kernel to us, and said to be emulated."""
    campaign = write_campaign(tmp_path, target, repetitions=1, options="shift_reads: node")
    text = campaign.read_text().replace("pattern: [seq-write, rand-read]", "pattern: [rand-read]")
    campaign.write_text(text + f"launcher: {{name: {launcher}, emulated_nodes: 2}}\n")
    out = tmp_path / "out"
    done = fsmatrix("run", campaign, "-o", out, "--quiet", "--no-report", "--set",
                    "geometry.nodes=2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    store = Store.open(out)
    (run,) = store.ids()
    record = store.read(run)
    assert [rank["host"] for rank in record.ranks] == ["node1", "node1", "node2", "node2"]
    assert len({rank["boot_id"] for rank in record.ranks}) == 1
    assert record.coordinates["nodes"] == 2
    assert "emulated-nodes" in {finding.audit for finding in record.findings}


def mount_small(tmp_path: Path) -> Path:
    image, place = tmp_path / "small.img", tmp_path / "small"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    return place


@pytest.mark.loop
@pytest.mark.needs("ext4")
def test_no_space_in_the_middle_of_a_run(tmp_path: Path) -> None:
    place = mount_small(tmp_path)
    try:
        campaign = write_campaign(tmp_path, place, repetitions=1)
        text = campaign.read_text().replace("bytes_per_process: 4MiB", "bytes_per_process: 12MiB")
        campaign.write_text(text)
        out = tmp_path / "out"
        running = Running(campaign, "-o", out)
        running.until("attach")
        with (place / "sentinel").open("wb") as file:  # somebody else fills the file system
            file.write(b"x" * (30 << 20))
        assert running.end() == 1, running.errors
        reasons = [event["text"] for event in running.events if event["event"] == "failed"]
        assert reasons
        assert all("ENOSPC in write of data" in reason for reason in reasons)
        assert (place / "sentinel").stat().st_size == 30 << 20
        assert sorted(os.listdir(place)) == ["lost+found", "sentinel"]
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.loop
@pytest.mark.needs("ext4")
def test_killed_conductor_leaves_nothing_after_resume(tmp_path: Path) -> None:
    campaign = tmp_path / "loop.yaml"
    campaign.write_text("""
campaign: loop
targets:
  ext4: {backend: ext4, options: {size: 128MiB}}
workloads:
  io: {workload: pattern, options: {bytes_per_process: 4MiB, chunk: 64KiB,
       fixed: time, seconds: 1s}}
factors: {pattern: [seq-write], processes_per_node: [1, 2]}
repetitions: 2
""")
    out = tmp_path / "out"
    sentinel = tmp_path / "sentinel"
    sentinel.write_text("not yours")
    running = Running(campaign, "-o", out)
    running.until("finished")
    running.until("run")
    session = ranks_of(out)
    (noted,) = (out / "journal").glob("session-*.json")
    scratch = [Path(place) for place in json.loads(noted.read_text())["scratch"]]
    assert all(place.is_dir() for place in scratch)
    running.process.kill()
    running.process.wait()
    left = [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(out) in line
    ]
    assert left, "the crash should have left a mount"
    done: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(
        target=lambda: done.append(fsmatrix("run", "-o", out, "--resume", "--quiet"))
    )
    thread.start()
    thread.join(DEADLINE)
    assert done[0].returncode == 0, done[0].stderr
    assert "recovered: unmounted" in done[0].stderr
    assert list(statuses(out).values()) == ["ok"] * 4
    assert str(out) not in Path("/proc/self/mountinfo").read_text()
    loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    assert str(out) not in loops
    assert not [pid for pid in session if Path(f"/proc/{pid}").exists()]
    assert not any(place.exists() for place in scratch)
    assert sentinel.read_text() == "not yours"
    assert not list((out / "state").rglob("*.img"))


def test_a_copied_store_leaves_the_originals_trees_alone(tmp_path: Path, target: Path) -> None:
    """While the original runs, and after it was killed; the original cleans up itself."""
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 3s")
    out, copy = tmp_path / "out", tmp_path / "out2"
    running = Running(campaign, "-o", out)
    running.until("run")
    running.process.send_signal(signal.SIGSTOP)  # it lives, and does not end before it is killed
    subprocess.run(["cp", "-a", str(out), str(copy)], check=True)
    (live,) = target.glob("fsmatrix-*")
    assert fsmatrix("run", "-o", copy, "--resume").returncode == 2
    assert live.is_dir()
    running.process.kill()
    running.process.wait()
    refused = fsmatrix("run", "-o", copy, "--resume")
    assert refused.returncode == 2
    assert "moved or copied" in refused.stderr.replace("\n", " ")
    assert live.is_dir()
    assert fsmatrix("show", copy).returncode in (0, 2)  # before the first run there is nothing
    resumed = fsmatrix("run", "-o", out, "--resume", "--quiet")
    assert resumed.returncode == 0, resumed.stderr
    assert not live.exists()
    for name in ("journal", "state"):
        shutil.rmtree(copy / name)
    again = fsmatrix("run", "-o", copy, "--resume", "--quiet", "--no-report")
    assert again.returncode == 0, again.stderr
