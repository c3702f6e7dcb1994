"""The commands of the analysis: what they print, draw and refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import matplotlib.image
import numpy as np
import pytest

from tests.analysis import campaigns
from tests.analysis.commands import call

COMMANDS = (
    "compare",
    "bars",
    "scalability",
    "models",
    "correlation",
    "bottleneck",
    "variability",
    "tails",
    "repetitions",
)


def test_a_campaign_without_runs_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = campaigns.write(tmp_path / "campaign.h5", [])
    for command in (*COMMANDS, "report", "lessons", "show"):
        assert call(monkeypatch, command, empty) == 2
        assert "no runs in this campaign" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "report.html").exists()


def test_show_names_no_failure_that_a_later_attempt_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = list(campaigns.realistic(("xfs", "ext4"), blocks=6, troubles=False))
    lost = [replace(r, status="failed", phases=(), error="no engine") for r in records[:2]]
    mended = [replace(records[0], attempt=records[0].attempt + 1)]
    file = campaigns.write(tmp_path / "campaign.h5", [*lost, *mended, *records[2:]])
    assert call(monkeypatch, "show", file) == 0
    printed = capsys.readouterr().out
    assert f"failed {lost[1].run_id}: no engine" in printed
    assert lost[0].run_id not in printed


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two targets, 4 patterns, 4 chunk sizes, 2 process counts, 8 blocks."""
    folder = tmp_path_factory.mktemp("analysis")
    records = campaigns.realistic(
        ("xfs", "ext4"), blocks=8, chunks=(4096, 65536, 262144, 1 << 20), troubles=False
    )
    return campaigns.write(folder / "old.h5", records)


@pytest.fixture(scope="module")
def newer(campaign: Path) -> Path:
    """The same work, measured again."""
    records = campaigns.realistic(("xfs", "ext4"), blocks=8, seed=2, troubles=False)
    again = [_renamed(record) for record in records]
    return campaigns.write(campaign.with_name("new.h5"), again)


def _renamed(record: Any) -> Any:
    return replace(
        record,
        attachment=f"n-{record.attachment}",
        session=f"n-{record.session}",
        started=record.started.replace("2026", "2027"),
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, "--help") == 0
    said = capsys.readouterr().out
    assert f"fsmatrix {command}" in said.split("Example", 1)[1].replace("\n", " ")
    assert "--json" in said
    assert "--out" in said


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "scalability"])
def test_text_json_and_picture(
    command: str,
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = ["--where", "pattern=seq-read"]
    assert call(monkeypatch, command, campaign, *where) == 0
    text = capsys.readouterr().out
    assert "xfs" in text
    assert "…" not in text  # no column was cut
    picture = tmp_path / "figure.png"
    assert call(monkeypatch, command, campaign, *where, "--json", "--out", picture) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)
    assert str(picture) in captured.err
    pixels = matplotlib.image.imread(picture)
    assert min(pixels.shape[:2]) > 100
    assert np.ptp(pixels[..., :3]) > 0.5  # something is drawn


