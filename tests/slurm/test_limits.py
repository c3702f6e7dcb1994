"""Limits of partitions that only the batch system knows: asked, or said with their cure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from fsmatrix.results.units import slurm_seconds
from fsmatrix.slurm.slurm import Slurm
from fsmatrix.suite.campaign.campaign import SlurmSection
from tests.slurm.lab import Lab


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", None),
        ("NONE", None),
        ("", None),
        ("30", 1800.0),
        ("30:10", 1810.0),
        ("00:30:00", 1800.0),
        ("1-00:00:00", 86400.0),
        ("2-03", 183600.0),
        ("1-02:30", 95400.0),
    ],
)
def test_slurms_words_for_a_time(text: str, seconds: float | None) -> None:
    assert slurm_seconds(text) == seconds


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        *(("00:30:00", 1800.0), ("1-00:00:00", 86400.0), (30, 1800.0), ("30", 1800.0)),
        *(("1:30:00", 5400.0), ("2h", 7200.0), ("10s", 10.0), (1.5, 90.0), ("1.5", 90.0)),
    ],
)
def test_a_limit_is_written_as_for_sbatch(written: object, seconds: float) -> None:
    assert SlurmSection.model_validate({"time": written}).time == seconds


@pytest.mark.parametrize("written", ["1:2:3:4", "00:00:00", 0, -5, True, "9" * 400, "1-xx", []])
def test_a_limit_that_is_none(written: object) -> None:
    with pytest.raises(ValidationError):
        SlurmSection.model_validate({"time": written})


@pytest.mark.parametrize("written", ["soon", "1:2:3:4", "half an hour"])
def test_the_forms_of_a_limit_are_named(written: str) -> None:
    with pytest.raises(ValidationError, match=r"00:30:00, 1-00:00:00, 2h, or a number of minutes"):
        SlurmSection.model_validate({"time": written})


def partition(lab: Lab) -> str:
    return lab.slurm("sinfo", "--noheader", "--format=%R").split()[0]


@pytest.fixture
def short(lab: Lab) -> Iterator[str]:
    """A partition in which a job has 30 min; what the last job asks for by itself is 31."""
    name = partition(lab)
    lab.slurm("scontrol", "update", f"PartitionName={name}", "MaxTime=30")
    yield name
    lab.slurm("scontrol", "update", f"PartitionName={name}", "MaxTime=UNLIMITED", "State=UP")


@pytest.mark.root
def test_jobs_ask_for_no_more_than_the_partition_allows(lab: Lab, short: str) -> None:
    assert Slurm().longest(short) == Slurm().longest(None) == 1800.0
    lab.submit(lab.campaign(), "--set", f"slurm.partition={short}")
    lab.wait()
    lab.reported()
    lab.complete()
    scripts = [path.read_text() for path in (lab.out / "slurm").glob("*.sh")]
    assert len(scripts) == 3
    assert "--time=00:31:00" not in "".join(scripts)


@pytest.mark.root
def test_more_than_the_partition_allows_is_refused_with_the_limit(lab: Lab, short: str) -> None:
    status, text = lab.call("submit", lab.campaign(), "-o", lab.out, "--set", "slurm.time=45min")
    assert status == 2
    assert "slurm.time" in text
    assert "at most 30 min, says the batch system" in text


@pytest.mark.root
def test_a_job_that_can_never_start_is_named_and_queued_anew(lab: Lab) -> None:
    """The limit came after the submission: Slurm lets such a job wait for ever."""
    name = partition(lab)
    lab.slurm("scontrol", "update", f"PartitionName={name}", "State=DOWN")
    lab.submit(lab.campaign(), "--set", "slurm.time=60min")
    lab.slurm("scontrol", "update", f"PartitionName={name}", "MaxTime=30", "State=UP")
    try:
        found = lab.until(
            "hopeless", lambda f: any("can never start" in part["says"] for part in f["parts"])
        )
        says = next(part["says"] for part in found["parts"] if "never" in part["says"])
        assert "(PartitionTimeLimit)" in says
        assert "--resume" in says
        lab.submit("--resume", "--set", "slurm.time=20min")
        lab.wait()
        lab.reported()
        lab.complete()
    finally:
        lab.slurm("scontrol", "update", f"PartitionName={name}", "MaxTime=UNLIMITED", "State=UP")


@pytest.mark.root
def test_more_nodes_than_the_partition_has_are_refused_and_nothing_is_queued(lab: Lab) -> None:
    """Slurm takes such jobs, which then wait for ever."""
    before, there = Slurm().jobs_of_user(), Slurm().most_nodes(None)
    assert there is not None
    assert there == Slurm().most_nodes(partition(lab))
    sets = ["--set", "launcher.name=auto", "--set", "workloads.io.options.bytes_total=1GiB"]
    status, text = lab.call("submit", lab.campaign(), "-o", lab.out, "--nodes", 99, *sets)
    assert status == 2
    assert "geometry.nodes: 99 nodes are needed" in text
    assert f"has at most {there}, says the batch system" in " ".join(text.split())
    assert not lab.out.exists()
    assert Slurm().jobs_of_user().keys() <= before.keys()
    lab.slurm("scontrol", "update", f"PartitionName={partition(lab)}", "MaxNodes=1")
    try:
        assert Slurm().most_nodes(None) == 1
    finally:
        lab.slurm("scontrol", "update", f"PartitionName={partition(lab)}", "MaxNodes=UNLIMITED")
