"""The Slurm test bed: real clusters, brought up, broken, killed half-way and taken down."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.system import tools
from fsmatrix.backends.testbed import daemons
from fsmatrix.backends.testbed.bed import LEFT
from fsmatrix.cli import testbed as cli
from fsmatrix.slurm import testbed as bed_module
from fsmatrix.slurm import testbed as testbed_make
from fsmatrix.slurm.testbed import (
    LONGEST_DIRECTORY,
    SlurmTestbed,
    SlurmTestbedOptions,
    conf_text,
    down,
    missing,
    status,
    up,
)
from tests.waiting import PATIENCE, until

ONE = SlurmTestbedOptions(nodes=1)


@pytest.fixture(scope="session")
def slurm() -> None:
    """Slurm's programs; skipped with what would bring them."""
    if os.geteuid() == 0 and (reason := missing()):
        pytest.skip(reason)


@pytest.fixture(scope="module")
def plain(slurm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmTestbed]:
    """A bed of four nodes that several tests share; each leaves it idle."""
    directory = tmp_path_factory.mktemp("slurm") / "bed"
    yield up(SlurmTestbedOptions(nodes=4, licenses="scratch:1"), directory)
    down(directory)


@pytest.fixture
def place(slurm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short path for a bed, which is taken down whatever the test does."""
    directory = tmp_path_factory.mktemp("b") / "bed"
    yield directory
    down(directory)


def of_bed(directory: Path | str) -> list[str]:
    """Command lines of living processes that name the directory or have a file of it open."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        seen = testbed_make.look_at(folder.name)
        if seen is None or seen.pid == os.getpid():
            continue
        try:
            files = testbed_make.open_files(seen.pid)
        except PermissionError:
            continue  # a process of the system
        line = " ".join(seen.argv)
        if str(directory) in line or any(str(directory) in str(file) for file in files):
            found.append(line)
    return found


def wait_for(what: Callable[[], Any]) -> Any:
    """The first value that is true; fails after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
    return value


def state_of(bed: SlurmTestbed, job: str) -> str:
    """Slurm's word for the state of a job."""
    shown = bed.run("scontrol", "-o", "show", "job", job).stdout
    found = re.search(r"JobState=(\w+)", shown)
    return found[1] if found else ""


def submitted(bed: SlurmTestbed, command: str, *options: str) -> str:
    """The id of a batch job that prints nothing; it has started."""
    sbatch = ("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={command}")
    job = bed.run(*sbatch).stdout.strip()
    wait_for(lambda: state_of(bed, job) == "RUNNING")
    return job


# What cannot be: refused before anything starts


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 0},
        {"nodes": 65},
        {"cpus_per_node": 0},
        {"time_limit": "one day"},
        {"time_limit": "1:99"},
        {"short_time_limit": "1\nNodeName=x"},
        {"licenses": "a:b"},
        {"licenses": "a:1\nx"},
        {"node": 3},
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SlurmTestbedOptions(**options)


def test_the_configuration_names_ports_and_limits() -> None:
    asked = SlurmTestbedOptions(nodes=3, cpus_per_node=7, time_limit="2:00:00", licenses="ior:2")
    text = conf_text(Path("/x"), "abc", asked, 20000)
    assert re.search(r"^NodeName=node\[1-3\] .*Port=\[20001-20003\] CPUs=7 ", text, re.M)
    assert re.search(r"^PartitionName=main .*MaxTime=2:00:00", text, re.M)
    assert re.search(r"^Licenses=ior:2$", text, re.M)
    single = conf_text(Path("/x"), "abc", ONE, 20000)
    assert re.search(r"^NodeName=node1 .*Port=20001 ", single, re.M)
    assert "Licenses" not in single


