"""What a session of many ranks costs: messages, bytes and CPU time of a run.

    python bench/scale.py [--runs 4] [--json]

Real sessions on emulated nodes (root or user namespaces), each rank a process of its own,
each node as if it had a kernel of its own.  Counted are the messages and bytes through the
busiest rank, sent and received: by MPI (Open MPI's own monitoring, so that messages underneath
collectives count one by one), and by sockets (conductor, node leader, ranks of a node).  Before
anything else the counting is checked with traffic of a known amount.

Messages and bytes do not depend on the speed of the machine; they are fitted to a law and
carried on to 10,000 ranks.  Wall times are those of this oversubscribed machine and predict
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).parent))  # also under -P

from session import runner_in

from fsmatrix.results.record import Case, Geometry
from fsmatrix.suite.cases.resolve import Engines
from fsmatrix.suite.launchers.mpirun import Mpirun
from fsmatrix.suite.run.assemble import RunSpec
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session import stream
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.session.messages import Function, StepAnswer, StepCommand, in_rows
from fsmatrix.suite.session.programs import StopFlag
from fsmatrix.suite.session.survey import members
from fsmatrix.suite.workloads.pattern import Pattern, PatternOptions

QUANTITIES = ("messages", "bytes", "frames", "frame_bytes")
Table2 = npt.NDArray[np.float64]

RANK_PROGRAM = Path(__file__).with_name("scale_rank.py")
SESSION_MODULE = ["-m", "fsmatrix.suite.session"]
RANKS = ((2, 1), (4, 2), (4, 8), (4, 32))  # nodes, processes per node
NODES = ((1, 32), (2, 16), (8, 4), (16, 2))  # the same 32 ranks on more and more nodes
FAR = (125, 80)  # 10,000 ranks
KNOWN_BYTES = 1000
SECONDS = 300.0
WIDTH = 140  # characters: the table has ten columns
CHUNK = 65536


@dataclass(frozen=True)
class Row:
    """One size; of each quantity the largest among the ranks, per run."""

    nodes: int
    per_node: int
    messages: float  # by MPI, sent and received
    bytes: float
    frames: float  # on sockets, sent and received
    frame_bytes: float
    cpu: float  # seconds, mean of the ranks
    cpu_busiest: float
    start: float  # seconds of wall time until the session is up
    wall: float  # seconds of wall time per run

    @property
    def ranks(self) -> int:
        return self.nodes * self.per_node


@dataclass(frozen=True)
class Law:
    """A quantity as a sum of terms of (nodes, processes per node), by least squares."""

    name: str
    coefficients: tuple[float, ...]
    misfit: float  # root mean square of the relative differences

    def at(self, nodes: int, per_node: int) -> float:
        return float(terms(self.name, nodes, per_node) @ np.array(self.coefficients))


def terms(name: str, nodes: int, per_node: int) -> Table2:
    """What a law multiplies its coefficients with.

    log: trees over nodes and ranks; linear: one by one; per rank: a constant for each; log +
    rank: both, such as histograms that a tree sums up and times that it only passes on.  All
    know how many kernels ask rank 0 for the time, which the program itself says.
    """
    asking = sum(knowing == 0 for knowing, _ in stream.pairs(nodes))
    return np.array(
        {
            "log": (1.0, asking, np.log2(nodes), np.log2(per_node)),
            "linear": (1.0, asking, nodes, per_node),
            "per rank": (1.0, asking, nodes, nodes * per_node),
            "log + rank": (1.0, asking, np.log2(nodes), np.log2(per_node), nodes * per_node),
        }[name]
    )


def fit(name: str, rows: Sequence[Row], quantity: str) -> Law:
    """Weighted so that relative differences count, as small sizes matter as large ones."""
    values = np.array([getattr(row, quantity) for row in rows])
    matrix = np.array([terms(name, row.nodes, row.per_node) for row in rows])
    scaled = np.linalg.lstsq(matrix / values[:, None], np.ones(len(rows)), rcond=None)[0]
    misfit = float(np.sqrt(np.mean((matrix @ scaled / values - 1) ** 2)))
    return Law(name, tuple(scaled.tolist()), misfit)


def laws(rows: Sequence[Row]) -> dict[str, list[Law]]:
    """The laws tried for each quantity, best first.

    Bytes of times and counts grow with the ranks whatever the way they take: a law without
    them is not tried, since at the sizes here other bytes hide them.
    """
    tried = {"messages": ("log", "linear", "per rank"), "frames": ("log", "linear", "per rank")}
    return {
        quantity: sorted(
            (fit(name, rows, quantity) for name in tried.get(quantity, ("log + rank", "per rank"))),
            key=lambda law: law.misfit,
        )
        for quantity in QUANTITIES
    }


class Counted(Mpirun):
    """mpirun with Open MPI's monitoring, and ranks that read it."""

    def command(self, argv: Sequence[str], geometry: Geometry, env: Mapping[str, str]) -> list[str]:
        words = list(argv)
        at = words.index(SESSION_MODULE[0])
        assert words[at : at + 2] == SESSION_MODULE
        words[at : at + 2] = [str(RANK_PROGRAM)]
        monitored = {**env, "OMPI_MCA_pml_monitoring_enable": "1", "FSMATRIX_SCALE_KERNELS": "1"}
        return super().command(words, geometry, monitored)


