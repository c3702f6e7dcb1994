"""Each audit: a record on which it fires, and one on which it must not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results.audits import audit_run, engines, run_audits
from fsmatrix.results.files.runfile import read_run, write_run
from tests.results.audit_records import found
from tests.results.audits.trials import TRIALS
from tests.results.judged_records import replay, stonewalled

DOCS = Path(__file__).parents[3] / "docs/audits.md"


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(name, index, id=f"{name}-{index}")
        for name, trial in TRIALS.items()
        for index in range(len(getattr(trial, kind)))
    ]


def test_every_audit_is_tried() -> None:
    """Those of external engines: test_audits_engines.py."""
    assert set(TRIALS) == set(run_audits()) - {audit.name for audit in engines.ENGINES}
    assert all(trial.fires and trial.silent for trial in TRIALS.values())


@pytest.mark.parametrize(("name", "index"), cases("fires"))
def test_fires(name: str, index: int) -> None:
    made = TRIALS[name].fires[index]()
    assert found(made, name) == [TRIALS[name].severity]


@pytest.mark.parametrize(("name", "index"), cases("silent"))
def test_silent(name: str, index: int) -> None:
    made = TRIALS[name].silent[index]()
    assert found(made, name) == []


def test_findings_survive_the_store(tmp_path: Path) -> None:
    """Whatever an audit gives as evidence can be written and read again."""
    for name, trial in TRIALS.items():
        for index, make in enumerate(trial.fires):
            findings = audit_run(make())
            path = tmp_path / f"{name}-{index}.h5"
            write_run(path, replace(make(), findings=findings))
            assert read_run(path).findings == findings


def test_audits_are_pure_functions_of_what_is_stored(tmp_path: Path) -> None:
    """Judging the file again gives the same findings."""
    for trial in TRIALS.values():
        path = tmp_path / "run.h5"
        write_run(path, trial.fires[0]())
        assert audit_run(read_run(path)) == audit_run(trial.fires[0]())


def test_a_replay_that_played_nothing_is_invalid_and_says_why() -> None:
    (finding,) = [f for f in audit_run(replay(0, 0)) if f.audit == "replay-fidelity"]
    assert finding.severity == "invalid"
    reason = "none of 100 chosen operations was played: 100 x read skipped (no such kind)"
    assert finding.message == reason


def test_errors_of_a_replay_are_its_fidelitys() -> None:
    failed = replay(98)
    (made,) = failed.phases
    errors = replace(made, errors=made.errors + 1, errors_by_errno={"ENOENT": 4})
    assert "errors-ignored" not in {f.audit for f in audit_run(replace(failed, phases=(errors,)))}
    plain = replace(errors, facts={})
    assert "errors-ignored" in {f.audit for f in audit_run(replace(failed, phases=(plain,)))}


def test_every_audit_is_documented() -> None:
    """docs/audits.md has a row for each audit, with its scope and severity, and none besides."""
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in DOCS.read_text().splitlines()
        if line.startswith("| `") and line.count("|") == 6
    ]
    assert [row[0] for row in rows] == list(run_audits())
    for name, scope, severities, *_ in rows:
        assert run_audits()[name].scope == scope
        assert name not in TRIALS or TRIALS[name].severity in severities
    noted = {name: severity for name, severity, _ in engines.NOTES.values()}
    assert {row[0]: row[2] for row in rows if row[0] in noted} == noted


def test_a_fixed_time_in_which_nothing_was_done_is_invalid() -> None:
    made = stonewalled(operations=np.array([0, 0, 0, 0]))
    assert found(made, "idle-workers") == ["invalid"]
    assert found(made, "ended-early") == []