@pytest.mark.root
@pytest.mark.parametrize("name", ["with space", "a#b", "%n", "x" * (LONGEST_DIRECTORY + 1)])
def test_a_directory_that_slurm_cannot_use_is_refused(
    name: str, slurm: None, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match="choose a"):
        up(ONE, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
def test_a_directory_with_something_in_it_is_refused_and_stays(place: Path) -> None:
    place.mkdir()
    (place / "mine").write_text("x")
    with pytest.raises(BackendError, match="not empty"):
        up(ONE, place)
    assert down(place) == []
    assert (place / "mine").read_text() == "x"
    assert status(place)["state"] == "none"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(bed_module, "_PROGRAMS", ("no-such-slurmctld", "slurmctld", "slurmd"))
    cure = tools.install("slurmctld", "slurmd", "libpmix.so")
    words = f"no-such-slurmctld is missing: {cure}"
    with pytest.raises(BackendError, match=words):
        up(ONE, tmp_path / "bed")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BackendError, match="needs root"):
        up(ONE, tmp_path / "bed")
    assert not (tmp_path / "bed").exists()


# A bed of four nodes


@pytest.mark.root
def test_a_bed_has_nodes_with_names_of_their_own(plain: SlurmTestbed) -> None:
    idle = dict.fromkeys(plain.nodes, "idle")
    until(lambda: status(plain.directory)["nodes"] == idle)  # a job of another test may be ending
    found = status(plain.directory)
    assert (found["state"], found["health"]) == ("up", [])
    assert {one["role"] for one in found["daemons"]} == {
        "munged",
        "slurmctld",
        *(f"slurmd.{name}" for name in plain.nodes),
    }
    said = plain.run("srun", "-N4", "hostname").stdout.split()
    assert sorted(said) == ["node1", "node2", "node3", "node4"]
    shown = plain.run("scontrol", "show", "hostnames", "node[1,3-4]").stdout.split()
    assert shown == ["node1", "node3", "node4"]
    assert "scratch" in plain.run("scontrol", "show", "licenses").stdout
    assert plain.facts["realised"] == "emulated"


@pytest.mark.root
def test_a_batch_job_runs_and_is_remembered(plain: SlurmTestbed, tmp_path: Path) -> None:
    script, out = tmp_path / "job.sh", tmp_path / "out"
    script.write_text("#!/bin/sh\nsrun hostname\necho tasks $SLURM_NTASKS\nexit 3\n")
    sbatch = ("sbatch", "--parsable", "-N2", "--ntasks=8", "-p", "short", "-o", str(out))
    job = plain.run(*sbatch, str(script)).stdout.strip()
    wait_for(lambda: state_of(plain, job) == "FAILED")
    words = out.read_text().split()
    assert (words.count("node1"), words.count("node2"), words[-1]) == (4, 4, "8")
    assert "ExitCode=3:0" in plain.run("scontrol", "show", "job", job).stdout


@pytest.mark.root
def test_more_cpus_can_be_declared_than_there_are(plain: SlurmTestbed) -> None:
    ran = plain.run("srun", "-N1", "-n4", "--exclusive", "sh", "-c", "echo $SLURM_PROCID")
    assert sorted(ran.stdout.split()) == ["0", "1", "2", "3"]
    many = plain.run("srun", "-N1", "-n5", "true", check=False)
    assert many.returncode != 0


@pytest.mark.root
def test_a_daemon_that_was_killed_is_seen_and_comes_back(plain: SlurmTestbed) -> None:
    job = submitted(plain, "sleep 300", "-w", "node2")
    before = plain.pid("slurmd.node2")
    plain.kill("slurmd.node2")
    found = status(plain.directory)
    states = {one["role"]: one["state"] for one in found["daemons"]}
    assert (found["state"], states["slurmd.node2"]) == ("degraded", "gone")
    plain.restart("slurmd.node2")
    plain.wait_ready(PATIENCE)
    assert plain.pid("slurmd.node2") != before
    assert state_of(plain, job) == "RUNNING"  # its step outlived slurmd
    plain.run("scancel", job)
    wait_for(lambda: status(plain.directory)["nodes"]["node2"] == "idle")
    assert status(plain.directory)["state"] == "up"


