"""What factors change of a percentile: numbers of known truth, words, and what cannot be said."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.questions.tails import Effects, effects, tails
from fsmatrix.analysis.stats import simulate
from fsmatrix.analysis.stats.estimates.medians import Floats
from fsmatrix.analysis.stats.words import IMPORTED
from tests.analysis import study_data as studies

Truth = Callable[[dict[str, Any]], float]
PROCESSES = (1, 2, 4, 8)


def cells(**levels: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(levels, one, strict=True)) for one in itertools.product(*levels.values())]


def logs(
    of: Sequence[dict[str, Any]], truth: Truth, blocks: int = 8, spread: float = 0.02
) -> Floats:
    """Log quantiles [block, cell]; a block is slow or fast in all cells."""
    random = np.random.default_rng(4)
    noise = 0.3 * random.standard_normal((blocks, 1))
    noise = noise + spread * random.standard_normal((blocks, len(of)))
    return np.log([truth(cell) for cell in of]) + noise


def growing(cell: dict[str, Any]) -> float:
    slow = 3.0 if cell.get("target") == "xfs" else 1.0
    return float(cell.get("processes_per_node", 1) ** math.log2(1.8) * slow)


def found(of: Sequence[dict[str, Any]], truth: Truth = growing, **others: Any) -> Effects:
    return effects(of, logs(of, truth, **others))


def test_growth_per_doubling_and_ratios_in_words() -> None:
    made = found(cells(target=("ext4", "xfs"), processes_per_node=PROCESSES, cache=("cold",)))
    target, processes = made.effects
    assert (target.factor, processes.factor, made.missing) == ("target", "processes_per_node", ())
    assert processes.slope.low < 1.8 < processes.slope.high < 1.9
    assert target.slope.low < 3 < target.slope.high < 3.2
    assert (processes.doubling, processes.compared, target.compared) == (True, 2, 4)
    said = made.says
    assert said[0] == "What changes it where the other factors are equal, in 8 blocks:"
    assert re.match(
        r"  xfs takes [\d.]+ times as long as ext4 \(95 % sure: [\d.]+ to [\d.]+\)\.$", said[1]
    )
    assert said[2].startswith("  each doubling of processes per node from 1 to 8 makes it ")
    assert said[2].endswith(").")
    assert not any("chance" in line or "not alike" in line or "evenly" in line for line in said)


def test_the_slower_of_two_levels_comes_first_and_two_numbers_are_no_slope() -> None:
    def truth(cell: dict[str, Any]) -> float:
        return (2.0 if cell["pattern"] == "a" else 1.0) * (1 + cell["chunk"] / (1 << 20))

    made = found(cells(pattern=("a", "b"), chunk=(4096, 1 << 20)), truth)
    pattern, chunk = made.effects
    assert pattern.slope.ratio == pytest.approx(0.5, rel=0.02)
    assert pattern.says.startswith("a takes ")
    assert "as long as b" in pattern.says
    assert chunk.says.startswith("chunk 1 MiB takes ")
    assert "as long as chunk 4 KiB" in chunk.says
    assert not chunk.doubling


def test_no_change_may_be_chance() -> None:
    made = found(cells(target=("ext4", "xfs"), processes_per_node=PROCESSES), lambda _: 1.0)
    assert all(line.endswith(", may be chance.") for line in made.says[1:])
    assert len(made.says) == 3


def test_a_factor_that_does_more_in_some_cells() -> None:
    def truth(cell: dict[str, Any]) -> float:
        power = 2.0 if (cell["target"], cell["pattern"]) == ("xfs", "write") else 0.2
        return float(cell["processes_per_node"] ** power)

    made = found(
        cells(target=("ext4", "xfs"), pattern=("read", "write"), processes_per_node=PROCESSES),
        truth,
    )
    processes = made.effects[-1]
    worst = processes.unlike[-1]
    assert worst.named == "xfs, write"
    assert worst.slope.low < 4 < worst.slope.high
    assert "; not alike everywhere: 1.1" in processes.says
    assert processes.says.endswith("times (xfs, write)")


def test_growth_that_begins_late_is_not_even() -> None:
    made = found(cells(processes_per_node=PROCESSES), lambda c: max(c["processes_per_node"] / 4, 1))
    (effect,) = made.effects
    first, last = effect.steps
    assert first.slope.low < 1 < first.slope.high
    assert last.slope.low < 2 < last.slope.high
    assert "; not evenly: per doubling " in effect.says
    assert effect.says.endswith("times from 4 to 8")


def test_three_blocks_prove_nothing() -> None:
    made = found(cells(processes_per_node=PROCESSES), blocks=3)
    assert made.says[-1] == "3 blocks are too few; 6 are needed."
    assert "95 %" not in " ".join(made.says)
    assert made.effects[0].slope.ratio == pytest.approx(1.8, rel=0.05)


def test_factors_that_change_together() -> None:
    """Interface follows target, and so do nodes: neither has a number of its own."""
    both = [
        one
        | {
            "interface": "SATA" if one["target"] == "c" else "PCIe",
            "storage_nodes": {"a": 1, "b": 2, "c": 3}[one["target"]],
        }
        for one in cells(target=("a", "b", "c"), processes_per_node=(1, 2))
    ]
    made = found(both)
    assert [(e.factor, e.level) for e in made.effects] == [
        ("target", "b"),
        ("target", "c"),
        ("processes_per_node", 2),
    ]
    assert made.missing == (
        ("interface", "it changes with target"),
        ("storage_nodes", "it changes with target"),
    )
    assert "What storage nodes changes cannot be said: it changes with target." in made.says
    half = [one for one in cells(a=(1, 2), b=(1, 2), c=(1, 2)) if sum(one.values()) % 2]
    made = found(half)
    assert made.effects == ()
    assert made.missing == tuple(
        (name, "no two of its levels were measured with the other factors equal") for name in "abc"
    )


def test_a_phase_that_is_the_pattern_is_not_mentioned() -> None:
    both = [
        one | {"phase": one["pattern"].split("-")[1]}
        for one in cells(pattern=("rand-read", "seq-read", "seq-write"))
    ]
    made = found(both)
    assert {e.factor for e in made.effects} == {"pattern"}
    assert made.missing == ()


def test_one_level_of_everything_says_nothing() -> None:
    assert found(cells(target=("xfs",), chunk=(4096,))).says == []


def test_cells_without_a_percentile_are_left_out() -> None:
    """Too few operations in the large chunk: nothing is said of it, the rest as without it."""
    of = cells(chunk=(4096, 8192, 1 << 20), target=("ext4", "xfs"))
    values = logs(of, growing)
    whole = effects(of, values)
    values[1:, 4:] = math.nan
    made = effects(of, values)
    assert (made.blocks, made.cells, made.left_out) == (8, 4, (0, 2))
    assert made.says[-1] == (
        "Left out of that: 2 of 6 cells and 0 of 8 blocks, so that each block "
        "has a number for each cell."
    )
    chunk, target = made.effects
    assert chunk.level == 8192
    assert target.slope.ratio == pytest.approx(3, rel=0.05)
    assert whole.effects[0].level == 1 << 20


def test_levels_that_no_block_shares() -> None:
    of = cells(campaign=("new", "old"), processes_per_node=PROCESSES)
    values = logs(of, growing, blocks=16)
    values[:8, :4] = values[8:, 4:] = math.nan
    made = effects(of, values)
    assert [e.factor for e in made.effects] == ["processes_per_node"]
    assert made.missing == (("campaign", "no block has a number for two of its levels"),)
    assert (made.blocks, made.left_out) == (8, (8, 4))


def dataset(
    blocks: int, operations: int, shared: int = 1, levels: Sequence[int] = (1, 2, 4)
) -> xr.Dataset:
    """Runs of these processes; p99 doubles with each doubling.  `shared`: blocks per attachment."""
    random = np.random.default_rng(6)
    rows, counts = [], []
    for block in range(blocks):
        shift = 0.2 * random.standard_normal()
        for level in levels:
            counts.append(simulate.latencies(random, shift + math.log(level), operations))
            rows.append(
                {
                    "processes_per_node": level,
                    "block": block,
                    "attachment": f"a{block // shared}",
                    "latency_mean": 1e-3,
                    "latency_of": "read",
                    "bandwidth": 1e8,
                }
            )
    bins = [np.flatnonzero(one) for one in counts]
    sizes = np.array([one.size for one in bins])
    return studies.dataset(rows, ["processes_per_node"]).assign(
        {
            "latency_first": ("run", np.cumsum(sizes) - sizes),
            "latency_size": ("run", sizes),
            "latency_bin": ("latency", np.concatenate(bins)),
            "latency_kind": ("latency", np.zeros(int(sizes.sum()), dtype=np.int64)),
            "latency_count": (
                "latency",
                np.concatenate([one[b] for one, b in zip(counts, bins, strict=True)]),
            ),
            "kind_name": ("kind", np.array(["read"])),
        }
    )


def test_of_a_campaign_s_histograms() -> None:
    made = tails(dataset(blocks=8, operations=3000))
    (effect,) = made.effects.effects
    assert effect.slope.low < 2 < effect.slope.high < 2.3
    assert effect.slope.low > 1.8
    assert any(
        line.startswith("  each doubling of processes per node from 1 to 4 makes it ")
        for line in made.says
    )
    read = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert read["effects"]["effects"][0]["slope"]["ratio"] == pytest.approx(effect.slope.ratio)
    assert read["effects"]["blocks"] == 8
    assert "logs" not in read["cells"][0]


def test_a_quantile_beyond_the_operations_has_no_effects() -> None:
    made = tails(dataset(blocks=8, operations=200), 0.999)
    assert made.effects.effects == ()
    assert "too few operations in every cell" in made.says[0]


def test_blocks_of_one_attachment_count_once() -> None:
    made = tails(dataset(blocks=8, operations=1000, shared=2))
    assert made.effects.blocks == 4
    assert "4 blocks are too few; 6 are needed." in made.says


def test_two_definitions_of_latency_are_no_effect() -> None:
    made = found(cells(latencies=("", "lat"), processes_per_node=PROCESSES))
    assert [effect.factor for effect in made.effects] == ["processes_per_node"]
    assert made.missing == (("latencies", "its levels are two definitions of latency"),)


def test_of_imported_runs_no_blocks_are_asked_for() -> None:
    of = cells(target=("ext4", "xfs"))
    said = effects(of, logs(of, growing, blocks=1), imported=True).says
    assert said[-1] == f"{IMPORTED}."
