"""Kills: any process of a campaign, at any time."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from tests.chaos import checks, victims
from tests.chaos.checks import Outcome
from tests.chaos.commands import Command
from tests.chaos.place import Place

PAIR = "geometry: {processes_per_node: 2}"
HEAD = f"""campaign: chaos
seed: 7
order: {{attachments: 2, block: 1}}
settle: {{timeout: 1s}}
limits: {{time_per_run: 60s}}
{PAIR}
"""
PATTERN = "{workload: pattern, options: {bytes_per_process: 1MiB, chunk: 64KiB, %s}}"
NAMES = "{workload: metadata, options: {files_per_process: 200, dirs_per_process: 20}}"
REPLAY = '{workload: replay, options: {trace: "example:sqlite"}}'
TPCC = "{workload: tpcc, options: {warehouses: 1, warm_up: 1s, runtime: 3s}}"
FIO = "{workload: fio, options: {size: 1MiB, bs: 4KiB, rw: randread, runtime: 0.4s}}"
WINDOW = "fixed: time, seconds: 0.2s"
# name -> text, number of runs
CAMPAIGNS: dict[str, tuple[str, int]] = {
    "directory": (
        HEAD + "targets: {here: {backend: directory, options: {path: TARGET}}}\n"
        f"workloads: {{io: {PATTERN % WINDOW}}}\n"
        "factors: {pattern: [seq-write, rand-read]}\nrepetitions: 2\n",
        4,
    ),
    "solo": (  # no MPI: the conductor starts the rank itself
        HEAD.replace("node: 2", "node: 1")
        + "targets: {here: {backend: directory, options: {path: TARGET}}}\n"
        f"workloads: {{io: {PATTERN % WINDOW}}}\n"
        "factors: {pattern: [seq-write, rand-read]}\nrepetitions: 2\n",
        4,
    ),
    "image": (
        HEAD + "targets: {image: {backend: ext4, options: {size: 96MiB}}}\n"
        f"workloads: {{io: {PATTERN % WINDOW}}}\n"
        "factors: {pattern: [seq-write]}\nrepetitions: 2\n",
        2,
    ),
    "xfs": (
        HEAD + "targets: {image: {backend: xfs, options: {size: 320MiB}}}\n"
        f"workloads: {{names: {NAMES}, replayed: {REPLAY}}}\nrepetitions: 1\n",
        2,
    ),
    "tpcc": (  # in a session of two ranks
        HEAD.replace(PAIR, "") + "targets: {memory: {backend: tmpfs, options: {size: 2GiB}}}\n"
        f"workloads: {{orders: {TPCC}, names: {NAMES[:-1]}, {PAIR}}}}}\nrepetitions: 1\n",
        2,
    ),
    "fio": (
        HEAD.replace("60s", "15s")  # fio waits for ever for a worker that is gone
        + "targets: {memory: {backend: tmpfs, options: {size: 16MiB}}}\n"
        f"workloads: {{io: {FIO}}}\nrepetitions: 2\n",
        2,
    ),
}
PARTS = (
    *("conductor", "launcher", "rank", "fio", "fio worker", "helper"),
    *("database", "database user"),
)
FITTING = {
    "fio": ("fio",),
    "fio worker": ("fio",),
    "database": ("tpcc",),
    "database user": ("tpcc",),
    "launcher": ("directory", "image", "xfs", "tpcc", "fio"),
}
HOW = ("KILL", "TERM", "INT", "STOP")
KINDS = [f"SIG{how} to {part}" for part in PARTS for how in HOW]
MOST = 12  # kills of a scenario
HIT_WITHIN = 0.7  # the part of a campaign's time in which it is hit
_SECONDS: dict[str, float] = {}  # campaign -> wall time of one that nothing hit


def write(place: Place, name: str) -> int:
    """The campaign's file; the number of its runs."""
    text, runs = CAMPAIGNS[name]
    (place.folder / "campaign.yaml").write_text(text.replace("TARGET", str(place.target)))
    return runs


def start(place: Place, rng: random.Random, *words: str) -> Command:
    """The campaign begins, or goes on; one of ten in an interpreter of its own."""
    campaign = place.folder / "campaign.yaml"
    return Command(
        place.folder,
        "run",
        campaign,
        "-o",
        place.store,
        "--resume",
        "--quiet",
        "--no-report",
        *words,
        fresh=rng.random() < 0.1,
    )


def typical(folder: Path, name: str) -> float:
    """Seconds that a campaign takes on this machine now."""
    if name not in _SECONDS:
        with Place(folder) as place:
            write(place, name)
            begun = time.monotonic()
            command = start(place, random.Random(0))
            if command.wait() != 0:
                raise SystemExit(f"{name}: a campaign that nothing hit failed:\n{command.err}")
            _SECONDS[name] = time.monotonic() - begun
    return _SECONDS[name]


def kill(place: Place, kind: str, rng: random.Random) -> Outcome:
    """One to MOST kills of one kind, then everything as it must be."""
    how, part = kind.removeprefix("SIG").split(" to ")
    outcome = Outcome(kind)
    name = rng.choice(FITTING.get(part, ("solo", *CAMPAIGNS)))
    seconds = typical(place.folder.parent / "typical", name)
    runs = write(place, name)
    wanted = rng.randint(1, MOST)
    dies_of = [signal.Signals[f"SIG{how}"]] if part == "conductor" else []
    while outcome.faults < wanted:
        command = start(place, rng)
        struck = _hit(command, how, part, rng, seconds * HIT_WITHIN, wanted - outcome.faults)
        outcome.faults += struck
        outcome.hit(command, dies_of)
        outcome.wrong += place.remember()
        if not struck or command.status in (None, 0, 1):
            break  # the campaign is through: another start would do nothing
    outcome.resume(place, *([] if rng.random() < 0.2 else ["--no-report"]))
    outcome.wrong += place.remember() + place.touched() + place.left()
    if place.store.exists():
        outcome.wrong += checks.runs_of(place.store, runs)
    if rng.random() < 0.3:
        outcome.look(place)
    return outcome


def _hit(
    command: Command, how: str, part: str, rng: random.Random, seconds: float, most: int
) -> int:
    """Strike who plays the part, at times that are drawn, while the command runs; how often."""
    struck = 0
    while struck < most:
        begun, wanted = time.monotonic(), rng.uniform(0, seconds)
        while command.status is None and time.monotonic() - begun < wanted:
            time.sleep(0.01)
        pid = victims.wait_for(part, command.pid, lambda: command.status is None, rng)
        if pid is None:
            break
        struck += victims.strike(how, pid, rng)
        seconds = max(seconds / 2, 0.5)  # one that goes on is hit again before it is through
    return struck