@pytest.mark.root
def test_a_controller_that_hangs_or_is_gone_hangs_nobody(plain: SlurmTestbed) -> None:
    job = submitted(plain, "sleep 300")
    plain.stop("slurmctld")
    try:
        assert status(plain.directory)["health"] == ["slurmctld is stopped"]
    finally:
        plain.resume("slurmctld")
    plain.end_slurmctld()
    assert status(plain.directory)["health"] == ["slurmctld is gone"]
    plain.restart("slurmctld")
    plain.wait_ready(PATIENCE)
    assert state_of(plain, job) == "RUNNING"
    plain.run("scancel", job)
    wait_for(lambda: state_of(plain, job) == "CANCELLED")


@pytest.mark.root
def test_a_second_bed_in_the_same_directory_is_refused(plain: SlurmTestbed) -> None:
    with pytest.raises(BackendError, match="holds a test bed already"):
        up(ONE, plain.directory)
    assert status(plain.directory)["state"] == "up"


# Taking down


@pytest.mark.root
def test_down_ends_jobs_and_what_they_left_and_nothing_else(
    plain: SlurmTestbed, place: Path
) -> None:
    """Another bed, its jobs and a shell that is set up for this bed stay."""
    bed = up(SlurmTestbedOptions(nodes=2), place)
    other = submitted(plain, "sleep 300")
    user = subprocess.Popen(["sleep", "300"], env=os.environ | bed.environment())
    try:
        ignoring = "trap '' TERM; srun sleep 301 & env -i setsid sleep 302 & wait"
        submitted(bed, ignoring, "-N2")
        bed.run("sbatch", "--output=/dev/null", "--exclusive", "-N2", "--wrap=sleep 303")
        wait_for(lambda: {"301", "302"} <= {seen.argv[-1] for seen in sleepers()})
        said = down(place)
        assert [line for line in said if line.startswith(LEFT)] == []
        assert "cancelled 2 jobs" in said
        assert f"removed {place}" in said
        assert not place.exists()
        assert of_bed(place) == []
        assert {seen.argv[-1] for seen in sleepers()} & {"301", "302", "303"} == set()
        assert user.poll() is None
        assert state_of(plain, other) == "RUNNING"
        assert status(plain.directory)["state"] == "up"
        assert down(place) == []
    finally:
        user.kill()
        user.wait()
        plain.run("scancel", other)


