"""Traces replayed on DFS: what its driver plays of them, on the double or on a real DAOS."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsmatrix.results.evidence.replay import Replayed, replayed
from fsmatrix.results.files.store import Store
from tests.backends import daos_places
from tests.backends.conftest import agent_folder, standin  # noqa: F401 - fixtures
from tests.suite.daos_campaigns import Doubled, doubled_daos  # noqa: F401 - a fixture
from tests.suite.replay_workload import program, trace
from tests.suite.running import fsmatrix

pytestmark = [pytest.mark.daos, pytest.mark.needs("c player", "compiler")]
CAMPAIGN = """
campaign: replay-dfs
targets:
  daos: {{backend: daos-dfs, options: {{pool: {pool}{library}}}}}
workloads:
  app: {{workload: replay, options: {{trace: {trace}}}}}
  sqlite: {{workload: replay, options: {{trace: "example:sqlite"}}}}
repetitions: 1
order: {{attachments: 1}}
settle: {{timeout: 2s}}
limits: {{time_per_run: 120s}}
"""


@pytest.fixture
def daos(request: pytest.FixtureRequest) -> tuple[str, str, Doubled | None]:
    """Pool and folder of the library, and the double if it is not a real DAOS."""
    if daos_places.REAL_POOL:
        return daos_places.REAL_POOL, daos_places.REAL_LIBRARY, None
    double: Doubled = request.getfixturevalue("doubled_daos")
    return "bench", str(double.library), double


def test_all_that_programs_did_is_played_and_goes_as_captured(
    daos: tuple[str, str, Doubled | None], tmp_path: Path
) -> None:
    pool, library, double = daos
    path = trace(tmp_path / "t.h5", program)
    file, out = tmp_path / "c.yaml", tmp_path / "out"
    given = f", library: {library}" if library else ""
    file.write_text(CAMPAIGN.format(pool=pool, library=given, trace=path))
    done = fsmatrix("run", file, "-o", out, "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    store = Store.open(out)
    seen: dict[str, Replayed] = {}
    for record in map(store.read, store.ids()):
        assert record.status == "ok", record.error
        facts = replayed(record.phases[0].facts)
        assert facts is not None
        seen[facts.trace] = facts
    assert sorted(seen) == ["sqlite.h5", "t.h5"]
    for facts in seen.values():  # errors too are the captured ones
        assert (facts.agreed, facts.fidelity) == (facts.operations, 1.0), facts.document()
        assert facts.errors_otherwise == {}
    assert seen["t.h5"].errors_as_captured == {"ENOENT": 1, "EEXIST": 1}
    if double is not None:
        assert double.violations == []
        assert double.left == []
