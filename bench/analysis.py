"""Analyse a synthetic campaign of a million runs: seconds and peak memory of every step.

The campaign file is written with the store's own writer (results/merge.writing), one run after
the other, by another process (analysis_data.py).  The steps that count open it, summarise it,
compare two targets and draw figure 2; medians and ratios are compared with the known truth.  The
other steps (a million runs through each study, and the report) are shown beside them.

Beside seconds on the clock stands the CPU time of the process: on a machine that does other work
it is the better number, though shared caches and stolen time lengthen it too.

The same values as fio's JSON files, one per run, are read with json and pandas for 1 % of the
runs, from the page cache, and extrapolated to all of them.

Example: python bench/analysis.py --runs 1000000
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.append(str(Path(__file__).parent))  # also under -P

from analysis_data import SPEED, cells, entries, truth

from fsmatrix.results.files.campaignfile import Entry, writing
from fsmatrix.results.files.schema import to_json

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "fio" / "3.33-group-reporting.json"
FACTORS = ["target", "pattern", "chunk", "processes_per_node", "storage_nodes"]

SECONDS, BYTES = 30.0, 2 << 30  # limits: the steps that count together, on two cores
FAR = 0.1  # largest error of a median or ratio against the truth (log): wrong, not inexact
State = dict[str, Any]
Step = Callable[[State], str]


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


# -- the steps: each takes what the steps before it made, and says what it found ---------------
def open_file(state: State) -> str:
    """open"""
    from fsmatrix import analysis

    state["ds"] = analysis.open(state["file"])
    return f"{state['ds'].sizes['run']} rows, {state['file'].stat().st_size / 2**20:.0f} MiB"


def summarise(state: State) -> str:
    """summarise"""
    from fsmatrix.analysis.data.summary import summarise

    summary = summarise(state["ds"])
    off = [_off(cell.metrics["bandwidth"].median, cell.levels) for cell in summary.cells]
    return f"{len(summary.cells)} cells, largest error {_right(off):.2%}"


def compare(state: State) -> str:
    """compare two targets"""
    from fsmatrix.analysis.comparison.compare import compare

    comparison = compare(state["ds"], "xfs", "ext4")
    off = [np.log(cell.ratio.ratio / (SPEED["xfs"] / SPEED["ext4"])) for cell in comparison.cells]
    _right(off)
    return f"{len(comparison.cells)} cells, geometric mean {comparison.mean.mean.ratio:.4f}"


def draw(state: State) -> str:
    """draw bars"""
    from fsmatrix.analysis.questions.bars import bars

    chart = bars(state["ds"], "bandwidth", where={"storage_nodes": 2})
    _right([_off(bar.median, {"storage_nodes": 2, **bar.levels}) for bar in chart.bars])
    chart.figure().savefig(state["folder"] / "bars.png")
    return f"{len(chart.bars)} bars"


def make_matrix(state: State) -> str:
    """matrix of the bandwidth"""
    from fsmatrix import analysis

    array = analysis.matrix(state["ds"], "bandwidth")
    names = ("target", "pattern", "chunk", "processes_per_node", "storage_nodes")
    off = [
        np.log(float(array.sel(dict(zip(names, cell, strict=True)))) / truth(*cell))
        for cell in cells()[::97]
    ]
    return f"{'x'.join(map(str, array.shape))} cells, largest error {_right(off):.2%}"


def keep_runs(state: State) -> str:
    """matrix by run, IOPS"""
    from fsmatrix import analysis

    array = analysis.matrix(state["ds"], "iops", by="run")
    return f"{'x'.join(map(str, array.shape))}"


def scale(state: State) -> str:
    """scalability"""
    from fsmatrix.analysis.questions.scalability import scalability

    return f"{len(scalability(state['ds'], 'bandwidth').table())} points"


def model(state: State) -> str:
    """models"""
    from fsmatrix.analysis.questions.models.models import models

    return f"{len(models(state['ds'], 'bandwidth', None).table())} rows"


def correlate(state: State) -> str:
    """correlation"""
    from fsmatrix.analysis.questions.correlation import correlation

    return f"{len(correlation(state['ds']).table())} rows"


def limit(state: State) -> str:
    """bottleneck"""
    from fsmatrix.analysis.questions.bottleneck.bottleneck import bottleneck

    return f"{len(bottleneck(state['ds']).verdicts)} series"


def report(state: State) -> str:
    """report"""
    from fsmatrix.analysis.report.report import write_report

    page = write_report(state["ds"], state["folder"] / "report.html")
    return f"{page.stat().st_size / 2**20:.1f} MiB of HTML"


COUNTED: tuple[Step, ...] = (open_file, summarise, compare, draw)
OTHERS: tuple[Step, ...] = (make_matrix, keep_runs, scale, model, correlate, limit, report)
RIVAL: tuple[Step, ...] = (open_file, make_matrix)  # what json and pandas do


def _off(median: float, levels: Mapping[str, Any]) -> float:
    """How far a median is from the truth (log)."""
    level = dict(levels)
    processes = level.get("processes_per_node", level.get("processes"))
    expected = truth(
        level["target"], level["pattern"], level["chunk"], processes, level["storage_nodes"]
    )
    return float(np.log(median / expected))


def _right(off: Sequence[float]) -> float:
    """The largest error; ends the program if one is too large to be chance."""
    worst = float(np.max(np.abs(off)))
    if not worst < FAR:
        raise SystemExit(f"a result is wrong: {worst:.3f} off the truth (log)")
    return worst


def analyse(file: Path, steps: Sequence[Step]) -> dict[str, Any]:
    """Every step: seconds, CPU seconds, peak memory of the process after it, what it said."""
    result = []
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as folder:
        state: State = {"file": file, "folder": Path(folder)}
        for step in steps:
            began, cpu = time.perf_counter(), time.process_time()
            text = step(state)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            result.append(
                {"step": step.__doc__, "seconds": seconds, "cpu": cpu, "peak": peak(), "said": text}
            )
    return {"steps": result}


def write(file: Path, runs: int) -> dict[str, Any]:
    """Write a campaign file of so many runs; the seconds and the memory that it took."""
    began = time.perf_counter()
    with writing(file) as writer:
        for entry in entries(runs):
            writer.put(entry)
        writer.finish(to_json({"name": "synthetic"}), [])
    return {"seconds": time.perf_counter() - began, "peak": peak()}


def write_json(folder: Path, runs: int) -> dict[str, Any]:
    """Write the same runs as the JSON files that the rival reads."""

    write_files(folder, runs)
    return {}


def read_json(folder: Path) -> dict[str, Any]:
    """Read the JSON files into a matrix, as the rival does."""

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
    "counted": lambda place, _: analyse(place, COUNTED),
    "others": lambda place, _: analyse(place, (open_file, *OTHERS)),
    "rival": lambda place, _: analyse(place, RIVAL),
    "write-json": write_json,
    "read-json": lambda place, _: read_json(place),
}


def measure(runs: int, folder: Path, keep: Path | None, others: bool) -> bool:
    """All parts; prints them and says whether the limits are kept."""
    file = keep or folder / "campaign.h5"
    if not file.exists():
        written = part("write", file, runs)
        print(f"write the campaign: {written['seconds']:.1f} s, {_mib(written['peak'])}")
    print(f"load average at the start {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    print(f"{'step':24} {'clock':>9} {'of limit':>9} {'CPU':>9} {'peak':>12} {'of limit':>9}")
    steps = part("counted", file, runs)["steps"]
    whole = {
        "step": "these together",
        "peak": steps[-1]["peak"],
        "said": "",
        **{name: sum(step[name] for step in steps) for name in ("seconds", "cpu")},
    }
    for step in (*steps, whole):
        _show(step)
    good = bool(whole["seconds"] <= SECONDS and whole["peak"] <= BYTES)
    print(f"{'within' if good else 'BEYOND'} {SECONDS:g} s on the clock and {_mib(BYTES)}")
    for step in part("others", file, runs)["steps"][1:] if others else ():
        _show(step)
    against_json(runs, folder, file)
    return good


def against_json(runs: int, folder: Path, file: Path) -> None:
    """The matrix of 1 % of the runs as JSON files, extrapolated, against that of all."""
    own = sum(step["seconds"] for step in part("rival", file, runs)["steps"])
    sample = max(runs // 100, 1)
    (folder / "json").mkdir()
    part("write-json", folder / "json", sample)
    rival = part("read-json", folder / "json", sample)
    whole = rival["seconds"] * runs / rival["files"]
    print(f"open and matrix: {own:.2f} s")
    print(f"json + pandas, {sample} files: {rival['seconds']:.2f} s, {_mib(rival['peak'])}")
    print(f"json + pandas, {runs} files (extrapolated): {whole:.1f} s, {whole / own:.1f} x")


def _show(step: Mapping[str, Any]) -> None:
    print(
        f"{step['step']:24} {step['seconds']:7.2f} s {step['seconds'] / SECONDS:9.0%} "
        f"{step['cpu']:7.2f} s {_mib(step['peak']):>12} {step['peak'] / BYTES:9.0%}  {step['said']}"
    )


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def main() -> None:
    """Command line; status 1 if a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--campaign", type=Path, help="use this file again, or write it there")
    parser.add_argument("--others", action="store_true", help="also every study and the report")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options.place, options.runs)))
        return
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as directory:
        good = measure(options.runs, Path(directory), options.campaign, options.others)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
