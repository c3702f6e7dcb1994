"""What is in doubt is named in every summary: findings that warn, values far off, worst points."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.data.metric_cells import study
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.questions.curves import curves
from fsmatrix.analysis.questions.scalability import scalability
from fsmatrix.analysis.stats.estimates.medians import of_independent
from fsmatrix.analysis.studies.claims.claims import claims
from fsmatrix.cli.questions.claims_lessons import read_study
from tests.analysis import study_data as studies
from tests.analysis.commands import call
from tests.analysis.lesson_data import targets

NODES = (2, 3, 4, 5)


def warned(ds: xr.Dataset, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> xr.Dataset:
    """The same campaign with `storage-unhealthy` of severity warning in these rows."""
    where = np.flatnonzero(rows)
    text = {"audit": "storage-unhealthy", "severity": "warning", "message": "m", "advice": "a"}
    worst = np.where(rows, "warning", ds["worst_finding"].values)
    columns = {
        f"finding_{name}": ("finding", np.full(where.size, value)) for name, value in text.items()
    }
    return ds.assign(worst_finding=("run", worst), finding_run=("finding", where), **columns)


def stuck(share: float = 0.1, nodes: int = 3, warn: bool = True) -> xr.Dataset:
    """Growth in proportion to the nodes, but for one number of them, where I/O was blocked."""
    ds = studies.campaign(
        lambda c: {
            "bandwidth": 1e8 * c["storage_nodes"] * (share if c["storage_nodes"] == nodes else 1.0)
        },
        {"storage_nodes": NODES},
        attachments=6,
    )
    return warned(ds, ds["storage_nodes"].values == nodes) if warn else ds


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([450, 455, 460, 449, 452, 0.344], (0.344,)),
        ([100, 101, 99, 250], (250,)),
        ([100, 101, 99, 180], ()),  # less than twice
        ([100, 200, 400, 800, 1600], ()),  # as the others spread
        ([450, 0.344], ()),  # nobody can tell which
        ([338, 350, 1786, 1836], ()),  # two typical values, not four that are far off
        ([0.0, 450, 451, 449], (0.0,)),
        ([math.nan, 450, 451, 449], ()),
        ([], ()),
    ],
)
def test_a_value_far_from_all_others_of_its_cell(values: list[float], far: tuple[float]) -> None:
    assert of_independent(values).far == far


def test_the_headline_of_scalability_names_the_worst_point_and_why_it_is_in_doubt() -> None:
    said = scalability(stuck(), "bandwidth").says
    assert "from 2 to 5 storage nodes" in said[0]
    assert said[1].startswith("Worst point: 0.147 times the fewest nodes, efficiency 9.7")
    assert said[1].endswith("at 3 storage nodes, in doubt: storage-unhealthy.")
    assert "In doubt: storage-unhealthy in 1 of 4 cells (storage nodes 3)." in said


def test_ratios_to_a_first_point_in_doubt_say_so() -> None:
    said = scalability(stuck(nodes=2), "bandwidth").says
    assert any(
        line.startswith("All ratios of 1 series hang on a first point in doubt: 2 storage nodes")
        for line in said
    )
    assert not any("hang on" in line for line in scalability(stuck(), "bandwidth").says)


def test_the_table_of_scalability_has_the_doubts() -> None:
    frame = scalability(stuck(), "bandwidth").table()
    assert frame["in doubt"].tolist() == ["", "storage-unhealthy", "", ""]


def test_a_curve_names_its_lowest_point_between_the_ends() -> None:
    said = curves(stuck(), "bandwidth", ["storage_nodes"]).says
    assert "lowest at 3:" in said[0]
    assert "(in doubt: storage-unhealthy)" in said[0]


def far_off() -> xr.Dataset:
    """Two targets; one attachment of a was blocked."""
    ds = targets({"a": {"seq-read": 4e8}, "b": {"seq-read": 2e8}})
    hit = (ds["target"].values == "a") & (ds["block"].values == 2)
    return ds.assign(bandwidth=("run", np.where(hit, 4e5, ds["bandwidth"].values)))


def test_one_blocked_attachment_is_named_in_every_summary() -> None:
    ds = far_off()
    number = "0.381 MiB/s against a median of 3"
    assert any(number in line for line in study(ds, "bandwidth").remarks)
    (compared,) = comparisons(ds)
    assert "a value of a is far from all others of its cell" in compared.cells[0].doubts
    made = lessons(ds)
    assert any(number in line for line in made.limits)
    (first, *_) = [one for one in made.lessons if one.question == "backend"]
    assert "a value of a is far from all others of its cell" in first.doubts


@pytest.mark.parametrize(
    ("unit", "said"),
    [("", "4000 against a median of 4"), ("s", "400 ns against a median of 402"), ("1", "4000")],
)
def test_a_far_value_of_any_variable_is_told_in_its_own_unit(unit: str, said: str) -> None:
    ds = far_off()
    own = ds["bandwidth"].values / (1e12 if unit == "s" else 1e2)
    ds = ds.assign(own=("run", own, {"units": unit}))
    (sentence,) = [line for line in study(ds, "own").remarks if "Far from" in line]
    assert said in sentence
    assert "IOPS" not in sentence


def test_lessons_name_what_their_answer_hangs_on() -> None:
    ds = targets({"a": {"seq-read": 4e8}, "b": {"seq-read": 2e8}}, attachments=8)
    made = lessons(warned(ds, ds["target"].values == "a"))
    assert "In doubt: storage-unhealthy in a only (seq-read)" in made.answer
    assert "In doubt" not in lessons(ds).answer


def test_warnings_on_both_sides_are_said_too() -> None:
    ds = targets({"a": {"seq-read": 4e8}, "b": {"seq-read": 2e8}})
    (compared,) = comparisons(warned(ds, np.full(ds.sizes["run"], True)))
    assert compared.cells[0].doubts == ()
    assert compared.cells[0].warned == (True, True)
    assert "Warnings on both sides: storage-unhealthy in 1 of 1 cells." in compared.says


def test_claims_name_the_doubts_of_their_cells() -> None:
    ds = studies.table3(attachments=6)
    hit = (ds["interface"].values == "SATA") & (ds["pattern"].values == "rand-read")
    found = claims(warned(ds, hit), read_study("ssd-cluster"))
    said = {one.claim.id: line for one, line in zip(found.judged, found.says[-26:], strict=True)}
    assert "In doubt: storage-unhealthy in" in said["pcie-over-sata-random-read"]
    assert "In doubt" not in said["pcie-over-sata-random-write"]


def test_claims_name_every_level_that_a_campaign_has() -> None:
    """Also levels that the study did not have; sizes as people write them."""
    ds = studies.campaign(
        studies.hockney,
        {
            "storage_nodes": (2,),
            "interface": ("PCIe",),
            "pattern": studies.PATTERNS,
            "chunk": (1 << 20, 4 << 20),
            "processes_per_node": (1,),
        },
    )
    found = claims(ds, read_study("ssd-cluster"))
    said = {one.claim.id: one.why for one in found.judged}
    assert said["sequential-reads-at-128k"] == "no chunk 128 KiB: there are 1 MiB, 4 MiB"


def test_show_names_audits_and_marks_values_far_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.analysis import campaigns

    path = campaigns.write(tmp_path / "campaign.h5", campaigns.realistic())
    assert call(monkeypatch, "show", path) == 0
    assert "In doubt: client-cpu-saturated in" in capsys.readouterr().out
    assert call(monkeypatch, "show", path, "--cells") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "In doubt: client-cpu-saturated in" in out
