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
import statistics
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scipy.stats import quantile_test

sys.path.append(str(Path(__file__).parent))  # also under -P

from daos_rivals import LARGE, SMALL, Container, Data, Names

from fsmatrix.backends.daos import containers, daos_state, libraries
from fsmatrix.backends.daos.tools import Client
from fsmatrix.backends.errors import BackendError

TARGET = 1.0
SHARE_OF_FREE = 16  # of the free bytes of the pool, one run writes one part in so many
Row = dict[str, Any]


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
