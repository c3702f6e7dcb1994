"""The `daos` tool: its recorded answers, damaged ones, none at all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.backends.access import DfsAccess
from fsmatrix.backends.contract import ProvisionContext
from fsmatrix.backends.daos import tools
from fsmatrix.backends.daos import tools as daos_tool
from fsmatrix.backends.daos import tools as daos_tools
from fsmatrix.backends.daos.native import DaosDfs
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.errors import BackendError, NoAnswer, ToolError
from tests.backends import daos_agent_double
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
    assert daos_tools.daos_version() == (DATA / "daos-version.txt").read_text().strip()
    assert Client().properties("bench", "posix1")["rd_fac"] == "rd_fac0"
    assert Client().container_query("bench", "none") is None


def test_system_is_passed_on(standin: Standin) -> None:
    Client("other").pool_query("bench")
    assert standin.calls == [
        ["--json", "--sys-name=other", "pool", "query", "bench", "--show-disabled"]
    ]


def test_the_agent_s_system_is_the_one_of_the_options(standin: Standin) -> None:
    assert Client("daos_server").system_query().system_name == "daos_server"
    with pytest.raises(BackendError, match="daos_agent belongs to 'daos_server', not 'other'"):
        Client("other").system_query()


def test_missing_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: ProvisionContext
) -> None:
    monkeypatch.setattr(daos_tools, "DAOS", "no-such-daos")
    with pytest.raises(ToolError, match="install the DAOS client and start daos_agent"):
        Client().pool_query("bench")
    usable = DaosDfs.check()
    assert not usable.ok
    assert usable.reason == daos_tools.NO_DAOS
    assert daos().refusal() == daos_tools.NO_DAOS
    space = daos().space()
    assert (space.bytes, space.inodes) == (None, None)
    assert daos_tools.NO_DAOS in space.source
    with pytest.raises(BackendError, match="install"):
        daos().provision({}, context)
    assert context.journal.pending() == []


def test_hanging_tool_is_ended(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    standin.fault("pool query", "hang")
    impatient(monkeypatch, "pool")
    with pytest.raises(ToolError, match="still no answer after"):
        Client().pool_query("bench")
    assert "still no answer after" in daos().refusal()
    access = DfsAccess("daos-dfs", "a", details(), "bench", "posix1")
    settled = DaosDfs.settle(access, 5.0)
    assert not settled.reached
    assert "still no answer after" in settled.state["waiting_for"]


def test_lines_around_the_answer_do_not_matter(standin: Standin) -> None:
    standin.fault("pool query", "noise")
    assert Client().pool_query("bench").total_targets == 1


WHOLE = (DATA / "daos-pool-query.json").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no readable answer"),
        (WHOLE[:400], "no readable answer"),
        ("{}\n[1]\n{", "no readable answer"),
        (WHOLE.replace('"total_targets": 1', '"total_targets": -1'), "total_targets"),
        (WHOLE.replace('"free": 3324566816', '"free": NaN'), "tier_stats.0.free"),
        (WHOLE.replace('"free": 3324566816', '"free": "3324566816"'), "tier_stats.0.free"),
        (WHOLE.replace('"uuid"', '"unknown"'), "uuid"),
        ('{"response": [], "error": null, "status": 0}', "response is not understood"),
        ('{"response": null, "error": null, "status": "0"}', "no readable answer"),
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
    assert found is None or type(found.status) is int
    cut = daos_tool._answer_in(WHOLE[:begin])
    assert cut is None or cut == daos_tool.Answer(**json.loads(WHOLE))


def test_an_error_behind_exit_status_0_and_the_reverse(standin: Standin) -> None:
    missing = (DATA / "daos-pool-query-missing.json").read_text()
    for text, status in ((missing, 0), (WHOLE, 1)):
        standin.fault("pool query", "print", text=text, exit=status)
        with pytest.raises(daos_tool.DaosError, match="daos pool query bench failed"):
            Client().pool_query("bench")


@pytest.mark.parametrize(
    ("error", "status", "meaning"),
    [
        ("DER_NO_PERM(-1001)", -1001, "this user has no right to that"),
        ("DER_NONEXIST(-1005)", -1005, "no object of that name or UUID"),
        ("DER_MISC(-1025)", -1025, "daos_agent may have died"),
        ("DER_AGENT_COMM(-2034)", -2034, "no daos_agent answers on this node"),
    ],
)
def test_a_status_is_named_with_its_meaning(
    standin: Standin, error: str, status: int, meaning: str
) -> None:
    standin.fault("pool query", "fail", error=error, status=status)
    with pytest.raises(daos_tool.DaosError, match=meaning) as raised:
        Client().pool_query("bench")
    assert error in str(raised.value)
    assert raised.value.status == status


def test_a_slow_answer_is_told_from_none(standin: Standin, agent_folder: Path) -> None:
    """The tool was started and did not end: the deadline may be raised.  No agent: it may not."""
    standin.fault("pool query", "hang")
    with pytest.raises(NoAnswer) as raised:
        Client(deadline=0.3).pool_query("bench")
    reason = str(raised.value)
    assert "daos pool query bench: still no answer after 0.3 s; the tool is installed" in reason
    assert "raise `deadline`" in reason
    (agent_folder / "daos_agent.sock").rename(agent_folder / "moved")
    reason = daos(deadline="300ms").refusal()
    (agent_folder / "moved").rename(agent_folder / "daos_agent.sock")
    assert "deadline" not in reason
    assert f"does not run: there is no socket {agent_folder}/daos_agent.sock" in reason


def test_an_agent_that_answers(agent_folder: Path) -> None:
    with daos_agent_double.running(agent_folder) as received:
        tools.require_agent()
        tools.require_agent()
    assert received[:2] == [b"", b""], "asked each time, and nothing is sent to an agent"


def test_no_agent_a_stale_one_and_one_that_hangs(
    agent_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = re.escape(f"{agent_folder}/daos_agent.sock")
    with pytest.raises(BackendError, match=f"daos_agent on .* does not run: .* {place}"):
        tools.require_agent()
    monkeypatch.setattr(tools, "AGENT_PATIENCE", 0.2)
    with (
        daos_agent_double.listening(agent_folder),
        pytest.raises(BackendError, match=f"daos_agent on .* hangs: at its socket {place}"),
    ):
        tools.require_agent()
    with pytest.raises(BackendError, match=f"daos_agent on .* has died: .* {place}"):
        tools.require_agent()


def test_an_agent_that_hangs_keeps_no_command_waiting(
    standin: Standin, agent_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libdaos would wait for ever: the tool is not even started."""
    monkeypatch.setattr(tools, "AGENT_PATIENCE", 0.2)
    (agent_folder / "daos_agent.sock").rename(agent_folder / "moved")
    with daos_agent_double.listening(agent_folder):
        assert "hangs: at its socket" in DaosDfs.check().reason
        assert "hangs: at its socket" in daos().refusal()
    (agent_folder / "moved").rename(agent_folder / "daos_agent.sock")
    assert [call for call in standin.calls if call != ["version"]] == []


@pytest.mark.parametrize(("late", "tries"), [(1, 2), (2, 3), (5, 3)])
def test_a_tool_that_could_not_begin_is_called_again(
    monkeypatch: pytest.MonkeyPatch, late: int, tries: int
) -> None:
    """Servers that poll on the client's cores keep it waiting for 3 s: it has asked nothing yet."""
    asked: list[float] = []
    words = "failed to initialize DAOS API: DER_TIMEDOUT(-1011): Time out"

    def once(argv: object, deadline: float, meanings: object) -> object:
        asked.append(deadline)
        if len(asked) <= late:
            raise daos_tool.DaosError(words, daos_tool.TIMEDOUT)
        return {}

    monkeypatch.setattr(daos_tool, "_ask_once", once)
    if late < tries:
        assert daos_tool.ask_tool(["daos"], 60.0) == {}
    else:
        with pytest.raises(daos_tool.DaosError, match="initialize"):
            daos_tool.ask_tool(["daos"], 60.0)
    assert len(asked) == tries
    assert asked == sorted(asked, reverse=True)
    assert asked[0] == 60.0
