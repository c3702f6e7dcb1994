"""What a workload saw of its own phase and engines of other phases have no number for.

A phase's fact `observed` is a mapping from these names, and from columns that others measure in
another way (usage.py), to numbers: the workload's own take their place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fsmatrix.results.files.campaign import usage
from fsmatrix.results.record import Phase

FACT = "observed"
# variable [run] of the campaign file -> (unit, meaning)
COLUMNS = {
    "transaction_rate": ("s-1", "transactions of all types per second"),
    "new_order_rate": ("s-1", "new orders per second that were kept; x 60: NOPM, no tpmC"),
    "device_iops": ("s-1", "requests to the target's devices per second"),
    "read_iops": ("s-1", "read requests to the device per second"),
    "write_iops": ("s-1", "write requests to the device per second"),
    "device_latency": ("s", "mean time of a request to the device, queue included"),
    "read_latency": ("s", "the same of reads"),
    "write_latency": ("s", "the same of writes"),
}
ALLOWED = frozenset({*COLUMNS, *usage.COLUMNS})


def of_phase(phase: Phase) -> dict[str, float]:
    """Columns that the phase's workload filled: finite numbers, not negative."""
    facts = phase.facts.get(FACT)
    if not isinstance(facts, Mapping):
        return {}
    return {
        str(name): float(value)
        for name, value in facts.items()
        if name in ALLOWED
        and isinstance(value, int | float)
        and math.isfinite(value)
        and value >= 0
    }
