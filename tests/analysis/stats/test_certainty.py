"""One language: each question's own answers have one of five certainties, in every --json too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from fsmatrix.analysis.acceptance.acceptance import Condition, Outcome
from fsmatrix.analysis.acceptance.acceptance import State as Acceptance
from fsmatrix.analysis.lessons.lessons_result import FORMER
from fsmatrix.analysis.lessons.lessons_words import STATES
from fsmatrix.analysis.questions.bottleneck import bottleneck_result as bottleneck
from fsmatrix.analysis.stats.certainty import WEAKEST_FIRST, Certainty
from fsmatrix.analysis.stats.testing import verdict
from fsmatrix.analysis.studies.claims import judge
from tests.analysis import campaigns, commands
from tests.analysis.comparison.test_words import CAMPAIGNS


def test_every_answer_of_every_question_has_a_certainty() -> None:
    assert set(get_args(verdict.Kind)) == set(verdict.CERTAINTY)
    assert set(get_args(judge.Kind)) == set(judge.CERTAINTY)
    assert set(FORMER) == set(STATES)
    assert set(WEAKEST_FIRST) == set(Certainty) - {Certainty.INVALID}
    assert {Outcome(Condition("slower"), s, 0.5).certainty for s in get_args(Acceptance)} == {
        Certainty.PROVEN,
        Certainty.UNDECIDED,
    }
    growths, states = get_args(bottleneck.Growth), get_args(bottleneck.State)
    assert {bottleneck.certainty(answer) for answer in growths} == {
        Certainty.PROVEN,
        Certainty.UNDECIDED,
    }
    assert bottleneck.certainty("not measured") is Certainty.INVALID
    assert set(bottleneck.CERTAINTY) < {*growths, *states}


@pytest.mark.parametrize("name", ["mixed", "few"])
def test_every_command_says_how_sure_in_the_same_words(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = campaigns.write(tmp_path / "campaign.h5", CAMPAIGNS[name]())

    def told(*words: str) -> Any:
        assert commands.call(monkeypatch, words[0], file, *words[1:], "--json") == 0
        return json.loads(capsys.readouterr().out)

    compared = told("compare", "--targets", "ext4,xfs")
    cells = [cell for comparison in compared for cell in comparison["cells"]]
    lessons = [entry for entry in told("lessons")["lessons"] if entry["sure"] != "not asked"]
    shown = told("show")
    for answers in (cells, lessons, shown):
        assert answers
        assert {answer["certainty"] for answer in answers} <= set(Certainty)
    proven = {"mixed": True, "few": False}[name]
    assert any(cell["certainty"] == "proven" for cell in cells) is proven
    assert any(cell["certainty"] == "proven" for cell in shown) is proven
    assert {cell["kind"] for cell in cells if cell["certainty"] == "proven"} <= {"faster", "slower"}
