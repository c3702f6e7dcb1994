"""The watch around a run, and what counters mean: a bad source costs its own series only."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results.evidence.nodes import WatchedNode
from fsmatrix.suite.campaign.yamlio import CampaignError
from fsmatrix.suite.nodes.counters import Look, of_proc, rates
from fsmatrix.suite.nodes.node_watch import PATIENCE, Asked, NodeWatch, Seen, Source, monitor
from fsmatrix.suite.plan.plan import Installation, Request, build_plan
from fsmatrix.suite.plan.plan import Source as Text
from tests.suite import acme
from tests.waiting import until

PROC = """cpu  100 0 50 800 50 0 0 0 0 0
cpu0 100 0 0 400 0 0 0 0 0 0
cpu1 0 0 50 400 50 0 0 0 0 0
MemTotal:        1000 kB
MemFree:          400 kB
Buffers:           50 kB
Cached:           200 kB
SReclaimable:      50 kB
   8       0 sda 10 0 80 30 20 0 160 70 0 55 100 0 0 0 0 0 0
   8       1 sda1 10 0 80 30 20 0 160 70 0 55 100 0 0 0 0 0 0
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9
  eth0: 1000 10 0 1 0 0 0 0 2000 20 0 2 0 0 0 0
"""


def test_what_proc_says() -> None:
    counters = of_proc(PROC.splitlines(), None, frozenset({"sda"}))
    assert counters == {
        "cpu:user": 1.0, "cpu:system": 0.5, "cpu:idle": 8.0, "cpu:iowait": 0.5, "cpu:steal": 0.0,
        "cpu:all": 10.0, "core:0": 1.0, "core:1": 0.5, "memory_used": 300 * 1024,
        "disk_reads:sda": 10, "disk_read:sda": 80 * 512, "disk_writes:sda": 20,
        "disk_written:sda": 160 * 512, "waited:sda": 0.1, "busy:sda": 0.055, "queue:sda": 0.1,
        "link_received:eth0": 1000, "link_packets_received:eth0": 10, "link_sent:eth0": 2000,
        "link_packets_sent:eth0": 20, "link_drops:eth0": 3,
    }  # fmt: skip
    unknown = of_proc(PROC.splitlines(), None, None)
    assert {name for name in unknown if name.startswith("disk_read:")} == {
        "disk_read:sda",
        "disk_read:sda1",
    }


def test_two_looks_give_rates_and_shares() -> None:
    before = of_proc(PROC.splitlines(), None, frozenset({"sda"}))
    more = {
        "cpu:user": 0.5, "cpu:system": 0.25, "cpu:idle": 3.0, "cpu:iowait": 0.25, "cpu:all": 4.0,
        "core:0": 0.5, "core:1": 0.25, "disk_reads:sda": 4, "disk_read:sda": 4096,
        "waited:sda": 0.02, "busy:sda": 0.5, "queue:sda": 1.0, "link_received:eth0": 500,
    }  # fmt: skip
    after = {name: value + more.get(name, 0.0) for name, value in before.items()}
    values = rates(Look(10.0, 100.0, before), Look(77.0, 102.0, after))  # by its own clock
    assert (values["cpu_user"], values["cpu_idle"]) == (0.125, 0.75)
    assert values["cpu_core_max"] == 0.25
    assert (values["disk_read:sda"], values["disk_reads:sda"]) == (2048, 2)
    assert values["disk_latency:sda"] == pytest.approx(0.005)
    assert (values["disk_busy:sda"], values["disk_queue:sda"]) == (0.25, 0.5)
    assert values["link_received:eth0"] == 250
    assert values["link_sent:eth0"] == 0


def test_what_went_back_has_no_rate() -> None:
    """A node that was booted again, a clock that stands still."""
    first = {"link_sent:eth0": 100.0, "disk_read:sda": 5.0}
    second = {"link_sent:eth0": 7.0, "disk_read:sda": 9.0, "link_sent:eth1": 3.0}
    assert rates(Look(0, 1.0, first), Look(1, 2.0, second)) == {"disk_read:sda": 4.0}
    assert rates(Look(0, 1.0, first), Look(1, 1.0, second)) == {}


@pytest.mark.parametrize("text", ["cpu x", "MemTotal: much kB", "eth0: " + "a " * 16])
def test_what_is_not_proc_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        of_proc([text], None, None)


def test_nodes_with_other_times_share_a_table_with_gaps() -> None:
    def look(at: float, sent: float) -> Look:
        return Look(at, at, {"link_sent:eth0": sent, "link_sent:eth1": 0.0, "memory_used": 5.0})

    made = monitor({"a": [look(0, 0), look(1, 10)], "b": [look(0.5, 0), look(1.5, 7)], "c": []})
    assert made is not None
    assert made.hosts == ("a", "b")
    assert made.time.tolist() == [0, 0.5, 1, 1.5]
    nan = float("nan")
    np.testing.assert_equal(
        made.series["link_sent:eth0"], [[nan, nan, 10, nan], [nan, nan, nan, 7]]
    )
    np.testing.assert_equal(made.series["memory_used"], [[5, nan, 5, nan], [nan, 5, nan, 5]])
    assert set(made.series) == {"link_sent:eth0", "memory_used"}  # the other link stood still


class Fake(Source):
    """A source of one node that does as it is told."""

    name = "fake"
    how = ""
    closed = 0

    @classmethod
    def words(cls, asked: Asked) -> list[str]:
        return [str(asked)]

    @classmethod
    def open(cls, asked: Asked) -> Source:
        del asked
        if cls.how == "open":
            raise RuntimeError("broken")
        return cls()

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.hang = threading.Event()

    def look(self, at: float) -> None:
        if self.how == "look" and self.looks:
            raise OSError("gone")
        if self.how == "hang" and self.looks:
            self.hang.wait(60)
        self.looks.append(Look(at, at, {"link_sent:eth0": at}))

    def taken(self, began: float, ended: float) -> Mapping[str, Seen]:
        assert began <= ended
        if self.how == "taken":
            self.hang.wait(60)
        looks, self.looks = self.looks, []
        return {self.name: Seen(WatchedNode(source=self.name), looks)}

    def close(self) -> None:
        type(self).closed += 1
        self.hang.set()


def kind(name: str, how: str = "") -> type[Fake]:
    return type(name, (Fake,), {"name": name, "how": how, "closed": 0})


def test_a_run_is_framed_by_looks_and_watched_between() -> None:
    good = kind("good")
    watch = NodeWatch(Asked(0.1), {"good": good})
    steps = []
    for _ in range(2):
        with watch.step():
            steps.append(time.time())
            time.sleep(0.35)
            steps.append(time.time())
    made, seen = watch.taken()
    assert made is not None
    assert 2 * 3 <= len(made.time) <= 2 * 5
    for began, ended in (steps[:2], steps[2:]):
        assert (made.time <= began).any()
        assert ((made.time > began) & (made.time < ended)).sum() >= 1
        assert (made.time >= ended).any()
    assert np.nanmean(made.series["link_sent:eth0"]) == pytest.approx(1.0)
    assert seen == {"good": WatchedNode(source="good")}
    watch.close()
    assert good.closed == 1


@pytest.mark.parametrize(
    ("how", "why_not"),
    [
        ("open", "RuntimeError: broken"),
        ("look", "OSError: gone"),
        ("hang", "no answer within"),
        ("taken", "no series within"),
    ],
)
def test_a_bad_source_costs_only_its_own_series(how: str, why_not: str) -> None:
    good, bad = kind("good"), kind("bad", how)
    watch = NodeWatch(Asked(0.1, ("n1",)), {"bad": bad, "good": good})
    began = time.monotonic()
    with watch.step():
        time.sleep(0.3)
    assert time.monotonic() - began < 2 * PATIENCE + 1
    made, seen = watch.taken()
    assert why_not in (seen["n1"].why_not or "")
    assert seen["n1"].source == "bad"
    if how != "hang":  # whoever hangs takes the thread with it
        assert made is not None
        assert made.hosts == ("good",)
        with watch.step():
            pass
        assert "good" in watch.taken()[1]
    watch.close()
    assert (good.closed, bad.closed) == (1, how != "open")
    until(lambda: not [each for each in threading.enumerate() if each.name == "nodes"])


def test_of_two_sources_the_first_that_has_looks_counts() -> None:
    first, second = kind("n1"), kind("n1")
    watch = NodeWatch(Asked(0.1), {"a": first, "b": second})
    with watch.step():
        pass
    made, seen = watch.taken()
    assert made is not None
    assert made.hosts == ("n1",)
    assert list(seen) == ["n1"]
    watch.close()


def test_the_source_of_the_contributors_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    agent = importlib.import_module("acme.agent")
    monkeypatch.setattr(agent, "COUNTERS", tmp_path / "counters.json")
    try:
        watch = NodeWatch(Asked(0.1), {"agent": agent.Agent})
        assert "is missing" in (watch.taken()[1]["*"].why_not or "")
        agent.COUNTERS.write_text('{"disk_written:nvme0": 5}')
        watch = NodeWatch(Asked(0.1), {"agent": agent.Agent})
        with watch.step():
            agent.COUNTERS.write_text('{"disk_written:nvme0": 9}')
        made, seen = watch.taken()
        assert seen["acme1"] == WatchedNode(source="agent", interval=0.1)
        assert made is not None
        assert np.nanmax(made.series["disk_written:nvme0"]) > 0
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
            sys.modules.pop(name)


CAMPAIGN = """campaign: c
targets:
  t: {backend: directory, options: {path: /tmp}}
