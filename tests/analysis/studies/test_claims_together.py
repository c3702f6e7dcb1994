"""All cells of a claim together: what no cell shows alone, and how often that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fsmatrix.analysis.stats.estimates.intervals import from_logs
from fsmatrix.analysis.studies.claims import claims_file as claims_files
from fsmatrix.analysis.studies.claims.claim_cells import ClaimCell, means, refuted
from fsmatrix.analysis.studies.claims.claims import claims
from fsmatrix.analysis.studies.claims.claims_file import Claim, StudyFile
from tests.analysis import study_data as studies

LEVELS = {
    "storage_nodes": (2,), "interface": ("SATA", "PCIe"), "pattern": studies.PATTERNS,
    "chunk": (4096, 16384, 65536, 131072, 1 << 20, 4 << 20), "processes_per_node": (1, 8, 16),
}  # fmt: skip


def claim_of(**values: Any) -> Claim:
    return Claim.model_validate(
        {
            "id": "one",
            "says": "it is so",
            "number": "n",
            "place": "p",
            "metric": "bandwidth",
            "compare": {"of": {"interface": "PCIe"}, "over": {"interface": "SATA"}},
            **values,
        }
    )


def study_of(claim: Claim) -> StudyFile:
    return StudyFile.model_validate(
        {
            "study": "made-up",
            "title": "a made-up study",
            "source": {"paper": "none"},
            "factors": {"interface": {}},
            "claims": [claim],
        }
    )


def test_72_of_72_cells_that_disagree_refute_a_claim() -> None:
    ds = studies.campaign(
        lambda cell: {"bandwidth": 1e8 * (0.93 if cell["interface"] == "PCIe" else 1)},
        LEVELS,
        attachments=8,
        between=0.005,
        within=0.02,
    )
    (one,) = claims(ds, study_of(claim_of(claimed={"low": 1}))).judged
    assert len(one.scope.cells) == 72
    assert all(cell.value < 1 for cell in one.scope.cells)
    assert (one.kind, one.direction) == ("does not hold", "does not hold")
    said = claims(ds, study_of(claim_of(claimed={"low": 1}))).says[-1]
    assert "All cells together: 0.929 times (95 % sure: 0.925 to 0.935)" in said
    (median,) = claims(ds, study_of(claim_of(claimed={"low": 0.8, "high": 0.9}))).judged
    assert median.kind == "does not hold"
    (true,) = claims(ds, study_of(claim_of(claimed={"high": 1}))).judged
    assert (true.kind, true.p.fails) == ("holds", 1.0)


def cells_of(
    logs: np.ndarray[Any, np.dtype[np.float64]], bounds: tuple[float, float]
) -> list[ClaimCell]:
    """Cells of log ratios [block, cell]."""
    found = []
    for number, column in enumerate(logs.T):
        r = from_logs((column,))
        found.append(
            ClaimCell(
                f"cell {number}",
                "bandwidth",
                r.ratio,
                r.low,
                r.high,
                r.kind,
                r.units,
                bounds,
                r.curve,
                r.parts,
                tuple(range(column.size)),
            )
        )
    return found


SHAPES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Any]] = {
    "normal": lambda random, size: random.standard_normal(size),
    "both targets skewed": lambda random, size: (
        random.exponential(1, size) - random.exponential(1, size)
    ),
    "heavy": lambda random, size: random.standard_t(2, size),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("blocks", [6, 10])
def test_a_claim_that_is_just_true_is_rarely_refuted(shape: str, blocks: int) -> None:
    """At the end of the claimed range, in all cells: at most 5 %."""
    random, draw = np.random.default_rng(7), SHAPES[shape]
    claim, count, wrong = claim_of(claimed={"low": 1}), 400, 0
    for _ in range(count):
        logs = 0.03 * draw(random, (blocks, 1)) + 0.05 * draw(random, (blocks, 24))
        (p,) = refuted([cells_of(logs, claim.bounds)], 0.05, [None])
        wrong += p <= 0.05
    assert wrong / count <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / count)


def test_the_mean_is_of_the_blocks_that_all_cells_have() -> None:
    logs = np.log([[1.0, 4.0], [2.0, 2.0], [4.0, 1.0], [2.0, 2.0], [1.0, 4.0], [2.0, 2.0]])
    cells = cells_of(logs, (1.0, np.inf))
    found = means(cells)
    assert found[1.0, np.inf].ratio == pytest.approx(2)
    assert found[1.0, np.inf].low == pytest.approx(2)
    assert means(cells[:1]) == {}
    assert means(cells_of(logs[:5], (1.0, np.inf))) == {}


def test_means_of_many_claims_are_tested_together() -> None:
    """Six blocks and 30 claims: those whose mean lies far outside are refuted, no other one."""
    random = np.random.default_rng(3)
    shared = 0.02 * random.standard_normal((6, 1))
    logs = [shared + 0.02 * random.standard_normal((6, 8)) for _ in range(30)]
    claims_ = [cells_of(one, (0.5, np.inf) if i else (1.5, 3.0)) for i, one in enumerate(logs)]
    p = refuted([*claims_, []], 0.05, [None] * 31)
    assert p[0] == 2 / 2**6
    assert p[1:30] == [1.0] * 29
    assert np.isnan(p[30])
    turned = refuted(claims_[:1], 0.05, [(0.0, 1.5)])
    assert turned == [1.0]


def test_the_paper_s_claims_that_no_cell_agrees_with_do_not_hold() -> None:
    ds = studies.table3((2, 3, 4, 5), attachments=7)
    found = {one.claim.id: one for one in claims(ds, claims_files.load("ssd-cluster")).judged}
    for name in ("read-over-write-sata", "pcie-over-sata-random-write"):
        one = found[name]
        assert one.counts["outside"] == len(one.scope.cells)
        assert one.kind == "does not hold"
