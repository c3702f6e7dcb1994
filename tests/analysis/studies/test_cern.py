"""The CERN study: its published numbers, its contradictions, and campaigns with a known truth."""

from __future__ import annotations

import json

import pytest

from fsmatrix import analysis
from fsmatrix.analysis.comparison.compare import compare
from fsmatrix.analysis.comparison.options import ComparisonOptions
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.studies import cern, cern_report
from tests.analysis import study_data as studies

CONTRADICTED = {
    "ice-wins-4m", "6-of-8-and-both-at-4m", "better-results",
    "second-trial-zstd-writes", "second-trial-zstd-reads",
    "reads-deteriorated-table-3", "ior-minimal", "ior-conclusion", "ior-tasks",
    "ior-transfer-size", "ior-no-cache", "more-workers", "kilobytes",
}  # fmt: skip
AGREES = {
    "6-of-8", "65536", "2-to-3.3", "almost-always", "smaller-difference", "ior-cascade-wins",
    "sequential-over-random", "second-trial-uncompressed-writes",
    "second-trial-uncompressed-reads",
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> cern_report.Report:
    return cern_report.report()


def test_statements(found: cern_report.Report) -> None:
    assert isinstance(found, Result)
    assert {s.id for s in found.of("contradicted")} == CONTRADICTED
    assert {s.id for s in found.of("agrees")} == AGREES
    assert {s.id for s in found.of("not in its numbers")} == {"load-on-the-pool", "dfs-over-dfuse"}
    assert found.says[0].startswith("24 statements")
    assert len(json.loads(json.dumps(found.to_dict()))["statements"]) == len(found.table()) == 24


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("6-of-8", "6 of 8"),
        ("ice-wins-4m", "1.033 (OC_SX), 1.209 (RP_XSF)"),
        (
            "second-trial-zstd-writes",
            "contradict it: as claimed in 3 of 8 cells, not in page size "
            "4 MiB, object class OC_SX (0.935); page size 4 MiB, object class RP_XSF (0.944)",
        ),
        ("second-trial-zstd-reads", "contradict it: as claimed in 3 of 8 cells"),
        (
            "second-trial-uncompressed-reads",
            "agree with it: as claimed in 7 of 8 cells, not in "
            "page size 1 MiB, object class OC_SX (0.897)",
        ),
        ("almost-always", "23 of 24; not read/zstd/4194304/RP_XSF"),
        ("better-results", "2 of 32 cells are worse: write/none/65536/OC_SX 0.83 times"),
        ("more-workers", "random write fell from 538 to 400 KB/s"),
        ("2-to-3.3", "2.05 to 3.21 GB/s"),
        ("ior-minimal", "write 800 MB/s (15%), read 200 MB/s (5%)"),
        ("ior-tasks", "1, 5, 9, 13, 17, 21"),
        ("kilobytes", "5 of 8 values are 1 MB/s or more, the largest 37.8"),
    ],
)
def test_how_it_is_shown(found: cern_report.Report, name: str, words: str) -> None:
    shown = {s.id: s.shown for s in found.statements}
    assert words in shown[name]


def test_figure_of_the_report(found: cern_report.Report) -> None:
    axes = found.figure().axes
    assert [ax.get_title() for ax in axes] == [
        "write, none",
        "write, zstd",
        "read, none",
        "read, zstd",
    ]
    assert all(len(ax.get_lines()) == 5 for ax in axes)  # four lines and that of 1
    assert axes[0].get_lines()[0].get_ydata()[0] == pytest.approx(2.04784 / 2.66905)


def test_installations_of_the_report() -> None:
    ds = analysis.open("published:cern-lhcb-rntuple")
    one = cern.installations(
        ds, {"target": "cascade-lake"}, {"target": "ice-lake"}, where={"trial": 1}
    )
    assert isinstance(one, Result)
    assert one.better == (29, 3)
    assert min(c.value for c in one.cells) == pytest.approx(2.04784 / 2.66905)
    assert "noise is not known" in one.says[1]
    assert any("background-load-suspected in 32 cells" in line for line in one.says)
    assert set(one.table()["verdict"]) == {"noise not known"}
    two = cern.installations(
        ds, {"target": "cascade-lake", "trial": 1}, {"target": "ice-lake", "trial": 2}
    )
    assert two.better == (19, 13)
    assert two.ratio == pytest.approx(1.001, abs=5e-4)
    assert not any("background" in line for line in two.says)
    assert json.loads(json.dumps(two.to_dict()))["geometric_mean"] == pytest.approx(two.ratio)
    assert len(two.figure().axes[0].get_yticklabels()) == 32


