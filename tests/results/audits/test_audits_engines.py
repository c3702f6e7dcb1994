"""Audits of external engines: from parsers' notes and counters to findings."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.results.audits import audit_run, engines
from fsmatrix.results.evidence.evidence import Evidence
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.formats.parsed import totals
from fsmatrix.results.record import Finding, RunRecord

MB = 10**6
ROOT = Path(__file__).parents[3]


def record(*notes: dict[str, Any], **evidence: Any) -> RunRecord:
    """An IOR run that read 100 MB, with what its parser noted."""
    told = [{"key": "", "message": "", "line": 0, "phase": ""} | note for note in notes]
    engine = {"name": "ior", "version": "4.0.0", "notes": told, "facts": {}}
    return RunRecord(
        case='{"target":"t","workload":"ior"}',
        case_id="0" * 16,
        work_id="1" * 16,
        repetition=1,
        attempt=1,
        block=0,
        attachment="a",
        session="s",
        status="ok",
        engine="ior",
        engine_version="4.0.0",
        started="2026-01-01T00:00:00+00:00",
        phases=(totals("read", 1.0, 100 * MB, 100),),
        evidence=read(Evidence, {"engine": engine, **evidence}, "evidence"),
    )


def found(made: RunRecord, name: str) -> list[Finding]:
    return [finding for finding in audit_run(made) if finding.audit == name]


def read_bytes(number: int) -> dict[str, Any]:
    kernel = {"host": "a", "before": {"device_read_bytes": 5}}
    return {"counters": {"read": [kernel | {"after": {"device_read_bytes": 5 + number}}]}}


@pytest.mark.parametrize("key", engines.NOTES)
def test_a_note_becomes_a_finding(key: str) -> None:
    name, severity, advice = engines.NOTES[key]
    made = record({"key": key, "message": "what was seen", "line": 7, "phase": "read"})
    (finding,) = found(made, name)
    assert (finding.severity, finding.message, finding.phase) == (severity, "what was seen", "read")
    assert finding.advice == advice
    assert finding.evidence == {"line": 7}


def test_a_run_without_notes_has_none_of_these_findings() -> None:
    names = {audit.name for audit in engines.ENGINES}
    assert not names & {finding.audit for finding in audit_run(record())}
    assert not names & {f.audit for f in audit_run(replace(record(), evidence=Evidence()))}


def test_the_same_note_twice_is_one_finding() -> None:
    note = {"key": "warning", "message": "WARNING: x"}
    assert len(found(record(note, {**note, "line": 9}), "engine-warning")) == 1
    assert len(found(record(note, {**note, "message": "WARNING: y"}), "engine-warning")) == 2


@pytest.mark.parametrize(
    ("evidence", "severity", "says"),
    [
        ({}, "warning", "-C on one node"),
        (read_bytes(0), "invalid", "of 100 MB read, 0 B came"),
        (read_bytes(89 * MB), "invalid", "came from the device"),
        (read_bytes(95 * MB), "info", "came from the device"),
    ],
)
def test_reordering_on_one_node_is_judged_by_where_the_bytes_came_from(
    evidence: dict[str, Any], severity: str, says: str
) -> None:
    note = {"key": engines.REORDER, "message": "-C on one node", "phase": "read"}
    (finding,) = found(record(note, **evidence), engines.REORDER)
    assert finding.severity == severity
    assert says in finding.message


def test_who_reads_its_data_twice_is_named_where_a_cache_served_it() -> None:
    note = {"key": "reread", "message": "job a went over its 10 MB 10 times", "phase": "read"}
    cache = {"cache": {"read": {"declared": "cold", "state": "cold"}}}
    (finding,) = found(record(note, **read_bytes(10 * MB), **cache), "read-served-by-cache")
    assert finding.message.endswith(
        "came from the device or the network; job a went over its 10 MB 10 times"
    )
    other = {**note, "phase": "write"}
    (finding,) = found(record(other, **read_bytes(10 * MB), **cache), "read-served-by-cache")
    assert "job a" not in finding.message


def test_every_note_of_our_parsers_is_known() -> None:
    """The literal keys in the sources of parsers and workloads."""
    used = set()
    for folder in ("results/formats", "suite"):
        for path in (ROOT / folder).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Note":
                    used |= {a.value for a in call.args[:1] if isinstance(a, ast.Constant)}
    assert used
    assert used <= {*engines.NOTES, engines.REORDER}


def test_an_unknown_note_is_shown_all_the_same() -> None:
    (finding,) = found(record({"key": "odd", "message": "a thing"}), "engine-note")
    assert (finding.severity, finding.message) == ("info", "odd: a thing")


def test_another_version_in_mid_campaign() -> None:
    (finding,) = found(record(engine_before="3.3.0"), "engine-changed")
    assert "4.0.0" in finding.message
    assert "3.3.0" in finding.message


def test_a_synced_write_needs_no_latency_of_fsync() -> None:
    """IOR's -e gives no histogram: the parser's fact says that the data was synced."""
    made = replace(record(), phases=(totals("write", 1.0, 100 * MB, 100),))
    (finding,) = found(made, "write-not-flushed")
    assert "does not say whether it was synced" in finding.message
    phase = replace(made.phases[0], facts={"synced": False})
    (finding,) = found(replace(made, phases=(phase,)), "write-not-flushed")
    assert "no fsync was requested" in finding.message
    phase = replace(made.phases[0], facts={"synced": True})
    assert found(replace(made, phases=(phase,)), "write-not-flushed") == []


def test_a_mixture_of_unknown_shares_is_not_called_written() -> None:
    mixed = replace(totals("mixed", 1.0, 100 * MB, 100), bytes=np.array([100 * MB]))
    assert found(replace(record(), phases=(mixed,)), "write-not-flushed") == []
