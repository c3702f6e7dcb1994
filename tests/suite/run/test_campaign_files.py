"""Whole campaigns by the command line: full disks, torn and foreign files, a target that goes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import h5py
import pytest

from fsmatrix.results.files.store import Store
from tests.suite.run.faulty_campaigns import statuses, write_campaign
from tests.suite.running import Running, fsmatrix


def test_a_directory_in_memory_is_found_out(tmp_path: Path) -> None:
    """A directory target on tmpfs that nobody declared a reference is refused; one is marked."""
    place = Path("/dev/shm") / f"fsmatrix-test-{os.getpid()}"
    place.mkdir()
    try:
        campaign = write_campaign(tmp_path, place, repetitions=1)
        for cache in ("cold", "bypass", "warm"):
            out = tmp_path / cache
            done = fsmatrix("run", campaign, "-o", out, "--quiet", "--set", f"cache={cache}")
            assert (done.returncode, out.exists()) == (2, False)
            assert "targets.here: not available here: its files would lie in memory (tmpfs)" in (
                done.stderr
            )
            done = fsmatrix(
                "run",
                campaign,
                "-o",
                out,
                "--quiet",
                "--set",
                f"cache={cache}",
                "--set",
                "targets.here.reference=true",
            )
            assert done.returncode == 0, done.stderr
            store = Store.open(out)
            assert any(store.ids())
            for run in store.ids():
                found = {f.audit: f.severity for f in store.read(run).findings}
                assert found["memory-reference"] == "info"
        assert os.listdir(place) == []
    finally:
        place.rmdir()


def test_invalid_runs_are_told_at_the_first_one_and_counted(tmp_path: Path, target: Path) -> None:
    """With the audit and its remedy, after the first block; a resume counts those before too."""
    campaign, out, other = write_campaign(tmp_path, target), tmp_path / "out", tmp_path / "other"
    other.mkdir()
    limited = (
        f"{{backend: directory, options: {{path: {other}}}, limits: {{device_bandwidth: 1KB}}}}"
    )
    campaign.write_text(
        campaign.read_text().replace("targets:\n", f"targets:\n  limited: {limited}\n")
    )
    running = Running(campaign, "-o", out, "--blocks", "0")
    said = running.until("invalid")["text"]
    assert running.end() == 0, running.errors
    advice = "what to do: a cache or a wrong limit: check both before using the number"
    assert re.match(r"faster-than-device \(limited, (read|write)\): \S+ [kMG]?B/s, but ", said)
    assert said.endswith(f"cannot move more than 1 kB/s; {advice}")
    assert [event["event"] for event in running.events].count("invalid") == 1
    (*_, last) = (event["tally"] for event in running.events if event["event"] == "finished")
    assert (last["valid"], last["invalid"], last["failed"]) == (2, 2, 0)
    assert last["invalid_by"] == {"faster-than-device": 2}
    again = fsmatrix("run", "-o", out, "--resume", "--quiet", report=True)
    assert again.returncode == 0, again.stderr
    doubts = r"(?:, \d of them doubtful \([^)]+\))?"
    told = re.compile(rf"(\d) valid{doubts}, (\d) invalid \(faster-than-device\)")
    lines = again.stderr.splitlines()
    assert [line for line in lines if line.startswith("invalid: ")] == [f"invalid: {said}"]
    (attached, *_) = (line for line in lines if line.startswith("attach: "))
    assert told.findall(attached) == [("2", "2")]
    (end,) = (line for line in lines if line.startswith("8 runs: "))
    assert told.findall(end) == [("4", "4")]
    assert end.endswith(f"; 4 were there before; results in {out}")
    tiles = (out / "report.html").read_text()
    assert "<b>4</b><span>valid</span>" in tiles
    assert "<b>4</b><span>invalid: faster-than-device</span>" in tiles


def test_torn_files_of_a_crash_do_not_stop_a_resume(tmp_path: Path, target: Path) -> None:
    campaign, out = write_campaign(tmp_path, target, repetitions=1), tmp_path / "out"
    assert fsmatrix("run", campaign, "-o", out, "--quiet").returncode == 0
    (out / "journal" / "session-elsewhere-1.json").write_text('{"boot_id": "x", "proc')
    half = out / "runs" / f".x.h5.{os.uname().nodename}.4194304.tmp"  # of no process: pid_max
    half.write_text("half a run file")
    again = fsmatrix("run", "-o", out, "--resume", "--quiet")
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
    assert fsmatrix("run", "-o", out, "--resume", "--quiet").returncode == 0


def test_damaged_foreign_and_newer_files_are_named_and_left_out(
    tmp_path: Path, target: Path
) -> None:
    campaign, out = write_campaign(tmp_path, target), tmp_path / "out"
    assert fsmatrix("run", campaign, "-o", out, "--quiet").returncode == 0
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
        campaign = write_campaign(tmp_path, place, repetitions=3, block=3)
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
        plots = [event for event in running.events if event["event"] == "attach"]
        begun = [event for event in running.events if event["event"] == "run"]
        assert len(begun) == len(plots) < len(reasons)  # none that could not fit was begun
        for reason in reasons:
            assert re.search(
                rf"target \w+: rank \d on \S+: ENOSPC in write of {place}/\S+data", reason
            )
        given_up = [event["text"] for event in running.events if event["event"] == "given_up"]
        assert given_up
        assert all("make room there" in text for text in given_up)
        assert (place / "sentinel").stat().st_size == 30 << 20
        assert sorted(os.listdir(place)) == ["lost+found", "sentinel"]
    finally:
        subprocess.run(["umount", str(place)], check=True)


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
    again = fsmatrix("run", "-o", copy, "--resume", "--quiet")
    assert again.returncode == 0, again.stderr


@pytest.mark.loop
@pytest.mark.needs("ext4")
def test_a_results_disk_too_small_for_the_campaign_is_refused(tmp_path: Path, target: Path) -> None:
    place = mount_small(tmp_path)
    try:
        campaign = write_campaign(tmp_path, target, repetitions=2000)
        out = place / "below" / "out"
        done = fsmatrix("run", campaign, "-o", out, "--quiet")
        assert done.returncode == 2, done.stderr
        assert re.search(
            rf"the results of 4000 runs need 158\S+ or more; {place} has \S+ free \(statfs",
            done.stderr,
        )
        assert os.listdir(place) == ["lost+found"]
        assert os.listdir(target) == ["sentinel"]
        few = write_campaign(tmp_path, target, repetitions=1)
        assert fsmatrix("run", few, "-o", out, "--quiet").returncode == 0
        more = fsmatrix("run", "-o", out, "--resume", "--set", "repetitions=2000", "--quiet")
        assert more.returncode == 2
        assert "the results of 3998 runs need 158" in more.stderr
        assert more.stderr.rstrip().endswith("): make room there")
        assert fsmatrix("run", "-o", out, "--resume", "--quiet").returncode == 0
    finally:
        subprocess.run(["umount", str(place)], check=True)
