"""docs/results.md tells the truth: its examples run, its tables name every variable."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fsmatrix.results import histogram, iterations
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Case, Finding, Latency, Monitor, Phase, RunRecord

DOCS = Path(__file__).parents[3] / "docs" / "results.md"
TEXT = DOCS.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def record(target):
    two, count = np.ones(2), np.ones(2, dtype=np.int64)
    counts = np.bincount([700] * 1000, minlength=histogram.BINS)
    phase = Phase(
        "read",
        0 * two,
        two,
        count,
        count,
        0 * count,
        0 * two,
        two,
        0 * two,
        {"read": Latency(counts, 1.0, 0.001, 0.001)},
        0.5,
        count,
        count,
        iterations=iterations.columns([dict.fromkeys(iterations.COLUMNS, 1)]),
        summary=dict.fromkeys(iterations.SUMMARY, 1.0),
    )
    case = Case(target, "pattern")
    return RunRecord(
        case=case.canonical,
        case_id=case.case_id,
        work_id=case.work_id,
        repetition=0,
        attempt=1,
        block=0,
        attachment="a",
        session="s",
        status="ok",
        engine="player-c",
        engine_version="1",
        started="2026-01-01T00:00:00Z",
        phases=(phase,),
        findings=(Finding("a", 1, "info", "m"),),
        monitor=Monitor(("node1",), two, {"cpu": np.ones((1, 2))}, {"cpu": "1"}),
        texts={"stdout": f"an output of {target}\n"},
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store.create(tmp_path_factory.mktemp("docs") / "out")
    store.append(map(record, ("ext4", "btrf")))
    store.merge()
    return store


def test_there_are_examples():
    assert len(BLOCKS) >= 3
    assert len(BLOCKS[0].split("\n\n", 1)[1].strip().splitlines()) <= 4  # and the import


@pytest.mark.parametrize("block", BLOCKS)
def test_examples_run(store, block):
    run = next(iter(store.files())).relative_to(store.directory.parent)
    program = block.replace("out/runs/01/0123456789abcdef-r0000-a1.h5", str(run))
    result = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        cwd=store.directory.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_tables_name_every_variable(store):
    names = set(re.findall(r"`([A-Za-z0-9_]+)`", TEXT))
    with xr.open_dataset(store.directory / "campaign.h5", engine="h5netcdf") as campaign:
        assert set(campaign.variables) - names == set()
        assert set(campaign.attrs) - names == set()
    with xr.open_datatree(store.directory / "campaign.h5", engine="h5netcdf") as tree:
        assert {group.name for group in tree.descendants} == {"texts"}
        assert set(tree["texts"].dataset.variables) - names == set()
    with xr.open_datatree(next(iter(store.files())), engine="h5netcdf") as tree:
        groups = {"monitor", "evidence", "findings", "texts"}
        assert {group.name for group in tree.descendants} == groups
        for group in tree.subtree:
            assert set(group.variables) - names == set()
            assert set(group.attrs) - names == set()
