"""The standing fault test: `make chaos HOURS=1`, `make chaos KILLS=50`, `make chaos SEED=7`.

Faults of all kinds are done to real campaigns on this machine, and after each it is looked whether
everything is as it must be (docs/reliability.md).  Needs root: it mounts and makes namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.table import table

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, help="end after so many kills")
    parser.add_argument("--hours", type=float, default=0.0, help="end after so many hours")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="kinds of faults that match this expression")
    parser.add_argument("--scenario", type=int, help="this one alone, of the seed")
    parser.add_argument("--out", type=Path, default=Path("chaos.jsonl"), help="one line for each")
    parser.add_argument("--place", type=Path, help="where the campaigns run")
    parser.add_argument("--table", type=Path, nargs="+", help="only print the table of these files")
    return parser.parse_args()


def start(asked: argparse.Namespace, place: Path) -> list[subprocess.Popen[str]]:
    """Workers in namespaces of their own, which print a line for each scenario."""
    until = time.time() + (asked.hours or 24.0) * 3600
    step = asked.workers if asked.scenario is None else 1
    firsts = range(step) if asked.scenario is None else [asked.scenario]
    last = 1 << 31 if asked.scenario is None else asked.scenario
    started = []
    for first in firsts:
        words = [
            place,
            "--seed",
            asked.seed,
            "--first",
            first,
            "--last",
            last,
            "--step",
            step,
            "--until",
            until,
            "--only",
            asked.only,
        ]
        worker = subprocess.Popen(
            [*NAMESPACES, sys.executable, "-m", "tests.chaos.worker", *map(str, words)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        started.append(worker)
    return started


def stop(started: Sequence[subprocess.Popen[str]]) -> None:
    """Each ends after the scenario that it is in."""
    for worker in started:
        assert worker.stdin is not None
        worker.stdin.close()


def outcomes(started: Sequence[subprocess.Popen[str]]) -> Iterator[dict[str, Any]]:
    """As they come, until every worker has ended."""
    with selectors.DefaultSelector() as waiting:
        for worker in started:
            assert worker.stdout is not None
            waiting.register(worker.stdout, selectors.EVENT_READ, worker.stdout)
        while waiting.get_map():
            for ready, _ in waiting.select():
                line = ready.data.readline()
                if line:
                    yield json.loads(line)
                else:
                    waiting.unregister(ready.fileobj)


def main() -> int:
    """Status 1 if anything was not as it must be."""
    asked = arguments()
    if asked.table:
        lines = [line for file in asked.table for line in file.read_text().splitlines()]
        print(table([json.loads(line) for line in lines]))
        return 0
    if os.geteuid() != 0:
        sys.exit("chaos: needs root")
    print(f"SEED={asked.seed}", flush=True)
    place = asked.place or Path(tempfile.mkdtemp(prefix="fsmatrix-chaos-"))
    place.mkdir(exist_ok=True)
    place.chmod(0o711)  # a database's user passes through
    struck, told = 0, []
    started = start(asked, place)
    with asked.out.open("a") as file:
        for outcome in outcomes(started):
            told.append(outcome)
            print(json.dumps(outcome), file=file, flush=True)
            for text in outcome["wrong"]:
                print(f"scenario {outcome['number']}, {outcome['fault']}: {text}", flush=True)
            struck += outcome["faults"] if outcome["fault"].startswith("SIG") else 0
            if asked.kills and struck >= asked.kills:
                stop(started)
    ended = [worker.wait() for worker in started]
    print(table(told))
    wrong = sum(bool(outcome["wrong"]) for outcome in told)
    if wrong or any(ended):
        print(
            f"workers ended with {ended}; "
            f"what tells of the {wrong} scenarios that went wrong: {place}/worker-*/violations"
        )
        return 1
    shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
