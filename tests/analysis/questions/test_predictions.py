"""Predictions of untested chunk sizes, and faults: what lies outside what models expect."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fsmatrix.analysis.questions.models.models import models
from fsmatrix.analysis.questions.models.models_result import Models, faults, predict
from fsmatrix.analysis.result import Result
from tests.analysis import study_data as studies

KIB = 1024
CHUNKS = tuple(4 * KIB << k for k in range(0, 12, 2))
LEVELS = {"pattern": ("seq-read", "rand-read"), "chunk": CHUNKS}


def truth(cell: studies.Levels) -> dict[str, float]:
    """Time per operation = t0 + chunk / B."""
    slow = 2.0 if cell["pattern"] == "rand-read" else 1.0
    return {"bandwidth": cell["chunk"] / (slow * 2e-4 + cell["chunk"] / 5e8)}


@pytest.fixture(scope="module")
def made() -> Models:
    return models(studies.campaign(truth, LEVELS, attachments=8), "bandwidth", None)


def test_untested_sizes_lie_in_their_intervals(made: Models) -> None:
    found = predict(made, [2048 * KIB, 1 << 30])
    assert isinstance(found, Result)
    assert not found.compared
    assert len(found.rows) == 4
    for row in found.rows:
        expected = truth({**dict(row.prediction.key), "chunk": row.prediction.chunk})["bandwidth"]
        assert row.prediction.low < expected < row.prediction.high
        assert row.prediction.extrapolated == (row.prediction.chunk == 1 << 30)
    assert any("extrapolations" in line for line in found.says)
    assert list(found.table()["extrapolated"]) == ["", "", "yes", "yes"]
    (ax,) = found.figure().axes
    assert len(ax.get_yticklabels()) == 4
    assert "log scale" in ax.get_xlabel()


def test_a_fault_is_found_where_it_is_and_nowhere_else(made: Models) -> None:
    def broken(cell: studies.Levels) -> dict[str, float]:
        part = 0.3 if (cell["chunk"], cell["pattern"]) == (CHUNKS[2], "seq-read") else 1.0
        return {"bandwidth": part * truth(cell)["bandwidth"]}

    found = faults(made, studies.campaign(broken, LEVELS, attachments=8, seed=2))
    outside = [
        dict(r.prediction.key) | {"chunk": r.prediction.chunk} for r in found.rows if r.outside
    ]
    assert outside == [{"pattern": "seq-read", "chunk": CHUNKS[2]}]
    assert "1 of 12 measured medians lie outside" in found.says[0]
    assert "a fault, or a change of the system" in found.says[0]
    assert list(found.table()["outside"]).count("yes") == 1
    made_json = json.loads(json.dumps(found.to_dict()))
    assert [p["outside"] for p in made_json["predictions"]].count(True) == 1


def test_the_same_system_again_is_no_fault(made: Models) -> None:
    again: Any = studies.campaign(truth, LEVELS, attachments=8, seed=3)
    found = faults(made, again)
    assert not any(row.outside for row in found.rows)
    assert found.says[0].endswith("(95% for all together).")


def test_one_attachment_has_no_interval_and_says_so() -> None:
    single = models(studies.campaign(truth, LEVELS, attachments=1), "bandwidth", None)
    found = predict(single, [8 * KIB])
    assert np.isnan(found.rows[0].prediction.low)
    assert any("No interval" in line for line in found.says)


def test_bad_input(made: Models) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        predict(made, [0])
    with pytest.raises(ValueError, match="no model for pattern x"):
        predict(made, [4096], {"pattern": "x"})
    with pytest.raises(ValueError, match="no cell of this campaign has a model"):
        faults(made, studies.campaign(truth, {"pattern": ("seq-write",), "chunk": CHUNKS}))
