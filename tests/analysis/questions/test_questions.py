"""All cells together, each pattern, each cell: each is corrected, and finds what is there."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from fsmatrix.analysis.comparison.compare import compare, comparisons
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.comparison.family import Subject, together
from tests.analysis.comparison.compared_campaigns import made

ALPHA = 0.05
WHOLE = Subject("", tuple(range(12)))
PATTERNS = [Subject(f"pattern {k}", tuple(range(4 * k, 4 * k + 4))) for k in range(3)]


def test_false_claims_of_any_question_are_as_rare_as_said() -> None:
    """Of all of them.  Nothing differs, or one pattern does: all cells but its own."""
    random = np.random.default_rng(1)
    campaigns, null, partly = 300, 0, 0
    asked = [WHOLE, *PATTERNS]
    for _ in range(campaigns):
        drawn = 0.07 * random.standard_normal((8, 12)) + 0.05 * random.standard_normal((8, 1))
        cells, p = together(drawn, np.arange(8), asked, (), ALPHA)
        null += min(cells.p.min(), p.min()) <= ALPHA
        drawn[:, :4] += 0.3
        cells, p = together(drawn, np.arange(8), asked, (), ALPHA)
        partly += min(cells.p[4:].min(), p[2:].min()) <= ALPHA
    assert null <= stats.binom.ppf(0.999, campaigns, ALPHA)
    assert partly <= stats.binom.ppf(0.999, campaigns, ALPHA)


def test_a_pattern_is_proven_where_its_cells_are_not_each() -> None:
    """The mean of four cells spreads half as much as one of them."""
    random = np.random.default_rng(2)
    cells, patterns = [], []
    for _ in range(60):
        drawn = 0.07 * random.standard_normal((8, 12))
        drawn[:, :4] += math.log(1.1)
        each, p = together(drawn, np.arange(8), [WHOLE, *PATTERNS], (), ALPHA)
        cells.append((each.p[:4] <= ALPHA).mean())
        patterns.append(p[1] <= ALPHA)
    assert np.mean(patterns) > 0.8
    assert np.mean(patterns) > np.mean(cells) + 0.1


def test_opposite_patterns_are_found_though_all_cells_together_do_not_differ() -> None:
    def opposite(row: dict[str, object]) -> dict[str, object]:
        ahead = (row["target"] == "a") == (row["pattern"] == "rand-read")
        speed = row["bandwidth"]
        assert isinstance(speed, float)
        return row | {"bandwidth": speed * (1.3 if ahead else 1.0)}

    found = compare(made({"a": 1.0, "b": 1.0}, change=opposite), "a", "b")
    kinds = {one.named: one.kind for one in found.questions}
    assert kinds == {"": found.mean_kind, "rand-read": "faster", "seq-write": "slower"}
    assert found.mean_kind == "no difference"
    (line,) = [line for line in found.says if line.startswith("By pattern a is, against b: ")]
    assert "rand-read 31 % faster in all 12 blocks" in line
    assert [one["cells"] for one in found.to_dict()["questions"]] == [4, 2, 2]


def test_each_pair_has_its_questions_and_without_common_blocks_there_are_none() -> None:
    three = comparisons(made({"a": 1.5, "b": 1.0, "c": 1.0}))
    assert [len(one.questions) for one in three] == [3, 3, 3]
    assert [one.mean_kind for one in three] == ["faster", "faster", "no difference"]
    alone = comparisons(made({"a": 1.5, "b": 1.0}, patterns=("seq-write",), chunks=(4096,)))
    assert alone[0].questions == ()
    held = compare(
        made({"a": 1.5, "b": 1.0}), "a", "b", options=ComparisonOptions(correction="holm")
    )
    assert held.questions == ()
    assert held.mean_kind == "faster"
