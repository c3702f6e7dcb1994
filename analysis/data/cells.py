"""One cell of a campaign: a combination of levels, a phase and a target, with its medians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.analysis.data.own_iterations import OwnSummary
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.units import Level


@dataclass(frozen=True)
class Cell:
    """One combination of levels, one phase, one target."""

    levels: Mapping[str, Level]  # factor -> level; with target, engine and phase
    runs: int  # that the medians are of: ok and not invalid
    attachments: int
    failed: int  # runs of this combination that failed or timed out
    invalid: int  # runs left out because a finding says that they are invalid
    worst_finding: str
    findings: tuple[str, ...]  # audits, by name
    metrics: Mapping[str, Median]
    invalid_by: tuple[str, ...] = ()  # audits that say so, by name
    doubts: tuple[str, ...] = ()  # audits that warn of runs that the medians are of, by name
    own: OwnSummary | None = None  # what the engine says of its iterations in these runs

    @property
    def target(self) -> str:
        """Name of the target."""
        return str(self.levels.get("target", ""))

    @property
    def notes(self) -> str:
        """What a reader must know: failed and invalid runs, findings."""
        parts = [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.invalid} invalid"] if self.invalid else []
        named = self.invalid_by or self.findings
        parts += [f"{self.worst_finding}: {', '.join(named)}"] if named else []
        return "; ".join(parts)


def sort_key(cell: Cell, varying: Sequence[str]) -> tuple[tuple[int, float, str], ...]:
    """Order of cells by these factors: missing levels, then numbers, then texts."""
    key = []
    for name in varying:
        level = cell.levels[name]
        if isinstance(level, str):
            key.append((2 if level else 0, 0.0, level))
        else:
            key.append((1, level, "") if level == level else (0, 0.0, ""))
    return tuple(key)
