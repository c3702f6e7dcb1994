"""The commands that take a factor of the user's choice: what they print, draw and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis import campaigns
from tests.analysis.commands import call

COMMANDS = ("effects", "curves", "predict", "traffic", "cpu", "speedup", "adapters")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two targets, 4 patterns, 2 chunk sizes, 2 process counts, 8 blocks."""
    records = campaigns.realistic(
        ("xfs", "ext4"), blocks=8, chunks=(4096, 65536, 1 << 20), troubles=False
    )
    return campaigns.write(tmp_path_factory.mktemp("questions") / "campaign.h5", records)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, command, "--help") == 0
    said = capsys.readouterr().out
    assert f"fsmatrix {command}" in said.split("Example", 1)[1].replace("\n", " ")
    assert "--json" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("effects", "--factor", "chunk", "--factor", "target"), "chunk size: up to"),
        (("curves", "--along", "chunk", "--panel", "pattern"), "4 KiB"),
        (("speedup", "--of", "xfs", "--over", "ext4", "--along", "chunk"), "times as fast as ext4"),
        (("predict", "--chunk", "256KiB"), "256 KiB: "),
    ],
)
def test_text_json_and_picture(
    words: tuple[str, ...],
    said: str,
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, *options = words
    assert call(monkeypatch, command, campaign, *options) == 0
    assert said in capsys.readouterr().out
    picture = tmp_path / "figure.pdf"
    assert call(monkeypatch, command, campaign, *options, "--json", "--out", picture) == 0
    assert said in " ".join(json.loads(capsys.readouterr().out)["says"])
    assert picture.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("effects", "--factor", "colour"), "no factor 'colour' that varies"),
        (("effects", "--order", "9"), "order 9"),
        (("curves", "--along", "colour"), "no factor colour"),
        (("curves", "--along", "pattern"), "no factor pattern"),
        (
            ("curves", "--along", "chunk", "--metric", "x"),
            "no metric 'x' in this campaign: it has",
        ),
        (("variability", "--metric", "bandwith"), "did you mean 'bandwidth'?"),
        (("correlation", "--metric", "latncy_p99"), "did you mean 'latency_p99'?"),
        (("speedup", "--of", "xfs", "--over", "zfs", "--along", "chunk"), "'zfs' is not there"),
        (("speedup", "--of", "xfs", "--over", "ext4", "--along", "memory"), "no factor memory"),
        (("speedup", "--of", "xfs", "--over", "ext4", "--along", "pattern"), "must be numbers"),
        (("traffic",), "one results directory"),
        (("predict",), "either --chunk or --measured"),
        (("predict", "--chunk", "many"), "many"),
        (("predict", "--chunk", "0"), "must be positive"),
        (("adapters",), "no factor devices_per_adapter"),
    ],
)
def test_bad_input_is_a_message_and_status_2(
    words: tuple[str, ...],
    said: str,
    campaign: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, *options = words
    picture = tmp_path / "figure.png"
    assert call(monkeypatch, command, campaign, *options, "--out", picture) == 2
    captured = capsys.readouterr()
    assert said in " ".join(captured.err.split())
    assert not captured.out
    assert not picture.exists()


def test_published_tables_answer_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "adapters", "published:ssd-per-hba") == 0
    assert "an adapter with 8 devices does" in capsys.readouterr().out
    words = (
        "curves",
        "published:flash-tpcc-nilfs2-gc",
        "--along",
        "warehouses",
        "--metric",
        "transaction_rate",
        "--unit",
        "1/min",
    )
    assert call(monkeypatch, *words) == 0
    assert "1/min" in capsys.readouterr().out


def test_where_nothing_was_estimated_no_file_is_made_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run of each cell: a table with no line in it, and no term to draw."""
    records = campaigns.realistic(("xfs",), blocks=1, processes=(1,), troubles=False)
    few = [record for record in records if record.coordinates["pattern"] == "seq-read"]
    data = campaigns.write(tmp_path / "campaign.h5", few)
    table, tables = tmp_path / "effects.csv", tmp_path / "tables"
    assert call(monkeypatch, "effects", data, "--out", table) == 0
    assert f"not made: {table}: nothing would stand in it" in capsys.readouterr().err
    assert call(monkeypatch, "report", data, "--tables", tables) == 0
    assert "not made: table effects: nothing would stand in it" in capsys.readouterr().err
    assert call(monkeypatch, "effects", data, "--out", tmp_path / "effects.pdf") == 2
    assert "nothing to draw" in capsys.readouterr().err
    assert not list(tmp_path.rglob("effects*"))
    assert (tables / "bars-bandwidth.csv").read_text().startswith("nodes,")


def test_a_misspelt_metric_is_found_before_the_file_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", "no-such-file", "--metric", "bandwith") == 2
    assert "did you mean 'bandwidth'?" in capsys.readouterr().err
