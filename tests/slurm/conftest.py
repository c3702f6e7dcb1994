"""A real Slurm for each module that asks for one, and a user's directory on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsmatrix.slurm.testbed import SlurmTestbed, SlurmTestbedOptions, down, missing, up
from tests.slurm.lab import Lab, jobs_below
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmTestbed]:
    if reason := missing():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("slurm") / "bed"
    yield up(SlurmTestbedOptions(nodes=4), directory)
    down(directory)


@pytest.fixture
def lab(bed: SlurmTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    for name, value in bed.environment().items():
        monkeypatch.setenv(name, value)
    yield Lab(bed, tmp_path)
    deadline = time.monotonic() + PATIENCE
    while (mine := jobs_below(bed, tmp_path)) and time.monotonic() < deadline:
        bed.run("scancel", *mine, check=False)
        time.sleep(0.2)
