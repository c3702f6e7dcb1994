"""Audits of a run: is the measurement what it seems?  Pure functions of stored evidence.

Each is described in docs/audits.md.  A new one is a function from RunRecord to remarks and
an `Audit` in its module's AUDITS.
"""

from __future__ import annotations

from fsmatrix.results.audits import cluster, engines, health, machine, patterns, storage, timing
from fsmatrix.results.audits.base import Audit
from fsmatrix.results.record import SEVERITIES, Finding, RunRecord

RUN_AUDITS: dict[str, Audit] = {
    audit.name: audit
    for audit in (
        *storage.AUDITS,
        *patterns.AUDITS,
        *timing.AUDITS,
        *machine.AUDITS,
        *health.AUDITS,
        *cluster.AUDITS,
        *engines.AUDITS,
    )
}


def audit_run(record: RunRecord) -> tuple[Finding, ...]:
    """All findings about a run, the gravest first."""
    findings = [finding for audit in RUN_AUDITS.values() for finding in audit.findings(record)]
    return tuple(sorted(findings, key=lambda finding: -SEVERITIES.index(finding.severity)))
