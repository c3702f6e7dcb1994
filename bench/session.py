"""What a session costs: one more run inside it, its waiting, and the memory of a rank.

    python bench/session.py [--runs 40] [--json]

Ratios in one run: a run inside a session against starting mpirun for each run, with its parts
(what the conductor waits for, without the window and the settling that the record states, and
for the record of the run before to be on the disk); the CPU time
of 16 waiting ranks against one core; the memory of a rank against the 100 MiB of the design.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from fsmatrix.backends.access import PathAccess
from fsmatrix.backends.local.directory import Directory
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Case, Geometry, window
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.run import environment
from fsmatrix.suite.run.assemble import RunSpec, Settings
from fsmatrix.suite.run.environment import SessionContext
from fsmatrix.suite.run.record_writer import RecordWriter, Summary
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.messages import Call, Command
from fsmatrix.suite.session.programs import StopFlag
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions

MIB = 1 << 20
SECONDS = 60.0  # bound of a run
WAIT_SECONDS = 10.0
WINDOW = 0.050  # s: of a campaign of many short runs
WAITING_RANKS = 16


def runner_in(
    session: Session,
    folder: Path,
    data: Path,
    seconds: float,
    quiet: Callable[[], None] = lambda: None,
) -> Runner:
    """Its runs write in `data`, for at most `seconds` each; `quiet` as Runner's."""
    access = PathAccess(
        backend="directory",
        target="here",
        path=str(data),
        details={"tree": str(folder), "tag": "bench", "host": ""},
    )
    context = SessionContext(
        session=session,
        access=access,
        journal=folder / "journal",
        settings=Settings(seconds, 5.0, out=folder),
        session_id="bench",
        environment=environment.of_session(session, {}),
        driver=Directory.driver,
        in_memory=False,
    )
    return Runner(context, quiet, lambda: 0)


def launcher() -> Mpirun:
    return Mpirun(Mpirun.probe())


class Timed(Session):
    """A session that keeps how long the conductor waits for each command."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.spent: dict[str, float] = defaultdict(float)  # seconds by what was asked for

    def request(self, command: Command, *arguments: Any, **named: Any) -> Any:
        """As Session's."""
        with self.timed(command.function if isinstance(command, Call) else "step"):
            return super().request(command, *arguments, **named)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the time of what is done inside."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.spent[name] += time.monotonic() - begin


def start_cost(ranks: int, times: int) -> float:
    """Median seconds to start and end an MPI world."""
    spent = []
    for _ in range(times):
        begin = time.monotonic()
        session = Session(launcher(), Geometry(1, ranks), StopFlag())
        session.start()
        session.close()
        spent.append(time.monotonic() - begin)
    return statistics.median(spent)


def run_cost(folder: Path, runs: int) -> dict[str, float]:
    """Median seconds of a run: all, the I/O window, settling, the rest, and the parts of that."""
    session = Timed(launcher(), Geometry(1, 2), StopFlag())
    session.start()
    data = folder / "data"
    data.mkdir()
    keeper = RecordWriter(Store.create(folder / "store"), Summary(), lambda _event: None)

    def quiet() -> None:
        with session.timed("record"):
            keeper.flush()

    runner = runner_in(session, folder, data, SECONDS, quiet)
    options = PatternOptions(pattern="seq-write", chunk=65536, bytes_per_process=MIB)
    workload = Pattern(options)
    case = Case("here", "pattern", {"pattern": "seq-write"}, Geometry(1, 2))
    rows = []
    engine = Engines({}).get("player")
    for number in range(runs):
        job = RunSpec(case, workload, engine, {"target": "here"}, number, 1, 0, "a", 1)
        session.spent.clear()
        begin = time.monotonic()
        record, broken = runner.run(job)
        assert broken is None, record.error
        assert record.status == "ok", record.error
        keeper.keep(record)
        whole = time.monotonic() - begin
        settle = record.evidence.settle["write"].seconds
        io = window(record.phases[0])
        parts = {f"of it {name}": seconds for name, seconds in session.spent.items()}
        parts["of it step"] -= io
        parts["of it settle"] -= settle
        cost = whole - io - settle
        parts["of it conductor"] = cost - sum(parts.values())
        rows.append({"whole": whole, "window": io, "settling": settle, "cost": cost, **parts})
    keeper.flush()
    session.close()
    return {name: statistics.median(row.get(name, 0.0) for row in rows) for name in rows[-1]}


