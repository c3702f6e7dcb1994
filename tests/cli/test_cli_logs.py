"""`fsmatrix logs` and `show --run`: one run, how it was started and what it printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fsmatrix.analysis.report import report
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Finding, Severity
from tests.analysis import campaigns
from tests.analysis.commands import call

ARGV = (("/usr/bin/fio", "--name=a b"), ("mpirun", "-n", "2", "ior", "-w"))
TEXTS = {"00-write/n1/stdout": "one\x1b[2J\n", "00-write/n2/stdout": "two\n"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    made = Store.create("out")
    runs = campaigns.realistic(blocks=1, targets=("xfs", "ext4"), chunks=(4096,), processes=(1,))
    with_programs = [
        replace(run, engine="fio", argv=ARGV, texts=TEXTS) if "xfs" in run.attachment else run
        for run in runs
    ]
    made.append(with_programs)
    return made


def ids(store: Store, engine: str) -> list[str]:
    return [run for run in store.ids() if store.read(run).engine.startswith(engine)]


def test_what_a_run_printed_goes_to_a_file_or_the_screen(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ids(store, "fio")[0]
    assert call(monkeypatch, "logs", "out", run) == 0
    both = "==> 00-write/n1/stdout <==\none\x1b[2J\n\n==> 00-write/n2/stdout <==\ntwo\n"
    assert capsys.readouterr().out == both
    assert call(monkeypatch, "logs", "out", run, "--text", "00-write/n1/stdout", "-o", "f") == 0
    assert Path("f").read_text() == "one\x1b[2J\n"


def test_a_campaign_file_tells_of_its_runs_too(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An import is one: what `findings` names can be looked at."""
    run = ids(store, "fio")[0]
    store.merge(Path("imported.h5"))
    assert call(monkeypatch, "logs", "imported.h5", run[:20], "--text", "00-write/n2/stdout") == 0
    assert capsys.readouterr().out == "two\n"
    assert call(monkeypatch, "show", "imported.h5", "--run", run) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{run}: ok")
    assert "target=xfs" in out
    assert f"fsmatrix logs imported.h5 {run}" in out
    assert call(monkeypatch, "show", "imported.h5", "--run", "nosuch") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch",), "error: run nosuch: out has no run whose id begins so, and no job or part"),
        (("",), "runs begin so: "),
        (("PLAYER",), "no program printed anything"),
        (("FIO", "--text", "x"), "--text x: no such text; there are 00-write/n1/stdout, "),
        (("FIO", "-o", "no/f"), "--out no/f: no directory no"),
    ],
)
def test_what_is_not_there_is_said(
    words: tuple[str, ...],
    said: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = {"PLAYER": ids(store, "player")[0], "FIO": ids(store, "fio")[0]}
    assert call(monkeypatch, "logs", "out", *(runs.get(word, word) for word in words)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [(("warning", "info"), "ok, doubtful (a)"), (("warning", "invalid"), "ok, invalid (b)")],
)
def test_the_audits_that_doubt_a_run_are_named(
    severities: tuple[Severity, ...],
    verdict: str,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [Finding(audit, 1, of, "why") for audit, of in zip("ab", severities, strict=True)]
    run = replace(store.read(store.ids()[0]), findings=tuple(found), attempt=2)
    store.append([run])
    assert call(monkeypatch, "show", "out", "--run", run.run_id) == 0
    assert f"{run.run_id}: {verdict}, " in capsys.readouterr().out


def test_command_lines_are_shown_and_stand_in_the_report(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ids(store, "fio")[0]
    assert call(monkeypatch, "show", "out", "--run", run) == 0
    told = capsys.readouterr().out
    assert f"{run}: ok, fio" in told
    assert "$ /usr/bin/fio '--name=a b'\n$ mpirun -n 2 ior -w\n" in told
    assert f"fsmatrix logs out {run}" in told
    assert call(monkeypatch, "show", "out", "--run", run, "--json") == 0
    assert json.loads(capsys.readouterr().out)["argv"] == [list(words) for words in ARGV]
    text = report.render(report.load.open_campaign(store.merge()), place="out")
    assert "/usr/bin/fio &#39;--name=a b&#39;\nmpirun -n 2 ior -w" in text
    assert "Command lines of the engines" not in report.render(
        report.load.open_campaign(store.merge())
    )