@contextmanager
def session_of(geometry: Geometry) -> Iterator[Session]:
    hosts = tuple(f"node{index}" for index in range(geometry.nodes))
    launcher = Counted(Mpirun.probe(), hosts=hosts, emulated=True)
    session = Session(launcher, geometry, StopFlag(), start_seconds=SECONDS)
    try:
        session.start()
        yield session
    finally:
        session.close()


def ask(session: Session, function: str, params: Mapping[str, Any]) -> list[Any]:
    """A function of the rank program in every rank; what the ranks answer."""
    command = StepCommand(
        to=in_rows(members(session.hello.ranks, session.geometry)),
        function=Function(f"__main__:{function}", params),
        roots=("/",),
        access={},
        nodes=session.geometry.nodes,
        threads=1,
        seed=1,
        affinity="none",
        sample=False,
        oversubscribed=True,
        timeout=SECONDS,
    )
    answer, _ = session.request(command, StepAnswer, SECONDS)
    broken = [output.error for output in answer.outputs if output.error is not None]
    if broken:
        raise SystemExit(f"a rank could not count: {broken[0]}")
    return [output.value for output in answer.outputs]


def check() -> str:
    """Traffic of a known amount is counted exactly, or this ends."""
    with session_of(Geometry(4, 2)) as session:
        ranks = session.geometry.processes
        answers = ask(session, "known", {"bytes": KNOWN_BYTES})
    sent = np.array([answer["broadcast"] for answer in answers]).sum(axis=0).tolist()
    rings = [answer["ring"] for answer in answers]
    elsewhere = [answer["ring_elsewhere"] for answer in answers]
    text = (
        f"a broadcast of {KNOWN_BYTES} bytes on {ranks} ranks counts as {sent[0]} messages of "
        f"{sent[1]} bytes, a ring of the even ones as {sum(ring[0] for ring in rings[::2])}"
    )
    expected = [ranks - 1, (ranks - 1) * KNOWN_BYTES]
    if sent != expected or rings != [[1, KNOWN_BYTES]] * ranks or elsewhere != [[0, 0]] * ranks:
        raise SystemExit(f"the counting is wrong: {text}; {rings}, {elsewhere}")
    return text


def look(session: Session, folder: Path, name: str) -> Table2:
    """What all ranks counted so far: [rank, (messages, bytes, frames, frame bytes, cpu)]."""
    place = folder / name
    place.mkdir()
    ask(session, "tell", {"folder": str(place)})
    files = [np.load(place / f"{rank}.npz") for rank in range(session.geometry.processes)]
    sent = np.array([file["sent"] for file in files])  # [sender, quantity, receiver]
    through = sent.sum(axis=2) + sent.sum(axis=0).T
    own = np.array([file["own"] for file in files])
    return np.concatenate([through, own], axis=1)


