"""Merge N synthetic run files and print seconds, peak memory, and both per run.

Example: python bench/merge.py --runs 10000
With iterations, as IOR's `-i 10` gives them: python bench/merge.py --runs 10000 --iterations 10
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from fsmatrix.results import histogram, iterations
from fsmatrix.results.evidence.evidence import Rank
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Case, Finding, Geometry, Latency, Phase, RunRecord

TARGETS = ("xfs", "ext4", "btrfs", "cephfs")
SIZES = (4096, 65536, 1 << 20)


def repeated(count: int, chunk: int, random: np.random.Generator) -> list[dict[str, float]]:
    """Iterations with the columns that IOR prints."""
    seconds = 0.4 + random.random((count, 4)) / 10
    return [
        {
            "seconds": total,
            "bytes": chunk * 1000,
            "operations": 1000,
            "open": opened,
            "transfer": moved,
            "close": closed,
            "block": chunk * 500.0,
            "transfer_size": chunk,
            "bandwidth": chunk * 1000 / total,
            "iops": 1000 / moved,
            "latency_rank0": moved / 500,
        }
        for total, opened, moved, closed in seconds.tolist()
    ]


def phase(name: str, ranks: int, chunk: int, random: np.random.Generator, count: int = 0) -> Phase:
    """A phase with latencies of two kinds, a series of ten intervals and `count` iterations."""
    iterated = repeated(count, chunk, random)
    operations = random.integers(200, 2000, ranks)
    latency = {}
    for kind in (name, "close"):
        nanoseconds = random.lognormal(11, 0.5, int(operations.sum())).astype(np.int64)
        latency[kind] = Latency(
            counts=np.bincount(histogram.bin_of(nanoseconds), minlength=histogram.BINS),
            total=float(nanoseconds.sum()) / 1e9,
            minimum=float(nanoseconds.min()) / 1e9,
            maximum=float(nanoseconds.max()) / 1e9,
        )
    end = 0.5 + random.random(ranks) / 10
    return Phase(
        name=name,
        start=random.random(ranks) / 1e4,
        end=end,
        bytes=operations * chunk,
        operations=operations,
        errors=np.zeros(ranks, dtype=np.int64),
        io_start=random.random(ranks) / 1e3,
        io_end=end - 1e-3,
        latency=latency,
        interval=0.1,
        interval_bytes=random.integers(0, 1 << 24, 10),
        interval_operations=random.integers(0, 1 << 12, 10),
        began=1.7e9,
        clock_uncertainty=2e-6,
        iterations=iterations.columns(iterated),
        summary=iterations.summary(iterated, "bandwidth"),
    )


def record(
    index: int, ranks: int = 4, names: tuple[str, ...] = ("write", "read"), count: int = 0
) -> RunRecord:
    """The synthetic run number `index`."""
    random = np.random.default_rng(index)
    chunk = SIZES[index // len(TARGETS) % len(SIZES)]
    case = Case(
        target=TARGETS[index % len(TARGETS)],
        workload="pattern",
        options={"chunk_size": chunk},
        geometry=Geometry(1, ranks),
    )
    block = index // (len(TARGETS) * len(SIZES))
    failed = index % 97 == 0
    return RunRecord(
        case=case.canonical,
        case_id=case.case_id,
        work_id=case.work_id,
        repetition=block,
        attempt=1,
        block=block,
        attachment=f"{case.target}-{block}",
        session=f"s{block}",
        status="failed" if failed else "ok",
        error="rank 1: ENOSPC in file 3 at 4096" if failed else "",
        engine="player-c",
        engine_version="1",
        started="2026-01-01T00:00:00Z",
        duration=1.5,
        coordinates={"target": case.target, "chunk_size": chunk, "processes_per_node": ranks},
        environment={"kernel": "6.1.0", "target": case.target},
        ranks=tuple(
            Rank(
                rank=number,
                host="node1",
                node=0,
                node_rank=number,
                boot_id="",
                mounts="",
                pid=number,
                cpus=(0,),
            )
            for number in range(ranks)
        ),
        phases=() if failed else tuple(phase(name, ranks, chunk, random, count) for name in names),
        findings=(Finding("too-short", 1, "warning", "window below 1 s"),) if index % 10 else (),
    )


def measure(runs: int, directory: Path, count: int) -> dict[str, float]:
    """Write and merge; seconds, bytes and peak memory."""
    store = Store.create(directory / "store")
    began = time.perf_counter()
    store.append(record(index, count=count) for index in range(runs))
    written = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cpu = time.process_time()
    merged = store.merge()
    cpu = time.process_time() - cpu
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = sum(path.stat().st_size for path in store.files())
    return {
        "runs": runs,
        "write_seconds": written - began,
        "merge_seconds": ended - written,
        "merge_cpu_seconds": cpu,
        "merge_milliseconds_per_run": (ended - written) / runs * 1e3,
        "run_files_bytes": size,
        "campaign_file_bytes": merged.stat().st_size,
        "peak_before_merge_bytes": before,
        "peak_bytes": peak,
        "peak_growth_per_run_bytes": (peak - before) / runs,
        "peak_to_run_files": peak / size,
    }


def main() -> None:
    """Read the command line, merge, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10000)
    parser.add_argument("--iterations", type=int, default=0, help="of each phase")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as directory:
        result = measure(options.runs, Path(directory), options.iterations)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:32} {value:14,.3f}")


if __name__ == "__main__":
    main()
