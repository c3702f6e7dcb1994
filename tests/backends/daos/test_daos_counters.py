"""Counters of engines on this machine, as a real `daos_metrics` of DAOS 2.6.5 printed them."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.access import DfsAccess
from fsmatrix.backends.daos import daos_state
from fsmatrix.backends.daos.native import DaosDfs
from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from tests.backends.daos_standin import DATA, details

POOL = "18fea2ba-308e-4203-8b6f-4151086fa461"
TEXT = (DATA / "daos-metrics.csv").read_text()
HERE = details(pool_uuid=POOL, servers=["127.0.0.1"], engines=2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Calls of a daos_metrics that prints what was recorded."""
    calls: list[list[str]] = []

    def run(argv: list[str], deadline: float) -> tools.Ran:
        assert deadline == daos_state.METRICS_TIMEOUT
        calls.append(argv)
        return tools.Ran(tuple(argv), 0, TEXT, "")

    monkeypatch.setattr(tools, "find", lambda name: f"/opt/bin/{name}")
    monkeypatch.setattr(tools, "run", run)
    monkeypatch.setattr(daos_state, "_resting", {})
    return calls


def looked(**more: object) -> dict[str, float]:
    return DaosDfs.counters(DfsAccess("daos-dfs", "a", {**HERE, **more}, "bench", "posix1"))


def test_engines_on_loopback_count(asked: list[list[str]]) -> None:
    assert looked() == {
        "network_received_bytes": 2 * 248.0,
        "network_sent_bytes": 2 * 124.0,
        "server_aggregated_records": 0.0,
        "network_counting_engines": 2.0,
    }
    assert [argv[1] for argv in asked] == ["--srv_idx=0", "--srv_idx=1"]


@pytest.mark.parametrize(
    "more",
    [
        {"servers": ["127.0.0.1", "192.0.2.7"]},
        {"servers": ["127.0.0.1", "no address"]},
        {"servers": []},
        {"engines": daos_state.MOST_ENGINES + 1},
    ],
)
def test_nobody_is_asked_elsewhere(asked: list[list[str]], more: dict[str, object]) -> None:
    assert looked(provider="ofi+verbs", **more) == {}
    assert asked == []


def test_no_program_is_started_while_a_step_is_sampled(asked: list[list[str]]) -> None:
    seen: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: seen.append(looked()))
    thread.start()
    thread.join()
    assert seen == [{}]
    assert asked == []


def test_an_engine_that_cannot_be_read_is_left_alone(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(argv: list[str], deadline: float) -> tools.Ran:
        asked.append(argv)
        raise ToolError("no rights")

    monkeypatch.setattr(tools, "run", run)
    assert looked() == looked() == {}
    assert len(asked) == 1


def test_another_pool_is_not_counted() -> None:
    assert daos_state.parse_metrics(TEXT.splitlines(), "ff6ff23a-6e5a-4176-9b65-53bbfd6da1d9") == {}


@given(st.integers(0, len(TEXT)), st.text(max_size=30))
def test_damage_adds_nothing(begin: int, foreign: str) -> None:
    """Cut off or overwritten: sums of what can be read, never an error."""
    whole = daos_state.parse_metrics(TEXT.splitlines(), POOL)
    cut = daos_state.parse_metrics(TEXT[:begin].split("\n")[:-1], POOL)
    assert all(cut[name] <= whole[name] for name in cut)
    daos_state.parse_metrics((TEXT[:begin] + foreign).splitlines(), POOL)
