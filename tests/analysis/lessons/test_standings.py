"""Who is ahead in a cell and how sure: from campaigns whose truth is known."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.lessons.backend import pairs_compared
from fsmatrix.analysis.lessons.first_screen import extremes, sentences
from fsmatrix.analysis.lessons.standings import Standing, Standings, standings
from fsmatrix.analysis.stats.words import short as shortly
from tests.analysis import study_data as studies

PLAN = {"repetitions": 6, "block": 1}
Values = Mapping[str, Mapping[str, Sequence[float]]]  # target -> pattern -> value of each block


def campaign(values: Values, **columns: Any) -> xr.Dataset:
    """A run in each block; `columns`: (target, pattern, block) -> level of a further column."""
    rows = []
    for target, patterns in values.items():
        for pattern, speeds in patterns.items():
            rows += [
                {
                    "target": target,
                    "pattern": pattern,
                    "chunk": 4096,
                    "processes_per_node": 1,
                    "block": block,
                    "attachment": f"{target}-{block}",
                    "cache": "cold",
                    "work_id": pattern,
                    "bandwidth": speed,
                    **{name: level(target, pattern, block) for name, level in columns.items()},
                }
                for block, speed in enumerate(speeds)
            ]
    return studies.dataset(rows, ["pattern", "chunk", "cache", "processes_per_node"])


def of(ds: xr.Dataset) -> Standings:
    summary = summarise(ds)
    return standings(summary, pairs_compared(ds, summary.targets)[0])


def cell(ds: xr.Dataset, pattern: str = "") -> Standing:
    (found,) = [c for c in of(ds).cells if pattern in ("", c.levels.get("pattern"))]
    return found


def noisy(speed: float, blocks: int = 8, spread: float = 0.01, seed: int = 0) -> list[float]:
    return list(speed * np.exp(np.random.default_rng(seed).normal(0, spread, blocks)))


def many(speed: Mapping[str, float], cells: int, **options: Any) -> Values:
    """So many patterns in which targets have these speeds, each with a noise of its own."""
    return {
        target: {f"p{i:02}": noisy(rate, seed=100 * place + i, **options) for i in range(cells)}
        for place, (target, rate) in enumerate(speed.items())
    }


# -- the five states -------------------------------------------------------------------


def test_a_corrected_verdict_is_proven() -> None:
    found = cell(campaign(many({"a": 2e8, "b": 1e8}, 1)))
    assert (found.state, found.leaders) == ("proven", ("a",))
    assert found.margin == pytest.approx(2, rel=0.02)


def test_an_interval_of_its_own_alone_is_likely() -> None:
    """All six blocks agree, but 20 cells are counted together and the others are noise."""
    rng = np.random.default_rng(5)
    patterns = [f"p{i:02}" for i in range(20)]
    values = {t: {p: list(np.exp(rng.normal(18, 0.5, 6))) for p in patterns} for t in "ab"}
    values["b"]["p00"] = [
        v * f for v, f in zip(values["a"]["p00"], (1.1, 1.9, 1.2, 1.7, 1.3, 1.5), strict=True)
    ]
    found = cell(campaign(values), "p00")
    (pair,) = found.pairs
    assert pair.cell.kind == "too few"
    assert pair.blocks("b") == (6, 6)
    assert (found.state, found.leaders) == ("likely", ("b",))
    assert found.margin == pytest.approx(1.4, abs=0.2)


def test_equivalence_is_equal() -> None:
    found = cell(campaign(many({"a": 1e8, "b": 1e8}, 1, blocks=12, spread=0.002)))
    assert (found.state, found.leaders, found.order.groups) == ("equal", (), (("a", "b"),))


def test_an_interval_around_one_is_undecided() -> None:
    found = cell(campaign(many({"a": 1e8, "b": 1.02e8}, 1, spread=0.4)))
    assert (found.state, found.leaders) == ("undecided", ())


def test_few_blocks_are_undecided_however_far_apart() -> None:
    found = cell(campaign(many({"a": 1e8, "b": 1e10}, 1, blocks=3)))
    assert (found.state, found.leaders, found.blocks) == ("undecided", (), 3)


def test_a_target_without_a_valid_run_makes_a_cell_of_two_invalid() -> None:
    def worst(target: str, pattern: str, _: int) -> str:
        return "invalid" if (target, pattern) == ("b", "p00") else ""

    found = of(campaign(many({"a": 2e8, "b": 1e8}, 2), worst_finding=worst))
    states = {c.levels["pattern"]: c.state for c in found.cells}
    assert states == {"p00": "invalid", "p01": "proven"}
    assert found.cells[0].lost == (("b", "8 invalid"),)


def test_the_others_are_still_compared_where_one_of_three_is_invalid() -> None:
    def worst(target: str, _: str, __: int) -> str:
        return "invalid" if target == "c" else ""

    values = many({"a": 2e8, "b": 1e8, "c": 3e8}, 1)
    values["c"]["p01"] = noisy(3e8)
    found = cell(campaign(values, worst_finding=worst), "p00")
    assert (found.state, found.leaders) == ("proven", ("a",))
    assert [name for name, _ in found.lost] == ["c"]


def test_no_target_wins_by_chance() -> None:
    """Of 24 campaigns of 4 cells without any difference, about 1 may have a proven cell."""
    proven = 0
    for seed in range(24):
        rng = np.random.default_rng(seed)
        values = {
            t: {f"p{i}": list(np.exp(rng.normal(18, 0.1, 8))) for i in range(4)} for t in "ab"
        }
        proven += of(campaign(values)).count("proven") > 0
    assert proven <= 4


# -- several targets -------------------------------------------------------------------


def test_leaders_that_cannot_be_told_apart_share_a_cell() -> None:
    found = cell(
        campaign(
            {
                "a": {"p": noisy(2e8, spread=0.1, seed=1)},
                "b": {"p": noisy(2e8, spread=0.1, seed=2)},
                "c": {"p": noisy(2e7, spread=0.1, seed=3)},
            }
        )
    )
    assert found.order.groups == (("a", "b"), ("c",))
    assert (found.state, found.leaders) == ("proven", ("a", "b"))
    assert found.margin == pytest.approx(10, rel=0.15)


def test_a_leader_who_is_not_ahead_of_everyone_behind_leads_nothing() -> None:
    """a is ahead of c, b scatters over both: b may lead or be the last."""
    wide = [0.5e8, 4e8, 0.6e8, 3e8, 0.5e8, 4e8, 0.7e8, 3.5e8]
    found = cell(
        campaign({"a": {"p": noisy(2e8, seed=1)}, "b": {"p": wide}, "c": {"p": noisy(1e8, seed=3)}})
    )
    assert found.order.groups == (("a", "b"), ("c",))
    assert (found.state, found.leaders) == ("undecided", ())


def test_ranks_of_three_that_differ() -> None:
    found = cell(campaign(many({"slow": 1e7, "fast": 1e8, "middle": 3e7}, 1)))
    assert found.order.groups == (("fast",), ("middle",), ("slow",))
    assert found.margin == pytest.approx(1e8 / 3e7, rel=0.02)


@pytest.mark.parametrize("names", list(itertools.permutations("abc")))
def test_the_order_of_targets_changes_nothing(names: tuple[str, ...]) -> None:
    speed = {"a": 3e8, "b": 2e8, "c": 1e8}
    found = cell(campaign({n: {"p": noisy(speed[n], seed=ord(n))} for n in names}))
    assert found.order.groups == (("a",), ("b",), ("c",))


@pytest.mark.parametrize(
    ("speeds", "state", "margin"), [((3e8, 2e8), "proven", 2), ((3e8, 5e7), "undecided", np.nan)]
)
def test_several_levels_of_one_target_must_agree(
    speeds: tuple[float, float], state: str, margin: float
) -> None:
    """Target a has 2 and 3 storage nodes, b has 1: both meet b in one cell."""
    rows = [
        {
            "target": target,
            "storage_nodes": nodes,
            "pattern": "p",
            "work_id": "p",
            "block": block,
            "attachment": f"{target}-{nodes}-{block}",
            "bandwidth": value,
        }
        for target, nodes, speed in (("a", 2, speeds[0]), ("a", 3, speeds[1]), ("b", 1, 1e8))
        for block, value in enumerate(noisy(speed, seed=nodes))
    ]
    found = cell(studies.dataset(rows, ["storage_nodes", "pattern"]))
    assert found.state == state
    assert found.margin == pytest.approx(margin, rel=0.02, nan_ok=True)


def test_values_are_those_of_all_blocks() -> None:
    speeds = [1e8, 1.1e8, 1.2e8, 1.3e8, 1.4e8, 1.5e8]
    found = cell(campaign({"a": {"p": speeds}, "b": {"p": [2 * s for s in speeds]}}))
    assert {one.cell.target: list(one.values) for one in found.values} == {
        "a": speeds,
        "b": [2 * s for s in speeds],
    }
    assert found.values[0].cell.target == "b"
    assert found.to_dict()["leaders"] == ["b"]


# -- sentences -------------------------------------------------------------------------


def test_the_answer_is_the_winner_with_its_counts() -> None:
    found = of(campaign(many({"a": 2e8, "b": 1e8}, 4)))
    said = sentences(found, PLAN, "out")
    assert said.answer.startswith("a is ahead of b in all 4 cells (proven), by ")
    whole = (
        r"over all 4 cells together a is [\d.]+ times as fast as b in all 8 blocks \(95 % sure: "
    )
    assert re.search(whole + r"[\d.]+ to [\d.]+\), proven\.$", said.answer)
    assert said.against == "No contrary evidence."
    assert said.command == "fsmatrix lessons out"


def test_cells_of_the_other_way_stand_against_it() -> None:
    values = many({"a": 2e8, "b": 1e8}, 3)
    values["b"]["p00"] = noisy(9e8)
    said = sentences(of(campaign(values)), PLAN, "out")
    assert said.answer.startswith("a is ahead of b in 2 of 3 cells (proven)")
    assert "b is ahead in 1 cell (p00), by ×4.5 (proven)" in said.against


def test_nobody_ahead_is_said_so() -> None:
    said = sentences(of(campaign(many({"a": 1e8, "b": 1.1e8}, 2, spread=0.15))), PLAN, "out")
    assert said.answer == "No target is shown to be ahead in any of 2 cells."
    assert "the difference may be chance" in said.against
    assert said.todo.startswith("More blocks are not worth it: ")


def test_no_sentence_names_a_leader_of_identical_targets() -> None:
    """One cell in 20 is likely: the matrix marks it, and the answer is about proof."""
    likely, named = 0, 0
    for seed in range(12):
        values = {
            name: {f"p{i}": noisy(1e8, 8, 0.1, 100 * seed + 10 * i + j) for i in range(6)}
            for j, name in enumerate("ab")
        }
        found = of(campaign(values))
        said = sentences(found, PLAN, "out")
        likely += found.count("likely")
        named += " is ahead" in said.answer + said.against
    assert likely  # 72 cells
    assert named <= 2  # of 12: 3 or more have probability 0.02 at 5 %


def test_the_command_adds_the_blocks_that_are_likely_to_prove_something() -> None:
    found = of(campaign(many({"a": 1e8, "b": 1.18e8}, 6, spread=0.12)))
    said = sentences(found, PLAN, "my out")
    assert said.todo.startswith("Add ")
    assert said.command.startswith("fsmatrix run -o 'my out' --resume --set repetitions=")
    assert int(said.command.rpartition("=")[2]) > 8


def test_too_few_blocks_ask_for_the_fewest_that_can_prove() -> None:
    found = of(campaign(many({"a": 1e8, "b": 1e9}, 1, blocks=3)))
    said = sentences(found, {"repetitions": 6, "block": 2}, "out")
    assert said.answer == "No target can be shown to be ahead with 3 blocks: it takes 6."
    assert "Add 3 blocks (6 in all), the fewest that can prove anything" in said.todo
    assert said.command == "fsmatrix run -o out --resume --set repetitions=12"


def test_what_is_planned_and_not_there_is_measured_first() -> None:
    found = of(campaign(many({"a": 1e8, "b": 1e9}, 1, blocks=3)))
    assert sentences(found, PLAN, "out").command == "fsmatrix run -o out --resume"


def test_invalid_runs_of_some_cells_do_not_ask_for_blocks_that_are_there() -> None:
    """Two valid blocks of six in one cell: six are there, so that more than six are asked."""
    values = many({"a": 1e8, "b": 1.2e8}, 4, blocks=6, spread=0.1)
    few = campaign(values, worst_finding=lambda t, p, b: "invalid" * (p == "p00" and b < 4))
    command = sentences(of(few), PLAN, "out").command
    assert int(command.rpartition("repetitions=")[2]) > 6


def test_blocks_that_do_not_count_are_not_waited_for() -> None:
    """All six are there, and one of them is invalid: finishing the campaign would do nothing."""
    values = many({"a": 1e8, "b": 1.1e8}, 1, blocks=6, spread=0.06)
    some = campaign(values, worst_finding=lambda t, _, b: "invalid" * (t == "b" and b < 1))
    said = sentences(of(some), PLAN, "out")
    assert said.todo.startswith("Add 1 block (6 in all)")
    assert said.command == "fsmatrix run -o out --resume --set repetitions=7"


def test_cells_that_are_all_of_a_level_are_named_by_it() -> None:
    values = many({"a": 2e8, "b": 1e8}, 6, spread=0.05)
    for name in ("p03", "p04", "p05"):  # b is twice, then half of a
        values["b"][name] = [v * f for v, f in zip(values["a"][name], 4 * [0.5, 2], strict=True)]
    ds = campaign(values, cache=lambda _, pattern, __: "warm" if pattern > "p02" else "cold")
    against = sentences(of(ds), PLAN, "out").against
    assert "in 3 cells (all of cache warm) the difference may be chance" in against


def test_two_directories_of_one_disk_get_no_more_blocks() -> None:
    found = of(campaign(many({"a": 1e8, "b": 1e8}, 8, blocks=6, spread=0.2)))
    said = sentences(found, PLAN, "out")
    assert said.todo.startswith("More blocks are not worth it: 24 would not be likely to prove any")
    assert re.search(r"a over b -\d+ to \+\d+ %", said.against)


def test_an_import_cannot_be_resumed() -> None:
    said = sentences(of(campaign(many({"a": 1e8, "b": 1e9}, 1, blocks=3))), {"imported": True}, "")
    assert said.todo.startswith("Imported runs are not known to be independent")
    assert said.command == "fsmatrix compare FILE"


def test_equal_targets_are_equal() -> None:
    found = of(campaign(many({"a": 1e8, "b": 1e8}, 2, blocks=12, spread=0.002)))
    assert sentences(found, PLAN, "out").answer == ("No difference larger than 5 % in all 2 cells.")


def test_invalid_cells_come_first_of_what_to_do() -> None:
    def worst(target: str, pattern: str, _: int) -> str:
        return "invalid" if (target, pattern) == ("b", "p00") else ""

    found = of(campaign(many({"a": 2e8, "b": 1e8}, 2), worst_finding=worst))
    said = sentences(found, PLAN, "out")
    assert "a is ahead of b in the only valid cell" in said.answer
    assert "1 cell (p00) cannot be compared (b: 8 invalid)" in said.against
    assert said.command == "fsmatrix findings out"


def test_each_target_has_its_best_and_its_worst_cell() -> None:
    values = {
        "a": {"x": noisy(1e8, seed=1), "y": noisy(9e8, seed=2)},
        "b": {"x": noisy(4e8, seed=3), "y": noisy(3e8, seed=4)},
    }
    lines = {one.target: one for one in extremes(of(campaign(values)))}
    assert lines["a"].leads == "1 of 2 cells (proven)"
    assert re.fullmatch(r"y: (3|3\.0\d|2\.9\d) times as fast as b", lines["a"].best)
    assert re.fullmatch(r"x: 1/(4|4\.0\d|3\.9\d) as fast as b", lines["a"].worst)
    assert lines["b"].says == (
        f"b: leads in 1 of 2 cells (proven); best: {lines['b'].best}; worst: {lines['b'].worst}"
    )


@pytest.mark.parametrize(
    ("ratio", "short"),
    [
        (1.004, "+0.4 %"),
        (1.14, "+14 %"),
        (2.0, "×2.0"),
        (25.2, "×25"),
        (0.93, "-7 %"),
        (1 / 25.2, "1/25"),
        (1.0, "+0.0 %"),
    ],
)
def test_ratios_in_a_mark(ratio: float, short: str) -> None:
    assert shortly(ratio) == short


def test_a_lead_that_is_likely_hides_none_that_is_proven() -> None:
    """xfs may be ahead of ext4; that both are ahead of btrfs is proven, and the answer says so."""
    patterns = [f"p{k}" for k in range(8)]
    speeds = {"xfs": 1.09, "ext4": 1.0, "btrfs": 0.5}
    ds = campaign(
        {
            name: {
                pattern: noisy(speed, 6, 0.06, 10 * k + len(name))
                for k, pattern in enumerate(patterns)
            }
            for name, speed in speeds.items()
        }
    )
    found = of(ds)
    behind = [one for one in found.cells if set(one.proven) == {"ext4", "xfs"}]
    likely = [
        pair
        for one in behind
        for pair in one.pairs
        if (pair.state, pair.ahead) == ("likely", "xfs")
    ]
    assert likely
    assert all(one.state == "proven" and one.margin > 1.5 for one in behind)
    for one in found.cells:
        ahead = {
            pair.ahead
            for pair in one.pairs
            if pair.state == "proven" and "btrfs" in (pair.a, pair.b)
        }
        assert (ahead == {"ext4", "xfs"}) <= ("btrfs" not in one.proven and bool(one.proven))
    said = sentences(found, PLAN, "").answer
    assert said.startswith(
        f"ext4 and xfs are ahead of btrfs in {len(behind)} of 8 cells (proven)"
    ) or (len(behind) == 8 and said.startswith("ext4 and xfs are ahead of btrfs in all 8 cells"))