def waiting(ranks: int) -> dict[str, float]:
    """CPU time of a waiting session as a share of one core, and the largest rank."""
    session = Session(launcher(), Geometry(1, ranks), StopFlag())
    session.start()
    try:
        tree = [psutil.Process(pid) for pid in session.pids]
        time.sleep(1.0)
        before = sum(sum(p.cpu_times()[:2]) for p in tree)
        begin = time.monotonic()
        time.sleep(WAIT_SECONDS)
        spent = sum(sum(p.cpu_times()[:2]) for p in tree) - before
        return {"share": spent / (time.monotonic() - begin)}
    finally:
        session.close()


def memory(folder: Path) -> dict[str, float]:
    """Resident bytes of a rank after a short and after a 32 times longer run, less buffers."""
    session = Session(launcher(), Geometry(1, 2), StopFlag())
    session.start()
    try:
        tree = [psutil.Process(rank.pid) for rank in session.hello.ranks]
        runner = runner_in(session, folder, folder, SECONDS)
        sizes = {}
        for name, count in (("short", 8), ("long", 256)):
            options = PatternOptions(
                pattern="rand-write", chunk=4096, overwrite=False, bytes_per_process=count * MIB
            )
            case = Case("here", "pattern", {"bytes_per_process": count * MIB}, Geometry(1, 2))
            job = RunSpec(case, Pattern(options), Engines({}).get("player"), {}, 0, 1, 0, "a", 1)
            record, _ = runner.run(job)
            assert record.status == "ok", record.error
            sizes[name] = max(p.memory_info().rss for p in tree)
        return sizes
    finally:
        session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as first,
        tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as second,
    ):
        parts = run_cost(Path(first), asked.runs)
        sizes = memory(Path(second))
    start = start_cost(2, 5)
    share = waiting(WAITING_RANKS)["share"]
    result: dict[str, Any] = {
        "run": parts,
        "mpirun_start": start,
        "ratio": start / parts["cost"],
        "waiting_share": share,
        "memory": sizes,
    }
    if asked.json:
        print(json.dumps(result))
        return
    table = Table("what", "measured", "against", "ratio", title="bench/session.py, 2 ranks")
    table.add_row(
        "one more run, without window and settling",
        f"{parts['cost'] * 1e3:.1f} ms",
        "limit 20 ms",
        f"{parts['cost'] / 0.020:.2f}",
    )
    table.add_row(
        "", "", f"mpirun for each run: {start * 1e3:.0f} ms", f"{parts['cost'] / start:.4f}"
    )
    for name, seconds in parts.items():
        if name.startswith("of it "):
            table.add_row(f"  {name}", f"{seconds * 1e3:.1f} ms", "", "")
    table.add_row(
        f"the same beside a window of {WINDOW * 1e3:.0f} ms",
        f"{parts['cost'] / WINDOW:.0%}",
        "goal 20 %",
        f"{parts['cost'] / WINDOW / 0.2:.2f}",
    )
    table.add_row(
        f"{WAITING_RANKS} waiting ranks",
        f"{share:.2%} of a core",
        "limit 5 %",
        f"{share / 0.05:.2f}",
    )
    table.add_row(
        "largest rank, 4 thousand operations",
        f"{sizes['short'] / MIB:.1f} MiB",
        "limit 100 MiB",
        f"{sizes['short'] / MIB / 100:.2f}",
    )
    table.add_row(
        "largest rank, 131 thousand operations",
        f"{sizes['long'] / MIB:.1f} MiB",
        "limit 100 MiB",
        f"{sizes['long'] / MIB / 100:.2f}",
    )
    Console().print(table)


if __name__ == "__main__":
    main()
