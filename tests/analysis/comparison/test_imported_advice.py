"""What the answers to imported runs ask for: nothing that an import cannot give."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import xarray as xr

from fsmatrix.analysis.comparison import comparison_result
from fsmatrix.analysis.comparison.compare import comparisons
from fsmatrix.analysis.comparison.comparison_result import extension_of
from fsmatrix.analysis.data.load import campaign_json
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.lessons.first_screen import sentences
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.lessons.lessons_words import Bound
from fsmatrix.analysis.lessons.standings import standings
from fsmatrix.analysis.questions.variability import variability
from fsmatrix.analysis.stats.words import IMPORTED
from fsmatrix.cli.questions import compare as cli
from tests.analysis.lesson_data import MIB, targets

SPEED = {"a": {"seq-read": 4e8, "rand-read": 1e8}, "b": {"seq-read": 2e8, "rand-read": 2e8}}
MORE = re.compile(r"\b[56] (more|in all|blocks?|attachments?|are needed)|takes (6|several|more)")


def one_block(repetitions: int, imported: bool = True) -> xr.Dataset:
    """Two targets at three chunk sizes, all in one attachment."""
    ds = targets(
        SPEED, attachments=repetitions, sizes=(MIB // 4, MIB, 4 * MIB), latency_p99=lambda *_: 0.01
    )
    ds["attachment"][:], ds["block"][:] = "im", 0
    plan: dict[str, Any] = {"name": "x", "repetitions": repetitions, "block": repetitions}
    ds.attrs["campaign"] = json.dumps({"imported": True} if imported else plan)
    return ds


@pytest.mark.parametrize("repetitions", [1, 3])
def test_no_answer_to_an_import_asks_for_more(repetitions: int, capsys: Any) -> None:
    ds = one_block(repetitions)
    compared = comparisons(ds)
    said = sentences(standings(summarise(ds), compared), campaign_json(ds), "")
    assert said.todo == f"{IMPORTED}; see the differences:"
    cli.show_comparison(compared, True)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Nothing was tested." in printed
    learned = lessons(ds, latency_bound=Bound("latency_p99", 0.01))
    needed = variability(ds, question="repetitions")
    assert needed.says == [f"{IMPORTED}."]
    shown = needed.table().to_string()
    told = [*learned.says, *learned.brief]
    for text in (said.answer, said.against, printed, " ".join(told), shown):
        assert not MORE.search(text), text
    for texts in (printed, " ".join(learned.says), " ".join(learned.brief)):
        assert texts.count(IMPORTED) == 1


def test_one_run_per_cell_needs_more_measurements() -> None:
    ds = one_block(1, imported=False)
    compared = comparisons(ds)
    said = sentences(standings(summarise(ds), compared), campaign_json(ds), "out")
    assert said.todo == "Add 5 blocks (6 in all), the fewest that can prove anything:"
    assert said.command == "fsmatrix run -o out --resume --set repetitions=6"
    assert extension_of(compared).cells == 6
    assert comparison_result.how_tested(compared) == "Nothing was tested: it takes several blocks."
