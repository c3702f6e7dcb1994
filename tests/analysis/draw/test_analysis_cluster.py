"""Redundancy, failure domain and emulated levels in every chart and table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fsmatrix.analysis.data import load, summary
from fsmatrix.analysis.draw import charts
from fsmatrix.analysis.report import pivot, report
from fsmatrix.analysis.report.terminal import in_terminal
from tests.analysis import campaigns

BED = {"redundancy": "size=1", "failure_domain": "host", "network": "1Gbit"}


def campaign(folder: Path, targets: dict[str, dict[str, Any]], emulated: set[str]) -> Path:
    """Target -> coordinates; storage nodes 2 and 3; `emulated`: targets on a test bed."""
    rng = np.random.default_rng(4)
    records = []
    for target, own in targets.items():
        for nodes in (2, 3):
            done = campaigns.phase("read", nodes * 1e8, 1 << 20, 1, rng)
            environment = campaigns.environment(target)
            if target in emulated:
                environment["realised"] = {"storage_nodes": "emulated", "network": "emulated"}
            coordinates = {"pattern": "seq-read", "storage_nodes": nodes, **own}
            records.append(
                campaigns.record(
                    target, phases=(done,), coordinates=coordinates, environment=environment
                )
            )
    return campaigns.write(folder / "campaign.h5", records)


def summarised(path: Path) -> summary.Summary:
    return summary.summarise(load.open_campaign(path))


def test_every_chart_says_what_the_cluster_is_and_what_is_emulated(tmp_path: Path) -> None:
    made = summarised(campaign(tmp_path, {"a": BED, "b": BED}, {"a", "b"}))
    setting = "redundancy size=1, failure domain host, network 1Gbit (emulated)"
    assert made.cluster.setting == setting
    pictures = charts.charts(made)
    assert pictures
    for picture in pictures:
        texts = [note["text"] for note in picture.layout["annotations"]]
        assert setting in texts
        assert picture.layout["xaxis"]["title"]["text"] == "storage nodes (emulated)"
        assert any("not what hardware does" in remark for remark in picture.remarks)
    for table in pivot.pivots(made):
        assert table.parts[0].factors == ("storage nodes (emulated)",)


def test_nothing_is_called_emulated_that_is_not(tmp_path: Path) -> None:
    made = summarised(campaign(tmp_path, {"a": BED, "b": BED}, set()))
    assert made.cluster.emulated == {}
    for picture in charts.charts(made):
        assert picture.layout["xaxis"]["title"]["text"] == "storage nodes"
        assert not any("Emulated" in remark for remark in picture.remarks)


def test_facts_that_differ_between_targets_are_told_for_each(tmp_path: Path) -> None:
    targets = {"a": BED, "b": {**BED, "redundancy": "size=3"}}
    made = summarised(campaign(tmp_path, targets, {"b"}))
    assert "redundancy size=1 (a), size=3 (b)" in made.cluster.setting
    assert made.cluster.title("storage_nodes") == "storage nodes (emulated: b)"


def test_a_fact_that_follows_a_factor_is_told_for_its_levels(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    records = [
        campaigns.record(
            "a",
            phases=(campaigns.phase("read", 1e8, 1 << 20, 1, rng),),
            coordinates={"pattern": "seq-read", "interface": kind, "osds_per_node": osds},
        )
        for kind, osds in (("PCIe", 3), ("SATA", 6))
    ]
    made = summarised(campaigns.write(tmp_path / "campaign.h5", records))
    assert made.cluster.facts == ("osds per node 3 (interface PCIe), 6 (interface SATA)",)


def test_page_and_terminal_say_it_too(tmp_path: Path) -> None:
    path = campaign(tmp_path, {"a": BED, "b": BED}, {"a", "b"})
    page = report.write_report(path, tmp_path / "report.html").read_text()
    assert "In all tables and charts: redundancy size=1, failure domain host" in page
    out = io.StringIO()
    Console(file=out, width=200).print(in_terminal(summarised(path)))
    assert "storage nodes (emulated)" in out.getvalue()
    assert "redundancy size=1" in out.getvalue()


def test_hostile_facts_are_text(tmp_path: Path) -> None:
    hostile = {"redundancy": "</script><img src=x onerror=alert(1)>"}
    path = campaign(tmp_path, {"a": hostile, "b": hostile}, {"a"})
    page = report.write_report(path, tmp_path / "report.html").read_text()
    assert "<img src=x" not in page
    for picture in charts.charts(summarised(path)):
        assert not any("<img" in note["text"] for note in picture.layout["annotations"])


@pytest.mark.parametrize("realised", ["emulated", ["storage_nodes"], None])
def test_a_damaged_environment_is_no_traceback(tmp_path: Path, realised: Any) -> None:
    rng = np.random.default_rng(4)
    one = campaigns.record(
        "a",
        phases=(campaigns.phase("read", 1e8, 1 << 20, 1, rng),),
        coordinates={"storage_nodes": 2},
        environment={**campaigns.environment("a"), "realised": realised},
    )
    assert summarised(campaigns.write(tmp_path / "campaign.h5", [one])).cluster.emulated == {}
