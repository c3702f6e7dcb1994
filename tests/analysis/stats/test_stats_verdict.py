"""Verdicts: a pure function, what it says, and false claims over whole null campaigns."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fsmatrix.analysis.stats.estimates import intervals
from fsmatrix.analysis.stats.testing import verdict


def sure(shift: float, n: int = 30, spread: float = 0.01, seed: int = 1) -> intervals.Ratio:
    random = np.random.default_rng(seed)
    a, b = spread * random.standard_normal((2, n))
    return intervals.from_logs((a + shift, b))


@pytest.mark.parametrize(
    ("shift", "more_is_faster", "kind"),
    [(0.3, True, "faster"), (-0.3, True, "slower"), (0.3, False, "slower"),
     (-0.3, False, "faster"), (0.0, True, "no difference"), (0.02, True, "no difference")],
)  # fmt: skip
def test_clear_cases(shift: float, more_is_faster: bool, kind: str) -> None:
    cells = [sure(shift)] * 3
    found = verdict.verdicts(cells, 0.05, more_is_faster=more_is_faster)
    assert [v.kind for v in found] == [kind] * 3
    if kind == "no difference":
        assert "no difference larger than 5 %" in found[0].says
    json.dumps(found[0].to_dict(), allow_nan=False)


def test_close_to_the_tolerance_is_neither() -> None:
    found = verdict.verdicts([sure(0.048, spread=0.06)], 0.05)[0]
    assert found.kind in ("faster", "too few")
    wide = verdict.verdicts([sure(0.01, n=8, spread=0.1)], 0.05)[0]
    assert wide.kind == "too few"
    assert wide.needed is not None
    assert (wide.needed.needed or 0) > 8
    assert "more" in wide.says


def test_claims_of_equivalence_have_equal_shares() -> None:
    """Whatever the others say: a cell that is alike for sure gives its share to no other."""
    clear, near = sure(0.0, n=12), sure(0.03, n=12, spread=0.02)
    alone = near.p_equal(0.05)
    assert clear.p_equal(0.05) < 0.01 < alone < 0.1
    found = [
        verdict.verdicts([clear, near], 0.05)[1],
        verdict.verdicts([clear, near], 0.05, claims=8)[1],
        verdict.verdicts([clear, near], 0.05, correction="none")[1],
    ]
    assert [one.p_equal for one in found] == pytest.approx([2 * alone, 8 * alone, alone])


def test_few_repetitions_say_how_many_can_decide() -> None:
    found = verdict.verdicts([sure(0.3, n=6)] * 48, 0.05)[0]
    assert found.kind == "too few"
    assert "6 attachments are too few for one of 48 cells; 11 are needed" in found.says
    alone = verdict.verdicts([sure(0.3, n=5)], 0.05)[0]
    assert alone.kind == "too few"
    assert "5 attachments are too few; 6 are needed" in alone.says
    session = verdict.verdicts([sure(0.3, n=1)], 0.05)[0]
    assert "in one attachment: others may differ" in session.says
    nothing = verdict.verdicts([intervals.from_logs((np.empty(0), np.empty(0)))], 0.05)[0]
    assert nothing.kind == "no data"


@given(
    low=st.floats(0.2, 2),
    width=st.floats(1, 3),
    p=st.floats(0, 1),
    q=st.floats(0, 1),
    x=st.floats(0.01, 1),
)
def test_judge_claims_only_what_interval_and_p_say(
    low: float, width: float, p: float, q: float, x: float
) -> None:
    base = sure(0.0, n=8)
    high = low * width
    interval = intervals.Ratio(
        **{**base.__dict__, "ratio": (low * high) ** 0.5, "low": low, "high": high}
    )
    kind = verdict.judge(interval, p, q, x)
    inside = 1 / (1 + x) <= low and high <= 1 + x
    if kind == "faster":
        assert low > 1
        assert p <= 0.05
        assert not (inside and q <= 0.05)
    if kind == "slower":
        assert high < 1
        assert p <= 0.05
    if kind == "no difference":
        assert inside
        assert q <= 0.05
    mirror = intervals.Ratio(**{**interval.__dict__, "low": 1 / high, "high": 1 / low})
    opposite = {"faster": "slower", "slower": "faster"}
    assert verdict.judge(interval, p, q, x, more_is_faster=False) == opposite.get(kind, kind)
    assert verdict.judge(mirror, p, q, x) in (opposite.get(kind, kind), "too few", "no difference")


@pytest.mark.parametrize("x", [0.0, -0.1, float("nan")])
def test_a_tolerance_must_be_declared(x: float) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        verdict.verdicts([sure(0.0)], x)


def _campaign(
    random: np.random.Generator, n: int, shift: float, spread: float, paired: bool
) -> list[intervals.Ratio]:
    """24 cells that share the session effects of their attachments, heavy-tailed."""
    a, b = (
        spread * random.standard_t(3, (n, 1)) + spread * random.standard_t(3, (n, 24)) for _ in "ab"
    )
    if paired:
        return [intervals.from_logs((d,)) for d in (a - b).T + shift]
    return [intervals.from_logs(pair) for pair in zip(a.T + shift, b.T, strict=True)]


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n", [12, 30])
def test_false_claims_in_200_null_campaigns(n: int, paired: bool) -> None:
    """Any false claim in at most 5 % of the campaigns, within the binomial error of 200."""
    random = np.random.default_rng(n)
    differs = equal = 0
    for _ in range(200):
        null = verdict.verdicts(_campaign(random, n, 0.0, 0.05, paired), 0.05)
        differs += any(v.kind in ("faster", "slower") for v in null)
        edge = verdict.verdicts(_campaign(random, n, np.log(1.05), 0.01, paired), 0.05)
        equal += any(v.kind == "no difference" for v in edge)
    most = stats.binom.ppf(0.999, 200, 0.05)
    assert differs <= most
    assert equal <= most


def test_power_at_three_standard_deviations() -> None:
    random = np.random.default_rng(9)
    spread, found = 0.02, 0
    for _ in range(100):
        a, b = spread * random.standard_normal((2, 12))
        found += verdict.verdicts([intervals.from_logs((a + 3 * spread, b))], 0.01)[0].kind == (
            "faster"
        )
    assert found >= 90
