"""Heat maps of correlation: the numbers of numpy and scipy, the coding said, nothing invented."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fsmatrix.analysis.questions.correlation import Correlation, Correlations, correlation
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies

METRICS = ("bandwidth", "iops", "latency_mean")


def one(made: Correlations, pattern: str, factor: str, metric: str) -> Correlation:
    (found,) = [
        c
        for c in made.correlations
        if (dict(c.panel).get("pattern", pattern), c.factor, c.metric) == (pattern, factor, metric)
    ]
    return found


@pytest.mark.parametrize("coding", ["raw", "log2"])
def test_r_is_that_of_numpy_and_scipy_over_attachments(coding: str) -> None:
    ds = studies.table3(attachments=6)
    made = correlation(ds, coding=coding, where={"interface": "PCIe"})  # type: ignore[arg-type]
    assert isinstance(made, Result)
    mine = (ds["pattern"].values == "seq-read") & (ds["interface"].values == "PCIe")
    chunk = ds["chunk"].values[mine].astype(float)
    x = {
        "processes": ds["processes_per_node"].values[mine].astype(float),
        "chunk": chunk if coding == "raw" else np.log2(chunk),
    }
    for factor, metric in ((f, m) for f in x for m in METRICS):
        y = ds[metric].values[mine]
        found = one(made, "seq-read", factor, metric)
        assert found.pearson == pytest.approx(np.corrcoef(x[factor], y)[0, 1])
        assert found.spearman == pytest.approx(stats.spearmanr(x[factor], y).statistic)
        assert (found.values, found.cells, found.attachments) == (72, 12, 6)
        assert found.pearson_low <= found.pearson <= found.pearson_high


def test_the_coding_changes_r_and_is_said_but_not_that_of_spearman() -> None:
    ds = studies.table3(attachments=6)
    raw, log = correlation(ds), correlation(ds, coding="log2")
    assert "chunk size in bytes" in raw.says[0]
    assert "log2 of the chunk size" in log.says[0]
    pairs = list(zip(raw.correlations, log.correlations, strict=True))
    for a, b in pairs:
        assert a.spearman == b.spearman
        assert (a.pearson == b.pearson) == (a.factor == "processes")
    assert any("log2" in text.get_text() for text in log.figure().texts)


def test_repetitions_of_an_attachment_are_one_value() -> None:
    ds = studies.table3(attachments=6, repetitions=3)
    assert {c.values for c in correlation(ds).correlations} == {72}


def test_panels_are_apart_per_pattern_and_number_of_nodes() -> None:
    made = correlation(studies.table3((2, 3), attachments=2))
    keys = [dict(panel) for panel in made.panels]
    assert len(keys) == 12
    assert {key["storage_nodes"] for key in keys} == {2, 3}
    figure = made.figure()
    assert len(figure.axes) == 12 + 1  # and the colours
    image = figure.axes[0].images[0]
    assert image.get_clim() == (-1, 1)
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["processes", "chunk"]


def test_constant_columns_have_no_number_and_say_so() -> None:
    levels = {"chunk": studies.CHUNKS, "processes_per_node": (4,)}
    made = correlation(studies.campaign(studies.hockney, levels, attachments=6))
    found = one(made, "", "processes", "bandwidth")
    assert np.isnan(found.pearson)
    assert found.absent == "processes constant"
    assert any("processes constant" in said for said in made.says)
    assert any("constant" in text.get_text() for text in made.figure().axes[0].texts)

    flat = studies.campaign(lambda _: {"bandwidth": 5.0}, studies.PAPER, between=0, within=0)
    assert {c.absent for c in correlation(flat).correlations} == {"metric constant"}
    json.dumps(correlation(flat).to_dict(), allow_nan=False)


def test_no_interval_with_fewer_than_six_attachments() -> None:
    made = correlation(studies.table3(attachments=5))
    assert all(np.isnan(c.pearson_low) for c in made.correlations)
    assert all(np.isfinite(c.pearson) for c in made.correlations)


def test_the_interval_covers_the_r_of_the_population() -> None:
    levels = {"chunk": studies.CHUNKS, "processes_per_node": (1, 8, 16)}

    def found(attachments: int, seed: int) -> list[Correlation]:
        ds = studies.campaign(
            studies.hockney, levels, attachments=attachments, between=0.3, within=0.3, seed=seed
        )
        return list(correlation(ds, metrics=("bandwidth",)).correlations)

    truth, seeds = found(1500, 0), 80
    for i, true in enumerate(truth):
        mine = [found(8, seed)[i] for seed in range(1, seeds + 1)]
        share = np.mean([c.pearson_low <= true.pearson <= c.pearson_high for c in mine])
        assert share >= 0.95 - 2.6 * math.sqrt(0.95 * 0.05 / seeds)


def test_unbalanced_panels_are_said_not_to_be_comparable() -> None:
    ds = studies.campaign(
        studies.hockney,
        studies.PAPER,
        attachments=3,
        keep=lambda c: c["pattern"] != "seq-read" or c["chunk"] < studies.MIB,
    )
    assert any("do not have the same cells" in said for said in correlation(ds).says)
    assert not any(
        "do not have the same cells" in said for said in correlation(studies.table3()).says
    )


def test_bad_requests_are_refused_in_words() -> None:
    ds = studies.table3(attachments=2)
    with pytest.raises(ValueError, match="raw or log2, not 'ln'"):
        correlation(ds, coding="ln")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pattern: no numeric factor"):
        correlation(ds, factors=("pattern",))
    with pytest.raises(ValueError, match="no run gave"):
        correlation(ds.assign(status=("run", np.full(ds.sizes["run"], "failed"))))


def test_a_metric_without_values_is_left_out() -> None:
    ds = studies.table3(attachments=2).drop_vars("latency_mean")
    assert correlation(ds).metrics == ("bandwidth", "iops")


def test_a_metric_rises_or_falls_only_where_the_interval_leaves_out_0() -> None:
    said = correlation(studies.table3(attachments=3)).says[1:-1]
    assert said
    assert all(" is not shown to rise or fall with " in line for line in said)
    many = correlation(studies.table3(attachments=6))
    assert "IOPS falls with chunk size: r = " in "\n".join(many.says)
    mixed = [replace(c, pearson_low=-0.1) for c in many.correlations[:1]] + [*many.correlations[1:]]
    first = many.correlations[0]
    assert first.pearson_low > 0
    (line,) = [
        line
        for line in replace(many, correlations=tuple(mixed)).says
        if f" with {many.study.title(first.factor)}: " in line and line.startswith("Bandwidth")
    ]
    assert line.startswith("Bandwidth rises (7), is not shown to rise or fall (1) with ")
