"""`fsmatrix init`: what it writes is a campaign, by options and by questions."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fsmatrix.suite.campaign.settings import find
from fsmatrix.suite.plan.plan import Request, build_plan
from tests.analysis.commands import call
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b").mkdir()
    monkeypatch.setenv("SCRATCH", str(tmp_path))


def backends(file: str, here: bool = False) -> dict[str, str]:
    """Targets of the plan of a campaign, with their backends."""
    plan = build_plan(find(file), Request(), here=here)
    assert plan.cases
    return {member.name: member.target.backend for member in plan.members.targets}


def test_two_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert call(monkeypatch, "init", "--path", "a b", "--path", "$SCRATCH") == 0
    assert backends("campaign.yaml") == {"first": "directory", "second": "directory"}
    text = Path("campaign.yaml").read_text()
    assert f'"{tmp_path}/a b"' in text
    assert '"$SCRATCH"' in text
    assert call(monkeypatch, "plan", "campaign.yaml", "--set", "bytes_total=8MiB") == 0


def test_a_ceph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "init", "--ceph", "bench", "--user", "me", "-o", "c.yaml") == 0
    assert backends("c.yaml") == {"rados": "rados", "cephfs": "libcephfs"}


ALONE = "give --path twice, or --ceph POOL alone"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --path twice, or --ceph POOL"),
        (("--path", "a b"), ALONE),
        (("--path", "a b", "--path", "x", "--ceph", "p"), ALONE),
        (("--path", "a", "--path", "b", "--user", "me"), "--user me: belongs to --ceph"),
        (("--ceph", "x y"), "campaign.yaml:4: targets.rados.options.pool: 'x y'"),
        (("--path", "$", "--path", "b"), "first.options.path: path '$' has a $ that begins no"),
        (("--ceph", "p", "-o", "a b"), "--out a b: is there already"),
    ],
)
def test_what_makes_no_campaign_writes_nothing(
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "init", *words) == 2
    assert said in capsys.readouterr().err
    assert os.listdir() == ["a b"]


@pytest.mark.parametrize(
    ("answers", "file", "said"),
    [
        ("1\na b\n$SCRATCH\n", "campaign.yaml", "fsmatrix plan campaign.yaml"),
        ("2\nbench\n\n", "campaign.yaml", "fsmatrix plan campaign.yaml"),
        ("3\nold.json\n", "", "fsmatrix import old.json -o results.h5"),
        ("4\n\n/a\n/b\n", "campaign.yaml", "1, 2 or 3 [1]:"),
    ],
)
def test_three_questions_on_a_terminal(answers: str, file: str, said: str) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "fsmatrix.cli.main", "init"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as asking:
        os.write(ours, answers.encode())
        told, _ = asking.communicate(timeout=PATIENCE)
    os.close(ours)
    os.close(theirs)
    assert said in told
    assert Path("campaign.yaml").exists() == bool(file)
    if file:
        assert len(backends(file)) == 2
