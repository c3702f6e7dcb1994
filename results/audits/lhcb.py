"""Audit of the LHCb analysis: did it find what had been written?

It reads `facts["lhcb"]` of a phase, which the workload `rntuple` writes (docs/hep.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from fsmatrix.results.audits.base import Audit, Remark
from fsmatrix.results.evidence.lhcb import CUTS, analysed
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.record import RunRecord


def histogram(record: RunRecord) -> Iterator[Remark]:
    """The histogram or a cut's count is not that of the events that were written."""
    for phase in record.phases:
        seen = analysed(phase.facts)
        if seen is None or seen.wanted is None:
            continue
        if different := seen.found.differing(seen.wanted):
            bins = [
                index
                for index, pair in enumerate(
                    zip(seen.found.counts, seen.wanted.counts, strict=False)
                )
                if pair[0] != pair[1]
            ]
            cuts = {
                name: [getattr(seen.found, name), getattr(seen.wanted, name)]
                for name in CUTS
                if getattr(seen.found, name) != getattr(seen.wanted, name)
            }
            message = (
                f"at least {different} of {seen.found.events} events are counted differently from "
                f"those that were written ({len(bins)} bins differ)"
            )
            facts: dict[str, Json] = {"events": different, "bins": bins[:20], "cuts": cuts}
            yield "invalid", phase.name, message, facts


AUDITS = (
    Audit(
        "lhcb-histogram",
        1,
        "phase",
        histogram,
        "the storage, or the program, returned different data: keep the file and inspect it",
    ),
)