def sleepers() -> list[daemons.Seen]:
    """All processes of sleep(1)."""
    seen = (testbed_make.look_at(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [one for one in seen if one is not None and one.argv[0].endswith("sleep")]


@pytest.mark.root
def test_down_ends_jobs_of_nodes_whose_daemons_are_dead(place: Path) -> None:
    bed = up(ONE, place)
    submitted(bed, "env -i setsid sleep 304 & sleep 305")
    wait_for(lambda: {"304", "305"} <= {seen.argv[-1] for seen in sleepers()})
    bed.kill("slurmctld")
    bed.kill("slurmd.node1")
    said = down(place)
    assert not place.exists(), said
    assert of_bed(place) == []
    assert {seen.argv[-1] for seen in sleepers()} & {"304", "305"} == set()


@pytest.mark.root
def test_a_bed_is_not_taken_down_by_one_of_its_own_jobs(place: Path) -> None:
    bed = up(ONE, place)
    program = f"from fsmatrix.slurm.testbed import down; down({str(place)!r})"
    ran = bed.run("srun", sys.executable, "-P", "-c", program, check=False)
    assert "ask from outside" in ran.stderr
    assert status(place)["state"] == "up"


@pytest.mark.root
def test_a_bring_up_that_fails_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        assert of_bed(place), "the daemons run by now"
        raise RuntimeError("as asked")

    monkeypatch.setattr(testbed_make, "note_namespace", fails)
    with pytest.raises(RuntimeError, match="as asked"):
        up(ONE, place)
    assert not place.exists()
    assert of_bed(place) == []


@pytest.mark.root
@pytest.mark.parametrize("after", ["munged", "slurmctld"])
def test_what_a_killed_bring_up_left_is_found_and_removed(after: str, place: Path) -> None:
    program = (
        "import os, signal\n"
        "from fsmatrix.slurm.testbed import SlurmTestbedOptions, up\n"
        "def ended(step):\n"
        f"    if step.name == {after!r}: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"up(SlurmTestbedOptions(nodes=2), {str(place)!r}, ended=ended)\n"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", program], timeout=PATIENCE, check=False)
    assert ran.returncode == -9
    assert status(place)["state"] == "interrupted"
    assert of_bed(place)
    with pytest.raises(BackendError, match="interrupted"):
        SlurmTestbed.open(place)
    said = down(place)
    assert [line for line in said if line.startswith(LEFT)] == []
    assert not place.exists()
    assert of_bed(place) == []


@pytest.mark.root
def test_a_foreign_file_in_the_directory_stays(place: Path) -> None:
    up(ONE, place)
    (place / "results.txt").write_text("mine")
    said = down(place)
    assert any("results.txt" in line for line in said if line.startswith(LEFT))
    assert (place / "results.txt").read_text() == "mine"
    (place / "results.txt").unlink()
    assert down(place) == [f"removed {place}"]


# The command line


@pytest.mark.root
def test_a_bed_by_the_command_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, where = CliRunner(), ["--directory", str(place)]
    for system in cli.DEFAULTS:
        monkeypatch.setitem(cli.DEFAULTS, system, place.parent / f"no-{system}")
    monkeypatch.setitem(cli.DEFAULTS, "slurm", place)
    none = runner.invoke(cli.app, ["status"])
    assert (none.exit_code, none.output.count("no test bed")) == (
        cli.NOT_AS_ASKED,
        len(cli.DEFAULTS),
    )
    made = runner.invoke(cli.app, ["up", "slurm", "--nodes", "2", "--json", *where])
    assert made.exit_code == 0, made.output
    facts = json.loads(made.stdout)
    assert (facts["state"], facts["nodes"]) == ("up", {"node1": "idle", "node2": "idle"})
    shown = runner.invoke(cli.app, ["status", *where])
    assert shown.exit_code == 0
    assert "slurmd.node2" in shown.output
    beds = json.loads(runner.invoke(cli.app, ["status", "--json"]).stdout)["beds"]
    (up,) = (bed for bed in beds if bed["state"] != "none")
    assert (up["system"], up["state"], len(beds)) == ("slurm", "up", len(cli.DEFAULTS))
    again = runner.invoke(cli.app, ["up", "slurm", *where])
    assert isinstance(again.exception, BackendError)
    gone = json.loads(runner.invoke(cli.app, ["down", "--json", *where]).stdout)
    assert (gone["left_alone"], gone["done"][-1]) == ([], f"removed {place}")
    assert not place.exists()
    assert runner.invoke(cli.app, ["down"]).exit_code == 0


@pytest.mark.root
def test_up_says_how_to_use_the_bed(place: Path) -> None:
    made = CliRunner().invoke(cli.app, ["up", "slurm", "--nodes", "1", "-d", str(place)])
    assert made.exit_code == 0, made.output
    assert f"export SLURM_CONF={place}/slurm.conf" in made.output
    assert f"fsmatrix testbed down --directory {place}" in made.output


def test_wrong_options_are_named(tmp_path: Path) -> None:
    argv = ["up", "slurm", "--time-limit", "soon", "--directory", str(tmp_path / "bed")]
    refused = CliRunner().invoke(cli.app, argv)
    assert isinstance(refused.exception, BackendError)
    assert "--time-limit soon: write a time" in str(refused.exception)