@pytest.mark.parametrize(
    ("phase", "compression", "words"),
    [
        ("write", "none", "cascade-lake / 1 is ahead in 6 of 8 cells, ice-lake / 2 in 2."),
        ("write", "zstd", "ice-lake / 2 is ahead in 5 of 8 cells, cascade-lake / 1 in 3."),
        ("read", "none", "cascade-lake / 1 is ahead in 7 of 8 cells, ice-lake / 2 in 1."),
        ("read", "zstd", "ice-lake / 2 is ahead in 5 of 8 cells, cascade-lake / 1 in 3."),
    ],
)
def test_the_second_trial_is_the_same_in_compare(phase: str, compression: str, words: str) -> None:
    ds = analysis.open("published:cern-lhcb-rntuple")
    options = ComparisonOptions(where={"phase": phase, "compression": compression})
    sides = ("cascade-lake / 1", "ice-lake / 2")
    found = compare(ds, *sides, by=("target", "trial"), options=options)
    assert words in found.says


def test_trials_object_classes_and_page_sizes() -> None:
    ds = analysis.open("published:cern-lhcb-rntuple")
    (trial,) = cern.influence(ds, "trial")
    assert trial.better == (30, 2)
    (kind,) = cern.influence(ds, "object_class")
    assert sum(kind.better) == 48
    lines = cern.parameters(ds)
    assert len(lines.lines) == 24
    assert lines.lines[0].levels == (65536, 524288, 1048576, 4194304)
    assert len(lines.figure().axes) == 4
    with pytest.raises(ValueError, match="no factor 'colour'"):
        cern.influence(ds, "colour")


def test_installations_with_known_truth() -> None:
    """Beyond noise where it is, and equal where it is."""
    levels = {"target": ("a", "b"), "chunk": (4096, 65536, 1 << 20), "storage_nodes": (2, 4)}
    ds = studies.campaign(
        lambda c: {"bandwidth": 1e8 * (1.3 if c["target"] == "a" and c["chunk"] > 4096 else 1)},
        levels,
        attachments=14,
        between=0.01,
        within=0.01,
        keep=lambda c: (c["target"] == "a") == (c["storage_nodes"] == 2),
    )
    found = cern.installations(ds, {"target": "a"}, {"target": "b"})
    kinds = dict(zip(found.table()["chunk"], found.table()["verdict"], strict=True))
    assert kinds == {4096: "no difference", 65536: "faster", 1 << 20: "faster"}
    assert any("storage_nodes changes with target" in line for line in found.says)
    with pytest.raises(ValueError, match="no target c: there are a, b"):
        cern.installations(ds, {"target": "a"}, {"target": "c"})


def test_tasks_per_block_size() -> None:
    levels = {"block_size": (16 << 20, 1 << 30), "tasks": (1, 4, 8, 16, 24)}
    ds = studies.campaign(
        lambda c: {"bandwidth": 3e8 * min(c["tasks"], 8) * (2 if c["block_size"] > 1e8 else 1)},
        levels,
        attachments=7,
        between=0.001,
        within=0.001,
    )
    found = cern.tasks(ds)
    assert isinstance(found, Result)
    assert [line.levels for line in found.lines] == [(1, 4, 8, 16, 24)] * 2
    assert "block size 1 GiB" in found.says[0]
    assert "8.0" in found.says[0]  # eight times from 1 to 24 tasks
    (ax,) = found.figure().axes
    assert len(ax.get_legend_handles_labels()[0]) == 2
    one = cern.tasks(analysis.open("published:cern-cephfs-fio"))
    assert any("0.743 times (no interval); highest at 1" in line for line in one.says)
