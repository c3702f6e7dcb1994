"""Audits that hold phases of one run against each other: what the same files gave twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fsmatrix.results.audits.base import Audit, Remark
from fsmatrix.results.record import RunRecord, bandwidth

# random reads -> sequential reads of the same files, in the same run
RANDOM_READS: Mapping[str, str] = {
    "ior-rnd4K-easy-read": "ior-easy-read",  # IO500's own names, of an import
    "read-ior-rnd4K-easy": "read-ior-easy",  # of the workload io500
}
# A device, a network and a client do no better with small random blocks than with large
# sequential ones; two measurements of one rate differ, a tenth is the noise of a good system.
FASTER = 1.1


def random_faster_than_sequential(record: RunRecord) -> Iterator[Remark]:
    """Random reads that beat sequential reads of the same files."""
    rates = {phase.name: bandwidth(phase) for phase in record.phases}
    for name, other in RANDOM_READS.items():
        random, sequential = rates.get(name, 0.0), rates.get(other, 0.0)
        if not (sequential > 0 and random > FASTER * sequential):
            continue
        message = (
            f"{name} is {random / sequential:.3g} times as fast as {other} of the same files: "
            "the data probably came from a cache, or fits into one"
        )
        yield "warning", name, message, {"random": random, "sequential": sequential}


AUDITS = (
    Audit(
        "random-faster-than-sequential",
        1,
        "phase",
        random_faster_than_sequential,
        "treat it as the speed of a cache (clients' or servers') unless the devices' counters show "
        "otherwise; read more of the files than the caches hold",
    ),
)
