"""Made-up campaigns of the SSD-cluster study as Datasets, with numbers that a test knows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from fsmatrix.results.files import schema

PATTERNS = ("rand-read", "seq-read", "rand-write", "seq-write")
KIB, MIB = 1024, 1 << 20
CHUNKS = (4 * KIB, 128 * KIB, MIB, 4 * MIB)
PAPER = {"pattern": PATTERNS, "processes_per_node": (1, 8, 16), "chunk": CHUNKS}
Levels = Mapping[str, Any]
Truth = Callable[[Levels], Mapping[str, float]]


def dataset(rows: Sequence[Mapping[str, Any]], factors: Sequence[str], **attrs: Any) -> xr.Dataset:
    """A campaign of these rows; what a row does not say has an ordinary value."""
    usual: dict[str, Any] = {
        "target": "ceph",
        "workload": "pattern",
        "phase": "read",
        "status": "ok",
        "error": "",
        "worst_finding": "",
        "last_attempt": 1,
        "block": 0,
        "engine": "player-c",
        "bytes": 1.0,
    }
    names = dict.fromkeys([*usual, *(name for row in rows for name in row), "run_id", "attachment"])
    whole = [{**usual, "run_id": f"r{i}", "attachment": "a0", **r} for i, r in enumerate(rows)]
    columns = {}
    for name in names:
        values = [row.get(name, np.nan) for row in whole]
        columns[name] = ("run", np.array(values))
    listed = {name: name for name in ("target", "workload", *factors)}
    return xr.Dataset(
        columns,
        attrs={
            "format": schema.CAMPAIGN_FORMAT,
            "schema_version": schema.SCHEMA_VERSION,
            "factors": json.dumps(listed),
            **attrs,
        },
    )


def campaign(
    truth: Truth,
    levels: Mapping[str, Sequence[Any]],
    *,
    attachments: int = 8,
    repetitions: int = 1,
    between: float = 0.03,
    within: float = 0.02,
    seed: int = 1,
    keep: Callable[[Levels], bool] = lambda _: True,
    emulated: Sequence[str] = (),
) -> xr.Dataset:
    """truth(levels) -> metrics, with log-normal spread between attachments and within them.

    An attachment is one of (storage_nodes, interface) in a block, as in a split plot.  Latency
    is slower where rates are faster.
    """
    rng = np.random.default_rng(seed)
    spread: dict[tuple[Any, ...], float] = {}
    rows = []
    for combination in itertools.product(*levels.values()):
        cell = dict(zip(levels, combination, strict=True))
        if not keep(cell):
            continue
        plot = (cell.get("storage_nodes", 0), cell.get("interface", ""))
        for block, repetition in itertools.product(range(attachments), range(repetitions)):
            shift = spread.setdefault((*plot, block), rng.normal(0, between))
            factor = float(np.exp(shift + rng.normal(0, within)))
            metrics = {
                name: value / factor if name.startswith("latency") else value * factor
                for name, value in truth(cell).items()
            }
            rows.append(
                {
                    **cell,
                    **metrics,
                    "block": block,
                    "repetition": repetition,
                    "attachment": f"{plot[0]}-{plot[1]}-{block}",
                    "phase": "write" if "write" in str(cell.get("pattern", "read")) else "read",
                }
            )
    ds = dataset(rows, list(levels))
    if emulated:
        environment = json.dumps({"realised": dict.fromkeys(emulated, "emulated")})
        ds["environment_json"] = ("environment", np.array([environment]))
        ds["environment_index"] = ("run", np.zeros(len(rows), dtype=np.int64))
    return ds


def hockney(cell: Levels, *, link: float = 1.2e9) -> dict[str, float]:
    """Time per operation = t0 + chunk / B, shared link, as a cluster of SSDs would have it."""
    chunk, ranks = int(cell.get("chunk", 4096)), int(cell.get("processes_per_node", 1))
    slow = 3.0 if "write" in str(cell.get("pattern", "")) else 1.0
    slow *= 1.15 if "rand" in str(cell.get("pattern", "")) else 1.0
    slow *= 2.0 if cell.get("interface") == "SATA" else 1.0
    alone = 2e-4 * slow + chunk / (4e8 / slow)  # one operation, nobody else
    every = ranks**0.75 / alone  # operations per second of all ranks
    rate = 1 / (1 / every + chunk / link)
    return {"bandwidth": rate * chunk, "iops": rate, "latency_mean": ranks / rate}


def table3(nodes: Sequence[int] = (2,), **others: Any) -> xr.Dataset:
    """The paper's table 3 with 1 MiB; SATA with 2 nodes only."""
    levels = {
        "storage_nodes": nodes,
        "interface": ("SATA", "PCIe"),
        "pattern": PATTERNS,
        "chunk": CHUNKS,
        "processes_per_node": (1, 8, 16),
    }

    def truth(cell: Levels) -> dict[str, float]:
        found = hockney(cell)
        speed = (cell["storage_nodes"] / 2) ** 0.5
        slower = {"latency_mean": found["latency_mean"] * 1.02}
        return {n: v * speed for n, v in found.items() if n != "latency_mean"} | slower

    return campaign(
        truth, levels, keep=lambda c: c["interface"] == "PCIe" or c["storage_nodes"] == 2, **others
    )
