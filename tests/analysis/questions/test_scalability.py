"""Scalability over storage nodes: ratios, laws with a known truth, what cannot be said."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.questions.scalability import (
    Laws,
    Scalability,
    fit,
    reached,
    scalability,
    throughput,
)
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies
from tests.analysis.study_data import Levels

MANY = (1, 2, 3, 4, 6, 8, 12, 16)


def law(sigma: float, kappa: float) -> studies.Truth:
    def truth(cell: Levels) -> dict[str, float]:
        n = np.array([float(cell["storage_nodes"])])
        return {"bandwidth": float(throughput(n, 1e8, sigma, kappa)[0])}

    return truth


def scaled(truth: studies.Truth, nodes: tuple[int, ...] = MANY, **others: object) -> Scalability:
    ds = studies.campaign(truth, {"storage_nodes": nodes}, **others)  # type: ignore[arg-type]
    return scalability(ds, "bandwidth")


def test_speed_up_and_efficiency_against_the_fewest_nodes() -> None:
    made = scaled(law(0.1, 0.0), (2, 3, 4, 5), attachments=8)
    assert isinstance(made, Result)
    (series,) = made.series
    x = throughput(np.array([2.0, 3, 4, 5]), 1, 0.1, 0)
    for step, true in zip(series.steps, x / x[0], strict=True):
        assert step.ratio == pytest.approx(true, rel=0.1)
        assert step.low <= step.ratio <= step.high
        assert step.decides
        assert step.efficiency == pytest.approx(step.ratio / (step.nodes / 2))
    assert series.laws is None
    assert series.why_no_laws.startswith("4 numbers of storage nodes")
    assert any("needs at least 6" in said for said in made.says)


def test_ratio_intervals_cover_the_truth() -> None:
    x = throughput(np.array([2.0, 5.0]), 1, 0.1, 0)
    inside = []
    for seed in range(150):
        step = scaled(law(0.1, 0), (2, 5), attachments=8, repetitions=2, between=0.1, seed=seed)
        last = step.series[0].steps[-1]
        inside.append(last.low <= x[1] / x[0] <= last.high)
    assert np.mean(inside) >= 0.95 - 2.6 * math.sqrt(0.95 * 0.05 / 150)


@pytest.mark.parametrize(("sigma", "kappa"), [(0.1, 0.0), (0.05, 0.01), (0.3, 0.002)])
def test_intervals_of_the_laws_cover_their_parameters(sigma: float, kappa: float) -> None:
    inside: list[bool] = []
    for seed in range(40):
        ds = studies.campaign(law(sigma, kappa), {"storage_nodes": MANY}, attachments=5, seed=seed)
        found = scalability(ds, "bandwidth").series[0].laws
        assert found is not None
        inside += [found.usl.sigma.low <= sigma <= found.usl.sigma.high]
        inside += [found.usl.kappa.low <= kappa <= found.usl.kappa.high]
    assert np.mean(inside) >= 0.95 - 2.6 * math.sqrt(0.95 * 0.05 / 40)


@pytest.mark.parametrize(("sigma", "kappa"), [(0.05, 0.0), (0.05, 0.001), (0.02, 0.0005)])
def test_the_interval_of_extrapolated_nodes_covers_the_true_number(
    sigma: float, kappa: float
) -> None:
    """Nodes beyond those that were measured, whichever law is taken."""
    true, trials = 24.0, 60
    wanted = float(throughput(np.array([true]), 1e8, sigma, kappa)[0])
    rng = np.random.default_rng(3)
    means = np.log(throughput(np.array(MANY, dtype=float), 1e8, sigma, kappa))
    held, low = 0, []
    for seed in range(trials):
        values = [np.exp(mean + rng.normal(0, 0.02, 6)) for mean in means]
        made = fit(np.array(MANY, dtype=float), values, seed)
        assert isinstance(made, Laws)
        found = made.nodes_for(wanted)
        held += found.low <= true <= found.high
        low.append(found.low)
    assert held >= stats.binom.ppf(1e-3, trials, 0.95)
    assert np.median(low) > 0.7 * true  # upwards it may be "never": the peak can be near


def test_what_a_law_never_reaches() -> None:
    never = reached(2e8, np.array([1e8]), np.array([0.6]), np.array([0.0]))
    assert np.isinf(never).all()
    beyond = reached(1e9, np.array([1e8]), np.array([0.05]), np.array([0.01]))
    assert np.isinf(beyond).all()
    five = throughput(np.array([5.0]), 1e8, 0.05, 0.01)
    assert reached(five[0], np.array([1e8]), np.array([0.05]), np.array([0.01])) == (
        pytest.approx([5.0])
    )


def test_amdahl_and_the_usl_are_told_apart_only_where_the_data_can() -> None:
    false = sum(
        laws_of(scaled(law(0.1, 0.0), attachments=6, seed=seed)).apart for seed in range(40)
    )
    assert false <= 4  # 2.5 % of 40 is 1; P(more than 4) is 0.3 %
    found = laws_of(scaled(law(0.05, 0.01), attachments=6))
    assert found.apart
    assert found.chosen.name == "USL"
    peak = math.sqrt((1 - 0.05) / 0.01)
    assert found.usl.peak.low <= peak <= found.usl.peak.high
    assert "the most is reached at" in found.says
    alike = laws_of(scaled(law(0.1, 0.0), attachments=6))
    assert "Amdahl's law describes it" in alike.says
    assert "is not shown" in alike.says
    assert alike.amdahl.sigma.low <= 0.1 <= alike.amdahl.sigma.high


@pytest.mark.parametrize("kappa", [0.0, 0.002, 0.01])
def test_table_sentence_line_and_lesson_name_one_law(kappa: float) -> None:
    """Not one by AICc, the other by kappa's interval: the law is named by the latter."""
    names: list[str] = []
    for seed in range(12):
        ds = studies.campaign(
            law(0.05, kappa),
            {"storage_nodes": MANY},
            attachments=6,
            between=0.04,
            within=0.01,
            seed=seed,
        )
        made = scalability(ds, "bandwidth")
        found = laws_of(made)
        if not found.hold:  # 5 %: a true law is refused
            continue
        (name,) = set(made.table()["law"])
        assert name == ("USL" if found.usl.kappa.low > 0 else "Amdahl")
        assert set(made.table()["kappa"]) == {found.usl.kappa.value if found.apart else 0.0}
        (said,) = [text for text in made.says if "describes it" in text]
        assert ("the USL describes it" in said) == (name == "USL")
        (drawn,) = [line for line in made.figure().axes[0].get_lines() if line.get_linewidth() == 4]
        last = float(found.chosen.at(np.array([16.0]))[0])
        assert float(drawn.get_ydata()[-1]) * made.unit.divisor == pytest.approx(last)  # type: ignore[index, arg-type]
        (lesson,) = [one for one in lessons(ds, bandwidth=2e9).lessons if one.question == "nodes"]
        assert f"({name}'s law, fitted)" in lesson.why
        names.append(name)
    least, most = {0.0: (0, 2), 0.002: (0, 12), 0.01: (9, 12)}[kappa]
    assert len(names) >= 10
    assert least <= names.count("USL") <= most


