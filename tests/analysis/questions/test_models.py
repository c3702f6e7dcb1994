"""Models over chunk size: known truths are found, held-out errors are apart, intervals cover."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.questions.models.models import models
from fsmatrix.analysis.questions.models.models_result import Models
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies
from tests.analysis.study_data import KIB, MIB, PAPER, Levels

WIDE = {"processes_per_node": (1, 2, 4, 8), "chunk": tuple(4 * KIB << i for i in range(0, 12, 2))}
T0, RATE = 3e-4, 5e8


def fixed_cost(cell: Levels) -> dict[str, float]:
    time = T0 + cell["chunk"] / RATE
    return {"bandwidth": cell["chunk"] / time, "iops": 1 / time, "latency_mean": time}


def roof(cell: Levels) -> dict[str, float]:
    return {"bandwidth": cell["chunk"] / max(T0, cell["chunk"] / RATE)}


def power(cell: Levels) -> dict[str, float]:
    return {"bandwidth": 1e6 * (cell["chunk"] / 4096) ** 0.45}


def line_in_log(cell: Levels) -> dict[str, float]:
    return {"bandwidth": 1e7 * (1 + math.log2(cell["chunk"] / 4096))}


def bent(cell: Levels) -> dict[str, float]:
    x = math.log(cell["chunk"] / MIB)
    return {"bandwidth": 1e9 * math.exp(0.2 * x - 0.15 * x * x)}


@pytest.mark.parametrize(
    ("truth", "form"),
    [
        (fixed_cost, "fixed cost"), (roof, "roof"), (power, "power law"),
        (line_in_log, "line in log chunk"), (bent, "bent power law"),
    ],
)  # fmt: skip
def test_cross_validation_finds_the_form_of_the_truth(truth: studies.Truth, form: str) -> None:
    ds = studies.campaign(truth, WIDE, attachments=8, between=0.01, within=0.01)
    made = models(ds, "bandwidth", hold_out=None)
    chosen = [model.form.name for model in made.models]
    if truth is power:  # a bend of nothing is the same curve
        assert set(chosen) <= {form, "bent power law"}
    else:
        assert chosen.count(form) >= 3  # one of four may follow its noise
    best = next(model for model in made.models if model.form.name == form)
    assert any(best.form.formula in said and best.form.reason in said for said in made.says)


@pytest.mark.parametrize("metric", ["bandwidth", "iops", "latency_mean"])
def test_parameters_of_a_fixed_cost_are_recovered_from_any_metric(metric: str) -> None:
    alone = {**WIDE, "processes_per_node": (1,)}
    ds = studies.campaign(fixed_cost, alone, attachments=8, between=0.01, within=0.01)
    fitted = models(ds, metric, form="fixed cost", hold_out=None).models
    assert fitted
    for model in fitted:
        assert model.parameters["t0_s"] == pytest.approx(T0, rel=0.03)
        assert model.parameters["rate_bytes_per_s"] == pytest.approx(RATE, rel=0.03)


@pytest.mark.parametrize("form", ["fixed cost", "roof"])
@pytest.mark.parametrize("metric", ["bandwidth", "iops"])
def test_t0_is_what_one_process_waits_however_many_there_are(metric: str, form: str) -> None:
    """From the bandwidth of 8 processes on each of 2 nodes it was a sixteenth of that."""
    levels = {"nodes": (1, 2), **WIDE}

    def many(cell: Levels) -> dict[str, float]:
        at_once = cell["nodes"] * cell["processes_per_node"]
        free, moving = T0, at_once * cell["chunk"] / RATE
        iops = at_once / (free + moving if form == "fixed cost" else max(free, moving))
        return {"bandwidth": cell["chunk"] * iops, "iops": iops}

    ds = studies.campaign(many, levels, attachments=8, between=0.01, within=0.01)
    found = models(ds, metric, form=form, hold_out=None).models
    assert len(found) == 8
    for model in found:
        assert model.parameters["t0_s"] == pytest.approx(T0, rel=0.1)
    alone = studies.campaign(fixed_cost, {"chunk": WIDE["chunk"]}, attachments=8)
    (unknown,) = models(alone, "bandwidth", form=form, hold_out=None).models
    assert math.isnan(unknown.parameters["t0_s"])  # of how many processes is not recorded


@pytest.mark.parametrize("cost", [T0, 2e-6])
@pytest.mark.parametrize("attachments", [4, 8])
def test_intervals_of_t0_and_rate_cover(attachments: int, cost: float) -> None:
    """Also where t0 can hardly be told from 0; attachments that differ by as much as runs."""

    def truth(cell: Levels) -> dict[str, float]:
        return {"bandwidth": cell["chunk"] / (cost + cell["chunk"] / RATE)}

    held = {"t0_s": 0, "rate_bytes_per_s": 0}
    trials = 150
    for seed in range(trials):
        levels = {"processes_per_node": (1,), "chunk": WIDE["chunk"]}
        ds = studies.campaign(
            truth, levels, attachments=attachments, between=0.05, within=0.05, seed=seed
        )
        (model,) = models(ds, "bandwidth", form="fixed cost", hold_out=None).models
        for name, true in {"t0_s": cost, "rate_bytes_per_s": RATE}.items():
            low, high = model.parameter_bounds()[name]
            held[name] += low <= true <= high
    least = stats.binom.ppf(1e-3, trials, 0.95)
    assert all(number >= least for number in held.values())


def test_the_held_out_level_is_in_no_fit_and_its_error_is_apart() -> None:
    ds = studies.campaign(fixed_cost, PAPER, attachments=8)
    broken = ds.assign(bandwidth=ds["bandwidth"] * np.where(ds["chunk"] == MIB, 0.5, 1.0))
    good, bad = models(ds, "bandwidth"), models(broken, "bandwidth")
    assert isinstance(good, Result)
    assert len(good.models) == 12
    assert all(MIB not in model.chunks for model in good.models)
    assert not any(check.outside for check in good.fits.checks)
    assert [m.parameters for m in bad.models] == [m.parameters for m in good.models]
    assert [m.rmse for m in bad.models] == [m.rmse for m in good.models]
    assert all(check.outside for check in bad.fits.checks)
    table = bad.table()
    assert (table["held-out error"] > 0.8).all()
    assert (table["in-sample R2"] > 0.98).all()
    assert any("12 of 12 measured medians lie outside" in said for said in bad.says)
    assert any("bent power law (3 parameters)" in said for said in good.says)


def test_in_sample_errors_are_those_of_the_attachments_in_the_unit_of_the_paper() -> None:
    ds = studies.campaign(fixed_cost, {"chunk": studies.CHUNKS}, attachments=6)
    made = models(ds, "bandwidth", form="fixed cost")
    kept = ds.isel(run=np.flatnonzero(ds["chunk"].values != MIB))
    expected = made.models[0].curve.at(kept["chunk"].values.astype(float))[0]
    values = kept["bandwidth"].values
    rmse = float(np.sqrt(np.mean((values - expected) ** 2)))
    assert made.table()["in-sample RMSE, Mb/s"][0] == pytest.approx(rmse * 8 / 1e6)
    rest = 1 - np.sum((values - expected) ** 2) / np.sum((values - values.mean()) ** 2)
    assert made.table()["in-sample R2"][0] == pytest.approx(rest)


def coverage(made: Models, truth: studies.Truth, rng: np.random.Generator, spread: float) -> float:
    inside = []
    for model in made.models:
        found = model.predict(MIB)
        level = truth({**dict(model.key), "chunk": MIB})["bandwidth"]
        new = level * float(np.exp(rng.normal(0, spread)))
        inside.append(found.low <= new <= found.high)
    return float(np.mean(inside))


@pytest.mark.parametrize("attachments", [2, 3, 8])
def test_prediction_intervals_cover_a_new_attachment(attachments: int) -> None:
    rng = np.random.default_rng(5)
    spread = math.hypot(0.06, 0.02)
    shares = [
        coverage(
            models(
                studies.campaign(
                    fixed_cost, PAPER, attachments=attachments, between=0.06, seed=seed
                ),
                "bandwidth",
                form="fixed cost",
            ),
            fixed_cost,
            rng,
            spread,
        )
        for seed in range(25)
    ]
    error = np.std(shares, ddof=1) / math.sqrt(len(shares))  # groups share attachments
    assert np.mean(shares) >= 0.95 - 2.6 * error
    assert np.mean(shares) > 0.9


def test_one_attachment_has_no_prediction_interval() -> None:
    made = models(studies.campaign(fixed_cost, PAPER, attachments=1, repetitions=5), "bandwidth")
    assert all(math.isnan(p.low) and p.value > 0 for p in made.predict(MIB))
    assert not any(check.decides or check.outside for check in made.fits.checks)
    assert any("One attachment has no prediction interval" in said for said in made.says)
    made.figure()


def test_a_sound_system_is_rarely_called_faulty_and_a_broken_one_is() -> None:
    trained = models(studies.campaign(fixed_cost, PAPER, attachments=8, seed=1), "bandwidth")
    alarms = 0
    for seed in range(2, 32):
        checks = trained.check(studies.campaign(fixed_cost, PAPER, attachments=2, seed=seed))
        assert len(checks) == 48
        alarms += any(check.outside for check in checks)
    assert alarms <= 5  # 5 % of 30 is 1.5; P(more than 5) < 0.4 %

    def slow(cell: Levels) -> dict[str, float]:
        broken = cell["pattern"] == "seq-read" and cell["processes_per_node"] == 8
        return {"bandwidth": fixed_cost(cell)["bandwidth"] * (0.6 if broken else 1.0)}

    found = trained.check(studies.campaign(slow, PAPER, attachments=2, seed=40))
    where = {
        (dict(c.prediction.key)["pattern"], dict(c.prediction.key)["processes"])
        for c in found
        if c.outside
    }
    assert where == {("seq-read", 8)}
    assert sum(c.outside for c in found) == 4


def test_untested_chunk_sizes_are_predicted_and_extrapolation_is_marked() -> None:
    made = models(studies.campaign(fixed_cost, PAPER, attachments=8), "bandwidth")
    (inside,) = made.predict(64 * KIB, {"pattern": "seq-read", "processes": 8})
    truth = fixed_cost({"chunk": 64 * KIB})["bandwidth"]
    assert inside.low <= truth <= inside.high
    assert not inside.extrapolated
    assert all(p.extrapolated for p in made.predict(16 * MIB))
    assert all(p.extrapolated for p in made.predict(512))
    with pytest.raises(ValueError, match="no model for processes 4"):
        made.predict(MIB, {"processes": 4})
    with pytest.raises(ValueError, match="must be positive"):
        made.predict(0)


def test_few_chunk_sizes_are_refused_in_words() -> None:
    levels = {"chunk": (4 * KIB, 128 * KIB, MIB), "processes_per_node": (1, 8)}
    made = models(studies.campaign(fixed_cost, levels, attachments=6), "bandwidth")
    assert made.models == ()
    assert "2 chunk sizes to fit to" in made.fits.refused[0][1]
    assert any("2 groups without a model: 2 chunk sizes" in said for said in made.says)
    assert made.table()["form"].str.startswith("none:").all()
    with pytest.raises(ValueError, match="No group of cells"):
        made.figure()
    with pytest.raises(ValueError, match="no chunk sizes"):
        models(
            studies.campaign(lambda _: {"bandwidth": 1.0}, {"processes_per_node": (1, 2)}),
            "bandwidth",
        )


def test_a_level_that_was_not_measured_cannot_be_held_out() -> None:
    levels = {"chunk": (4 * KIB, 128 * KIB, 4 * MIB)}
    made = models(studies.campaign(fixed_cost, levels, attachments=6), "bandwidth")
    assert made.fits.checks == ()
    assert any("1 MiB was not measured" in said for said in made.says)


def test_a_level_that_was_left_out_was_measured() -> None:
    """Of three chunk sizes two are left, to which nothing can be fitted."""
    levels = {"chunk": (4 * KIB, 128 * KIB, MIB)}
    made = models(studies.campaign(fixed_cost, levels, attachments=6), "bandwidth")
    assert (made.models, made.fits.checks) == ((), ())
    said = " ".join(made.says)
    assert "was not measured" not in said
    assert "1 MiB was left out, and the rest has no model" in said


@pytest.mark.parametrize("hold_out", [("processes", 8), ("storage_nodes", 2)])
def test_only_chunk_sizes_are_held_out(hold_out: tuple[str, float]) -> None:
    with pytest.raises(ValueError, match="a level of chunk is left out"):
        models(studies.campaign(fixed_cost, PAPER), "bandwidth", hold_out)


def test_constant_unbalanced_and_missing_data() -> None:
    constant = studies.campaign(lambda _: {"bandwidth": 1e8}, PAPER, between=0, within=0)
    made = models(constant, "bandwidth")
    assert not any(check.outside for check in made.fits.checks)
    json.dumps(made.to_dict(), allow_nan=False)
    made.figure()
    odd = studies.campaign(
        fixed_cost,
        PAPER,
        attachments=4,
        keep=lambda c: c["pattern"] != "seq-read" or c["chunk"] < MIB,
    )
    values = odd["bandwidth"].values.copy()
    values[::7] = np.nan
    made = models(odd.assign(bandwidth=("run", values)), "bandwidth")
    assert len(made.models) == 9
    assert len(made.fits.refused) == 3


def test_the_figure_shows_every_group_its_form_and_the_held_out_level() -> None:
    made = models(studies.campaign(fixed_cost, PAPER, attachments=6), "bandwidth", form="roof")
    figure = made.figure()
    assert len(figure.axes) == 12
    for ax in figure.axes:
        assert "max(t0, chunk / B)" in ax.get_title()
        assert [t.get_text() for t in ax.get_xticklabels()] == [
            "4 KiB",
            "128 KiB",
            "1 MiB",
            "4 MiB",
        ]
        assert sum(line.get_marker() == "X" for line in ax.lines) == 1
        assert sum(line.get_linestyle() == "--" for line in ax.lines) == 2
    assert figure.axes[0].get_ylabel() == "Mb/s, log scale"
