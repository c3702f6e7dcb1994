"""The published workloads in numbers: results/published/page-cache-workloads.csv, by workload."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fsmatrix.results

TABLE = Path(fsmatrix.results.__file__).parent / "published" / "page-cache-workloads.csv"
EVERY = "all"  # workload of what holds for each


@dataclass(frozen=True)
class Published:
    """Quantities of one workload: counts of operations and pages, bytes of a request."""

    values: Mapping[str, float]
    doubts: Mapping[str, str]  # quantity -> "guess" or "assumed", and why

    def __getitem__(self, quantity: str) -> float:
        return self.values[quantity]

    def count(self, quantity: str, scale: float = 1.0) -> int:
        """A number of operations, pages, items at a scale; at least 1, 0 if there are none."""
        value = self.values.get(quantity, 0)
        return max(1, round(value * scale)) if value else 0


@cache
def published(workload: str) -> Published:
    """KeyError for a workload that is not in the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] in (workload, EVERY)]
    if all(row["workload"] == EVERY for row in rows):
        raise KeyError(workload)
    return Published(
        {row["quantity"]: float(row["value"]) for row in rows},
        {
            row["quantity"]: f"{row['restored']}: {row['note']}"
            for row in rows
            if row["restored"] in ("guess", "assumed")
        },
    )
