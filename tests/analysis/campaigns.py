"""Made-up campaigns for the tests of the analysis: run records with known numbers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fsmatrix.results import histogram
from fsmatrix.results.files import hdf
from fsmatrix.results.files.campaignfile import CampaignWriter
from fsmatrix.results.record import Case, Finding, Geometry, Latency, Phase, RunRecord
from tests.ranks import rank

PATTERNS = ("rand-read", "rand-write", "seq-read", "seq-write")
CHUNKS = (4096, 1 << 20)
SPEED = {"xfs": 1.0, "ext4": 0.86, "btrfs": 0.55, "memory": 6.0}


def phase(
    name: str,
    bandwidth: float,
    chunk: int,
    ranks: int,
    rng: np.random.Generator,
    operations: int | None = None,
) -> Phase:
    """A phase of 0.5 s with that bandwidth in bytes per second; latencies are log-normal."""
    window = 0.5
    total = operations or max(int(bandwidth * window / chunk), 1)
    per_rank = np.full(ranks, max(total // ranks, 1), dtype=np.int64)
    window = float(per_rank.sum()) * chunk / bandwidth
    mean = window * ranks / float(per_rank.sum())
    sample = rng.lognormal(np.log(mean * 0.8), 0.65, int(min(per_rank.sum(), 20_000)))
    nanoseconds = (sample * 1e9).astype(np.int64)
    counts = np.bincount(histogram.bin_of(nanoseconds), minlength=histogram.BINS)
    kind = "read" if "read" in name else "write"
    return Phase(
        name=name,
        start=np.zeros(ranks),
        end=np.full(ranks, window),
        bytes=per_rank * chunk,
        operations=per_rank,
        errors=np.zeros(ranks, dtype=np.int64),
        latency={kind: Latency(counts, float(sample.sum()), sample.min(), sample.max())},
        began=1.7e9,
    )


def record(
    target: str = "xfs",
    *,
    phases: tuple[Phase, ...],
    coordinates: dict[str, Any],
    block: int = 0,
    repetition: int | None = None,
    attempt: int = 1,
    attachment: str | None = None,
    workload: str = "pattern",
    geometry: Geometry | None = None,
    **others: Any,
) -> RunRecord:
    """One run; `coordinates` beyond target and workload."""
    case = Case(target, workload, coordinates, geometry or Geometry())
    values: dict[str, Any] = {
        "status": "ok",
        "engine": "player-c",
        "engine_version": "0.1.0",
        "started": f"2026-11-20T10:{block:02d}:00Z",
        "duration": 0.9,
        "environment": environment(target),
        "ranks": (rank("node1"),),
    }
    return RunRecord(
        case=case.canonical,
        case_id=case.case_id,
        work_id=case.work_id,
        repetition=block if repetition is None else repetition,
        attempt=attempt,
        block=block,
        attachment=attachment or f"{target}-b{block}",
        session=f"s-{target}-b{block}",
        coordinates={
            "target": target,
            "workload": workload,
            "cache": "cold",
            "device_state": "as_found",
            "reference": target == "memory",
            **coordinates,
        },
        phases=phases,
        **(values | others),
    )


def environment(target: str) -> dict[str, Any]:
    """Provenance as a session would give it."""
    return {
        "fsmatrix": "0.1.0",
        "kernel": "6.1.0-18-amd64",
        "cpu": {"model": "AMD EPYC 7543 32-Core Processor", "cores": 2},
        "memory_bytes": 8 << 30,
        "launcher": {"name": "mpirun", "version": "Open MPI 5.0.11"},
        "target": {
            "backend": target,
            "mount_options": "rw,noatime",
            "device": "/dev/loop7",
            "scheduler": "none",
            "capacity_bytes": 3 << 30,
        },
    }


def realistic(
    targets: tuple[str, ...] = ("xfs", "ext4", "btrfs"),
    blocks: int = 6,
    seed: int = 1,
    chunks: tuple[int, ...] = CHUNKS,
    processes: tuple[int, ...] = (1, 2),
    troubles: bool = True,
) -> Iterator[RunRecord]:
    """Targets x 4 patterns x chunks x processes x blocks, with failed runs and findings."""
    rng = np.random.default_rng(seed)
    for target, block in itertools.product(targets, range(blocks)):
        session = rng.lognormal(0, 0.05)
        for pattern, chunk, count in itertools.product(PATTERNS, chunks, processes):
            speed = SPEED[target] * session * rng.lognormal(0, 0.05) * count**0.6
            speed *= (3e7 if chunk == 4096 else 9e8) * (2.0 if "seq" in pattern else 1.0)
            operations = 60 if (chunk > 4096 and pattern == "rand-write") else None
            done = phase(pattern.split("-")[1], speed, chunk, count, rng, operations)
            values: dict[str, Any] = {
                "coordinates": {"pattern": pattern, "chunk": chunk, "processes_per_node": count},
                "geometry": Geometry(1, count),
                "block": block,
                "phases": (done,),
            }
            yield record(
                target,
                **(values | (_trouble(target, pattern, chunk, count, block) if troubles else {})),
            )


def _trouble(target: str, pattern: str, chunk: int, count: int, block: int) -> dict[str, Any]:
    large = chunk > 4096
    if target == "btrfs" and pattern == "seq-write" and large and count == 2:
        return {
            "status": "failed",
            "phases": (),
            "error": "rank 1 on node1: ENOSPC writing data/file-1 at offset 67108864",
        }
    if target == "ext4" and pattern == "rand-read" and not large and block == 3 and count == 1:
        return {
            "status": "timeout",
            "phases": (),
            "error": "deadline of 60 s passed: rank 0 on node1 in read of data/file-0",
        }
    if target == "btrfs" and pattern == "seq-read" and large and block < 4:
        return {
            "findings": (
                Finding(
                    "read-served-by-cache",
                    1,
                    "invalid",
                    "96 % of the bytes read did not come from the backing device",
                    "drop caches as root, or use cache: bypass",
                    "read",
                ),
            )
        }
    if target == "xfs" and pattern == "rand-write" and count == 2:
        return {
            "findings": (
                Finding(
                    "client-cpu-saturated",
                    1,
                    "warning",
                    "client CPUs were 97 % busy",
                    "use more client nodes",
                ),
            )
        }
    return {}


def write(
    path: Path,
    records: Iterable[RunRecord],
    campaign: dict[str, Any] | None = None,
    left_out: list[dict[str, str]] | None = None,
) -> Path:
    """A campaign file of these records, as `fsmatrix collect` writes it."""
    with h5py.File(path, "w", libver=hdf.LIBVER) as file:
        writer = CampaignWriter(file)
        for one in sorted(records, key=lambda r: r.run_id):
            writer.add(one)
        writer.finish(json.dumps(campaign) if campaign else "", left_out or [])
    return path
