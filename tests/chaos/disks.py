"""Full disks, and copies of stores."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

from tests.chaos import checks, kills, victims
from tests.chaos.checks import Outcome
from tests.chaos.commands import Command
from tests.chaos.place import Place

ENOUGH = "64m"
KINDS = (
    "full disk under the store",
    "full disk under the target",
    "full TMPDIR",
    "copy of a running store",
    "copy of a killed store",
    "runs copied with their time",
)


def scenario(place: Place, kind: str, rng: random.Random) -> Outcome:
    """One fault of KINDS, then everything as it must be."""
    outcome = Outcome(kind)
    if kind.startswith("full"):
        where = {"store": place.store, "target": place.target, "TMPDIR": place.tmp}
        _full(place, where[kind.split()[-1]], outcome, rng)
    elif kind.startswith("copy"):
        _copy(place, outcome, rng, kind == KINDS[4])
    else:
        _shards(place, outcome, rng)
    return outcome


def _full(place: Place, where: Path, outcome: Outcome, rng: random.Random) -> None:
    """A tmpfs that is too small; then it grows, and the campaign goes on."""
    runs = kills.write(place, "directory")
    where.mkdir(exist_ok=True)
    size = rng.randrange(4 << 10, 3 << 20 if where == place.target else 400 << 10)
    _do("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "chaos", str(where))
    if where != place.store:  # the foreign things in it are hidden
        (where / "theirs").write_text("not yours\n")
    if where == place.target:  # in memory, which only a reference may be
        (where / "empty").mkdir()
        campaign = place.folder / "campaign.yaml"
        campaign.write_text(campaign.read_text().replace("{here: {", "{here: {reference: true, "))
    outcome.faults = 1
    command = kills.start(place, rng)
    outcome.hit(command)
    _reason(outcome, command)
    _do("mount", "-o", f"remount,size={ENOUGH}", str(where))
    if place.store.exists():
        outcome.resume(place, "--no-report", "--retry-failed")
    else:  # refused before anything was made
        outcome.hit(kills.start(place, rng))
    outcome.wrong += place.touched() + place.left(where) + checks.runs_of(place.store, runs)
    outcome.look(place)


def _reason(outcome: Outcome, command: Command) -> None:
    """What ended badly must say why."""
    said = command.err
    if command.status in (1, 2) and not any(
        text in said for text in ("No space left", "ENOSPC", "statfs gives", "free")
    ):
        outcome.wrong.append(f"the full disk is not named: {' | '.join(said.splitlines()[-3:])}")


def _copy(place: Place, outcome: Outcome, rng: random.Random, killed: bool) -> None:
    """A copy must not touch what the original uses, and the original goes on."""
    runs = kills.write(place, "directory")
    seconds = kills.typical(place.folder.parent / "typical", "directory")
    original = kills.start(place, rng)
    time.sleep(rng.uniform(0, seconds))
    if killed:
        victims.strike("KILL", original.pid, rng)
        original.wait()
    subprocess.run(
        ["cp", "-a", place.store, place.folder / "copy"], check=False, capture_output=True
    )
    outcome.faults = 1
    trees = _trees(place.target)
    copy = Command(place.folder, "run", "-o", place.folder / "copy", "--resume", "--no-report")
    outcome.hit(copy)
    if killed:
        gone = trees - _trees(place.target)
        outcome.wrong += [f"the copy removed the original's {name}" for name in gone]
    elif original.wait() != 0:
        outcome.wrong.append(f"the original was disturbed: {original.err[-400:]}")
    outcome.resume(place, "--no-report")
    outcome.wrong += place.touched() + place.left() + checks.runs_of(place.store, runs)
    outcome.look(place)


def _trees(target: Path) -> set[str]:
    return {name for name in os.listdir(target) if name.startswith("fsmatrix-")}


def _shards(place: Place, outcome: Outcome, rng: random.Random) -> None:
    """A merged file that is newer than a run that came later, or went: the runs are what counts."""
    runs = kills.write(place, "directory")
    command = kills.start(place, rng)
    outcome.hit(command)
    away = place.folder / "away"
    away.mkdir()
    files = sorted(place.store.glob("runs/*/*.h5"))
    moved = rng.sample(files, rng.randint(1, len(files) - 1))
    for path in moved:
        shutil.copy2(path, away)
        path.unlink()
    outcome.faults = 1
    outcome.look(place, runs=len(files) - len(moved))
    for path in moved:
        shutil.copy2(away / path.name, path)
    outcome.look(place, runs=len(files))
    shown = Command(place.folder, "show", place.store, "--json")
    shown.wait()
    cells = json.loads(shown.out)
    if not cells:
        outcome.wrong.append("show has nothing")
    outcome.resume(place, "--no-report")
    outcome.wrong += place.touched() + place.left() + checks.runs_of(place.store, runs)


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
