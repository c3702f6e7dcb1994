"""Analyse a synthetic campaign of a million runs: seconds and peak memory of every step.

The campaign file is written with the store's own writer (results/merge.writing), one run after
the other, by another process (analysis_data.py).  The matrix is compared with the known truth.
The same values as fio's JSON files, one per run, are read with json and pandas for 1 % of the
runs, from the page cache, and extrapolated to all of them (analysis_json.py).

Example: python bench/analysis.py --runs 1000000
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent))  # also under -P

from analysis_data import cells, entries, truth

from fsmatrix.results.merge import writing
from fsmatrix.results.schema import to_json

SECONDS, BYTES = 30.0, 2 << 30  # limits: all steps together, on two cores
State = dict[str, Any]
Step = Callable[[State], str]


# -- the steps: each takes what the steps before it made, and says what it found ---------------
def open_file(state: State) -> str:
    """analysis.open"""
    from fsmatrix import analysis

    state["ds"] = analysis.open(state["file"])
    return f"{state['ds'].sizes['run']} rows, {state['file'].stat().st_size / 2**20:.0f} MiB"


def make_matrix(state: State) -> str:
    """analysis.matrix of the bandwidth"""
    from fsmatrix import analysis

    state["matrix"] = array = analysis.matrix(state["ds"], "bandwidth")
    known = [
        truth(target, pattern, chunk, processes, nodes)
        / float(array.sel(target=target, pattern=pattern, chunk=chunk,
                          processes_per_node=processes, storage_nodes=nodes))
        for target, pattern, chunk, processes, nodes in cells()[::97]
    ]  # fmt: skip
    worst = float(np.max(np.abs(np.log(known))))
    if not worst < 0.1:
        raise SystemExit(f"the matrix is wrong: {worst:.3f} off the truth (log)")
    return f"{'x'.join(map(str, array.shape))} cells, largest error {worst:.2%}"


def keep_attachments(state: State) -> str:
    """analysis.matrix by attachment, latency"""
    from fsmatrix import analysis

    array = analysis.matrix(state["ds"], "latency_p99", by="attachment", unit="ms")
    return f"{'x'.join(map(str, array.shape))}"


def keep_runs(state: State) -> str:
    """analysis.matrix by run, IOPS"""
    from fsmatrix import analysis

    array = analysis.matrix(state["ds"], "iops", by="run")
    return f"{'x'.join(map(str, array.shape))}"


STEPS: tuple[Step, ...] = (open_file, make_matrix, keep_attachments, keep_runs)


def analyse(file: Path) -> dict[str, Any]:
    """Every step: seconds, peak memory of the process after it (bytes), what it said."""
    state: State = {"file": file}
    result = []
    for step in STEPS:
        began = time.perf_counter()
        said = step(state)
        seconds = time.perf_counter() - began
        result.append({"step": step.__doc__, "seconds": seconds, "peak": peak(), "said": said})
    return {"steps": result}


def write(file: Path, runs: int) -> dict[str, Any]:
    """Write the campaign."""
    began = time.perf_counter()
    with writing(file) as writer:
        for entry in entries(runs):
            writer.put(entry)
        writer.finish(to_json({"name": "synthetic"}), [])
    return {"seconds": time.perf_counter() - began, "peak": peak()}


def write_json(folder: Path, runs: int) -> dict[str, Any]:
    """The rival's files."""
    from analysis_json import write_files

    write_files(folder, runs)
    return {}


def read_json(folder: Path) -> dict[str, Any]:
    """The rival."""
    from analysis_json import matrix

    began = time.perf_counter()
    files, _ = matrix(folder)
    return {"seconds": time.perf_counter() - began, "peak": peak(), "files": files}


# -- one process for each part, so that its memory is its own ----------------------------------
def peak() -> int:
    """Largest resident size of this process so far, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def part(name: str, place: Path, runs: int) -> dict[str, Any]:
    """Run one part in a process of its own."""
    command = [sys.executable, "-P", __file__, "--part", name, "--place", str(place)]
    command += ["--runs", str(runs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


PARTS: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "write": write,
    "analyse": lambda place, _: analyse(place),
    "write-json": write_json,
    "read-json": lambda place, _: read_json(place),
}


def measure(runs: int, folder: Path, keep: Path | None) -> bool:
    """All parts; prints them and says whether the limits are kept."""
    file = keep or folder / "campaign.h5"
    if not file.exists():
        written = part("write", file, runs)
        print(f"{'write the campaign':44} {written['seconds']:9.1f} s {_mib(written['peak'])}")
    steps = part("analyse", file, runs)["steps"]
    for step in steps:
        print(f"{step['step']:44} {step['seconds']:9.2f} s {_mib(step['peak'])}  {step['said']}")
    seconds, most = sum(step["seconds"] for step in steps), steps[-1]["peak"]
    good = seconds <= SECONDS and most <= BYTES
    verdict = "within" if good else "BEYOND"
    print(f"{'all steps':44} {seconds:9.2f} s {_mib(most)}  {verdict} {SECONDS:g} s, {_mib(BYTES)}")
    sample = max(runs // 100, 1)
    (folder / "json").mkdir()
    part("write-json", folder / "json", sample)
    rival = part("read-json", folder / "json", sample)
    whole = rival["seconds"] * runs / rival["files"]
    own = sum(step["seconds"] for step in steps[:2])
    print(f"{f'json + pandas, {sample} files':44} {rival['seconds']:9.2f} s {_mib(rival['peak'])}")
    print(f"{f'json + pandas, {runs} files (extrapolated)':44} {whole:9.1f} s")
    print(f"{'ratio to open + first matrix':44} {whole / own:9.1f} x")
    return good


def _mib(size: float) -> str:
    return f"{size / 2**20:7.0f} MiB"


def main() -> None:
    """Command line; status 1 if a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--campaign", type=Path, help="use this file again, or write it there")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options.place, options.runs)))
        return
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as directory:
        good = measure(options.runs, Path(directory), options.campaign)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
