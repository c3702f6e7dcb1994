"""What every analysis of the catalogue keeps to, whatever campaign it is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from fsmatrix.analysis.catalogue import EVERY, Analysis, outside
from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.data import summary
from fsmatrix.analysis.report import report, sections
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies

LEVELS = {
    "target": ("a", "b"), "pattern": ("seq-read", "rand-write"), "chunk": (4096, 65536, 1 << 20),
    "processes_per_node": (1, 4), "storage_nodes": (2, 3),
}  # fmt: skip


def campaign(**options: Any) -> xr.Dataset:
    """Two targets, all roles of the studies, latencies, CPU shares."""
    levels = options.pop("levels", LEVELS)
    ds = studies.campaign(truth, levels, **{"attachments": 2, **options})
    work = [ds[name].values.astype(str) for name in ("pattern", "chunk", "processes_per_node")]
    ds["work_id"] = ("run", np.char.add(np.char.add(*work[:2]), work[2]))
    return ds


def truth(cell: studies.Levels) -> dict[str, float]:
    found = studies.hockney({"pattern": "seq-read", **cell})
    shares = dict.fromkeys(("cpu_user", "cpu_system", "cpu_iowait", "cpu_idle"), 0.25)
    return {**found, "latency_p99": 3 * found["latency_mean"], **shares}


def constant(_: studies.Levels) -> dict[str, float]:
    return {"bandwidth": 1e8, "iops": 100.0, "latency_mean": 0.01, "latency_p99": 0.01}


def one(value: object, column: str) -> xr.Dataset:
    """The campaign with one value in a whole column."""
    ds = campaign()
    ds[column] = ("run", np.array([value] * ds.sizes["run"]))
    return ds


def blank() -> xr.Dataset:
    ds = campaign()
    for name in ("bandwidth", "iops", "latency_mean", "latency_p99"):
        ds[name] = ds[name] * np.nan
    return ds


def mixed(column: str, values: tuple[str, str]) -> xr.Dataset:
    """Each target with another engine or cache state."""
    ds = campaign()
    ds[column] = ("run", np.where(ds["target"].values == "a", *values))
    if column == "cache":
        ds.attrs["factors"] = json.dumps({**json.loads(ds.attrs["factors"]), "cache": "cache"})
    return ds


CAMPAIGNS: dict[str, Callable[[], xr.Dataset]] = {
    "ordinary": campaign,
    "empty": lambda: campaign().isel(run=slice(0, 0)),
    "one run": lambda: campaign().isel(run=slice(0, 1)),
    "one attachment": lambda: campaign(attachments=1),
    "all failed": lambda: one("failed", "status"),
    "all invalid": lambda: one("invalid", "worst_finding"),
    "no numbers": blank,
    "one level of each factor": lambda: campaign(
        levels={name: levels[:1] for name, levels in LEVELS.items()}
    ),
    "unbalanced": lambda: campaign(
        keep=lambda c: not (c["target"] == "b" and c["chunk"] != 4096) or c["storage_nodes"] == 2
    ),
    "two engines": lambda: mixed("engine", ("fio", "player-c")),
    "two cache states": lambda: mixed("cache", ("cold", "warm")),
    "constant": lambda: studies.campaign(constant, LEVELS, attachments=2, between=0, within=0),
    "no common case": lambda: campaign(
        keep=lambda c: (c["target"] == "a") == (c["pattern"] == "seq-read")
    ),
}


def answered(analysis: Analysis, ds: xr.Dataset) -> tuple[Result | None, str]:
    """The result, or the reason why there is none."""
    try:
        return analysis.run(ds), ""
    except ValueError as error:
        return None, str(error)


@cache
def opened(named: str) -> xr.Dataset:
    return CAMPAIGNS[named]()


@pytest.mark.parametrize("name", EVERY | outside())
def test_a_result_or_a_reason_and_never_anything_else(name: str) -> None:
    analysis = (EVERY | outside())[name]
    for named in CAMPAIGNS:
        found, why = answered(analysis, opened(named))
        if found is None:
            assert len(why) > 10, named
            needs = analysis.factors or analysis.metric or analysis.text_column
            assert named != "ordinary" or needs, why
            continue
        assert isinstance(found, Result), named
        assert found.says, named
        assert all(isinstance(line, str) and line for line in found.says), named
        assert "nan" not in " ".join(found.says).lower().replace("finance", ""), found.says
        assert isinstance(found.table(), pd.DataFrame), named
        assert json.dumps(found.to_dict(), allow_nan=False) != "{}", named


@pytest.mark.parametrize("named", CAMPAIGNS)
def test_two_targets_are_compared_or_it_says_why_not(named: str) -> None:
    ds = CAMPAIGNS[named]()
    refused = {
        "empty": "no run",
        "one run": "one level",
        "all failed": "no run",
        "all invalid": "no run",
        "no numbers": "no run",
        "two engines": "engine",
        "two cache states": "cache",
        "one level of each factor": "one level",
        "no common case": "no common|no case|no cell",
    }
    if named in refused:
        with pytest.raises(ValueError, match=refused[named]):
            comparisons(ds, "bandwidth")
        return
    (found,) = comparisons(ds, "bandwidth")
    assert found.says
    assert not {"faster", "slower"} & {cell.kind for cell in found.cells}  # two attachments


@pytest.mark.parametrize("named", CAMPAIGNS)
def test_the_page_has_sections_of_what_there_is(named: str) -> None:
    ds = CAMPAIGNS[named]()
    if named == "empty":
        with pytest.raises(ValueError, match="no runs in this campaign"):
            report.context(ds)
        return
    made = sections.sections(ds, summary.summarise(ds))
    assert all(block.heading and block.says for section in made for block in section.blocks)
    if named == "ordinary":
        assert [section.id for section in made] == ["comparison", "studies", "variation"]
