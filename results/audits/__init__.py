"""Audits of a run: is the measurement what it seems?  Pure functions of stored evidence.

Each is described in docs/audits.md.  A new one is a function from RunRecord to remarks and an
`Audit` in the AUDITS of its module; a new module has a line in BUILTIN, one of another package an
entry point of the group `fsmatrix.audits`.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, cast

from fsmatrix.results.audits.audit import Audit
from fsmatrix.results.files.schema import to_json
from fsmatrix.results.record import SEVERITIES, Finding, RunRecord
from fsmatrix.results.registry import BrokenEntry, Registry

BUILTIN: dict[str, str] = {
    "storage": "fsmatrix.results.audits.storage:AUDITS",
    "timing": "fsmatrix.results.audits.timing:AUDITS",
    "machine": "fsmatrix.results.audits.machine:AUDITS",
    "cluster": "fsmatrix.results.audits.cluster:AUDITS",
    "nodes": "fsmatrix.results.audits.nodes:AUDITS",
    "engines": "fsmatrix.results.audits.engines:AUDITS",
    "outcomes": "fsmatrix.results.audits.outcomes:AUDITS",
}
# values are tuples of Audit
AUDITS: Registry[Any] = Registry("fsmatrix.audits", BUILTIN, "audit")


@functools.cache
def run_audits() -> dict[str, Audit]:
    """All audits by name, fsmatrix's own first.

    BrokenEntry if another package's cannot be loaded, or one has the name of another audit.
    """
    audits: dict[str, Audit] = {}
    for family in (*BUILTIN, *AUDITS.outside()):
        for audit in cast("tuple[Audit, ...]", AUDITS.load(family)):
            if audit.name in audits:
                raise BrokenEntry(f"audit {family!r} of an entry point: there is a {audit.name!r}")
            audits[audit.name] = audit
    return audits


@functools.cache
def packaged() -> dict[str, str]:
    """The audits of other packages: name -> "version 1, acme-fsmatrix 1.0"."""
    return {
        audit.name: f"version {audit.version}, {package}"
        for family, package in AUDITS.outside().items()
        for audit in cast("tuple[Audit, ...]", AUDITS.load(family))
    }


def audit_run(record: RunRecord) -> tuple[Finding, ...]:
    """All findings about a run, the gravest first.

    An audit of another package that fails gives a finding that says so: no run is lost by it.
    """
    findings: list[Finding] = []
    for audit in run_audits().values():
        if audit.name in packaged():
            findings += _of_package(audit, record)
        else:
            findings += audit.findings(record)
    return tuple(sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity)))


def judged(record: RunRecord) -> RunRecord:
    """The record with its findings.

    Its environment names the audits of other packages that looked at it: without them it might
    have been judged in another way.
    """
    others = {"audits": packaged()} if packaged() else {}
    return replace(record, findings=audit_run(record), environment={**record.environment, **others})


def _of_package(audit: Audit, record: RunRecord) -> list[Finding]:
    try:
        findings = list(audit.findings(record))
        for finding in findings:
            SEVERITIES.index(finding.severity)
            to_json(finding.evidence)
    except Exception as error:  # noqa: BLE001  (code of others; the finding tells of it)
        message = f"the audit itself failed: {type(error).__name__}: {error}"
        advice = "mend the audit, or remove its package"
        return [Finding(audit.name, audit.version, "warning", message, advice)]
    return findings
