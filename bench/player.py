"""What the player costs: against a bare C loop of the same system calls, and other engines.

    taskset -c 1 python bench/player.py [--dir D] [--rounds 31] [--json]

One process on one processor, operations of 4 KiB at random offsets of one file that is in
the page cache: pread on the file system of --dir, pwrite to tmpfs.  The player records every
latency, the bare loop (in the same process, the same system call, one constant buffer)
nothing.  Rounds of all in-process engines alternate, forwards and backwards; ratios are taken
within a round and given as medians with quartiles.  fio and, where it is on PATH, IOR run a
few times on the same file.  The target is a ratio of 0.95 for the player, op streams made
beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fsmatrix.backends.player import _player
from fsmatrix.backends.player.lanes import Player, PlayerOptions
from fsmatrix.backends.player.ops import OP, Chunk, Kind
from fsmatrix.backends.player.player import Implementation, open_player
from fsmatrix.suite.session.players import SubprocessPlayer

SIZE = 4096
CHUNK = 65_536
FILE_BYTES = 256 << 20
NAME = "fsmatrix-bench-player"
OTHER_RUNS = 5
TARGET = 0.95

Engine = Callable[[np.random.Generator], float]  # -> millions of operations per second


def offsets(rng: np.random.Generator) -> Any:
    """Random offsets of whole blocks, shape [CHUNK], uint64."""
    return rng.integers(0, FILE_BYTES // SIZE, CHUNK, dtype=np.uint64) * np.uint64(SIZE)


def stream(kind: Kind, rng: np.random.Generator) -> Chunk:
    """A chunk of such operations."""
    ops = np.zeros(CHUNK, dtype=OP)
    ops["kind"], ops["size"], ops["offset"] = kind, SIZE, offsets(rng)
    return Chunk(ops)


def opened(directory: Path, implementation: Implementation, apart: bool = False) -> Player:
    """A player with the file open in slot 0, if `apart` in a process of its own."""
    options = PlayerOptions(slots=1, max_op_bytes=SIZE, seed=1)
    player: Player
    if apart:
        player = SubprocessPlayer("posix", str(directory), options, {})
    else:
        player = open_player("posix", str(directory), options, implementation)
    player.play(Chunk(np.zeros(1, dtype=OP), (NAME.encode(),)))
    return player


def playing(player: Player, kind: Kind, with_generation: bool) -> Engine:
    """The player as an engine."""

    def run(rng: np.random.Generator) -> float:
        began = time.perf_counter()
        chunk = stream(kind, rng)
        if not with_generation:
            began = time.perf_counter()
        if player.play(chunk) != CHUNK:
            raise RuntimeError(f"the player stopped: {player.result().first_error}")
        return CHUNK / (time.perf_counter() - began) / 1e6

    return run


def bare(file: int, write: bool) -> Engine:
    """The bare loop as an engine."""

    def run(rng: np.random.Generator) -> float:
        where = offsets(rng)
        began = time.perf_counter()
        _player._bare_loop(file, where, SIZE, write)
        return CHUNK / (time.perf_counter() - began) / 1e6

    return run


@contextmanager
def test_file(directory: Path) -> Iterator[Path]:
    """A directory of our own with a file that is written in full, in the page cache."""
    own = Path(tempfile.mkdtemp(prefix="fsmatrix-bench-", dir=directory))
    file = own / NAME
    try:
        block = np.random.default_rng(1).bytes(1 << 20)
        with file.open("wb") as out:
            for _ in range(FILE_BYTES >> 20):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        yield file
    finally:
        file.unlink(missing_ok=True)
        own.rmdir()


def fio(file: Path, write: bool, *more: str) -> float:
    """fio psync on the same file, one second."""
    argv = [
        "fio",
        "--name=bench",
        f"--filename={file}",
        f"--size={FILE_BYTES}",
        f"--bs={SIZE}",
        f"--rw={'randwrite' if write else 'randread'}",
        "--ioengine=psync",
        "--invalidate=0",
        "--time_based",
        "--runtime=1",
        "--thread",
        "--output-format=json",
        *more,
    ]
    text = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout
    job = json.loads(text[text.index("{") :])["jobs"][0]
    return float(job["write" if write else "read"]["iops"]) / 1e6


def ior(file: Path, write: bool) -> float:
    """IOR on the same file: its best bandwidth in operations."""
    argv = [
        "ior",
        "-a",
        "POSIX",
        "-w" if write else "-r",
        "-z",
        "-k",
        "-E",
        "-t",
        str(SIZE),
        "-b",
        str(FILE_BYTES),
        "-o",
        str(file),
    ]
    text = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout
    match = re.search(rf"^{'write' if write else 'read'}\s+([0-9.]+)", text, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"IOR's output has no bandwidth:\n{text}")
    return float(match[1]) * (1 << 20) / SIZE / 1e6


def others(file: Path, write: bool) -> dict[str, Callable[[], float]]:
    """Engines of other people that are on PATH."""
    rivals: dict[str, Callable[[], float]] = {}
    if shutil.which("fio"):
        rivals["fio psync"] = lambda: fio(file, write)
        rivals["fio psync, gtod_reduce, norandommap"] = lambda: fio(
            file, write, "--gtod_reduce=1", "--norandommap=1"
        )
    if shutil.which("ior"):
        rivals["IOR"] = lambda: ior(file, write)
    return rivals


def measure(directory: Path, write: bool, rounds: int) -> list[dict[str, Any]]:
    """One row for each engine: its rate and its ratio to the bare loop."""
    kind = Kind.WRITE if write else Kind.READ
    with test_file(directory) as file:
        native, twin = opened(file.parent, "c"), opened(file.parent, "python")
        apart = opened(file.parent, "c", apart=True)
        handle = os.open(file, os.O_RDWR)
        engines: dict[str, Engine] = {
            "bare C loop": bare(handle, write),
            "player (C)": playing(native, kind, False),
            "player (C), streams made on the way": playing(native, kind, True),
            "player (C), where a library intercepts": playing(apart, kind, False),
            "player (Python)": playing(twin, kind, False),
        }
        rates: dict[str, list[float]] = {name: [] for name in engines}
        rng = np.random.default_rng(2)
        try:
            for number in range(rounds + 1):
                order = list(engines.items())
                for name, engine in order if number % 2 else reversed(order):
                    rate = engine(rng)
                    if number:  # the first round only warms up
                        rates[name].append(rate)
        finally:
            os.close(handle)
            for player in (native, apart, twin):
                player.close()
        rates |= {
            name: [run() for _ in range(OTHER_RUNS)] for name, run in others(file, write).items()
        }
    return [row(write, name, rate, rates["bare C loop"]) for name, rate in rates.items()]


def row(write: bool, name: str, rates: list[float], base: list[float]) -> dict[str, Any]:
    """Medians; ratios within rounds where there are rounds, else of medians."""
    if len(rates) == len(base):
        ratios = [rate / other for rate, other in zip(rates, base, strict=True)]
    else:
        ratios = [rate / statistics.median(base) for rate in rates]
    return {
        "work": "pwrite" if write else "pread",
        "engine": name,
        "mops": statistics.median(rates),
        "ratio": statistics.median(ratios),
        "quartiles": [float(q) for q in np.quantile(ratios, [0.25, 0.75])],
        "rounds": len(rates),
    }


def show(rows: list[dict[str, Any]], cpu: int) -> None:
    """Print the rows as a table, a line for each engine."""
    table = Table(title=f"4 KiB random, page cache, one process on processor {cpu}")
    for column in ("work", "engine", "Mops/s", "of the bare loop", "quartiles", "rounds"):
        table.add_column(column, justify="left" if column in ("work", "engine") else "right")
    for line in rows:
        low, high = line["quartiles"]
        table.add_row(
            line["work"],
            line["engine"],
            f"{line['mops']:.3f}",
            f"{line['ratio']:.3f}",
            f"{low:.3f} - {high:.3f}",
            str(line["rounds"]),
        )
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    for line in rows:
        if line["engine"] == "player (C)":
            met = "met" if line["ratio"] >= TARGET else "NOT met"
            console.print(f"target {TARGET} for {line['work']}: {met} ({line['ratio']:.3f})")


def main() -> int:
    """0 if both targets are met, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="for the reads")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"), help="for the writes")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error("--rounds must be 1 or more")
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    rows = measure(asked.dir, False, asked.rounds) + measure(asked.tmpfs, True, asked.rounds)
    if asked.json:
        print(json.dumps({"cpu": cpu, "rows": rows}, indent=1))
    else:
        show(rows, cpu)
    players = [line for line in rows if line["engine"] == "player (C)"]
    return 0 if all(line["ratio"] >= TARGET for line in players) else 1


if __name__ == "__main__":
    sys.exit(main())
