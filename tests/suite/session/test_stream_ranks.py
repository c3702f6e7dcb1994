"""A real session whose ranks share a queue: each block once, tallies over all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsmatrix.results.histogram import dense
from fsmatrix.results.record import Geometry
from fsmatrix.suite.run.assemble import stream_phase
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.messages import Playing, StepAnswer, Stream
from fsmatrix.suite.session.wire import Arrays
from tests.suite import probe
from tests.suite.sessions import in_step, local, started

BLOCKS, SIZE = 40, 25
EMULATED = {"hosts": ("one", "two"), "emulated": True}


@pytest.fixture(scope="module", autouse=True)
def ranks_import_the_probe() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", probe.ROOT)
        yield


def streamed(
    session: Session, geometry: Geometry, root: Path, missing: int, stop: bool
) -> tuple[StepAnswer, Arrays]:
    """The answer to a stream step of the probe's."""
    params = {"size": SIZE, "blocks": BLOCKS, "missing": missing}
    stream = Stream(
        probe.QUEUE, params, slots=SIZE, metadata=True, stop_on_error=stop, shared_queue=True
    )
    playing = Playing(stream=stream, seed=1, driver="posix", implementation="auto")
    return in_step(session, geometry, roots=(str(root),), playing=playing)


def check(session: Session, geometry: Geometry, root: Path) -> None:
    """Two steps: one without errors, one whose errors are counted."""
    for missing in (0, 4):
        place = root / str(missing)
        place.mkdir()
        answer, arrays = streamed(session, geometry, place, missing, stop=not missing)
        assert answer.merged is not None
        every = {
            f"n{node}-{block}-{i}"
            for node in range(geometry.nodes)
            for block in range(BLOCKS)
            for i in range(missing, SIZE)
        }
        assert {path.name for path in place.iterdir()} == every
        phase = stream_phase("play", answer.merged, arrays)
        blocks = geometry.nodes * BLOCKS
        tallies = phase.facts["tallies"]
        assert (tallies["played"], tallies["failed"]) == (blocks * SIZE, blocks * missing)
        assert dense(tallies["blocks"]).tolist() == [geometry.nodes] * BLOCKS
        assert tallies["duration_max"] > 0
        assert phase.operations.sum() == blocks * (SIZE - missing)
        assert phase.errors.sum() == blocks * missing
        assert answer.merged.failures == ()  # which would fail the run
        errors = phase.facts.get("first_errors")
        assert errors is None if not missing else {"ENOENT"} == {each["errno"] for each in errors}


def test_one_process(tmp_path: Path) -> None:
    with local() as session:
        check(session, Geometry(1, 1, 3), tmp_path)


@pytest.mark.parametrize(
    ("geometry", "fields"),
    [
        (Geometry(1, 2), {}),
        (Geometry(1, 3, 2), {}),
        (Geometry(1, 4), {}),
        pytest.param(Geometry(2, 2), EMULATED, marks=pytest.mark.needs("emulated nodes")),
    ],
)
def test_ranks_of_mpi(geometry: Geometry, fields: dict[str, Any], tmp_path: Path) -> None:
    with started(geometry, **fields) as session:
        check(session, geometry, tmp_path)


def test_an_error_that_ends_the_stream_fails_the_run(tmp_path: Path) -> None:
    with local() as session:
        answer, _ = streamed(session, Geometry(), tmp_path, missing=1, stop=True)
    assert answer.merged is not None
    assert [failure.errno for failure in answer.merged.failures] == ["ENOENT"]
    assert "tallies" not in answer.merged.facts