def test_compare_prints_every_cell_and_the_mean(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", campaign, "--targets", "xfs,ext4", "--cells") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("xfs against ext4, bandwidth:")
    rows = [line for line in lines if re.search(r"\[[\d.]+–[\d.]+\]", line)]
    assert len(rows) == 32
    assert len({tuple(row.split()[:5]) for row in rows}) == 32  # pattern, chunk, processes
    assert any("Over all 32 cells (geometric mean) xfs is " in line for line in lines)


def test_compare_and_lessons_are_short_unless_asked(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most 14 lines and one for each of the four patterns, of one pair of 32 cells."""
    for command, more in (("compare", ["--targets", "xfs,ext4"]), ("lessons", [])):
        assert call(monkeypatch, command, campaign, *more) == 0
        short = [line for line in capsys.readouterr().out.splitlines() if line]
        assert len(short) <= 18
        assert short[-1].startswith("More: --cells ") or "fairness" in short[-1]
        assert call(monkeypatch, command, campaign, *more, "--cells") == 0
        assert len(capsys.readouterr().out.splitlines()) > 2 * len(short)


def test_compare_two_campaigns(
    campaign: Path, newer: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", newer, campaign, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["a"], found["b"]) == ("new.h5", "old.h5")
    assert len(found["cells"]) == 32  # what both have: 2 targets x 4 patterns x 2 x 2
    assert {cell["verdict"]["interval"]["design"] for cell in found["cells"]} == {"independent"}
    assert {one["side"] for one in found["alone"]} == {"old.h5"}
    # the same speeds: nothing may be claimed to differ
    assert {cell["kind"] for cell in found["cells"]} <= {"too few", "no difference"}


def test_compare_a_published_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", "published:cern-lhcb-rntuple", "--by", "cluster") == 0
    said = capsys.readouterr().out
    assert "how sure that is cannot be said: one value per cell." in said
    rows = [line.split() for line in said.splitlines() if " of 16" in line or " of 32" in line]
    shown = [(row[0], row[-5]) for row in rows]
    assert shown == [("read", "+73"), ("write", "+12"), ("all", "+39")]
    assert "none of them proves more" in said
    assert "Add " not in said


def test_results_directory_is_merged(
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from fsmatrix.results.files.store import Store

    store = Store.create(tmp_path / "out")
    for record in campaigns.realistic(("xfs", "ext4"), blocks=2, chunks=(4096,), troubles=False):
        store.write(record)
    assert call(monkeypatch, "compare", tmp_path / "out") == 0
    assert "undecided in 8 of 8 cells (xfs is ahead in 7 of 8, with " in capsys.readouterr().out
    assert campaign.exists()


def _with_schema(source: Path, target: Path, version: int) -> Path:
    target.write_bytes(source.read_bytes())
    with h5py.File(target, "r+") as file:
        file.attrs["schema_version"] = version
    return target


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/no/such/dir"], "/no/such/dir"),
        (["published:nothing"], "published:nothing"),
        (["CAMPAIGN", "--out", "figure.gif"], "--out figure.gif"),
        (["CAMPAIGN", "--out", "/no/such/dir/figure.png"], "/no/such/dir"),
        (["CAMPAIGN", "--where", "colour"], "--where colour"),
        (["CAMPAIGN", "--where", "colour=red"], "colour"),
        (["CAMPAIGN", "CAMPAIGN"], "twice"),
        (["NEWER"], "future.h5"),
        (["EMPTY"], "no runs"),
        (["FOREIGN"], "foreign.h5"),
    ],
)
def test_bad_words_are_refused(
    command: str,
    words: list[str],
    told: str,
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {"CAMPAIGN": campaign}
    if "NEWER" in words:
        files["NEWER"] = _with_schema(campaign, tmp_path / "future.h5", 99)
    if "EMPTY" in words:
        files["EMPTY"] = campaigns.write(tmp_path / "empty.h5", [])
    if "FOREIGN" in words:
        files["FOREIGN"] = tmp_path / "foreign.h5"
        h5py.File(files["FOREIGN"], "w").close()
    assert call(monkeypatch, command, *(files.get(word, word) for word in words)) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--targets", "xfs,zfs"], "'zfs' is not there"),
        (["--by", "colour"], "no factor 'colour'"),
        (["--metric", "colour"], "no metric 'colour'"),
        (["--unit", "ms"], "'ms'"),
        (["--tolerance", "much"], "--tolerance much"),
        (["--alpha", "2"], "alpha"),
        (["--correction", "hope"], "--correction hope"),
    ],
)
def test_bad_options_of_compare_are_refused(
    words: list[str],
    told: str,
    campaign: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "compare", campaign, *words) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""


def test_mixed_engines_need_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import replace

    records = [
        replace(one, engine="fio") if "ext4" in one.attachment else one
        for one in campaigns.realistic(("xfs", "ext4"), blocks=2, troubles=False)
    ]
    file = campaigns.write(tmp_path / "mixed.h5", records)
    assert call(monkeypatch, "compare", file) == 2
    said = capsys.readouterr().err
    assert "mixed.h5" in said
    assert "--across-engines" in said
    assert call(monkeypatch, "compare", file, "--across-engines") == 0
    assert "ngine differs (as requested): fio against player-c." in capsys.readouterr().out
