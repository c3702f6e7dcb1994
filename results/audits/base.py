"""What an audit is, and what audits share: reading stored evidence, never measuring.

`results/evidence/evidence.py` has what `RunRecord.evidence` holds, docs/audits.md in which words it
is stored.  What is not there gives no finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fsmatrix.results import record
from fsmatrix.results.evidence.evidence import counter_differences
from fsmatrix.results.evidence.values import JsonObject, number
from fsmatrix.results.record import FSYNC, Finding, Phase, RunRecord, Severity

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
