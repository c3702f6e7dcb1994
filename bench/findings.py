"""How often each audit speaks on this machine, and what the quantities behind them are.

Runs a campaign, or reads a results directory, and prints for each audit the share of runs and of
cells (all factors, one target, one phase) that carry it, counted as `fsmatrix findings` does, and
quantiles of what the thresholds of docs/audits.md are compared with.  Run it in a quiet hour: then
what it prints is how often an audit speaks although nothing is wrong.

Example: python bench/findings.py --campaign quickstart;  python bench/findings.py demo-out
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.questions.findings import findings
from fsmatrix.results.audits import audit_run
from fsmatrix.results.audits.audit import window
from fsmatrix.results.files.runfile import read_run
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord

QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


def carried_out(campaign: str, folder: Path) -> Path:
    """Results of a ready campaign or a file, run now."""
    from fsmatrix.suite.plan.plan import build_plan
    from fsmatrix.suite.run.execute import Options, execute

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
        for cpu in record.evidence.cpu.get(phase.name, {}).values():
            if cpu.busy is not None:
                yield "CPUs busy, share", cpu.busy
            yield "CPUs stolen, share", cpu.steal or 0.0
    load = record.evidence.load
    if load is not None and load.foreign is not None:
        yield "CPUs used by others, share", load.foreign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--campaign", default="quickstart")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsmatrix-findings-", dir=Path.cwd()) as folder:
        out = chosen.results or carried_out(chosen.campaign, Path(folder))
        show(out, Path(folder) / "judged")


def show(out: Path, judged: Path) -> None:
    """Print the tables of a results directory, judged anew by the audits of today.

    `judged`: where its records go with these findings.
    """
    values: dict[str, list[float]] = defaultdict(list)

    def anew() -> Iterator[RunRecord]:
        for path in Store.open(out).files():
            record = read_run(path)
            for name, value in quantities(record):
                values[name].append(value)
            yield replace(record, findings=audit_run(record))

    store = Store.create(judged)
    store.append(anew())
    result = findings(open_campaign(store.merge()))
    print("\n".join(result.says))
    print(f"{'audit':28}{'severity':10}{'runs':>8}{'cells':>8}")
    for group in result.groups:
        runs, cells = group.runs / result.runs, len(group.cells) / result.cells
        print(f"{group.audit:28}{group.severity:10}{runs:8.1%}{cells:8.1%}")
    print(f"{'quantity':40}" + "".join(f"{f'{q:.0%}':>10}" for q in QUANTILES))
    for name, seen in values.items():
        print(f"{name:40}" + "".join(f"{value:10.3g}" for value in np.quantile(seen, QUANTILES)))


if __name__ == "__main__":
    main()
