"""The same work by the player, fio and IOR: their rates side by side, and why they differ.

    python bench/engines.py [--dir D | --backend xfs] [--rounds 7] [--processes 2] [--json]

Every engine writes and reads the same number of bytes in the same pieces with the same number
of processes on the same file system, as one campaign of the suite: blocks in random order, so
that the engines alternate.  An engine that is not installed is left out and named.  Printed
are the median rate over the rounds, its range, the median over rounds of the ratio to the
player in the same round, what the engine counts in its window, and what the suite itself took
around the engine's program (wall time minus program, settling and cache states).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fsmatrix.cli.progress import Mode, listener
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord, bandwidth, iops
from fsmatrix.results.units import parse_size
from fsmatrix.suite.campaign.settings import Source
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.plan.plan import Request, build_plan
from fsmatrix.suite.run.execute import Options, execute
from fsmatrix.suite.run.forecast import Forecast

ENGINES = ("player", "fio", "ior")
LIMIT_AROUND = 0.3  # s: what the suite may take around an engine's program
# name -> (cache state, phase, small operations, options of player, fio and IOR)
CELLS: Mapping[str, tuple[str, str, bool, Mapping[str, str]]] = {
    "write-1MiB": (
        "cold",
        "write",
        False,
        {
            "player": "pattern: seq-write, chunk: 1MiB, fsync: end",
            "fio": "rw: write, bs: 1MiB, end_fsync: true",
            "ior": "operations: write, transfer_size: 1MiB, file_per_process: true, fsync: true",
        },
    ),
    "read-1MiB-cold": (
        "cold",
        "read",
        False,
        {
            "player": "pattern: seq-read, chunk: 1MiB",
            "fio": "rw: read, bs: 1MiB",
            "ior": "operations: read, transfer_size: 1MiB, file_per_process: true",
        },
    ),
    "randread-4KiB-warm": (
        "warm",
        "read",
        True,
        {
            "player": "pattern: rand-read, chunk: 4KiB",
            "fio": "rw: randread, bs: 4KiB",
            "ior": "operations: read, transfer_size: 4KiB, file_per_process: true, "
            "random_offset: true",
        },
    ),
    "randwrite-4KiB": (
        "cold",
        "write",
        True,
        {
            "player": "pattern: rand-write, chunk: 4KiB, fsync: end",
            "fio": "rw: randwrite, bs: 4KiB, end_fsync: true",
            "ior": "operations: write, transfer_size: 4KiB, file_per_process: true, "
            "random_offset: true, fsync: true",
        },
    ),
}
BYTES = {"player": "bytes_per_process", "fio": "size", "ior": "block_size"}
WHY = {
    "player": "window from before open to after close; permutation of offsets; unique content; "
    "every latency recorded",
    "fio": "window from the job's first loop (open inside) to the last completion, fsync inside, "
    "close outside; random map (no block twice); one buffer, slightly changed; every latency "
    "recorded",
    "ior": "window from before open to after close, barriers inside; random offsets made before "
    "the window; buffers repeat; latencies not recorded; random writes go into new files",
}


@dataclass(frozen=True)
class Row:
    """One engine in one cell.  Rates in bytes/s, or in operations/s for small operations."""

    cell: str
    engine: str
    runs: int
    unit: str
    rate: float
    lowest: float
    highest: float
    ratio: float  # to the player, median over rounds
    around: float  # median seconds of the suite around the engine
    findings: tuple[str, ...]


def campaign(engines: Sequence[str], target: str, arguments: argparse.Namespace) -> str:
    """The campaign's text: one workload entry for each cell and engine."""
    size = parse_size(arguments.bytes)
    lines = [
        "campaign: engines",
        f"targets: {{disk: {target}}}",
        f"geometry: {{processes_per_node: {arguments.processes}}}",
        f"repetitions: {arguments.rounds}",
        "order: {attachments: 1}",
        "limits: {time_per_run: 10min}",
        "workloads:",
    ]
    for cell, (cache, _, _, options) in CELLS.items():
        for engine in engines:
            workload = "pattern" if engine == "player" else engine
            given = f"{options[engine]}, {BYTES[engine]}: {size}"
            lines.append(f"  {cell.lower()}-{engine}:")
            lines.append(f"    {{workload: {workload}, cache: {cache}, options: {{{given}}}}}")
    return "\n".join(lines) + "\n"


