"""Loading one warehouse for `tpcc` against PostgreSQL's own COPY of the same rows.

    python bench/tpcc_load.py [--rounds 12] [--folder /var/tmp]

A server is made once, with the workload's settings.  In each round, in random order: the suite's
loader, which makes the rows while the server reads them from pipes; and COPY of the very same
rows from files that were made before and lie in the page cache.  Both make the tables, fill them
and make their keys in one transaction (COPY ... WITH (FREEZE)), and end with a checkpoint.
Printed: the median ratio of a round and its interval.  Must be at most 1.5.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fsmatrix.analysis.stats.estimates.medians import of_independent
from fsmatrix.backends.system import libc
from fsmatrix.suite.engines.postgresql import KIND
from fsmatrix.suite.oltp import account as accounts
from fsmatrix.suite.oltp.__main__ import server_of
from fsmatrix.suite.oltp.account import Task
from fsmatrix.suite.oltp.server import DATABASE, Server
from fsmatrix.suite.oltp.tpcc_rows import Rows, copy, script

BOUND = 1.5


def fresh(server: Server) -> None:
    """An empty database, and nothing left to write."""
    server.sql(f"DROP DATABASE IF EXISTS {DATABASE};", database="postgres")
    server.sql(f"CREATE DATABASE {DATABASE};\nCHECKPOINT;\n", database="postgres")


def of_files(server: Server, files: Path, names: list[str]) -> None:
    """PostgreSQL's own COPY."""
    copies = "".join(f"COPY {name} FROM '{files / name}' WITH (FREEZE);\n" for name in names)
    schema, keys = script("schema.sql"), script("keys.sql")
    server.sql(f"BEGIN;\n{schema}{copies}{keys}COMMIT;\n")


def timed(server: Server, which: str, rows: Rows, files: Path) -> float:
    """Seconds of one load, its checkpoint included."""
    fresh(server)
    began = time.monotonic()
    if which == "suite":
        copy(server, rows)
    else:
        of_files(server, files, list(rows.tables()))
    server.sql("CHECKPOINT;\n")
    return time.monotonic() - began


def main() -> int:
    """Print the rounds and the ratio; status 1 if it is above the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--folder", default="/var/tmp")
    asked = parser.parse_args()
    rows = Rows(1, 1)
    with (
        tempfile.TemporaryDirectory(dir=asked.folder) as target,
        tempfile.TemporaryDirectory() as scratch,
    ):
        settings = {"shared_buffers": "8192kB"}
        folder = str(Path(KIND.find()).parent)
        task = Task("load", folder, target, "1", 1, 1, settings)
        server = server_of(task, Path(scratch))
        server.make()
        server.start()
        try:
            files = server.files
            for name, pieces in rows.tables().items():
                (files / name).write_bytes(b"".join(pieces()))
                accounts.own(files / name, server.account, 0o600)
            size = sum((files / name).stat().st_size for name in rows.tables())
            print(f"PostgreSQL {KIND.probe().version}, {size / 2**20:.0f} MiB of rows")
            ratios = measured(server, rows, files, asked.rounds)
        finally:
            server.kill()
            if Path(target) not in server.data.parents:  # bound, where only we see it
                libc.umount(str(server.data))
    middle = of_independent(np.array(ratios))
    print(f"ratio {middle.median:.3f} [{middle.low:.3f}, {middle.high:.3f}], bound {BOUND}")
    return int(middle.median > BOUND)


def measured(server: Server, rows: Rows, files: Path, rounds: int) -> list[float]:
    """The ratio of each round; the first, in which caches fill, is left out."""
    ratios = []
    for number in range(rounds + 1):
        order = random.sample(("suite", "COPY"), 2)
        seconds = {which: timed(server, which, rows, files) for which in order}
        ratio = seconds["suite"] / seconds["COPY"]
        note = "left out" if number == 0 else f"ratio {ratio:.3f}"
        print(f"suite {seconds['suite']:.2f} s, COPY {seconds['COPY']:.2f} s: {note}", flush=True)
        ratios += [ratio] * (number > 0)
    return ratios


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.SubprocessError as error:
        sys.exit(str(error))
