"""The player on DFS beside IOR, fio and mdtest: rates on a real DAOS.

    python bench/daos.py --pool POOL [--pairs 10] [--library FOLDER] [--ior PROGRAM] [--json]

Makes one POSIX container in the pool by the `daos` tool and destroys it at the end.  A round is
one run of each program that speaks a cell, each in a process and with a connection of its own, one
after the other; who begins, and who follows whom, changes from round to round, and the first round
only warms up.  All do the same: a new file written once from its beginning to its end, or one that
is there read so; files of a directory created, looked at and removed.  Rates are those of each
program's own window, without opening and closing of the file (of metadata: with them).

DAOS gives the space of removed files back half a minute late.  A run writes at most a sixteenth of
what is free at the beginning, and a round that writes first waits where less than half is left.

The ratio is the player's rate by that of the rival in the same round.  The rival is the program
with the higher median: the better of each round would be the luckier one.  The interval of the
median ratio is the exact one of order statistics (95 %).  Status 1 if it lies below 1 in any cell.
IOR has one operation in flight, so at depth 16 there is fio alone.

On a machine that has the engines too, clients and engines wait by polling: what shares a processor
with an engine is many times slower, by chance.  So run this where the engines are not, or under
taskset on processors that they do not use.  There an engine's other threads take turns with the one
that does the I/O (`renice` them), and the merging of what was written before runs beside what is
timed: `dmg pool set-prop POOL reclaim:disabled` keeps it off, and the space of removed files with
it.  Both make the intervals narrower.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.stats import quantile_test

from fsmatrix.backends.daos import containers, daos_state, libraries
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.errors import BackendError

HERE = Path(__file__).parent
PLAY, NAMES = HERE / "ceph_play.py", HERE / "daos_names.py"
SMALL, LARGE = 4096, 1 << 20  # bytes of an operation
SHARE = {SMALL: 1, LARGE: 16}  # as many operations of this size are one of the work
DEADLINE = 600  # seconds of any run
MDTEST = {"create": "File creation", "stat": "File stat", "unlink": "File removal"}

TARGET = 1.0
SHARE_OF_FREE = 16  # of the free bytes of the pool, one run writes one part in so many
Row = dict[str, Any]


@dataclass(frozen=True)
class Container:
    """Where all work, and how the programs are called."""

    pool: str
    container: str
    library: str = ""
    ior: str = "ior"
    mdtest: str = "mdtest"
    fio: str = "fio"
    operations: int = 4096  # of a run with small ones
    most: int = 1 << 28  # bytes that a run may write

    @property
    def root(self) -> str:
        """What the driver gets."""
        values = {"pool": self.pool, "container": self.container, "library": self.library}
        return "".join(f"{key}={value}\n" for key, value in values.items() if value)


def program(argv: list[str]) -> str:
    """What a program printed; RuntimeError with its last words."""
    # numpy's threads would spin beside what is timed; DAOS logs into what programs print
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"D_LOG_FILE": "/dev/null", "DD_STDERR": "CRIT"}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=DEADLINE, check=False, env=environment
    )
    if done.returncode:
        text = done.stdout[-2000:] + done.stderr[-4000:]
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}:\n{text}")
    return done.stdout


def last_line(text: str) -> Any:
    """JSON in the last line of an output."""
    return json.loads(text.splitlines()[-1])


class Data:
    """One file, written anew or read from its beginning to its end; operations/s."""

    def __init__(self, where: Container, size: int) -> None:
        self.where, self.size = where, size
        operations = min(where.operations // SHARE[size], where.most // size)
        self.span = max(operations, 16) * size
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        self._play(self._own, write=True, create=True, depth=16)
        self._ior("-w", "-k", "-o", f"/{self.name}-ior")
        self._fio("write", f"{self.name}-fio", 16)

    @property
    def _own(self) -> str:
        return f"{self.name}-player"

    def close(self) -> None:
        """Remove the files."""
        for name in (self._own, f"{self.name}-ior", f"{self.name}-fio"):
            self._remove(name)

    def _remove(self, name: str) -> None:
        # reads one block of it, since a play has data
        self._play(name, span=self.size, write=False, unlink=True)

    def _play(self, name: str, **more: Any) -> float:
        asked = {"driver": "dfs", "root": self.where.root, "name": name, "size": self.size}
        asked |= {"span": self.span, "random": False} | more
        result = last_line(program([sys.executable, "-P", str(PLAY), json.dumps(asked)]))
        return float(result["operations"] / result["seconds"])

    def player(self, write: bool, depth: int) -> float:
        """The driver dfs; by its own window, from the first operation to the last completion."""
        if write:
            return self._play(
                f"new-{uuid.uuid4().hex}", write=True, create=True, unlink=True, depth=depth
            )
        return self._play(self._own, write=False, depth=depth)

    def _ior(self, *more: str) -> Mapping[str, Any]:
        where = [f"--dfs.pool={self.where.pool}", f"--dfs.cont={self.where.container}"]
        size = ["-t", str(self.size), "-b", str(self.span), "-O", "summaryFormat=JSON"]
        text = program([self.where.ior, "-a", "DFS", *where, *size, *more])
        found: Mapping[str, Any] = json.loads(text[text.index("{") :])["tests"][0]["Results"][0]
        return found

    def ior(self, write: bool, depth: int) -> float:
        """IOR, which has one operation in flight; without its opening and closing."""
        assert depth == 1
        if write:
            done = self._ior("-w", "-o", f"/new-{uuid.uuid4().hex}")
        else:
            done = self._ior("-r", "-k", "-o", f"/{self.name}-ior")
        return self.span / self.size / float(done["wrRdTime"])

    def _fio(self, rw: str, name: str, depth: int) -> float:
        where = [f"--pool={self.where.pool}", f"--cont={self.where.container}"]
        work = [f"--bs={self.size}", f"--size={self.span}", f"--iodepth={depth}", f"--rw={rw}"]
        text = program(
            [
                self.where.fio,
                f"--name={self.name}",
                "--ioengine=dfs",
                *where,
                *work,
                f"--filename_format={name}",
                "--thread=1",
                "--invalidate=0",
                "--overwrite=0",
                "--output-format=json",
            ]
        )
        job = json.loads(text[text.index("{") :])["jobs"][0][rw]
        return float(job["total_ios"] / (job["runtime"] / 1e3))

    def fio(self, write: bool, depth: int) -> float:
        """Fio's engine dfs; its window has milliseconds."""
        if not write:
            return self._fio("read", f"{self.name}-fio", depth)
        name = f"new-{uuid.uuid4().hex}"
        rate = self._fio("write", name, depth)
        self._remove(name)
        return rate


