"""Audits of runs that lack something, and the arithmetic below them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fsmatrix.results.audits import audit_run, run_audits
from fsmatrix.results.audits.audit import data_bytes
from fsmatrix.results.audits.timing import mann_kendall, steady_part
from fsmatrix.results.evidence.evidence import Evidence
from tests.results.audit_records import (
    MB,
    counters,
    declared,
    found,
    latency,
    phase,
    read_with,
    record,
    with_evidence,
)


def test_a_good_run_has_no_findings() -> None:
    assert audit_run(record(phase(), phase("write"))) == ()


def test_a_run_without_any_evidence_has_no_findings() -> None:
    assert audit_run(record(phase(), phase("write"), evidence=Evidence())) == ()
    assert audit_run(record(evidence=Evidence(), status="failed", case={})) == ()


def test_an_imported_run_with_totals_only() -> None:
    """No case, no ranks: one worker, nothing optional."""
    total = phase(
        ranks=1,
        overhead=None,
        latency={},
        interval=0.0,
        interval_bytes=None,
        interval_operations=None,
    )
    assert audit_run(replace(record(total), case="", evidence=Evidence())) == ()


def test_workers_without_data_operations_or_without_any() -> None:
    """Times that are not there are NaN; that is no reason to stumble."""
    none = np.full(4, np.nan)
    falling = np.arange(100)[::-1]
    made = phase("create", io_start=none, io_end=none, interval_bytes=falling)
    assert found(record(made), "not-stationary") == ["warning"]
    some = np.array([0.0, 0.0, np.nan, 0.0])
    idle = phase(start=some, end=some + 2, overhead=some, interval_bytes=falling)
    assert audit_run(record(idle)) == ()
    nobody = record(phase(start=none, end=none, overhead=none))
    assert [finding.audit for finding in audit_run(nobody)] == ["too-short"]


def test_clock_far_too_uncertain_is_invalid() -> None:
    assert found(record(phase(clock_uncertainty=0.3)), "clock-uncertainty") == ["invalid"]


def test_a_trend_within_less_than_a_second_is_no_warning() -> None:
    falling = np.r_[np.full(50, 4 * MB), np.full(50, 2 * MB)]
    assert found(record(phase(seconds=2.0, interval_bytes=falling)), "not-stationary") == [
        "warning"
    ]
    assert found(record(phase(seconds=0.5, interval_bytes=falling)), "not-stationary") == ["info"]


def test_an_output_on_the_target_is_no_warning_while_nothing_was_written_there() -> None:
    quiet = with_evidence(
        read_with(device_read_bytes=400 * MB, device_written_bytes=900_000),
        output={"on_target": True, "written": 0},
    )
    assert found(quiet, "output-on-target") == ["info"]


def test_gravest_first_and_versions() -> None:
    findings = audit_run(
        with_evidence(
            read_with(device_read_bytes=0),
            output={"on_target": True},
            world={"emulated_nodes": True},
        )
    )
    assert [f.severity for f in findings] == ["invalid", "warning", "info"]
    assert all(f.version == run_audits()[f.audit].version and f.advice for f in findings)
    assert findings[0].evidence == {"device_read_bytes": 0.0, "bytes_read": 400 * MB}


def test_mixture_is_divided_by_operations() -> None:
    mixed = phase("mixed", latency={"read": latency(300), "write": latency(100)})
    assert data_bytes(mixed) == (300 * MB, 100 * MB)
    served = with_evidence(record(mixed), counters={"mixed": counters(device_read_bytes=100 * MB)})
    assert found(served, "read-served-by-cache") == ["invalid"]
    honest = with_evidence(record(mixed), counters={"mixed": counters(device_read_bytes=300 * MB)})
    assert found(honest, "read-served-by-cache") == []


def test_metadata_phases_move_no_data() -> None:
    assert data_bytes(phase("open-read")) == (0.0, 0.0)
    assert data_bytes(phase("create")) == (0.0, 0.0)


def test_trend_test_against_its_definition() -> None:
    """p of the Mann-Kendall test for a known score: 10 rising values, S = 45."""
    # Var S = 10 * 9 * 25 / 18 = 125; z = 44 / sqrt(125) = 3.9355; p = 8.3e-5
    assert mann_kendall(np.arange(10.0)) == pytest.approx(8.30e-5, rel=0.01)
    assert mann_kendall(np.ones(10)) == 1.0


def test_trend_test_has_its_error_rate() -> None:
    """On pure noise at most about 1 % of the phases would be called not stationary."""
    rng = np.random.default_rng(1)
    alarms = sum(mann_kendall(rng.standard_normal(20)) < 0.01 for _ in range(2000))
    assert alarms < 40


def test_steady_part_leaves_out_opening_and_fsync() -> None:
    made = phase(io_start=np.full(4, 0.2), io_end=np.full(4, 1.6), ranks=4)
    part = steady_part(made)
    assert part is not None
    assert len(part) == 70


def test_a_declared_reference_in_memory_is_only_said() -> None:
    made = replace(declared("cold", "memory"), coordinates={"reference": True})
    assert found(made, "memory-reference") == ["info"]


@pytest.mark.parametrize(("below", "severities"), [("tmpfs", ["warning"]), ("ext4", [])])
def test_an_image_in_memory_is_no_storage(below: str, severities: list[str]) -> None:
    """A file system on a loop device whose image lies in /dev/shm: plan says so, and each run."""
    made = declared("cold", "cold")
    devices = [{"name": "loop1", "loop": {"direct_io": True, "filesystem": below}}]
    target = {**made.environment.get("target", {}), "devices": devices}
    made = replace(made, environment={**made.environment, "target": target})
    assert found(made, "memory-reference") == severities


def test_the_cure_is_named_where_it_is_known() -> None:
    """A loop mount without direct I/O: its image's page cache served the read."""
    made = declared("cold", "cold", read_with(device_read_bytes=0))
    for direct, words in ((False, "losetup --direct-io=on /dev/loop1"), (True, "find the cache")):
        devices = [{"name": "loop1", "loop": {"direct_io": direct, "filesystem": "ext4"}}]
        record = replace(made, environment={"target": {"devices": devices}})
        (finding,) = [one for one in audit_run(record) if one.audit == "read-served-by-cache"]
        assert words in finding.advice
        assert "advice" not in finding.evidence


