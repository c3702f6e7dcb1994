"""Printed scores of IO500 against those that the printed phases give, to the printed digits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fsmatrix.results.formats import io500
from fsmatrix.results.formats.io500_text import (
    PHASES,
    RANDOM_READ,
    differences,
    phase_of,
    read_summary,
    recomputed,
)
from tests.io500_submissions import old_summary, scores, summary, values

Write = Callable[..., str]


def differing(text: str) -> list[str]:
    found = read_summary(text, "x")
    assert found.scores is not None
    return [one.part for one in differences(found.entries, found.scores)]


@pytest.mark.parametrize("write", [summary, old_summary])
def test_scores_are_the_geometric_means_of_the_phases(write: Write) -> None:
    text = write(values())
    again = recomputed(read_summary(text, "x").entries)
    assert (again.bandwidth, again.rate, again.total) == pytest.approx(scores(values()), rel=1e-3)
    assert differing(text) == []


@pytest.mark.parametrize("write", [summary, old_summary])
def test_digits_lost_in_print_are_no_difference(write: Write) -> None:
    """Values of all sizes, down to three printed digits; 300 of each form."""
    rng = random.Random(7)
    for _ in range(300):
        of = {name: 10 ** rng.uniform(-1.5, 4) for name in PHASES}
        assert differing(write(of)) == [], of


def test_a_difference_beyond_the_lost_digits_is_told() -> None:
    """0.100 may be 0.0995: half a percent of the mean.

    Seen: what all twelve phases lost was added up, so that 2 % passed here.
    """
    of = values() | dict.fromkeys(("ior-easy-write", "ior-hard-write"), 0.1)
    of |= dict.fromkeys(("ior-easy-read", "ior-hard-read"), 0.1)
    bandwidth, rate, total = scores(of)
    assert differing(old_summary(of, (bandwidth * 1.004, rate, total))) == []
    assert differing(old_summary(of, (bandwidth * 1.01, rate, total))) == ["bandwidth"]


@pytest.mark.parametrize("part", range(3))
def test_each_of_the_three_is_looked_at(part: int) -> None:
    printed = list(scores(values()))
    printed[part] *= 1.0001
    found = differing(summary(values(), tuple(printed)))
    assert found == [("bandwidth", "rate", "total")[part]]


def test_six_digits_of_2020_are_judged_as_six_digits() -> None:
    """In 2020 the script printed GiB/s, as today, but six digits: 2668.57 is 2668.572."""
    of = values(811.1234)
    assert differing(old_summary(of, unit="GiB/s")) == []


def test_the_product_of_2018_is_named_as_such() -> None:
    bandwidth, rate, _ = scores(values())
    text = old_summary(values(), (bandwidth, rate, bandwidth * rate))
    facts = io500.parse(text, "x")[0].facts
    assert facts["scores"]["product"] is True
    assert facts["scores"]["total"] == pytest.approx(scores(values())[2], rel=1e-4)
    assert facts["scores_differ"] == []


def test_differences_are_facts_of_the_run() -> None:
    printed = (*scores(values())[:2], 99.0)
    (run,) = io500.parse(summary(values(), printed), "x")
    (one,) = run.facts["scores_differ"]
    assert (one["part"], one["printed"]) == ("total", 99.0)
    assert one["recomputed"] == pytest.approx(scores(values())[2], rel=1e-6)


def test_where_a_value_is_from_is_a_fact_of_the_phase() -> None:
    (run,) = io500.parse(summary(values()), "x")
    assert {phase.facts["own_output"] for phase in run.phases} == {False}


def test_phases_of_the_workload_have_the_names_of_io500() -> None:
    from fsmatrix.suite.workloads.io500_phases import PHASES as OWN

    assert {one.name: phase_of(one.name) for one in OWN} == {one.name: one.io500 for one in OWN}
    assert [phase_of(name) for name in (*PHASES, RANDOM_READ)] == [*PHASES, RANDOM_READ]
    assert [phase_of(name) for name in ("", "write", "seq-read", "find-x", "tree")] == [""] * 5