def laws_of(made: Scalability) -> Laws:
    found = made.series[0].laws
    assert found is not None
    return found


def test_more_than_proportional_growth_is_said_to_be_outside_the_laws() -> None:
    made = scaled(lambda c: {"bandwidth": 1e8 * c["storage_nodes"] ** 1.3}, attachments=6)
    assert laws_of(made).superlinear
    assert any("neither law can say that" in said for said in made.says)


def test_a_hard_cap_is_no_law_and_is_said_as_measured() -> None:
    """min(N, 4): the USL would have its most at 6 to 8 nodes, which nobody measured."""
    for seed in range(10):
        made = scaled(
            lambda c: {"bandwidth": 1e8 * min(c["storage_nodes"], 4)}, attachments=6, seed=seed
        )
        found = laws_of(made)
        assert not found.hold
        assert found.top.enough == 4
        (said,) = [text for text in made.says if "neither law describes it" in text]
        assert "from 4 nodes on no gain is shown; 16 nodes have " in said
        assert "law" not in made.table()
        assert not [x for x in made.figure().axes[0].get_lines() if x.get_linewidth() == 4]


def test_a_fall_is_said_as_measured() -> None:
    made = scaled(
        lambda c: {"bandwidth": 1e8 * (4 if c["storage_nodes"] == 4 else 2)}, attachments=6
    )
    assert "the most is measured at 4 nodes; 16 nodes have 0.5" in laws_of(made).says