workloads:
  w: {workload: pattern}
monitor: %s
"""


def planned(text: str, tmp_path: Path, site: str = "") -> Any:
    (tmp_path / "site.yaml").write_text(site or "{}")
    return build_plan(
        Text(CAMPAIGN % text, "c.yaml"),
        Request(),
        installation=Installation(site=tmp_path / "site.yaml"),
        here=False,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{sources: [shh]}", "c.yaml:6: .*unknown sources 'shh' .did you mean 'ssh'.*testbed"),
        ("{nodes: ['-oProxyCommand=x']}", "c.yaml:6: .*is not the name of a host"),
        ("{interval: 1ms}", "c.yaml:6: .*interval"),
        ("{node: [a]}", "c.yaml:6: .*'node'.*nodes"),
        ("ssh", "c.yaml:6: .*must be a mapping"),
    ],
)
def test_bad_input(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=problem):
        planned(text, tmp_path)


@pytest.mark.parametrize("url", ["ftp://x", "http://u:p@x", "http://x/?q=1", "x:9090", "http://"])
def test_a_server_is_an_address_without_secrets(url: str, tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"site.yaml:1: prometheus: .*write it like http://"):
        planned("{}", tmp_path, f"prometheus: {url}\n")


def test_a_plan_says_what_will_be_watched_and_how(tmp_path: Path) -> None:
    plan = planned(
        "{sources: [testbed, ssh, prometheus], nodes: [osd1, osd2]}",
        tmp_path,
        "prometheus: http://mon:9090/\n",
    )
    ssh, named, asked = plan.watched()
    assert ssh.startswith("ssh: ssh -T -oBatchMode=yes -oConnectTimeout=5 ")
    assert "exec sh -c '" in ssh
    assert named == "ssh: NODE: osd1, osd2"
    assert asked == "prometheus: GET http://mon:9090/api/v1/query, after each run"
    plain = planned("{}", tmp_path)
    assert plain.watched() == []  # on no bed the default has nothing to watch
    assert [case.case.case_id for case in plan.cases] == [c.case.case_id for c in plain.cases]