def runner_of(session: Session, folder: Path) -> tuple[Runner, RunSpec]:
    data = folder / "data"
    data.mkdir()
    runner = runner_in(session, folder, data, SECONDS)
    options = PatternOptions(pattern="seq-write", chunk=CHUNK, bytes_per_process=CHUNK)
    case = Case("here", "pattern", {"pattern": "seq-write"}, session.geometry)
    engine = Engines({}).get("player")
    return runner, RunSpec(case, Pattern(options), engine, {"target": "here"}, 0, 1, 0, "a", 1)


def measure(nodes: int, per_node: int, runs: int) -> Row:
    """One session; what looking costs itself is measured too and taken off."""
    geometry = Geometry(nodes, per_node)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fsmatrix-bench-") as name, session_of(geometry) as s:
        start = time.monotonic() - begin
        folder = Path(name)
        runner, job = runner_of(s, folder)
        _run(runner, job)  # makes the communicator that all runs share
        looks = [look(s, folder, "first"), look(s, folder, "second")]
        begin = time.monotonic()
        for _ in range(runs):
            _run(runner, job)
        wall = (time.monotonic() - begin) / runs
        looks.append(look(s, folder, "third"))
    first, second, third = looks
    each = ((third - second) - (second - first)) / runs
    most = each.max(axis=0)
    return Row(
        nodes,
        per_node,
        *map(float, most[:4]),
        float(each[:, 4].mean()),
        float(most[4]),
        start,
        wall,
    )


def _run(runner: Runner, job: RunSpec) -> None:
    record, broken = runner.run(job)
    if broken is not None or record.status != "ok":
        raise SystemExit(f"a run failed: {record.error}")


def table(rows: Sequence[Row]) -> Table:
    result = Table(
        "ranks",
        "nodes x ranks",
        "MPI messages",
        "MPI bytes",
        "frames",
        "frame bytes",
        "CPU ms/rank",
        "CPU ms busiest",
        "[dim]start s[/]",
        "[dim]wall s/run[/]",
        title="bench/scale.py: through the busiest rank per run, sent + received",
    )
    for row in rows:
        result.add_row(
            str(row.ranks),
            f"{row.nodes} x {row.per_node}",
            f"{row.messages:.0f}",
            f"{row.bytes:,.0f}",
            f"{row.frames:.0f}",
            f"{row.frame_bytes:,.0f}",
            f"{row.cpu * 1e3:.1f}",
            f"{row.cpu_busiest * 1e3:.1f}",
            f"[dim]{row.start:.1f}[/]",
            f"[dim]{row.wall:.2f}[/]",
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    console = Console(stderr=asked.json, width=WIDTH)
    console.print(f"checked: {check()}")
    rows = [measure(nodes, per_node, asked.runs) for nodes, per_node in (*RANKS, *NODES)]
    fitted = laws(rows)
    if asked.json:
        documents = {name: [asdict(law) for law in tried] for name, tried in fitted.items()}
        print(json.dumps({"rows": [asdict(row) for row in rows], "laws": documents, "far": FAR}))
        return
    console.print(table(rows))
    nodes, per_node = FAR
    for quantity, (best, *others) in fitted.items():
        console.print(
            f"{quantity}: {best.name} law, off by {best.misfit:.1%} "
            f"({', '.join(f'{law.name} {law.misfit:.1%}' for law in others)}); "
            f"at {nodes} x {per_node} = {nodes * per_node:,} ranks: "
            f"{best.at(nodes, per_node):,.0f}"
        )
    console.print(
        "Carried on this far, a fit is an order of magnitude.  CPU time includes what ranks spin "
        "while they wait for a CPU: an upper bound on this machine, so it is not carried on."
    )
    console.print(
        f"Wall times: {max(row.ranks for row in rows)} ranks on {os.cpu_count()} CPUs wait for "
        "each other; they predict nothing."
    )


if __name__ == "__main__":
    main()
