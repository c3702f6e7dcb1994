"""Double of darshan.backend.cffi_backend: a log is its first 16 bytes, and JSON after them.

JSON: `modules` (name -> whether it is partial), `names` (id -> path), `records` ([id, rank,
reads, writes], each a list of [offset, length, start, end]); `die`: end as C code does that fails;
`counters` (module -> [id, counters by name]); `hang`: never end; `greed`: ask for so many bytes;
`damaged`: complain after the last record.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any


def log_open(filename: str) -> dict[str, Any]:
    data = Path(filename).read_bytes()[16:]
    content = json.loads(data) if data else None
    if content and content.get("die"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if content and content.get("hang"):
        signal.pause()
    if content and content.get("greed"):
        bytearray(content["greed"])
    return {"handle": content, "next": 0, "counted": 0}


def log_get_modules(log: dict[str, Any]) -> dict[str, Any]:
    partial = log["handle"]["modules"]
    return {name: {"partial_flag": flag} for name, flag in partial.items()}


def log_get_name_records(log: dict[str, Any]) -> dict[int, str]:
    return {int(number): name for number, name in log["handle"]["names"].items()}


def log_get_dxt_record(log: dict[str, Any], module: str) -> dict[str, Any] | None:
    records = log["handle"]["records"].get(module, [])
    if log["next"] >= len(records):
        if log["handle"].get("damaged"):
            os.write(2, b"Error: failed to read module DXT_POSIX data from darshan log file.\n")
        return None
    number, rank, reads, writes = records[log["next"]]
    log["next"] += 1
    keys = ("offset", "length", "start_time", "end_time")
    return {
        "id": number,
        "rank": rank,
        "read_segments": [dict(zip(keys, each, strict=True)) for each in reads],
        "write_segments": [dict(zip(keys, each, strict=True)) for each in writes],
    }


def log_get_record(log: dict[str, Any], module: str, dtype: str) -> dict[str, Any] | None:
    records = log["handle"].get("counters", {}).get(module, [])
    if log["counted"] >= len(records):
        return None
    number, counters = records[log["counted"]]
    log["counted"] += 1
    return {"id": number, "rank": -1, "counters": counters}
