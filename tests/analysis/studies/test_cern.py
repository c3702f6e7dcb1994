"""The CERN study: its published numbers, its contradictions, and campaigns with a known truth."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fsmatrix import analysis
from fsmatrix.analysis.comparison.compare import compare
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.result import Result
from fsmatrix.analysis.studies import cern
from fsmatrix.analysis.studies.claims import claims_file as claims_files
from fsmatrix.analysis.studies.claims.claims import claims
from fsmatrix.analysis.studies.claims.claims_result import untested_numbers
from fsmatrix.cli.app import app
from tests.analysis import study_data as studies

TABLES = ("cern-lhcb-rntuple", "cern-ior-dfs-peaks", "cern-cephfs-fio")
# claim -> (whether the report's own numbers agree with it, the cells in which they do)
BARE = {
    "cascade-over-ice-ior": (True, "2 of 2"),
    "cascade-over-ice-uncompressed-writes": (True, "6 of 8"),
    "ice-wins-at-4m": (False, "0 of 2"),
    "cascade-over-ice-all": (True, "23 of 24"),
    "second-trial-uncompressed-writes": (True, "6 of 8"),
    "second-trial-zstd-writes": (False, "3 of 8"),
    "second-trial-uncompressed-reads": (True, "7 of 8"),
    "second-trial-zstd-reads": (False, "3 of 8"),
    "more-workers-on-cephfs": (False, "3 of 4"),
    "sequential-over-random-on-cephfs": (True, "4 of 4"),
}
# a row of docs/claims.md -> what its command prints
SHOWN = {
    "Ice Lake wins": ("0.827 to 0.968 times in 2 cells", "contradict it"),
    "Cascade Lake still wins": (
        "contradict it: as claimed in 3 of 8 cells, not in page size 4 MiB",
    ),
    "trial 2 yielded": ("is ahead in 30 of 32 cells", "0.833", "0.873"),
    "with IOR": ("1.05", "1.15"),
    "more workers": ("0.743 to 5.87 times", "contradict it: as claimed in 3 of 4 cells"),
    "the scale of fio": ("0.201", "1.18", "0.538", "0.400", "7.36", "37.8", "1.19", "1.63"),
}


def test_the_reports_own_numbers() -> None:
    """Nothing can be tested on one value per cell; the bare numbers are held against the text."""
    file = claims_files.load("cern")
    judged = [
        claim
        for table in TABLES
        for claim in claims(analysis.open(f"published:{table}"), file).judged
        if claim.scope.cells
    ]
    assert {claim.kind for claim in judged} == {"cannot be tested"}
    cells = [re.findall(r"in (\d+ of \d+) cells", untested_numbers(claim)) for claim in judged]
    assert {
        claim.claim.id: (claim.apparent, *count) for claim, count in zip(judged, cells, strict=True)
    } == BARE


def commands() -> list[tuple[str, str]]:
    """(statement, command) of the table of contradictions; several commands stand above it."""
    page = (Path(__file__).parents[3] / "docs" / "claims.md").read_text()
    above, below = page.split("### Where the CERN report contradicts itself")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (.+) \|$", below, re.MULTILINE)[1:]
    still = re.findall(r"^fsmatrix (claims cern .*zstd.*)$", above, re.MULTILINE)
    lines = [(text, still if "above" in shown else [shown.strip("`")]) for text, shown in rows]
    return [(text, line) for text, several in lines for line in several]


@pytest.mark.parametrize(("statement", "command"), commands())
def test_contradictions_are_shown_by_the_commands_of_the_docs(statement: str, command: str) -> None:
    ran = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "200"})
    assert ran.exit_code == 0
    (expected,) = [words for start, words in SHOWN.items() if statement.startswith(start)]
    assert [words for words in expected if words not in ran.stdout] == []


def test_every_contradiction_has_a_command() -> None:
    named = {start for start in SHOWN for text, _ in commands() if text.startswith(start)}
    assert named == set(SHOWN)


def test_installations_of_the_report() -> None:
    ds = analysis.open("published:cern-lhcb-rntuple")
    one = cern.installations(
        ds, {"target": "cascade-lake"}, {"target": "ice-lake"}, where={"trial": 1}
    )
    assert isinstance(one, Result)
    assert one.ahead == (29, 3)
    assert min(c.ratio.ratio for c in one.cells) == pytest.approx(2.04784 / 2.66905)
    assert "chance cannot be told from a difference (32 cells)" in one.says[0]
    assert any("background-load-suspected in ice-lake only (all cells)" in s for s in one.says)
    assert {cell.kind for cell in one.cells} == {"single"}
    two = cern.installations(
        ds, {"target": "cascade-lake", "trial": 1}, {"target": "ice-lake", "trial": 2}
    )
    assert two.ahead == (19, 13)
    assert two.mean_ratio == pytest.approx(1.001, abs=5e-4)
    assert not any("background" in line for line in two.says)
    assert json.loads(json.dumps(two.to_dict()))["a"] == "cascade-lake / 1"


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
    assert compare(ds, "2", "1", by="trial").ahead == (30, 2)
    (first, second) = sorted(set(ds["object_class"].values))
    assert sum(compare(ds, second, first, by="object_class").ahead) == 48
    lines = cern.parameters(ds)
    assert len(lines.lines) == 24
    assert lines.lines[0].levels == (65536, 524288, 1048576, 4194304)
    assert len(lines.figure().axes) == 4
    with pytest.raises(ValueError, match="no factor 'colour'"):
        compare(ds, "a", "b", by="colour")


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
    kinds = {cell.levels["chunk"]: cell.kind for cell in found.cells}
    assert kinds == {4096: "no difference", 65536: "faster", 1 << 20: "faster"}
    assert "Beside target, storage nodes differs: 2 against 4." in found.says
    with pytest.raises(ValueError, match="target 'c' is not there: there are a, b"):
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