SLOW = "SLOW_OPS (HEALTH_WARN): 2 slow ops, oldest one blocked for 110 sec, osd.1 has slow ops"
DOWN = "OSD_DOWN (HEALTH_WARN): 1 osds down"


def unwell(sentence: str, longest: float | None, **coordinates: str) -> list[str]:
    """Severities of what is said of a read of 120 s whose longest operation took so long."""
    took = {} if longest is None else {"read": replace(latency(400), maximum=longest)}
    made = with_evidence(record(phase(seconds=120, latency=took)), health={"read": [sentence]})
    return found(replace(made, coordinates=coordinates), "storage-unhealthy")


def test_a_system_that_blocked_io_makes_a_run_invalid_unless_this_run_did_not_wait() -> None:
    assert unwell(SLOW, 110) == ["invalid"]
    assert unwell(SLOW, None) == ["invalid"]  # mdtest tells no latency: nobody knows
    assert unwell(SLOW, 0.02) == ["warning"]  # other clients' operations, or those before it
    assert unwell("PG_AVAILABILITY (HEALTH_WARN): 3 pgs inactive", 40) == ["invalid"]


def test_a_daemon_that_is_down_makes_a_run_invalid_only_if_its_io_stood_still() -> None:
    assert unwell(DOWN, 0.02) == ["warning"]
    assert unwell(DOWN, None) == ["warning"]
    assert unwell(DOWN, 20) == ["invalid"]
    assert unwell("X (HEALTH_ERR): it is broken", 0.02) == ["invalid"]


@pytest.mark.parametrize("sentence", [SLOW, DOWN])
def test_trouble_that_is_studied_is_declared_and_only_said(sentence: str) -> None:
    assert unwell(sentence, 110, health="degraded") == ["info"]
    assert unwell(sentence, 110, health="good") == ["invalid"]


def test_what_a_flush_waits_for_is_a_stall_only_if_the_system_says_so() -> None:
    took = {"write": latency(400), "fsync": replace(latency(4), maximum=30.0)}
    made = record(phase("write", seconds=60, latency=took))
    said = [
        found(with_evidence(made, health={"write": [text]}), "storage-unhealthy")
        for text in (DOWN, SLOW)
    ]
    assert said == [["warning"], ["invalid"]]
