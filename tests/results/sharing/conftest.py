"""A results directory that is full of names."""

import json

import pytest

from fsmatrix.results.files.store import Store
from tests.results.sharing.bundled import SENTENCE, plan, secretive


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "out")
    made.append(secretive(repetition) for repetition in range(3))
    (made.directory / "campaign.json").write_text(json.dumps(plan()))
    for name in ("report.html", "engines.json"):
        (made.directory / name).write_text(SENTENCE)
    for name in ("locks", "journal", "state"):
        (made.directory / name).mkdir()
        (made.directory / name / "x").write_text(SENTENCE)
    return made
