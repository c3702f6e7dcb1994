"""Findings of a campaign by audit and severity, with cells and runs; and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.questions.findings import Findings, findings
from fsmatrix.analysis.questions.variability import variability
from fsmatrix.analysis.result import Result
from fsmatrix.results.record import Finding
from tests.analysis import campaigns
from tests.analysis.commands import call


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 blocks; btrfs: 8 invalid runs in 2 cells; xfs: 12 warnings in 2 cells; one info."""
    records = list(campaigns.realistic(blocks=6))
    strange = Finding("engine-warning", 1, "info", "\x1b]0;title\x07 strange", "", "")
    records[0] = replace(records[0], findings=(*records[0].findings, strange))
    return campaigns.write(tmp_path_factory.mktemp("findings") / "campaign.h5", records)


@pytest.fixture(scope="module")
def ds(campaign: Path) -> xr.Dataset:
    return open_campaign(campaign)


def by_audit(found: Findings) -> dict[str, tuple[str, int, int]]:
    return {g.audit: (g.severity, g.runs, len(g.cells)) for g in found.groups}


def test_groups_with_cells_and_runs(ds: xr.Dataset) -> None:
    found = findings(ds)
    assert isinstance(found, Result)
    # 3 targets x 4 patterns x 2 chunks x 2 processes; failed runs are in the cells of the others
    assert (found.runs, found.cells, found.concerned) == (288, 48, 4)
    assert by_audit(found) == {
        "read-served-by-cache": ("invalid", 8, 2),
        "client-cpu-saturated": ("warning", 12, 2),
        "engine-warning": ("info", 1, 1),
    }
    assert [group.severity for group in found.groups] == ["invalid", "warning", "info"]
    cached = found.groups[0]
    assert cached.targets == ("btrfs",)
    assert cached.advice.startswith("drop caches")
    assert {cell.levels["pattern"] for cell in cached.cells} == {"seq-read"}
    ids = {one for cell in cached.cells for one in cell.run_ids}
    assert len(ids) == cached.runs == sum(len(cell.run_ids) for cell in cached.cells)
    assert ids <= set(ds["run_id"].values.astype(str))


def test_levels_and_audits_can_be_chosen(ds: xr.Dataset) -> None:
    one = findings(ds, where={"target": "btrfs", "processes_per_node": 1})
    assert (one.runs, one.cells) == (48, 8)
    assert by_audit(one) == {"read-served-by-cache": ("invalid", 4, 1)}
    assert by_audit(findings(ds, audits=["engine-warning"])) == {"engine-warning": ("info", 1, 1)}
    nothing = findings(ds, where={"target": "ext4"})
    assert nothing.groups == ()
    assert nothing.says == ["96 runs (1 failed) in 16 cells: the audits found nothing."]
    (whole,) = findings(ds, where={"target": "xfs", "pattern": "seq-write"}).says
    assert whole == "24 runs in 4 cells: the audits found nothing."
    assert nothing.table().empty
    with pytest.raises(ValueError, match="no factor 'colour'"):
        findings(ds, where={"colour": 1})
    with pytest.raises(ValueError, match="no finding of an audit 'too-short': there are client-c"):
        findings(ds, audits=["too-short"])


def test_the_command_names_cells_and_runs(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "findings", campaign) == 0
    said = capsys.readouterr().out
    assert "288 runs (7 failed) in 48 cells; 4 of them (8%) have warnings" in said
    assert "invalid read-served-by-cache: 8 of 288 runs, 2 of 48 cells" in said
    assert "what to do: drop caches as root" in said
    assert "seq-read, read, chunk 1 MiB, 1 process per node, btrfs: " in said
    assert "-r0000-a1, " in said
    assert "\x1b]" not in said  # what a file says reaches no terminal as it is
    assert "-r0005-a1" not in said
    assert call(monkeypatch, "findings", campaign, "--audit", "client-cpu-saturated") == 0
    whole = capsys.readouterr().out
    assert "-r0005-a1" in whole  # all runs
    assert "read-served-by-cache" not in whole


def test_json_where_and_files(
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("findings", campaign, "--where", "target=xfs", "--json")
    assert call(monkeypatch, *words, "--out", tmp_path / "figure.pdf") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["runs"], data["cells"]) == (96, 16)
    (cpu,) = [one for one in data["findings"] if one["audit"] == "client-cpu-saturated"]
    assert cpu["share"] == 12 / 96
    assert all(cell["levels"]["target"] == "xfs" for cell in cpu["cells"])
    assert sum(len(cell["run_ids"]) for cell in cpu["cells"]) == 12
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert call(monkeypatch, "findings", campaign, "--out", tmp_path / "table.csv") == 0
    table = (tmp_path / "table.csv").read_text()
    assert "read-served-by-cache" in table
    capsys.readouterr()
    assert call(monkeypatch, "findings", campaign, "--where", "colour=red") == 2
    assert "no factor 'colour'" in " ".join(capsys.readouterr().err.split())
    none = ("--where", "target=ext4", "--out", tmp_path / "none.png")
    assert call(monkeypatch, "findings", campaign, *none) == 2
    assert "nothing to draw" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "none.png").exists()


def test_help_has_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "findings", "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Example: fsmatrix findings out --where" in said


def test_levels_that_a_cell_does_not_have_are_not_in_its_name(tmp_path: Path) -> None:
    """As of outputs of several tools, each with options of its own."""
    warned = (Finding("too-short", 1, "warning", "short", "", ""),)
    records = [
        campaigns.record(
            phases=(campaigns.phase("write", 1e8, 4096, 1, np.random.default_rng(1)),),
            coordinates={"pattern": "seq-write", **own},
            findings=warned,
        )
        for own in ({"api": "POSIX"}, {"bs": 4096}, {"iodepth": 2, "bs": 8192})
    ]
    ds = open_campaign(campaigns.write(tmp_path / "campaign.h5", records))
    (group,) = findings(ds).groups
    assert sorted(c.named for c in group.cells) == ["bs 4 KiB, xfs", "bs 8 KiB, xfs", "xfs"]
    named = [cell.named for cell in variability(ds).cells]
    assert all(named)
    assert "–" not in "".join(named)