class Names:
    """Files of one directory made, looked at and removed; operations/s of each kind."""

    def __init__(self, where: Container) -> None:
        self.where, self.files = where, max(where.operations // 4, 16)

    def player(self) -> dict[str, float]:
        """The driver dfs; opening and closing are one creation, as mdtest counts it."""
        asked = json.dumps({"root": self.where.root, "files": self.files})
        rates: dict[str, float] = last_line(program([sys.executable, "-P", str(NAMES), asked]))
        return rates

    def mdtest(self) -> dict[str, float]:
        """The program mdtest, in a directory of its own."""
        where = [f"--dfs.pool={self.where.pool}", f"--dfs.cont={self.where.container}"]
        folder = f"/new-{uuid.uuid4().hex}"
        work = ["-n", str(self.files), "-F", "-C", "-T", "-r", "-i", "1", "-d", folder]
        text = program([self.where.mdtest, "-a", "DFS", *where, *work])
        rates = {}
        for kind, title in MDTEST.items():
            line = re.search(rf"^ *{title} +([0-9.]+)", text, re.MULTILINE)
            if line is None:
                raise RuntimeError(f"mdtest says nothing of {title!r}:\n{text[-2000:]}")
            rates[kind] = float(line[1])
        return rates


def rounds(
    programs: Mapping[str, Callable[[], Mapping[str, float]]],
    pairs: int,
    before: Callable[[], object],
) -> dict[str, dict[str, list[float]]]:
    """Rates of each program, by what was done, one for each round; `before` each of them."""
    rates: dict[str, dict[str, list[float]]] = {}
    orders = itertools.cycle(itertools.permutations(programs))
    for number, order in enumerate(itertools.islice(orders, pairs + 1)):
        before()
        for name in order:
            for what, rate in programs[name]().items():
                if number:
                    rates.setdefault(what, {}).setdefault(name, []).append(rate)
    return rates


def rows_of(rates: Mapping[str, Mapping[str, list[float]]]) -> list[Row]:
    """One row of the table for each thing that was done."""
    rows = []
    for what, by_program in rates.items():
        medians = {name: statistics.median(values) for name, values in by_program.items()}
        rival = max(medians.keys() - {"player"}, key=lambda name: medians[name])
        pairs = zip(by_program["player"], by_program[rival], strict=True)
        ratios = [own / other for own, other in pairs]
        interval: Any = quantile_test(ratios, p=0.5).confidence_interval(0.95)
        rows.append(
            {
                "what": what,
                "pairs": len(ratios),
                "rates": medians,
                "rival": rival,
                "ratio": statistics.median(ratios),
                "interval": [float(interval.low), float(interval.high)],
            }
        )
    return rows


def _name(size: int, write: bool, depth: int) -> str:
    return f"{'write' if write else 'read'} {size // 1024} KiB, depth {depth}"


METADATA = "metadata"
CELLS = {_name(*cell): cell for cell in itertools.product((SMALL, LARGE), (True, False), (1, 16))}


def measure(where: Container, pairs: int, only: Sequence[str]) -> list[Row]:
    """All cells, or those of these names."""
    rows: list[Row] = []
    for size in (SMALL, LARGE):
        chosen = [cell for name, cell in CELLS.items() if cell[0] == size and name in only]
        if not chosen:
            continue
        data = Data(where, size)
        try:
            for cell in chosen:
                rows += _measured(where, _cell(data, *cell[1:]), pairs)
        finally:
            data.close()
    if METADATA in only:
        names = Names(where)
        rows += _measured(where, {"player": names.player, "mdtest": names.mdtest}, pairs)
    return rows


def _measured(
    where: Container, programs: Mapping[str, Callable[[], Mapping[str, float]]], pairs: int
) -> list[Row]:
    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rows = rows_of(rounds(programs, pairs, lambda: daos_state.returned(Client(), where.pool, note)))
    for row in rows:
        note(f"{row['what']}: {row['ratio']:.3f} {row['interval']}")
    return rows


def _cell(data: Data, write: bool, depth: int) -> dict[str, Callable[[], Mapping[str, float]]]:
    what = _name(data.size, write, depth)
    calls = {"player": data.player, "fio": data.fio} | ({"ior": data.ior} if depth == 1 else {})
    return {
        name: (lambda call=call: {what: call(write, depth)})  # type: ignore[misc]
        for name, call in calls.items()
    }


def show(console: Console, rows: list[Row]) -> None:
    """Print the rows as a table."""
    table = Table(title="DFS, one process: operations per second, medians")
    programs = ("player", "ior", "fio", "mdtest")
    for column in ("cell", *programs, "rival", "ratio", "95 %"):
        table.add_column(column, justify="right")
    for row in rows:
        low, high = row["interval"]
        rates = (f"{row['rates'][name]:.0f}" if name in row["rates"] else "-" for name in programs)
        ratio = (row["rival"], f"{row['ratio']:.3f}", f"{low:.3f} - {high:.3f}")
        table.add_row(row["what"], *rates, *ratio)
    console.print(table)


def main() -> int:
    """0 if the interval reaches the target in every cell, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pool", default=os.environ.get("FSMATRIX_DAOS_POOL", ""))
    parser.add_argument("--library", default=os.environ.get("FSMATRIX_DAOS_LIBRARY", ""))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--ior", default=os.environ.get("FSMATRIX_IOR", "ior"))
    parser.add_argument("--mdtest", default="mdtest")
    parser.add_argument("--fio", default="fio")
    parser.add_argument("--operations", type=int, default=4096, help="of 4 KiB, in one run")
    every = [*CELLS, METADATA]
    parser.add_argument(
        "--only", nargs="+", default=every, choices=every, metavar="CELL", help="; ".join(every)
    )
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.pairs < 6:
        parser.error("--pairs must be 6 or more: fewer have no 95 % interval of a median")
    if not asked.pool:
        parser.error("needs a real DAOS: name a pool by --pool or FSMATRIX_DAOS_POOL")
    label = f"fsmatrix-bench-{uuid.uuid4().hex[:8]}"
    try:
        library = libraries.library_folder(asked.library)
        free = daos_state.free_space(Client().pool_query(asked.pool)).bytes or 0
        made = Client().create(asked.pool, label)
    except BackendError as error:
        parser.error(f"needs a real DAOS: {error}")
    try:
        programs = (asked.ior, asked.mdtest, asked.fio)
        most = free // SHARE_OF_FREE
        where = Container(asked.pool, label, library, *programs, asked.operations, most)
        rows = measure(where, asked.pairs, asked.only)
    finally:
        containers.destroy(Client(), asked.pool, label, made.container_uuid)
    console = Console(width=None if sys.stdout.isatty() else 130)
    print(json.dumps(rows, indent=1)) if asked.json else show(console, rows)
    return 0 if all(row["interval"][1] >= TARGET for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