def test_a_true_law_is_rarely_refused() -> None:
    rng = np.random.default_rng(5)
    nodes, refused = np.array(MANY, dtype=float), 0
    for seed in range(60):
        means = throughput(nodes, 1e8, 0.05, 0.01)
        made = fit(nodes, [mean * np.exp(rng.normal(0, 0.05, 6)) for mean in means], seed)
        assert isinstance(made, Laws)
        refused += not made.hold
    assert refused <= stats.binom.ppf(0.999, 60, 0.05)


def test_one_value_per_level_gives_no_law_and_no_interval() -> None:
    made = scaled(law(0.1, 0), attachments=1)
    assert made.series[0].laws is None
    assert "spread is unknown" in made.series[0].why_no_laws
    assert not made.series[0].steps[-1].decides
    assert any("too few attachments" in said for said in made.says)


def test_lines_are_apart_and_drawn_as_in_the_paper() -> None:
    made = scalability(
        studies.table3((2, 3, 4, 5), attachments=6), "bandwidth", where={"interface": "PCIe"}
    )
    assert len(made.series) == 4 * 4 * 3
    figure = made.figure()
    assert len(figure.axes) == 12
    assert figure.axes[0].get_title() == "4 KiB, 1 process"
    assert figure.axes[1].get_title() == "128 KiB, 1 process"
    assert figure.axes[4].get_title() == "4 KiB, 8 processes"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == list(studies.PATTERNS)
    assert all(ax.get_ylim()[0] == 0 for ax in figure.axes)
    ratios = [s.steps[-1].ratio for s in made.series]
    assert np.median(ratios) == pytest.approx((5 / 2) ** 0.5, rel=0.03)
    json.dumps(made.to_dict(), allow_nan=False)
    assert len(made.table()) == 48 * 4


def test_a_latency_has_ratios_but_no_efficiency_and_no_law() -> None:
    made = scalability(studies.table3((2, 3, 4, 5), attachments=6), "latency_mean")
    assert {s.why_no_laws for s in made.series} == {"a latency is no throughput"}
    assert all(math.isnan(step.efficiency) for s in made.series for step in s.steps)
    assert any("one number of storage nodes only" in said for said in made.says)  # SATA


def test_bad_campaigns_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="no factor storage_nodes"):
        scalability(studies.campaign(studies.hockney, studies.PAPER), "bandwidth")
    own = studies.campaign(
        law(0, 0), {"storage_nodes": (2, 3)}, attachments=2, emulated=["storage_nodes"]
    )
    names = np.array([f"ceph-{n}" for n in own["storage_nodes"].values])
    with pytest.raises(ValueError, match="each target has its own number of storage nodes"):
        scalability(own.assign(target=("run", names)), "bandwidth")
    with pytest.raises(ValueError, match="no run gave"):
        scalability(own.assign(status=("run", np.full(own.sizes["run"], "failed"))), "bandwidth")


def test_missing_values_and_missing_levels() -> None:
    ds = studies.table3((2, 3, 4, 5), attachments=3)
    values = ds["bandwidth"].values.copy()
    values[ds["storage_nodes"].values == 3] = np.nan
    made = scalability(ds.assign(bandwidth=("run", values)), "bandwidth")
    assert {step.nodes for s in made.series for step in s.steps} == {2, 4, 5}
    constant = scaled(lambda _: {"bandwidth": 7.0}, between=0, within=0)
    assert [step.ratio for step in constant.series[0].steps] == [1.0] * len(MANY)
