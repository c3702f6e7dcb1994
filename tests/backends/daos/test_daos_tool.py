"""The `daos` tool: its recorded answers, damaged ones, none at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.access import DfsAccess
from fsmatrix.backends.base import ProvisionContext
from fsmatrix.backends.daos import client as daos_client
from fsmatrix.backends.daos import tool as daos_tool
from fsmatrix.backends.daos.client import Client
from fsmatrix.backends.daos.dfs import DaosDfs
from fsmatrix.backends.errors import BackendError, ToolError
from tests.backends.daos_standin import DATA, THEIRS, Standin, answer, daos, details, impatient


def test_recorded_answers_are_understood(standin: Standin) -> None:
    pool = Client().pool_query("bench")
    recorded = answer("daos-pool-query")["response"]
    assert pool.uuid == recorded["uuid"]
    assert {tier.media_type: tier.free for tier in pool.tiers} == {
        tier["media_type"]: tier["free"] for tier in recorded["tier_stats"]
    }
    container = Client().container_query("bench", "posix1")
    assert container is not None
    assert container.container_uuid == THEIRS["uuid"]
    assert container.chunk_size == answer("daos-container-query")["response"]["chunk_size"]
    assert Client().system_query().fabric_provider == "ofi+tcp"
    assert daos_client.version() == (DATA / "daos-version.txt").read_text().strip()
    assert Client().properties("bench", "posix1")["rd_fac"] == "rd_fac0"
    assert Client().container_query("bench", "none") is None


def test_system_is_passed_on(standin: Standin) -> None:
    Client("other").pool_query("bench")
    assert standin.calls == [["--json", "--sys-name=other", "pool", "query", "bench"]]


def test_missing_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: ProvisionContext
) -> None:
    monkeypatch.setattr(daos_client, "TOOL", "no-such-daos")
    with pytest.raises(ToolError, match="install the DAOS client and start daos_agent"):
        Client().pool_query("bench")
    usable = DaosDfs.check()
    assert not usable.ok
    assert usable.reason == daos_client.MISSING
    assert daos().refusal() == daos_client.MISSING
    space = daos().space()
    assert (space.bytes, space.inodes) == (None, None)
    assert daos_client.MISSING in space.source
    with pytest.raises(BackendError, match="install"):
        daos().provision({}, context)
    assert context.journal.pending() == []


def test_hanging_tool_is_ended(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    standin.fault("pool query", "hang")
    impatient(monkeypatch, "pool")
    with pytest.raises(ToolError, match="did not end within"):
        Client().pool_query("bench")
    assert "did not end within" in daos().refusal()
    access = DfsAccess("daos-dfs", "a", details(), "bench", "posix1")
    settled = DaosDfs.settle(access, 5.0)
    assert not settled.reached
    assert "did not end within" in settled.state["waiting_for"]


def test_lines_around_the_answer_do_not_matter(standin: Standin) -> None:
    standin.fault("pool query", "noise")
    assert Client().pool_query("bench").total_targets == 1


WHOLE = (DATA / "daos-pool-query.json").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no answer that can be read"),
        (WHOLE[:400], "no answer that can be read"),
        ("{}\n[1]\n{", "no answer that can be read"),
        (WHOLE.replace('"total_targets": 1', '"total_targets": -1'), "total_targets"),
        (WHOLE.replace('"free": 3324566816', '"free": NaN'), "tier_stats.0.free"),
        (WHOLE.replace('"free": 3324566816', '"free": "3324566816"'), "tier_stats.0.free"),
        (WHOLE.replace('"uuid"', '"unknown"'), "uuid"),
        ('{"response": [], "error": null, "status": 0}', "response is not understood"),
        ('{"response": null, "error": null, "status": "0"}', "no answer that can be read"),
    ],
)
def test_damaged_answers_are_errors(standin: Standin, text: str, reason: str) -> None:
    standin.fault("pool query", "print", text=text)
    with pytest.raises(ToolError, match=reason):
        Client().pool_query("bench")
    assert reason in daos().refusal()


@given(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)), st.text(max_size=20))
def test_no_damage_makes_another_answer(begin: int, length: int, foreign: str) -> None:
    """Overwritten: nothing, or an object of the tool's form; cut: nothing, or all of it."""
    damaged = WHOLE[:begin] + foreign + WHOLE[begin + length :]
    found = daos_tool._answer_in(damaged)
    assert found is None or {"response", "error", "status"} <= found.keys()
    cut = daos_tool._answer_in(WHOLE[:begin])
    assert cut is None or cut == json.loads(WHOLE)


def test_an_error_behind_exit_status_0_and_the_reverse(standin: Standin) -> None:
    missing = (DATA / "daos-pool-query-missing.json").read_text()
    for text, status in ((missing, 0), (WHOLE, 1)):
        standin.fault("pool query", "print", text=text, exit=status)
        with pytest.raises(daos_tool.DaosError, match="daos pool query bench failed"):
            Client().pool_query("bench")
