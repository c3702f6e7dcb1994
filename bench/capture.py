"""What a capture costs: slow-down of programs under strace, and how fast its text is read.

Each program runs alone and captured in turn; medians of the rounds.  The text that is read is
that of the git clone, repeated with later times until it has the size that is asked for.

Example: python bench/capture.py --megabytes 200
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fsmatrix.traces.capture import strace
from fsmatrix.traces.tracefile import writing

SQLITE = """
import sqlite3
base = sqlite3.connect("base.db")
base.execute("create table t(a, b)")
for row in range(300):
    base.execute("insert into t values(?, ?)", (row, "x" * 200))
    base.commit()
"""
TIME = re.compile(rb"(\d+) +(\d+)\.(\d{9}) ")
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b")


def repository(folder: Path) -> Path:
    """200 files in 20 commits."""
    made = folder / "source"
    subprocess.run([*GIT, "init", "-q", made], check=True)
    for commit in range(20):
        for file in range(10):
            (made / f"file-{commit}-{file}").write_bytes(os.urandom(1000 * (file + 1)))
        subprocess.run([*GIT, "-C", made, "add", "."], check=True)
        subprocess.run([*GIT, "-C", made, "commit", "-qm", "more"], check=True)
    return made


def seconds(command: Sequence[str], folder: Path, text: Path | None) -> float:
    """Of one run in an empty folder; `text`: under strace."""
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        os.chdir(empty)
        begin = time.perf_counter()
        if text is None:
            subprocess.run(command, check=True)
        else:
            strace.run(command, text)
        took = time.perf_counter() - begin
        os.chdir(folder)
    return took


def slow_down(name: str, command: Sequence[str], folder: Path, rounds: int) -> None:
    """Print how long a command takes alone and captured."""
    text = folder / "text"
    alone, captured = [], []
    for _ in range(rounds):
        alone.append(seconds(command, folder, None))
        captured.append(seconds(command, folder, text))
    usual, slower = statistics.median(alone), statistics.median(captured)
    calls = len(text.read_bytes().splitlines())
    print(
        f"{name:22}{usual * 1e3:9.1f} ms alone{slower * 1e3:9.1f} ms captured"
        f"{slower / usual:7.2f} x{calls:8} lines",
        flush=True,
    )


def repeated(lines: Sequence[bytes], target: Path, size: int) -> None:
    """The same calls again and again, later each time."""
    matches = [match for line in lines if (match := TIME.match(line)) is not None]
    rows = [
        (match[1], int(match[2]) * 10**9 + int(match[3]), match.string[match.end() :])
        for match in matches
    ]
    span = rows[-1][1] - rows[0][1] + 10**6
    with target.open("wb") as out:
        repeat = 0
        while out.tell() < size:
            for task, moment, rest in rows:
                later = moment + repeat * span
                out.write(b"%s %d.%09d %s\n" % (task, later // 10**9, later % 10**9, rest))
            repeat += 1


def reading(folder: Path, command: Sequence[str], size: int) -> None:
    """Print how fast a text of `size` bytes becomes a trace, and the memory that it took."""
    seconds(command, folder, folder / "text")
    repeated((folder / "text").read_bytes().splitlines(), folder / "big", size)
    begin, before = time.perf_counter(), time.process_time()
    with writing(folder / "t.h5") as writer:
        header = strace.read([folder / "big"], writer, [folder], folder=folder)
        writer.finish(header)
        operations = writer.operations
    took, worked = time.perf_counter() - begin, time.process_time() - before
    lines = header.facts["lines"]
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10
    print(
        f"{size / 1e6:.0f} MB, {lines} lines, {operations} operations: {took:.1f} s, of them "
        f"{worked:.1f} s of CPU: {lines / worked:.0f} lines and {size / worked / 1e6:.1f} MB per "
        f"second of CPU; at most {peak} MiB of memory",
        flush=True,
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=200, help="of the text that is read")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone = ["git", "clone", "-q", "--no-local", str(repository(folder)), "copy"]
        reading(folder, clone, options.megabytes * 10**6)
        dd = ["dd", "if=/dev/zero", "of=out", "status=none"]
        for title, command in (
            ("git clone", clone),
            ("sqlite, 300 commits", [sys.executable, "-I", "-S", "-c", SQLITE]),
            ("dd, 20000 x 4 KiB", [*dd, "bs=4k", "count=20000"]),
            ("dd, 200 x 1 MiB", [*dd, "bs=1M", "count=200"]),
        ):
            slow_down(title, command, folder, options.rounds)


if __name__ == "__main__":
    main()
