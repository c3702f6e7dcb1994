"""The flash study: OLTP over warehouses per file system and device, I/O, CPU, memory, settings.

For any campaign whose runs have the factors and metrics named here; `transaction_rate` is of all
types of transactions, and 60 of it per minute are the study's tpm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from fsmatrix.analysis.comparison.compare import DEFAULTS
from fsmatrix.analysis.comparison.comparison_result import Comparison
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.factors import Key, several
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.data.metric_cells import study
from fsmatrix.analysis.questions.curves import Curves, Speedup, curves, described, speedup
from fsmatrix.analysis.result import plain
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.studies.cern import installations
from fsmatrix.analysis.units import Level
from fsmatrix.results.evidence.stored import Json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

USERS = ("virtual_users", "warehouses", "users", "clients")
TPM = ("tpm", 1 / 60)
CPU = ("cpu_user", "cpu_system", "cpu_iowait", "cpu_idle")  # shares of one
MEMORY = ("memory", "memory_bytes")
METRICS = ("transaction_rate", "device_iops", "read_iops", "write_iops", "device_latency")
MOST_ROWS = 40  # of the figure of CPU time
WHOLE = 0.02  # how far the four shares may be from one


def throughput(ds: xr.Dataset, **options: Any) -> Curves:
    """Transactions per minute over users or warehouses, a line per file system and device."""
    return curves(ds, "transaction_rate", USERS, title="Transactions", unit=TPM, **options)


def requests(ds: xr.Dataset, metric: str = "device_iops", **options: Any) -> Curves:
    """I/O requests per second (device_iops, read_iops, write_iops) over users or warehouses."""
    return curves(ds, metric, USERS, title=metric.replace("_", " "), unit=("1/s", 1.0), **options)


def service_time(ds: xr.Dataset, **options: Any) -> Curves:
    """Mean time of an I/O request, in the queue and at the device, over users or warehouses."""
    return curves(
        ds, "device_latency", USERS, title="I/O response time", unit=("ms", 1e-3), **options
    )


@dataclass(frozen=True)
class Share:
    """CPU time of one combination: medians over attachments of each part."""

    key: Key
    parts: Mapping[str, Median]

    @property
    def total(self) -> float:
        """Sum of the medians; about one."""
        return sum(part.median for part in self.parts.values())


@dataclass(frozen=True)
class Cpu:
    """Where CPU time goes."""

    shares: tuple[Share, ...]

    @property
    def says(self) -> list[str]:
        """The largest part of each combination; sums that are not one."""
        sentences = []
        for share in self.shares:
            name = max(share.parts, key=lambda n: share.parts[n].median)
            sentences.append(
                f"{described(share.key) or 'all'}: mostly {name.removeprefix('cpu_')} "
                f"({share.parts[name].median:.0%}), iowait {share.parts['cpu_iowait'].median:.0%}."
            )
            if abs(share.total - 1) > WHOLE:
                sentences.append(
                    f"The parts sum to {share.total:.2f}, not one: CPU time that a hypervisor "
                    "took, or medians of runs that differ."
                )
        return sentences

    def table(self) -> pd.DataFrame:
        """One row per combination, one column per part."""
        import pandas as pd

        return pd.DataFrame(
            [
                {**dict(s.key), **{n: part.median for n, part in s.parts.items()}}
                for s in self.shares
            ]
        )

    def to_dict(self) -> dict[str, Json]:
        """Shares of one."""
        data: dict[str, Json] = plain(
            {
                "shares": [{"levels": dict(s.key), "parts": s.parts} for s in self.shares],
                "says": self.says,
            }
        )
        return data

    def figure(self) -> Figure:
        """Stacked bars."""
        from fsmatrix.analysis.draw import drawing

        shown = self.shares[:MOST_ROWS]
        left_out = len(self.shares) - len(shown)
        rest = [f"{left_out} more combinations are in the table."] * (left_out > 0)
        figure, ax = drawing.panel(
            title="CPU time",
            notes=["Medians over attachments.", *rest],
            width=6.5,
            height=0.9 + 0.3 * len(shown),
        )
        left = [0.0] * len(shown)
        for i, name in enumerate(CPU):
            wide = [s.parts[name].median for s in shown]
            ax.barh(
                range(len(wide)),
                wide,
                left=left,
                color=drawing.colour(i),
                height=0.7,
                label=name.removeprefix("cpu_"),
            )
            left = [a + b for a, b in zip(left, wide, strict=True)]
        ax.set_yticks(range(len(left)), [described(s.key) or "all" for s in shown])
        ax.set_xlabel("share of CPU time", fontsize=8)
        ax.invert_yaxis()
        drawing.legend(figure, [[ax]])
        return figure


def cpu(ds: xr.Dataset, where: Mapping[str, Level] | None = None) -> Cpu:
    """User, system, iowait and idle of each combination; ValueError if a part was not measured."""
    missing = [name for name in CPU if name not in rows(ds).columns]
    if missing:
        raise ValueError(f"no {', '.join(missing)} in this campaign")
    medians: dict[Key, dict[str, Median]] = {}
    for name in CPU:
        for key, cell in _cells(ds, name, where):
            medians.setdefault(key, {})[name] = cell.median
    whole = [Share(key, parts) for key, parts in medians.items() if len(parts) == len(CPU)]
    return Cpu(tuple(whole))


def _cells(
    ds: xr.Dataset, metric: str, where: Mapping[str, Level] | None
) -> list[tuple[Key, Values]]:
    cells = study(ds, metric, where).valued
    names = several([cell.cell.levels for cell in cells])
    return [(tuple((n, c.cell.levels[n]) for n in names), c) for c in cells]


def memory(ds: xr.Dataset, of: str, over: str, options: ComparisonOptions = DEFAULTS) -> Speedup:
    """The speed-up of transactions under less memory (factor memory or memory_bytes)."""
    return speedup(ds, of, over, "transaction_rate", along=MEMORY, options=options)


def setting(
    ds: xr.Dataset, factor: str, of: Level, over: Level, metrics: Sequence[str] = METRICS
) -> dict[str, Comparison]:
    """What a setting changes (garbage collection on against off): metric -> comparison.

    Metrics that are not there are left out; ValueError if none is.
    """
    there = [name for name in metrics if name in rows(ds).columns]
    medians = {}
    for name in there:
        if bool(ds[name].notnull().any()):
            medians[name] = installations(ds, {factor: of}, {factor: over}, metric=name)
    if not medians:
        raise ValueError(f"none of {', '.join(metrics)} in this campaign")
    return medians
