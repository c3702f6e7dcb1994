"""The rival of bench/analysis.py: fio's JSON files, one per run, read with json and pandas."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
from analysis_data import entries

from fsmatrix.results.files.campaignfile import Entry

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "fio" / "3.33-group-reporting.json"
FACTORS = ["target", "pattern", "chunk", "processes_per_node", "storage_nodes"]


def write_files(folder: Path, runs: int) -> None:
    """The campaign's values in a recorded output of fio 3.33 (json, without histograms)."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    for number, entry in enumerate(entries(runs)):
        text = json.dumps(_filled(recorded, entry), indent=2)
        (folder / f"{number}.json").write_text(text, encoding="utf-8")


def _filled(recorded: dict[str, Any], entry: Entry) -> dict[str, Any]:
    document = copy.deepcopy(recorded)
    row, job = entry.rows[0], document["jobs"][0]
    job["error"] = int(row.texts["status"] != "ok")
    job["job options"] |= {name: str(level) for name, level in entry.levels.items()}
    job["job options"]["attachment"] = row.texts["attachment"]
    done = job[row.texts["phase"]]
    done["bw_bytes"], done["iops"] = int(row.numbers["bandwidth"]), row.numbers["iops"]
    done["clat_ns"] = {
        "mean": row.numbers["latency_mean"] * 1e9,
        "percentile": {"99.000000": row.numbers["latency_p99"] * 1e9},
    } | {
        name: value for name, value in done["clat_ns"].items() if name not in ("mean", "percentile")
    }
    return document


def matrix(folder: Path) -> tuple[int, pd.Series[float]]:
    """(files, the matrix of the bandwidth), as one would write it in a notebook."""
    records = []
    for path in folder.glob("*.json"):
        job = json.loads(path.read_text(encoding="utf-8"))["jobs"][0]
        options = job["job options"]
        done = job["read" if "read" in options["pattern"] else "write"]
        values = {
            "error": job["error"],
            "bandwidth": done["bw_bytes"],
            "iops": done["iops"],
            "latency_mean": done["clat_ns"]["mean"] / 1e9,
            "latency_p99": done["clat_ns"]["percentile"]["99.000000"] / 1e9,
        }
        records.append(options | values)
    frame = pd.DataFrame(records)
    good = frame[frame["error"] == 0]
    inner = good.groupby([*FACTORS, "attachment"])["bandwidth"].median()
    return len(records), inner.groupby(FACTORS).median()
