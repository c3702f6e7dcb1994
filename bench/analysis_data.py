"""The synthetic campaign of bench/analysis.py, with a known truth: 4 targets in 40 attachments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from fsmatrix.results import histogram
from fsmatrix.results.files.campaignfile import NUMBERS, TEXTS, Entry
from fsmatrix.results.files.run_rows import Row
from fsmatrix.results.files.schema import to_json
from fsmatrix.results.record import Case, Finding, Geometry, Latency, Phase

BLOCKS = 40
SPEED = {"xfs": 1.0, "ext4": 0.86, "btrfs": 0.55, "cephfs": 0.3}
PATTERNS = {"rand-read": 1.0, "rand-write": 0.6, "seq-read": 1.4, "seq-write": 0.9}
CHUNKS = (4096, 16384, 65536, 131072, 1 << 20, 4 << 20)
PROCESSES = (1, 2, 4, 8, 16)
NODES = (2, 3, 4, 5)
FINDING = Finding("too-short", 1, "warning", "window below 1 s", "measure longer")


def truth(target: str, pattern: str, chunk: int, processes: int, nodes: int) -> float:
    """The median bandwidth of a cell, bytes per second."""
    operation = 1e-4 + chunk / 2e9  # seconds: t0 + chunk / B
    return SPEED[target] * PATTERNS[pattern] * processes**0.7 * nodes**0.5 * chunk / operation


def cells() -> list[tuple[str, str, int, int, int]]:
    """All combinations of levels."""
    return list(itertools.product(SPEED, PATTERNS, CHUNKS, PROCESSES, NODES))


def entries(runs: int) -> Iterator[Entry]:
    """The runs, cell after cell, in blocks that are attachments with a spread of their own."""
    rng = np.random.default_rng(1)
    every = cells()
    environment = to_json({"kernel": "6.1.0", "machine": {"cores": 2}})
    session = rng.lognormal(0, 0.03, (len(every), BLOCKS))
    phases = {name: [phase_of(name, rng) for _ in range(64)] for name in ("read", "write")}
    for number, (target, pattern, chunk, processes, nodes) in enumerate(every):
        count = runs // len(every) + (number < runs % len(every))
        case = Case(
            target,
            "pattern",
            {"pattern": pattern, "chunk": chunk},
            Geometry(1, processes),
            level={"storage_nodes": nodes},
        )
        levels = {
            "target": target,
            "workload": "pattern",
            "pattern": pattern,
            "chunk": chunk,
            "processes_per_node": processes,
            "storage_nodes": nodes,
            "cache": "cold",
            "device_state": "as_found",
            "reference": "false",
        }
        name = pattern.split("-")[1]
        block = np.arange(count) * BLOCKS // max(count, 1)
        bandwidth = truth(target, pattern, chunk, processes, nodes) * session[number][block]
        bandwidth *= rng.lognormal(0, 0.03, count)
        texts = {
            "phase": name,
            "case_id": case.case_id,
            "work_id": case.work_id,
            "hosts": "node1",
            "engine": "player-c",
            "engine_version": "0.1.0",
            "latency_of": name,
        }
        yield from (
            Entry(
                [
                    one_row(
                        texts,
                        phases[name][i % 64],
                        i,
                        int(block[i]),
                        float(bandwidth[i]),
                        chunk,
                        f"{target}-n{nodes}-b{block[i]}",
                    )
                ],
                levels,
                environment,
                case.canonical,
            )
            for i in range(count)
        )


def one_row(
    texts: dict[str, str], phase: Phase, i: int, block: int, speed: float, chunk: int, place: str
) -> Row:
    """The row of run `i` of a case, in an attachment `place`; `speed` in bytes per second."""
    failed, noted = i % 101 == 7, i % 53 == 3
    mean = chunk / speed
    numbers = {name: 0.0 if kind[0] == "i8" else float("nan") for name, kind in NUMBERS.items()}
    numbers |= {"repetition": i, "attempt": 1, "block": block, "duration": 1.5, "began": 1.7e9 + i}
    numbers |= {
        "bandwidth": speed,
        "iops": speed / chunk,
        "window": 1.0,
        "bytes": speed,
        "operations": speed / chunk,
        "errors": 0.0,
        "workers": 4,
        "latency_mean": mean,
        "latency_p50": mean * 0.8,
        "latency_p95": mean * 2,
        "latency_p99": mean * 3,
        "latency_p99_9": mean * 5,
    }
    own = {
        "run_id": f"{texts['case_id']}-r{i:04d}-a1",
        "attachment": place,
        "session": f"s-{place}",
        "status": "failed" if failed else "ok",
        "error": "rank 1: ENOSPC in file 3 at 4096" if failed else "",
        "worst_finding": "warning" if noted else "",
        "started": f"2026-11-20T{i // 3600 % 24:02d}:{i // 60 % 60:02d}:{i % 60:02d}Z",
    }
    return Row(numbers, dict.fromkeys(TEXTS, "") | texts | own, phase, [FINDING] if noted else [])


def phase_of(name: str, rng: np.random.Generator) -> Phase:
    """Four workers, latencies, a series of ten intervals: what lies beside the columns."""
    nanoseconds = rng.lognormal(11, 0.3, 500).astype(np.int64)
    counts = np.bincount(histogram.bin_of(nanoseconds), minlength=histogram.BINS)
    operations = rng.integers(200, 2000, 4)
    return Phase(
        name,
        rng.random(4) / 1e4,
        1 + rng.random(4) / 10,
        operations * 4096,
        operations,
        np.zeros(4, dtype=np.int64),
        latency={name: Latency(counts, 0.1, 1e-5, 1e-3)},
        interval=0.1,
        interval_bytes=rng.integers(0, 1 << 24, 10),
        interval_operations=rng.integers(0, 1 << 12, 10),
        began=1.7e9,
    )