def records(out: Path) -> Iterator[tuple[str, str, RunRecord]]:
    """(cell, engine, run) of every run."""
    store = Store.open(out)
    for run_id in store.ids():
        record = store.read(run_id)
        engine = "player" if record.engine.startswith("player") else record.engine
        for cell, (cache, phase, small, _) in CELLS.items():
            options = record.coordinates
            piece = options.get("chunk") or options.get("bs") or options.get("transfer_size")
            kinds = [p.name for p in record.phases]
            if (piece == 4096) == small and options["cache"] == cache and phase in kinds:
                yield cell, engine, record


def rate(record: RunRecord, small: bool) -> float:
    """Operations or bytes per second of the run's only timed phase."""
    (phase,) = record.phases
    return iops(phase) if small else bandwidth(phase)


def around(record: RunRecord) -> float:
    """Seconds of the run that went neither into its program nor into waiting and caches."""
    spent = record.evidence.seconds
    return record.duration - sum(spent.values())


def table(runs: Sequence[tuple[str, str, RunRecord]]) -> Iterator[Row]:
    """Rows in the order of the cells."""
    for cell, (_, _, small, _) in CELLS.items():
        blocks: dict[str, dict[int, RunRecord]] = {}
        for name, engine, record in runs:
            if name == cell and record.status == "ok":
                blocks.setdefault(engine, {})[record.block] = record
        for engine in (name for name in ENGINES if name in blocks):
            by_block = blocks[engine]
            rates = {block: rate(record, small) for block, record in by_block.items()}
            base = {b: rate(r, small) for b, r in blocks.get("player", {}).items()}
            ratios = [rates[block] / base[block] for block in rates if block in base]
            audits = {f.audit for r in by_block.values() for f in r.findings}
            yield Row(
                cell,
                engine,
                len(rates),
                "1/s" if small else "B/s",
                statistics.median(rates.values()),
                min(rates.values()),
                max(rates.values()),
                statistics.median(ratios) if ratios else float("nan"),
                statistics.median(around(record) for record in by_block.values()),
                tuple(sorted(audits)),
            )


def show(console: Console, rows: Sequence[Row], missing: Mapping[str, str]) -> None:
    """The table, the reasons, and the limit on the suite's own time."""
    out = Table("work", "engine", "runs", "rate", "range", "to player", "around", "findings")
    for row in rows:
        scale, unit = (1e3, "k/s") if row.unit == "1/s" else (1e6, "MB/s")
        out.add_row(
            row.cell,
            row.engine,
            str(row.runs),
            f"{row.rate / scale:.4g} {unit}",
            f"{row.lowest / scale:.4g} - {row.highest / scale:.4g}",
            f"{row.ratio:.2f}",
            "" if row.engine == "player" else f"{row.around:.2f} s",
            ", ".join(row.findings),
        )
    console.print(out)
    for engine in dict.fromkeys(row.engine for row in rows):
        console.print(f"{engine}: {WHY[engine]}", highlight=False)
    for engine, reason in missing.items():
        console.print(f"{engine} is left out: {reason}", highlight=False)
    external = [row for row in rows if row.engine != "player"]
    if external:
        worst = max(row.around for row in external)
        console.print(f"the suite around an engine: {worst:.2f} s at most (limit {LIMIT_AROUND} s)")


def main() -> None:
    """Run the campaign of all engines that are here and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, help="an existing directory to work in")
    parser.add_argument("--backend", help="or a managed file system (default: xfs as root)")
    parser.add_argument("--bytes", default="64MiB", help="of one process")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    console = Console(stderr=arguments.json)
    engines = Engines({})
    missing = {name: reason for name in ENGINES if (reason := engines.reason(name))}
    available = [name for name in ENGINES if name not in missing]
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as folder:
        target = target_of(arguments, folder)
        plan = build_plan(
            Source(campaign(available, target, arguments), "engines"), Request(seed=1)
        )
        mode: Mode = "quiet" if arguments.json else "live"
        with listener(mode, plan.estimate.runs, console, Forecast.of(plan)) as tell:
            execute(plan, Path(folder) / "out", Options(), tell)
        rows = list(table(list(records(Path(folder) / "out"))))
    if arguments.json:
        document: dict[str, Any] = {"rows": [asdict(row) for row in rows], "missing": missing}
        print(json.dumps(document, indent=1))
    else:
        show(console, rows, missing)


def target_of(arguments: argparse.Namespace, folder: str) -> str:
    """The target as YAML: what was asked for, or XFS on an image as root, or a directory."""
    if arguments.dir:
        return f"{{backend: directory, options: {{path: {json.dumps(str(arguments.dir))}}}}}"
    if arguments.backend or os.geteuid() == 0:
        return f"{{backend: {arguments.backend or 'xfs'}, options: {{size: 2GiB}}}}"
    return f"{{backend: directory, options: {{path: {json.dumps(folder)}}}}}"


if __name__ == "__main__":
    main()
