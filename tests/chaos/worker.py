"""One worker: scenario after scenario in namespaces of its own, one line of JSON for each."""

from __future__ import annotations

import argparse
import json
import random
import re
import select
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from tests.chaos import damage, disks, kills
from tests.chaos.checks import Outcome
from tests.chaos.place import MEMORY, Place

Scenario = Callable[[Place, str, random.Random], Outcome]
SCENARIOS: Mapping[str, Scenario] = {
    **dict.fromkeys(kills.KINDS, kills.kill),
    **dict.fromkeys(disks.KINDS, disks.scenario),
    **dict.fromkeys(damage.KINDS, damage.scenario),
}


def kind_of(rng: random.Random, only: str) -> str:
    """Kills twice as often as all the others together."""
    named = [kind for kind in SCENARIOS if re.search(only, kind)]
    struck = [kind for kind in named if kind in kills.KINDS]
    others = [kind for kind in named if kind not in kills.KINDS]
    return rng.choice(struck if struck and (not others or rng.random() < 2 / 3) else others)


def one(folder: Path, seed: int, number: int, only: str = "") -> dict[str, object]:
    """Scenario `number` of a seed: the same faults each time, at about the same times."""
    rng = random.Random(f"{seed}-{number}")
    kind = kind_of(rng, only)
    begun = time.monotonic()
    with Place(folder / "here") as place:  # always: a store belongs to its place
        try:
            outcome = SCENARIOS[kind](place, kind, rng)
        except Exception:  # noqa: BLE001  (a fault of the scenario itself is a violation too)
            outcome = Outcome(kind, wrong=[traceback.format_exc()])
        if outcome.wrong:
            _keep(place, folder / "violations" / f"{number:05d}")
    seconds = round(time.monotonic() - begun, 1)
    return {"seed": seed, "number": number, "seconds": seconds, **asdict(outcome)}


def _keep(place: Place, where: Path) -> None:
    """What tells why: what was printed, the journals, the list of files."""
    where.mkdir(parents=True)
    shutil.copytree(place.folder / "printed", where / "printed", dirs_exist_ok=True)
    for name in ("journal", "locks"):
        if (place.store / name).is_dir():
            shutil.copytree(place.store / name, where / name)
    listed = subprocess.run(["find", str(place.folder), "-ls"], capture_output=True, check=False)
    (where / "files").write_bytes(listed.stdout)


def numbers(asked: argparse.Namespace) -> Iterator[int]:
    """first, first + step, ... as long as there is time and standard input stays open."""
    for number in range(asked.first, asked.last + 1, asked.step):
        if time.time() > asked.until or select.select([sys.stdin], [], [], 0)[0]:
            return
        yield number


def main() -> None:
    """See __main__.py, which starts it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("seed", "first", "last", "step"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    subprocess.run(["mount", "-t", "tmpfs", "chaos", str(MEMORY)], check=True)
    folder = asked.folder / f"worker-{asked.first % asked.step}"
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers(asked):
        print(json.dumps(one(folder, asked.seed, number, asked.only)), flush=True)


if __name__ == "__main__":
    main()
