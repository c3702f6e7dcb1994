"""The page-cache study: IOPS per device over devices per adapter, replay rates."""

from __future__ import annotations

import pytest

from fsmatrix import analysis
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.studies import pagecache
from tests.analysis import study_data as studies


def test_published_adapters() -> None:
    found = pagecache.adapters(analysis.open("published:ssd-per-hba"))
    assert isinstance(found, Result)
    table = found.table().set_index(["phase", "devices_per_adapter"])["median, 1/s"]
    assert table.to_dict() == {
        ("read", 1): 73000,
        ("read", 8): 47000,
        ("write", 1): 61000,
        ("write", 8): 44000,
    }
    said = " ".join(found.says)
    assert "0.644 times (no interval)" in said
    assert "an adapter with 8 devices does 376000 IOPS, with 1 73000: 5.15 times" in said
    assert "(64% each)" in said
    assert [ax.get_title() for ax in found.figure().axes] == ["read", "write"]


def test_measured_adapters_are_divided_by_their_devices() -> None:
    ds = studies.campaign(
        lambda c: {"iops": 7e4 * c["devices"] ** 0.8},
        {"devices": (1, 2, 4, 8)},
        attachments=8,
        between=0.001,
        within=0.001,
    )
    found = pagecache.adapters(ds)
    medians = [cell.median.median for cell in found.lines[0].cells]
    assert medians == pytest.approx([7e4 * n**-0.2 for n in (1, 2, 4, 8)], rel=0.01)
    assert all(cell.median.decides for cell in found.lines[0].cells)
    with pytest.raises(ValueError, match="no factor devices_per_adapter"):
        pagecache.adapters(studies.campaign(studies.hockney, {"chunk": (4096,)}))


def test_replay_per_workload() -> None:
    levels = {"trace": ("ycsb", "neo4j"), "target": ("pagecache", "safs"), "threads": (1, 16, 64)}
    ds = studies.campaign(
        lambda c: {"iops": 1e5 * c["threads"] ** (0.9 if c["target"] == "safs" else 0.4)},
        levels,
        attachments=7,
        between=0.001,
        within=0.001,
    )
    found = pagecache.replay(ds)
    assert found.panel == ("trace",)
    assert len(found.lines) == 4
    growth = {
        (dict(line.key)["target"], dict(line.key)["trace"]): line.cells[-1].median.median
        / line.cells[0].median.median
        for line in found.lines
    }
    assert growth["safs", "ycsb"] == pytest.approx(64**0.9, rel=0.02)
    assert growth["pagecache", "neo4j"] == pytest.approx(64**0.4, rel=0.02)
    assert [ax.get_title() for ax in found.figure().axes] == ["trace neo4j", "trace ycsb"]
