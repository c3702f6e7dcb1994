"""Analyse synthetic campaigns of more and more targets: does the cost grow with their square?

Each campaign has one run of each of 4 patterns and 3 chunk sizes on each target, in one
attachment, as imports of other people's results have.  Shown are the pairs of targets whose cells
were matched and the places for a value in all tables (counted, not timed), and CPU seconds and
peak memory of lessons, tables and report.  Status 1 if what is counted grows faster than targets.

Example: python bench/targets.py --targets 25 50 100 200
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))  # also under -P

from analysis_data import PATTERNS, one_row, phase_of

from fsmatrix.results.files.campaignfile import Entry, writing
from fsmatrix.results.files.schema import to_json
from fsmatrix.results.record import Case, Geometry

CHUNKS = (4096, 65536, 1 << 20)
LINEAR = 1.2  # of what is counted: twice the targets, 2.4 times the places at most


def entries(targets: int) -> Iterator[Entry]:
    """One run of each cell; speeds are a permutation, so that no order is the names'."""
    rng = np.random.default_rng(1)
    phases = {name: phase_of(name, rng) for name in ("read", "write")}
    speed = rng.permutation(targets) + 1.0
    for number, pattern, chunk in itertools.product(range(targets), PATTERNS, CHUNKS):
        target = f"target-{number:04}"
        case = Case(target, "pattern", {"pattern": pattern, "chunk": chunk}, Geometry(1, 4))
        levels = {
            "target": target,
            "workload": "pattern",
            "pattern": pattern,
            "chunk": chunk,
            "processes_per_node": 4,
            "cache": "cold",
            "reference": "false",
        }
        name = pattern.split("-")[1]
        texts = {
            "phase": name,
            "case_id": case.case_id,
            "work_id": case.work_id,
            "engine": "player-c",
            "engine_version": "0.1.0",
            "latency_of": name,
        }
        rate = 1e6 * speed[number] * PATTERNS[pattern] * chunk / 4096
        row = one_row(texts, phases[name], 0, 0, float(rate), chunk, "imported")
        yield Entry([row], levels, to_json({"kernel": "6.1.0"}), case.canonical)


def analyse(file: Path) -> dict[str, Any]:
    """Counts, and CPU seconds of each step."""
    from fsmatrix import analysis
    from fsmatrix.analysis.comparison import matched_cells
    from fsmatrix.analysis.data.summary import summarise
    from fsmatrix.analysis.lessons.lessons import lessons
    from fsmatrix.analysis.report.pivot import pivots
    from fsmatrix.analysis.report.report import write_report

    progress = {"pairs": 0}
    matched = matched_cells.matched

    def counted(*given: Any) -> Any:
        progress["pairs"] += 1
        return matched(*given)

    matched_cells.matched = counted
    ds, seconds, marks = analysis.open(file), {}, [time.process_time()]

    def done(step: str) -> None:
        marks.append(time.process_time())
        seconds[step] = marks[-1] - marks[-2]

    _ = lessons(ds).says
    done("lessons")
    tables = pivots(summarise(ds))
    done("tables")
    write_report(ds, file.with_suffix(".html"))
    done("report")
    places = sum(
        len(line.entries) for table in tables for part in table.parts for line in part.lines
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"pairs": progress["pairs"], "places": places, "seconds": seconds, "peak": peak}


def measured(targets: int, folder: Path) -> dict[str, Any]:
    """A campaign of so many targets, written here and analysed in a process of its own."""
    file = folder / f"{targets}.h5"
    with writing(file) as writer:
        for entry in entries(targets):
            writer.put(entry)
        writer.finish(to_json({"name": "synthetic"}), [])
    command = [sys.executable, "-P", __file__, "--analyse", str(file)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def main() -> None:
    """Command line; status 1 if what is counted grows faster than the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, nargs="+", default=[25, 50, 100, 200])
    parser.add_argument("--analyse", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.analyse:
        print(json.dumps(analyse(options.analyse)))
        return
    print(
        f"{'targets':>8} {'pairs':>8} {'places':>8} {'lessons':>9} {'tables':>9} {'report':>9} "
        f"{'peak':>9}"
    )
    good, last = True, (0, 0)
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as folder:
        for targets in options.targets:
            result = measured(targets, Path(folder))
            work = result["pairs"] + result["places"]
            took = " ".join(f"{took:7.2f} s" for took in result["seconds"].values())
            print(
                f"{targets:8} {result['pairs']:8} {result['places']:8} {took} "
                f"{result['peak'] / 2**20:5.0f} MiB",
                flush=True,
            )
            good &= not last[0] or work / last[1] <= LINEAR * targets / last[0]
            last = (targets, work)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
