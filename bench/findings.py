"""How often each audit speaks on this machine, and what the quantities behind them are.

Runs a campaign, or reads a results directory, and prints for each audit the share of runs and of
cells (all factors, one target, one phase) that carry it, and quantiles of what the thresholds of
docs/audits.md are compared with.  Run it in a quiet hour: then what it prints is how often an audit
speaks although nothing is wrong.

Example: python bench/findings.py --campaign quickstart;  python bench/findings.py demo-out
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fsmatrix.results.audits import audit_run
from fsmatrix.results.audits.base import window
from fsmatrix.results.record import RunRecord
from fsmatrix.results.runfile import read_run
from fsmatrix.results.store import Store

QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)
CONCERN = ("warning", "invalid")


def carried_out(campaign: str, folder: Path) -> Path:
    """Results of a ready campaign or a file, run now."""
    from fsmatrix.suite.execute import Options, execute
    from fsmatrix.suite.plan import build_plan

    out = folder / "out"
    execute(build_plan(campaign, out=out), out, Options(), lambda _event: None)
    return out


def quantities(record: RunRecord) -> Iterator[tuple[str, float]]:
    """(what a threshold is compared with, its value) of every phase."""
    threads = int(json.loads(record.case).get("geometry", {}).get("threads", 1))
    for phase in record.phases:
        seconds = window(phase)
        yield "window, s", seconds
        if phase.overhead is not None and phase.overhead.size:
            shares = phase.overhead / threads / np.maximum(phase.end - phase.start, 1e-12)
            yield "overhead, share of the window", float(np.nanmax(shares))
        ends = phase.end[np.isfinite(phase.end)]
        if ends.size > 1:
            late = float(np.max(ends) - np.median(ends))
            yield "last worker behind the median, s", late
            yield "last worker behind the median, share", late / seconds
        for cpu in record.evidence.get("cpu", {}).get(phase.name, {}).values():
            yield "CPUs busy, share", cpu["busy"]
            yield "CPUs stolen, share", cpu.get("steal", 0.0)
    foreign = record.evidence.get("load", {}).get("foreign")
    if foreign is not None:
        yield "CPUs used by others, share", foreign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--campaign", default="quickstart")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsmatrix-findings-", dir=Path.cwd()) as folder:
        out = chosen.results or carried_out(chosen.campaign, Path(folder))
        show(out)


def show(out: Path) -> None:
    """Print the tables of a results directory."""
    runs: dict[tuple[str, str], int] = defaultdict(int)
    cells: dict[tuple[str, str], set[str]] = defaultdict(set)
    every: set[str] = set()
    concerned: set[str] = set()
    values: dict[str, list[float]] = defaultdict(list)
    count = 0
    for path in Store.open(out).files():
        record = read_run(path)
        count += 1
        every.add(record.case_id)
        for kind in {(found.audit, found.severity) for found in audit_run(record)}:
            runs[kind] += 1
            cells[kind].add(record.case_id)
            if kind[1] in CONCERN:
                concerned.add(record.case_id)
        for name, value in quantities(record):
            values[name].append(value)
    share = len(concerned) / len(every)
    print(
        f"{count} runs in {len(every)} cells; {len(concerned)} cells ({share:.0%}) carry a warning"
    )
    print(f"{'audit':28}{'severity':10}{'runs':>8}{'cells':>8}")
    for (audit, severity), number in sorted(runs.items(), key=lambda item: -item[1]):
        share = len(cells[audit, severity]) / len(every)
        print(f"{audit:28}{severity:10}{number / count:8.1%}{share:8.1%}")
    print(f"{'quantity':40}" + "".join(f"{f'{q:.0%}':>10}" for q in QUANTILES))
    for name, found in values.items():
        print(f"{name:40}" + "".join(f"{value:10.3g}" for value in np.quantile(found, QUANTILES)))


if __name__ == "__main__":
    main()
