"""The LHCb analysis' event loop in fsmatrix's program against a plain ROOT macro with that loop.

    python bench/lhcb.py [--events 1000000] [--rounds 15] [--compression none] [--dir D] [--json]

One file is written; then program and macro (bench/lhcb_macro.C) read it from memory, each in a new
process, in alternating rounds.  Both time the loop alone, by the same clock, compiled by ROOT's
interpreter with the same optimisation.  Printed are both medians, and the median of the ratios
within rounds with its interval of 95 %.  The target is a ratio of at most 1.1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fsmatrix.analysis.stats.estimates.medians import of_independent
from fsmatrix.suite.engines.python import ROOT, answer, words
from fsmatrix.suite.workloads.streams.lhcb.program import Request

TARGET = 1.1
MACRO = Path(__file__).with_name("lhcb_macro.C")
SECONDS = 600


def main() -> int:
    """Exit status 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compression", default="none", choices=("none", "zstd", "lz4", "zlib"))
    parser.add_argument("--dir", type=Path, default=None, help="where the file is written")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    python = ROOT.probe().path
    request = Request(given.events, 18, compression=given.compression, cluster_size=52_428_800)
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        place = f"{folder}/lhcb.root"
        _answered([python, *words("root", "write", request.text(), place, "0")])
        loops, counts = [], set()
        for number in range(given.rounds):
            both = {}
            for name in ("program", "macro") if number % 2 else ("macro", "program"):
                both[name], passed = _timed(name, python, request, place)
                counts.add(passed)
            loops.append((both["program"], both["macro"]))
    assert len(counts) == 1, f"program and macro find different numbers of events: {counts}"
    return _told(np.array(loops), given.json)


def _timed(name: str, python: str, request: Request, place: str) -> tuple[float, int]:
    """Seconds of the event loop, and how many events passed the cuts."""
    if name == "program":
        said = _answered([python, *words("root", "read", request.text(), place, "0")])
        times, selected = said["times"], said["selected"]
        assert isinstance(times, dict)
        assert isinstance(selected, dict)
        return times["moved"] - times["opened"], int(selected["no_pions"])
    run = f"import ROOT; ROOT.gROOT.ProcessLine('.x {MACRO}(\"{place}\")')"
    printed = _run([python, "-W", "ignore", "-c", run]).split()
    return float(printed[-2]), int(printed[-1])


def _answered(argv: Sequence[str]) -> dict[str, object]:
    said = answer(_run(argv))
    assert said is not None
    return said


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        sys.exit(f"{argv[0]}: status {done.returncode}: {(done.stdout + done.stderr)[-800:]}")
    return done.stdout


def _told(loops: np.ndarray, as_json: bool) -> int:
    """loops: seconds, [round, (program, macro)]."""
    ratio = of_independent(loops[:, 0] / loops[:, 1])
    program, macro = np.median(loops, axis=0).tolist()
    told = {
        "program_seconds": program,
        "macro_seconds": macro,
        "ratio": ratio.median,
        "interval": [ratio.low, ratio.high],
        "rounds": len(loops),
    }
    met = ratio.median <= TARGET
    if as_json:
        print(json.dumps(told))
    else:
        print(f"event loop: program {program:.3f} s, plain macro {macro:.3f} s")
        print(
            f"ratio {ratio.median:.3f}, 95 % [{ratio.low:.3f}, {ratio.high:.3f}], "
            f"{len(loops)} rounds; target {TARGET}: {'met' if met else 'NOT met'}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
