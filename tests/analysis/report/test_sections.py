"""The report's sections of analyses, and the results behind variability and repetitions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsmatrix.analysis.data import load, summary
from fsmatrix.analysis.questions.variability import variability
from fsmatrix.analysis.report import report, sections
from fsmatrix.analysis.report.sections import Section
from fsmatrix.analysis.result import Result
from tests.analysis import campaigns
from tests.analysis import study_data as studies


def of(path: Path) -> dict[str, Section]:
    ds = load.open_campaign(path)
    return {section.id: section for section in sections.sections(ds, summary.summarise(ds))}


def test_every_pair_of_targets_is_compared_and_references_are_not(tmp_path: Path) -> None:
    records = [*campaigns.realistic(troubles=False), *campaigns.realistic(("memory",))]
    file = campaigns.write(tmp_path / "campaign.h5", records)
    blocks = of(file)["comparison"].blocks
    headings = [block.heading for block in blocks if block.heading.startswith("Bandwidth")]
    assert headings == [
        "Bandwidth: btrfs against ext4",
        "Bandwidth: btrfs against xfs",
        "Bandwidth: ext4 against xfs",
    ]
    assert all(len(block.lines) == 16 for block in blocks[:3])
    assert [len(block.images) for block in blocks] == [1, 1, 1, 0, 0, 0]
    page = report.write_report(file, tmp_path / "report.html").read_text()
    compared = page[page.index('id="comparison"') : page.index('id="variation"')]
    assert compared.count('<details class="analysis" open>') == 3
    assert page.count("data:image/svg+xml;base64,") >= 3
    assert '<a href="#comparison">' in page


def test_mixed_engines_are_said_and_not_compared(tmp_path: Path) -> None:
    records = [
        replace(one, engine="fio") if "ext4" in one.attachment else one
        for one in campaigns.realistic(("xfs", "ext4"), blocks=2, troubles=False)
    ]
    blocks = of(campaigns.write(tmp_path / "campaign.h5", records))["comparison"].blocks
    assert blocks
    assert all("Not compared" in block.says[0] for block in blocks)
    assert all("--across-engines" in block.says[0] for block in blocks)


def test_one_target_has_no_comparison(tmp_path: Path) -> None:
    file = campaigns.write(tmp_path / "campaign.h5", campaigns.realistic(("xfs",), blocks=2))
    assert "comparison" not in of(file)


def test_studies_come_with_their_factors() -> None:
    ds = studies.table3(nodes=(2, 3), attachments=2)
    found = sections.sections(ds, summary.summarise(ds))
    assert [section.id for section in found] == ["studies", "variation"]
    headings = [block.heading for block in found[0].blocks]
    assert headings == [
        "Scalability over storage nodes",
        "Where bandwidth stops growing",
        "Models of bandwidth over chunk size",
        "Correlation of factors and metrics",
    ]


def test_lessons_and_claims_stand_in_the_report_of_a_study() -> None:
    whole = studies.table3(nodes=(2,), attachments=6)
    ds = whole.isel(run=whole["processes_per_node"].values != 16)
    ds.attrs["campaign"] = json.dumps({"campaign": "ssd-cluster-mine"})
    page = report.context(ds)
    assert "attachments per cell" in page["first"].answer
    found = {section.id: section for section in page["analyses"]}
    assert found["lessons"].blocks[0].heading.startswith("Which target for which pattern: ")
    (block,) = found["claims"].blocks
    assert block.heading == "the SSD-cluster study"
    assert any("holds" in line for line in block.says)
    ds.attrs["campaign"] = json.dumps({"campaign": "mine"})
    assert "claims" not in {section.id for section in report.context(ds)["analyses"]}


def test_applications_come_with_their_factors() -> None:
    for name, heading in (
        ("cern-lhcb-rntuple", "Bandwidth over page sizes"),
        ("ssd-per-hba", "Devices that share a host adapter"),
    ):
        ds = load.open_campaign(f"published:{name}")
        found = {s.id: s for s in sections.sections(ds, summary.summarise(ds))}
        assert heading in [block.heading for block in found["studies"].blocks]


def test_an_empty_campaign_has_no_answer_and_says_why() -> None:
    ds = studies.campaign(lambda _: {"bandwidth": 1e8}, {"pattern": ("seq-read",)}, attachments=2)
    ds["status"] = ("run", np.array(["failed"] * ds.sizes["run"]))
    assert report.context(ds)["first"].answer.startswith("No answer: no run gave any bandwidth")


def test_variability_and_repetitions_of_a_known_spread() -> None:
    ds = studies.campaign(
        lambda _: {"bandwidth": 1e8},
        {"pattern": ("seq-read", "rand-read")},
        attachments=30,
        repetitions=4,
        between=0.10,
        within=0.02,
        seed=4,
    )
    ds["bandwidth"].attrs["units"] = "B s-1"
    found = variability(ds, "bandwidth")
    assert isinstance(found, Result)
    assert len(found.cells) == 2
    for cell in found.cells:
        assert cell.variability.between == pytest.approx(0.10, rel=0.35)
        assert cell.variability.within == pytest.approx(0.02, rel=0.2)
    assert any("runs of one attachment are alike" in line for line in found.says)
    few = variability(ds, "bandwidth", "repetitions", half_width=0.02)
    many = variability(ds, "bandwidth", "repetitions", half_width=0.2)
    assert all(cell.repetitions.more != 0 for cell in few.cells)  # some, or too many to plan
    assert all(cell.repetitions.more == 0 for cell in many.cells)
    assert [text.get_text() for text in few.figure().axes[0].get_yticklabels()]
    with pytest.raises(ValueError, match="half width"):
        variability(ds, "bandwidth", half_width=2)
