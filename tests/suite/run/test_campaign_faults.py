"""Whole campaigns by the command line: processes that die, hang or are interrupted, and resumes.

Every campaign here runs on real file systems under a real mpirun.  A sentinel that the suite
did not make lies beside its data and must survive all of it (`target`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from fsmatrix.results.files.store import Store
from tests.suite.run.faulty_campaigns import statuses, write_campaign
from tests.suite.running import Running, fsmatrix, ranks_of
from tests.waiting import PATIENCE


def test_campaign_runs_and_resumes_to_nothing(tmp_path: Path, target: Path) -> None:
    campaign, out = write_campaign(tmp_path, target), tmp_path / "out"
    done = fsmatrix("run", campaign, "-o", out, "--quiet", report=True)
    assert done.returncode == 0, done.stderr
    assert list(statuses(out).values()) == ["ok"] * 4
    assert (out / "report.html").stat().st_size > 1000
    record = Store.open(out).read(Store.open(out).ids()[0])
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert sum(int(phase.bytes.sum()) for phase in record.phases) == 8 << 20
    again = fsmatrix("run", "-o", out, "--resume", "--quiet")
    assert again.returncode == 0, again.stderr
    assert "4 were there before" in again.stderr
    refused = fsmatrix("run", campaign, "-o", out)
    assert refused.returncode == 2
    assert "--resume adds what is missing" in refused.stderr
    other = fsmatrix("run", campaign, "-o", out, "--resume", "--seed", "8")
    assert other.returncode == 2
    assert "another campaign" in other.stderr
    assert "seed was 7 and is 8; resume it" in other.stderr
    sets = ("--set", "factors.pattern=[seq-read]", "--set", "repetitions=9")
    other = fsmatrix("run", campaign, "-o", out, "--resume", *sets)
    assert "factors.pattern was" in other.stderr
    assert "repetitions" not in other.stderr, "more of the same campaign"


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
    os.kill(running.process.pid, signal.SIGSTOP)  # or it ends before the second begins
    try:
        second = fsmatrix("run", "-o", out, "--resume")
    finally:
        os.kill(running.process.pid, signal.SIGCONT)
    assert second.returncode == 2
    assert f"pid {running.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert running.end() == 0, running.errors


def test_a_store_that_is_removed_meanwhile_does_not_come_back(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 1s")
    out = tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    shutil.rmtree(out)
    assert running.end() != 0, running.errors
    (stopped,) = (event for event in running.events if event["event"] == "stopped")
    assert "removed, meanwhile" in stopped["text"] or "cannot be written" in stopped["text"]
    assert "Traceback" not in running.errors
    assert not out.exists()


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
        "attach",
        "run",
        "finished",
    }


def test_shards_come_to_the_same_seed_by_themselves(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target)
    campaign.write_text(campaign.read_text().replace("seed: 7\n", ""))
    out = tmp_path / "out"
    shards = [Running(campaign, "-o", out, "--shard", f"{k}/2") for k in (1, 2)]
    assert [shard.end() for shard in shards] == [0, 0], [shard.errors for shard in shards]
    assert list(statuses(out).values()) == ["ok"] * 4


def test_hang_up_is_like_an_interrupt(tmp_path: Path, target: Path) -> None:
    campaign = write_campaign(tmp_path, target, options="fixed: time, seconds: 1s")
    out = tmp_path / "out"
    running = Running(campaign, "-o", out)
    running.until("run")
    running.process.send_signal(signal.SIGHUP)
    assert running.end() == 130, running.errors
    assert sorted(os.listdir(target)) == ["sentinel"]


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
    done = fsmatrix("run", campaign, "-o", out, "--quiet", "--set", "geometry.nodes=2")
    assert done.returncode == 0, done.stderr
    store = Store.open(out)
    (run,) = store.ids()
    record = store.read(run)
    assert [rank.host for rank in record.ranks] == ["node1", "node1", "node2", "node2"]
    assert len({rank.boot_id for rank in record.ranks}) == 1
    assert record.coordinates["nodes"] == 2
    assert "emulated-nodes" in {finding.audit for finding in record.findings}


LOOP = """
campaign: loop
targets:
  ext4: {backend: ext4, options: {size: 128MiB}}
workloads:
  io: {workload: pattern, options: {bytes_per_process: 4MiB, chunk: 64KiB,
       fixed: time, seconds: 1s}}
factors: {pattern: [seq-write], processes_per_node: [1, 2]}
repetitions: 2
"""


@pytest.mark.loop
@pytest.mark.needs("ext4")
def test_what_is_in_use_at_the_start_of_a_resume_goes_at_its_end(tmp_path: Path) -> None:
    """Another mount namespace keeps the mount, so the loop device and the image, for a while."""
    campaign, out = tmp_path / "loop.yaml", tmp_path / "out"
    campaign.write_text(LOOP)
    running = Running(campaign, "-o", out)
    running.until("finished")
    argv = ["unshare", "--mount", "sh", "-c", "echo there && read line"]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "there\n"
    running.process.kill()
    running.process.communicate()
    resumed = Running("-o", out, "--resume")
    resumed.until("attach")
    holder.communicate("\n")
    assert resumed.end() == 0, resumed.errors
    told = [event["text"] for event in resumed.events if event["event"] == "recovered"]
    assert any(text.startswith("left alone: ") and str(holder.pid) in text for text in told), told
    assert told[-1].startswith("removed image "), told
    assert list(statuses(out).values()) == ["ok"] * 4
    assert not list((out / "state").rglob("*.img"))


@pytest.mark.loop
@pytest.mark.needs("ext4")
def test_killed_conductor_leaves_nothing_after_resume(tmp_path: Path) -> None:
    campaign, out = tmp_path / "loop.yaml", tmp_path / "out"
    campaign.write_text(LOOP)
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
    thread.join(PATIENCE)
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
