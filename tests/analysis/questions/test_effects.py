"""Effects of a campaign's factors: those that are there are found, others are not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fsmatrix.analysis.questions.effects import MOST_COLUMNS, effects
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies

LEVELS = {"pattern": ("seq-read", "rand-read"), "chunk": (4096, 65536), "storage_nodes": (2, 4)}


def truth(cell: studies.Levels) -> dict[str, float]:
    """Twice as fast with the larger chunk, more so if sequential; storage nodes do nothing."""
    speed = 2.0 if cell["chunk"] == 65536 else 1.0
    if cell["chunk"] == 65536 and cell["pattern"] == "seq-read":
        speed *= 1.5
    return {"bandwidth": 1e8 * speed}


def test_effects_that_are_there_are_found_and_no_others() -> None:
    found = effects(studies.campaign(truth, LEVELS, attachments=8), "bandwidth")
    assert isinstance(found, Result)
    table = found.table().set_index("term")
    assert table.loc["chunk size", "effect"] == "yes"
    assert table.loc["chunk size", "span"] == pytest.approx(2 * math.sqrt(1.5), rel=0.03)
    assert table.loc["chunk size", "tested"] == "within attachments"
    assert table.loc["pattern x chunk size", "effect"] == "yes"
    assert table.loc["storage nodes", "tested"] == "between attachments"
    assert table.loc["storage nodes", "effect"] == "not shown"
    assert found.says[0] == "What changes bandwidth, the most first:"
    assert found.says[1].startswith("  chunk size: up to ")
    assert any("Not shown to change it:" in line and "storage nodes" in line for line in found.says)


def test_null_campaigns_give_false_effects_at_most_at_the_declared_rate() -> None:
    wrong = 0
    for seed in range(60):
        ds = studies.campaign(lambda _: {"bandwidth": 1e8}, LEVELS, attachments=6, seed=seed)
        wrong += any(e.p_holm <= 0.05 for e in effects(ds, "bandwidth").anova.effects)
    assert wrong <= 9  # more: a probability of 0.1 % if the rate were 5 %


def test_factors_can_be_chosen_and_what_is_left_out_is_said() -> None:
    ds = studies.campaign(truth, LEVELS)
    found = effects(ds, "bandwidth", factors=["chunk", "pattern"], order=1)
    assert set(found.table()["term"]) == {"chunk size", "pattern"}
    assert any("storage nodes are taken together" in line for line in found.says)


def test_json_and_figure() -> None:
    found = effects(studies.campaign(truth, LEVELS), "bandwidth")
    assert json.loads(json.dumps(found.to_dict()))["metric"] == "bandwidth"
    axes = found.figure().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(found.table()["term"])
    assert "share" in axes.get_xlabel()
    filled = [patch.get_facecolor()[:3] != (1, 1, 1) for patch in axes.patches]
    assert filled == [effect == "yes" for effect in found.table()["effect"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"factors": ["interface"]}, "no factor 'interface' that varies"),
        ({"order": 4}, "order 4"),
        ({"where": {"chunk": 1}}, "no runs with chunk 1"),
    ],
)
def test_bad_input_says_what_is_allowed(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        effects(studies.campaign(truth, LEVELS), "bandwidth", **options)  # type: ignore[arg-type]


def test_one_level_one_value_constant_and_failed_campaigns() -> None:
    one = {"chunk": (4096,)}
    with pytest.raises(ValueError, match="no factor varies"):
        effects(studies.campaign(lambda _: {"bandwidth": 1.0}, one), "bandwidth")
    single = effects(studies.campaign(truth, LEVELS, attachments=1), "bandwidth")
    assert any("not known: " in line for line in single.says)
    still = studies.campaign(lambda _: {"bandwidth": 1.0}, LEVELS, between=0.0, within=0.0)
    constant = effects(still, "bandwidth")
    assert not constant.anova.effects
    with pytest.raises(ValueError, match="nothing to draw"):
        constant.figure()
    failed = studies.campaign(truth, LEVELS)
    failed["status"] = ("run", np.array(["failed"] * failed.sizes["run"]))
    with pytest.raises(ValueError, match="no run gave any bandwidth"):
        effects(failed, "bandwidth")


def test_missing_cells_are_not_invented() -> None:
    ds = studies.campaign(
        truth, LEVELS, keep=lambda c: not (c["chunk"] == 4096 and c["storage_nodes"] == 4)
    )
    found = effects(ds, "bandwidth")
    assert any("cannot be told from other terms" in why for _, why in found.anova.missing)


def test_a_design_that_is_too_large_is_refused() -> None:
    levels = {"chunk": tuple(range(1, 40)), "processes_per_node": tuple(range(1, 40))}
    ds = studies.campaign(lambda _: {"bandwidth": 1e8}, levels, attachments=1)
    with pytest.raises(ValueError, match=str(MOST_COLUMNS)):
        effects(ds, "bandwidth")
