"""Acceptance on the command line: status, messages, and files for papers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.results.record import RunRecord
from tests.analysis import campaigns, upgrades
from tests.cli.test_cli_analysis import call

CONDITION = ("--fail-if", "slower > 10 %")
SLOWER = {("seq-read", 4096): 1.15}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """old.h5; same.h5; slow.h5 (one cell takes 15 % longer); lost.h5; failed.h5; few.h5."""
    made = tmp_path_factory.mktemp("acceptance")

    def lose(record: RunRecord, pattern: str, chunk: int, _: int) -> RunRecord | None:
        if (pattern, chunk) == ("seq-write", 4096):
            return None
        if (pattern, chunk) == ("seq-write", 1 << 20):
            return replace(record, status="failed", phases=(), error="rank 0: EIO")
        return record

    def fail(record: RunRecord, *_: object) -> RunRecord:
        return replace(record, status="failed", phases=(), error="rank 0: EIO")

    upgrades.measured(made / "old.h5", month=1)
    upgrades.measured(made / "same.h5", month=2)
    upgrades.measured(made / "slow.h5", month=3, slower=SLOWER)
    upgrades.measured(made / "lost.h5", month=4, change=lose)
    upgrades.measured(made / "failed.h5", month=5, blocks=3, change=fail)
    upgrades.measured(made / "few.h5", month=6, blocks=3)
    upgrades.measured(
        made / "fio.h5", month=7, blocks=3, change=lambda r, *_: replace(r, engine="fio")
    )
    return made


@pytest.mark.parametrize(
    ("new", "more", "status", "told"),
    [
        ("same", [], 0, "passed, 8 cells"),
        ("slow", [], 1, "slow.h5: seq-read, chunk 4 KiB is slower > 10 %"),
        ("slow", ["--metric", "latency_mean"], 1, "seq-read, chunk 4 KiB is slower > 10 %"),
        ("slow", ["--metric", "latency_mean", "--fail-if", "faster"], 1, "failed, 1 reason"),
        ("lost", [], 1, "seq-write, chunk 4 KiB is missing (no run of it)"),
        ("lost", [], 1, "seq-write, chunk 1 MiB is failed (12 runs, none succeeded: rank 0: EIO"),
        ("lost", ["--allow", "missing", "--allow", "failed"], 0, "Allowed: lost.h5"),
        ("failed", [], 1, "none succeeded"),
        ("few", [], 1, "could not be decided in any of 8 cells, so nothing was tested"),
        ("few", ["--allow", "undecided"], 0, "Not sure in 8 of 8 cells"),
        ("few", ["--fail-if", "undecided"], 1, "is undecided: "),
    ],
)
def test_status_and_reason(
    new: str,
    more: list[str],
    status: int,
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["compare", "--baseline", folder / "old.h5", folder / f"{new}.h5", *CONDITION, *more]
    assert call(monkeypatch, *words) == status
    assert told in capsys.readouterr().out


def test_several_new_campaigns_and_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [folder / f"{name}.h5" for name in ("same", "slow", "lost")]
    words = ["compare", "--baseline", folder / "old.h5", *files, *CONDITION, "--json"]
    assert call(monkeypatch, *words) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["passed"]
    assert [(one["a"], one["b"]) for one in found["comparisons"]] == [
        (file.name, "old.h5") for file in files
    ]
    assert found["comparisons"][0]["family"] == 22
    assert {one["why"] for one in found["lost"]} == {"missing", "failed"}
    met = [c for c in found["cells"] if c["outcomes"][0]["state"] == "met"]
    assert [(c["campaign"], c["levels"]["pattern"]) for c in met] == [("slow.h5", "seq-read")]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fail-if", "slow > 10 %", "NEW"], "no condition 'slow > 10 %'"),
        (["NEW", "--allow", "missing"], "only with --fail-if"),
        (["NEW", *CONDITION, "--allow", "slower"], "'slower' cannot be allowed"),
        (["NEW", *CONDITION, "--by", "pattern"], "not with --baseline"),
        (["OLD", *CONDITION], "the same file is given twice"),
        (["/no/such.h5", *CONDITION], "/no/such.h5"),
        (["FIO", *CONDITION], "--across-engines"),
    ],
)
def test_bad_words_are_refused(
    words: list[str],
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {"OLD": folder / "old.h5", "NEW": folder / "few.h5", "FIO": folder / "fio.h5"}
    line = ["compare", "--baseline", files["OLD"], *(files.get(word, word) for word in words)]
    assert call(monkeypatch, *line) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""
    assert call(monkeypatch, "compare", files["OLD"], *CONDITION) == 2


def test_history_prints_draws_and_fails(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [folder / f"{name}.h5" for name in ("slow", "same", "old")]
    out = tmp_path / "history.tex"
    assert call(monkeypatch, "history", *files, *CONDITION, "--out", out) == 1
    said = capsys.readouterr().out
    assert "slow.h5 against the baseline same.h5" in said
    assert "3 campaigns, 8 cells" in said
    assert r"\toprule" in out.read_text()
    assert call(monkeypatch, "history", *files, "--as-given", *CONDITION) == 0


def test_report_writes_figures_and_tables_beside_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = campaigns.realistic(("xfs", "ext4"), blocks=2, chunks=(4096,), troubles=False)
    file = campaigns.write(tmp_path / "campaign.h5", records)
    figures, tabled = tmp_path / "figures", tmp_path / "tables"
    figures.mkdir()
    (figures / "mine.txt").write_text("mine")
    words = ["report", file, "--figures", figures, "--tables", tabled, "--figure-format"]
    assert call(monkeypatch, *words, "gif") == 2
    assert "--figure-format gif" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
    assert not tabled.exists()
    assert call(monkeypatch, "report", file, "--tables", tmp_path / "no" / "such") == 2
    assert call(monkeypatch, *words, "png,svg") == 0
    names = {path.name for path in figures.iterdir()}
    assert {"mine.txt", "bars-bandwidth.png", "bars-bandwidth.svg"} <= names
    assert "compare-bandwidth-ext4-xfs.png" in names
    assert not any(name.startswith(".") for name in names)
    assert {"bars-bandwidth.csv", "bars-bandwidth.tex", "bars-bandwidth.md"} <= {
        path.name for path in tabled.iterdir()
    }
