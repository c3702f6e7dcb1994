"""The command `lessons`: text, JSON, a picture, and words that are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fsmatrix.cli import main as cli
from tests.analysis import campaigns


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Status of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["fsmatrix", "lessons", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = campaigns.realistic(("xfs", "btrfs"), blocks=9)  # with failed and invalid runs
    return campaigns.write(tmp_path_factory.mktemp("lessons") / "c.h5", records)


def test_the_command_prints_text_json_and_a_picture(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert call(monkeypatch, campaign, "--where", "pattern=seq-read") == 0
    said = capsys.readouterr().out
    assert "xfs is the fastest in seq-read" in said
    assert "invalid runs (read-served-by-cache)" in said
    picture = tmp_path / "lessons.png"
    words = ("--latency", "p99 < 20ms", "--bandwidth", "500MB/s", "--json", "--out", picture)
    assert call(monkeypatch, campaign, *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["latency_bound"] == {"metric": "latency_p99", "seconds": 0.02}
    assert found["bandwidth"] == 5e8
    assert {one["question"] for one in found["lessons"]} == {"backend", "chunk", "processes",
                                                             "nodes"}  # fmt: skip
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--latency", "p98 < 10ms"], "--latency p98 < 10ms"),
        (["--latency", "p99 < 10 parsecs"], "parsecs"),
        (["--bandwidth", "500MB"], "--bandwidth 500MB"),
        (["--bandwidth", "0MB/s"], "more than zero"),
        (["--tolerance", "much"], "--tolerance much"),
        (["--where", "pattern=sideways"], "sideways"),
        (["--where", "colour=red"], "colour"),
        (["--where", "chunk=4096"], "nothing to draw"),
    ],
)
def test_bad_words_are_refused_and_nothing_is_written(
    words: list[str], told: str, campaign: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    picture = tmp_path / "lessons.png"
    assert call(monkeypatch, campaign, *words, "--out", picture) == 2
    captured = capsys.readouterr()
    assert told in captured.err.replace("\n", " ")
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not picture.exists()
