"""The segments of a Darshan log, read by Darshan's own library in a process of its own.

`python -m fsmatrix.traces.importing.dxt LOG` prints a line of JSON and then the segments as they
are in memory (dtype SEGMENT).  The library is C and believes its input: a log that kills it, or
has it take all memory, ends only that process.  This module runs where nothing but numpy and
`darshan` is needed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

import numpy as np

MODULES = ("DXT_POSIX", "DXT_MPIIO")
# Module of DXT -> that of the counters of the same calls, and those of reads and of writes.
COUNTERS = {
    "DXT_POSIX": ("POSIX", ("POSIX_READS",), ("POSIX_WRITES",)),
    "DXT_MPIIO": (
        "MPI-IO",
        ("MPIIO_INDEP_READS", "MPIIO_COLL_READS", "MPIIO_SPLIT_READS", "MPIIO_NB_READS"),
        ("MPIIO_INDEP_WRITES", "MPIIO_COLL_WRITES", "MPIIO_SPLIT_WRITES", "MPIIO_NB_WRITES"),
    ),
}
SEGMENT = np.dtype(
    [
        ("record", "<u4"),  # row of the records
        ("write", "<u4"),
        ("offset", "<i8"),  # bytes
        ("length", "<i8"),  # bytes that were moved
        ("start", "<f8"),  # seconds after the job's start
        ("end", "<f8"),
    ]
)


def limit_memory() -> None:
    """No more than half of the machine's: a damaged count may ask for any number of bytes."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft > half:
        resource.setrlimit(resource.RLIMIT_AS, (half, hard))


def dump(path: str) -> None:
    """Print the segments of DXT_POSIX, or of DXT_MPIIO if the log has no others."""
    from darshan.backend import cffi_backend as darshan

    log = darshan.log_open(path)
    if not log["handle"]:
        sys.exit("Darshan's library cannot open it")
    modules = darshan.log_get_modules(log)
    used = next((name for name in MODULES if name in modules), "")
    records: list[tuple[str, int]] = []  # name of the file, rank
    parts = []
    names = darshan.log_get_name_records(log) if used else {}
    while used and (record := darshan.log_get_dxt_record(log, used)) is not None:
        parts.append(_segments(record, len(records)))
        records.append((names.get(record["id"], f"darshan-{record['id']}"), record["rank"]))
    header = {
        "modules": {name: bool(info.get("partial_flag")) for name, info in modules.items()},
        "used": used,
        "records": records,
        "counted": _counted(darshan, log, used, names) if used else [],
    }
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
    for part in parts:
        sys.stdout.buffer.write(part.tobytes())
    sys.stdout.flush()


def _counted(darshan: Any, log: Any, used: str, names: dict[int, str]) -> list[Any]:
    """[file, reads, writes] of each record of the counters."""
    module, *kinds = COUNTERS[used]
    counted = []
    while (record := darshan.log_get_record(log, module, dtype="dict")) is not None:
        counters = record["counters"]
        counts = [sum(int(counters.get(name, 0)) for name in kind) for kind in kinds]
        counted.append([names.get(record["id"], ""), *counts])
    return counted


def _segments(record: Any, row: int) -> Any:
    both = [(0, each) for each in record["read_segments"]]
    both += [(1, each) for each in record["write_segments"]]
    return np.array(
        [
            (row, write, each["offset"], each["length"], each["start_time"], each["end_time"])
            for write, each in both
        ],
        dtype=SEGMENT,
    )


if __name__ == "__main__":
    limit_memory()
    dump(sys.argv[1])
