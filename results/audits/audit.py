"""What an audit is, and what audits share: reading stored evidence, never measuring.

`results/evidence/evidence.py` has what `RunRecord.evidence` holds, docs/audits.md in which words it
is stored.  What is not there gives no finding.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from fsmatrix.results import record
from fsmatrix.results.evidence.evidence import counter_differences
from fsmatrix.results.evidence.stored import JsonObject, Stored, number
from fsmatrix.results.record import FSYNC, Finding, Phase, RunRecord, Severity

# Runs counted by what became of them, in the words of the terminal and of the report.


MOST_NAMED = 3  # audits; more are counted


@dataclass(frozen=True, kw_only=True)
class Tally(Stored):
    """What docs/audits.md says of single numbers, of whole runs; `..._by`: audit -> runs."""

    valid: int = 0
    doubtful: int = 0  # of the valid ones: an audit warns
    invalid: int = 0  # ended well, but does not count
    failed: int = 0  # or timed out
    timeout: int = 0  # of the failed ones
    doubtful_by: Mapping[str, int] = field(default_factory=dict)
    invalid_by: Mapping[str, int] = field(default_factory=dict)

    def plus(self, status: str, findings: Iterable[Finding]) -> Tally:
        """With one more run."""
        if status != "ok":
            timeout = self.timeout + (status == "timeout")
            return replace(self, failed=self.failed + 1, timeout=timeout)
        invalid, warning = (
            {finding.audit for finding in findings if finding.severity == severity}
            for severity in ("invalid", "warning")
        )
        if invalid:
            by = Counter(self.invalid_by) + Counter(invalid)
            return replace(self, invalid=self.invalid + 1, invalid_by=by)
        by = Counter(self.doubtful_by) + Counter(warning)
        doubtful = self.doubtful + bool(warning)
        return replace(self, valid=self.valid + 1, doubtful=doubtful, doubtful_by=by)

    def __add__(self, other: Tally) -> Tally:
        """Of the runs of both."""
        return Tally(
            valid=self.valid + other.valid,
            doubtful=self.doubtful + other.doubtful,
            invalid=self.invalid + other.invalid,
            failed=self.failed + other.failed,
            timeout=self.timeout + other.timeout,
            doubtful_by=Counter(self.doubtful_by) + Counter(other.doubtful_by),
            invalid_by=Counter(self.invalid_by) + Counter(other.invalid_by),
        )

    @property
    def runs(self) -> int:
        """All of them."""
        return self.valid + self.invalid + self.failed

    @property
    def says(self) -> str:
        """ "96 valid, 48 invalid (read-served-by-cache)": what there is none of is not said."""
        return self._said(f" ({named(self.doubtful_by)})", f" ({named(self.invalid_by)})")

    @property
    def counts(self) -> str:
        """`says` without the audits."""
        return self._said("", "")

    def _said(self, doubtful: str, invalid: str) -> str:
        parts = [f"{self.valid} valid"]
        parts += [f"{self.doubtful} of them doubtful{doubtful}"] if self.doubtful else []
        parts += [f"{self.invalid} invalid{invalid}"] if self.invalid else []
        parts += [f"{self.failed} failed"] if self.failed else []
        return ", ".join(parts)


def named(audits: Mapping[str, int]) -> str:
    """The audits of the most runs first."""
    names = sorted(audits, key=lambda name: (-audits[name], name))
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# of a run: judged whatever became of it; of a phase: only of runs that ended well
Scope = Literal["run", "phase"]
Remark = tuple[Severity, str, str, JsonObject]  # severity, phase, message, evidence
Judge = Callable[[RunRecord], Iterator[Remark]]


REACHED_SHARE = 0.9
# of the bytes read: measured are up to 1.06 (xfs, ext4, btrfs: metadata, read-ahead at the ends)
FOREIGN_SHARE = 1.25
FOREIGN_FLOOR = 4 << 20  # bytes
ADVICE = "advice"  # key of evidence: what to do in this very case, where that is known
STORED = "stored_bytes"  # fact of a phase: bytes that went to or came from storage, compressed


@dataclass(frozen=True)
class Audit:
    """A pure function of a run record.  The version changes when a verdict could."""

    name: str
    version: int
    scope: Scope
    judge: Judge
    advice: str

    def findings(self, record: RunRecord) -> Iterator[Finding]:
        """What it finds in a record."""
        if self.scope == "phase" and record.status != "ok":
            return
        for severity, phase, message, evidence in self.judge(record):
            own = dict(evidence)
            advice = str(own.pop(ADVICE, self.advice))
            yield Finding(self.name, self.version, severity, message, advice, phase, own)


def moved(record: RunRecord, phase: Phase, *names: str) -> dict[str, float] | None:
    """How far each of the named counters went in a phase, over all kernels.

    A counter that no kernel has is left out; None if there are no counters at all.
    """
    kernels = record.evidence.counters.get(phase.name)
    if not kernels:
        return None
    differences = counter_differences(kernels)
    return {name: differences[name] for name in names if name in differences}


def transferred(
    record: RunRecord, phase: Phase, direction: Literal["read", "written"]
) -> dict[str, float] | None:
    """Counters of bytes that really came from, or went to, storage; None if there are none.

    Of an image's loop device and of the disk below it the smaller count: a loop device shows
    traffic that the page cache of its image file served, the disk that of its other users.
    """
    network = "network_received_bytes" if direction == "read" else "network_sent_bytes"
    device, backing = f"device_{direction}_bytes", f"backing_{direction}_bytes"
    counters = moved(record, phase, device, backing, network)
    if not counters:
        return None
    if {device, backing} <= counters.keys():
        counters.pop(max(device, backing, key=lambda name: counters[name]))
    return counters


def reached(counters: Mapping[str, float], wanted: float) -> bool | None:
    """Whether that many bytes came from, or went to, storage; None if it cannot be told.

    A tenth may be missing: tails of files in inodes, pages that a neighbour read ahead.  Counters
    that moved far more than the run count other users of the device or network too.
    """
    came = sum(counters.values())
    if came < REACHED_SHARE * wanted:
        return False
    return None if came > FOREIGN_SHARE * wanted + FOREIGN_FLOOR else True


PASSING_SHARE = 0.1  # of a phase's bytes seen by the interfaces: the storage is behind them


def passes_network(record: RunRecord, phase: Phase) -> bool:
    """Whether a known limit of the network holds for a phase's bytes.

    What the site or the links say tells nothing of a local disk; the campaign speaks of a target.
    """
    limits = record.evidence.limits
    if limits is None or limits.network_bytes_per_second is None:
        return False
    if (limits.sources or {}).get("network_bytes_per_second") not in ("links", "site"):
        return True
    counters = moved(record, phase, "network_received_bytes", "network_sent_bytes") or {}
    return sum(counters.values()) >= PASSING_SHARE * sum(data_bytes(phase))


def in_memory(record: RunRecord, phase: Phase) -> bool:
    """Whether the files of a phase lay in memory (tmpfs): no storage was measured."""
    cache = record.evidence.cache.get(phase.name)
    return cache is not None and cache.state == "memory"


def data_bytes(phase: Phase) -> tuple[float, float]:
    """Bytes read and bytes written by a data phase; (0, 0) for a phase of another kind.

    A mixture's bytes are divided as its engine tells (`read_bytes`, `write_bytes`), or as its
    completed operations are; without knowing these, (0, 0) as well.  Of data that a program
    compressed, what it stored counts.
    """
    total = float(phase.facts.get(STORED, phase.bytes.sum()))
    kind = phase.name.partition("-")[0]
    if kind == "read":
        return total, 0.0
    if kind == "write":
        return 0.0, total
    if kind != "mixed":
        return 0.0, 0.0
    told = [phase.facts.get(name) for name in ("read_bytes", "write_bytes")]
    if None not in told:
        return number(told[0]), number(told[1])
    counts = [
        int(phase.latency[name].counts.sum()) if name in phase.latency else 0
        for name in ("read", "write")
    ]
    if not sum(counts):
        return 0.0, 0.0
    share = counts[0] / sum(counts)
    return total * share, total * (1 - share)


def synced(phase: Phase) -> bool:
    """Whether the data was synced inside the window."""
    return bool(phase.facts.get("synced", FSYNC in phase.latency))


def uncached(record: RunRecord, phase: Phase) -> bool:
    """Whether the data passed no page cache, as the run declares or its output says."""
    cache = record.evidence.cache.get(phase.name)
    declared = cache is not None and cache.declared == "bypass"
    return declared or phase.facts.get("direct", record.coordinates.get("direct")) is True


def window(phase: Phase) -> float:
    """`metrics.window` over the workers that did something (the others' times are NaN)."""
    acted = np.isfinite(phase.start) & np.isfinite(phase.end)
    return record.window(replace(phase, start=phase.start[acted], end=phase.end[acted]))


def option(record: RunRecord, name: str, default: Any) -> Any:
    """An option of the record's case; the default where the case does not give it."""
    return json.loads(record.case).get("options", {}).get(name, default) if record.case else default


def incompressible(record: RunRecord) -> float:
    """Share of the data that no compressing file system can save."""
    share = option(record, "compressible", 0.0)
    return 1.0 - float(share) if isinstance(share, int | float) else 1.0


def size(value: float) -> str:
    """Bytes for a message: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
