"""What a trace is like: the statistics of it (results/evidence/trace.py) for readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsmatrix.analysis.result import plain
from fsmatrix.analysis.traces import chart
from fsmatrix.analysis.traces.summary import summary_says
from fsmatrix.analysis.units import brief
from fsmatrix.results.evidence.trace import TraceStatistics, gaps
from fsmatrix.results.evidence.values import Json
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_CLASSES = 12


@dataclass(frozen=True)
class TraceShown:
    """The statistics of one trace, as an analysis.result.Result."""

    name: str
    statistics: TraceStatistics

    @property
    def says(self) -> list[str]:
        """What it is, what it leaves out, pages and caches, mix, order."""
        of = self.statistics
        return [
            _what(of),
            *_unseen(of),
            *gaps(of.facts),
            *summary_says(of.summary),
            *_published(of),
        ]

    def table(self) -> pd.DataFrame:
        """One row per kind of operation; bytes, and latencies in µs where they were captured."""
        import pandas as pd

        rows = []
        for kind in self.statistics.kinds:
            sizes, latencies = kind.sizes, kind.latencies
            rows.append({
                "kind": kind.kind,
                "operations": kind.operations,
                "failed": kind.failed,
                "short": kind.short,
                "bytes moved": kind.moved if sizes else None,
                "bytes, least": sizes.smallest if sizes else None,
                "bytes, median": sizes.p50 if sizes else None,
                "bytes, mean": round(sizes.mean, 1) if sizes else None,
                "bytes, p99": sizes.p99 if sizes else None,
                "bytes, most": sizes.largest if sizes else None,
                "median, µs": _micros(latencies.p50) if latencies else None,
                "p99, µs": _micros(latencies.p99) if latencies else None,
            })  # fmt: skip
        frame = pd.DataFrame(rows, dtype=object)
        return frame.dropna(axis="columns", how="all")

    def classes(self) -> pd.DataFrame:
        """One row per class of files, those of most operations; bytes."""
        import pandas as pd

        rows = [
            {
                "files of class": each.name,
                "files": each.files,
                "operations": each.operations,
                "reads": each.reads,
                "writes": each.writes,
                "bytes read": each.read_bytes,
                "bytes written": each.written_bytes,
            }
            for each in self.statistics.classes[:MOST_CLASSES]
        ]
        return pd.DataFrame(rows, dtype=object)

    def figure(self) -> Figure:
        """Six panels: where, kinds, sizes, misses of caches, rates, working set."""
        return chart.draw(self.name, self.statistics)

    def to_dict(self) -> dict[str, Json]:
        """All statistics (results/evidence/trace.py), and the sentences."""
        data: dict[str, Json] = plain({**self.statistics.document(), "says": self.says})
        return data


def _micros(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _what(of: TraceStatistics) -> str:
    command = f" ({' '.join(of.command)})" if of.command else ""
    why = f" ({of.facts['no_times']})" if "no_times" in of.facts else ""
    times = f"only their order means anything{why}"
    if of.seconds is not None:
        times = f"in {brief(of.seconds)} s"
    noun = "directory" if of.directories == 1 else "directories"
    directories = f" and {of.directories} {noun}" if of.directories else ""
    ranks = f" on {plural(of.ranks, 'rank')}" if of.ranks > 1 else ""
    names = ", names replaced" if of.anonymised else ""
    return (
        f"{of.operations} operations from {of.source}{command}, {times}: by "
        f"{plural(of.threads, 'thread')}{ranks}, on {plural(of.files - of.directories, 'file')}"
        f"{directories}{names}."
    )


def _unseen(of: TraceStatistics) -> Iterator[str]:
    if of.unseen:
        what = ", ".join(f"{name} ({count})" for name, count in of.unseen.items())
        yield f"Seen, but not in the trace: {what}."


def _published(of: TraceStatistics) -> Iterator[str]:
    """What was printed of a workload that was made, at its scale."""
    printed, scale = of.facts.get("published"), of.facts.get("scale")
    if not isinstance(printed, dict) or not isinstance(scale, int | float):
        return
    counts = [
        f"{printed[name] * scale:.0f} {name.replace('_', ' ')}"
        for name in ("reads", "writes", "unique_pages")
        if isinstance(printed.get(name), int | float)
    ]
    doubts = of.facts.get("doubts")
    unsure = [name.replace("_", " ") for name in doubts] if isinstance(doubts, dict) else []
    yield f"Published, at this scale: {', '.join(counts)}." + (
        f"  Guessed or assumed: {', '.join(unsure)}." if unsure else ""
    )
