"""What a plan says of its time, and how what is left is learned while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from fsmatrix.backends.contract import SpeedEstimate
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.plan.estimate import attach_seconds, run_seconds
from fsmatrix.suite.plan.plan import Installation, Plan, Request, build_plan
from fsmatrix.suite.run.events import Event, Facts
from fsmatrix.suite.run.forecast import ATTACH, RUN, Forecast, Share

CAMPAIGN = """
campaign: times
seed: 3
targets:
  here: {backend: directory, options: {path: /somewhere}}
workloads:
  io: {workload: pattern, options: {bytes_per_process: 64MiB, OPTIONS}}
factors: {pattern: [seq-write, seq-read]}
repetitions: 4
order: {block: 2}
"""
BED = """
campaign: beds
seed: 3
targets:
  bed: {backend: rados, testbed: {osds_per_node: 1, pg_num: 16, BED}}
workloads:
  io: {workload: pattern, options: {bytes_per_process: 64MiB}}
factors: {storage_nodes: [1, 3]}
repetitions: 1
"""


def planned(text: str) -> Plan:
    return build_plan(Source(text), Request(), installation=Installation(root=True), here=False)


def test_a_read_costs_its_layout_and_itself() -> None:
    plan = planned(CAMPAIGN.replace("OPTIONS", "verify: false"))
    pace = SpeedEstimate(attach=0, run=0, bandwidth=64 << 20, files=1e9)
    seconds = {c.coordinates["pattern"]: run_seconds(c, pace) for c in plan.cases}
    assert seconds == pytest.approx({"seq-write": 1.0, "seq-read": 2.0})
    timed = planned(CAMPAIGN.replace("OPTIONS", "fixed: time, seconds: 5s"))
    seconds = {c.coordinates["pattern"]: run_seconds(c, pace) for c in timed.cases}
    assert seconds == pytest.approx({"seq-write": 6.0, "seq-read": 6.0})


def test_a_bed_is_brought_up_for_each_attachment_and_its_drives_are_slow() -> None:
    plain = planned(BED.replace("BED", "nodes: 1"))
    target = plain.target("bed")
    assert target.pace({"storage_nodes": 3}).attach > target.pace({"storage_nodes": 1}).attach
    assert target.pace({"storage_nodes": 1}).attach > target.backend.pace.attach
    slow = planned(BED.replace("BED", "scale: 0.01, interface: sata"))
    rate = slow.target("bed").pace({"storage_nodes": 1}).bandwidth
    assert rate == pytest.approx(480e6 * 0.01)
    lines = planned(BED.replace("BED", "network: 100Mbit"))
    assert lines.target("bed").pace({"storage_nodes": 1}).bandwidth == pytest.approx(12.5e6)
    copies = planned(BED.replace("BED", "redundancy: size=2").replace("[1, 3]", "[2, 3]"))
    once = plain.target("bed").pace({"storage_nodes": 2}).bandwidth
    assert copies.target("bed").pace({"storage_nodes": 2}).bandwidth == pytest.approx(once / 2)
    assert slow.estimate.seconds > plain.estimate.seconds > 2 * 8


def test_at_first_the_guess_is_what_is_left() -> None:
    plan = planned(CAMPAIGN.replace("OPTIONS", "verify: false"))
    assert Forecast.of(plan).seconds == pytest.approx(plan.estimate.seconds)
    pace = plan.pace(plan.cases[0])
    each = sum(run_seconds(case, pace) for case in plan.cases)
    whole = 4 * each + 2 * attach_seconds(plan.cases, pace)
    assert plan.estimate.seconds == pytest.approx(whole)


def told(what: str, when: float, **facts: Any) -> Event:
    return Event(what, "", Facts(**facts), time=when)


def run_of(target: str, when: float) -> Event:
    return told("run", when, coordinates={"target": target})


def shares() -> dict[tuple[str, str], Share]:
    return {
        (ATTACH, "a"): Share(1.0, 2),
        (RUN, "a"): Share(1.0, 4),
        (ATTACH, "b"): Share(2.0, 2),
        (RUN, "b"): Share(3.0, 4),
    }


def test_what_was_measured_takes_the_place_of_what_was_guessed() -> None:
    forecast = Forecast(shares())
    assert forecast.seconds == 1 * 2 + 1 * 4 + 2 * 2 + 3 * 4
    forecast(told("attach", 100.0, target="a"))
    forecast(run_of("a", 110.0))  # attaching took 10 s: all attachments take ten times as long
    assert forecast.seconds == pytest.approx(10 + 20 * 2 + 1 * 4 + 3 * 4)
    forecast(run_of("a", 115.0))  # a run took 5 s
    assert forecast.seconds == pytest.approx(10 + 20 * 2 + 5 * 3 + 5 * 3 * 4)
    forecast(told("attach", 120.0, target="b"))
    forecast(run_of("b", 122.0))  # of b it is known by itself now
    assert forecast.seconds == pytest.approx(10 + 2 + 5 * 2 + 5 * 3 * 4)


def test_what_is_skipped_or_given_up_takes_no_time() -> None:
    forecast = Forecast(shares())
    forecast(told("skipped", 0.0, target="a", runs=4, attachments=2))
    assert forecast.seconds == 2 * 2 + 3 * 4
    forecast(told("attach", 1.0, target="b"))
    forecast(told("given_up", 3.0, target="b", runs=2))
    forecast(told("stopped", 3.0))
    assert forecast.seconds == pytest.approx(2 + 3 * 2)


def test_a_pause_is_not_learned() -> None:
    forecast = Forecast(shares())
    forecast(run_of("a", 0.0))
    forecast(told("waiting", 1.0))
    forecast(run_of("a", 5000.0))
    assert forecast.seconds < 60
