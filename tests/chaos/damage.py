"""Damaged and forged files: journals, notes, locks, documents, run files, campaign.h5."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsmatrix.backends.journal import proof
from fsmatrix.results.files import hdf
from fsmatrix.results.process import boot_id, start_of
from tests.chaos import kills, victims
from tests.chaos.checks import Outcome
from tests.chaos.place import Place
from tests.results import hostile

KINDS = (
    "torn journal",
    "bits of a journal",
    "garbage in a journal",
    "forged journal",
    "forged session note",
    "torn or flipped document",
    "bits of a run file",
    "torn run file",
    "hostile run file",
    "bits of campaign.h5",
    "hostile campaign.h5",
)
DOCUMENTS = ("store.json", "campaign.json", "engines.json", "journal/identity.json")


def scenario(place: Place, kind: str, rng: random.Random) -> Outcome:
    """One fault of KINDS, then everything as it must be."""
    outcome = Outcome(kind, faults=1)
    if kind in _JOURNALS:
        _killed(place, kind, outcome, rng)
    else:
        _complete(place)
        _FILES[kind](place.store, rng)
        outcome.look(place)
        if "run file" in kind:
            outcome.resume(place, "--no-report")
        elif "document" in kind:
            outcome.resume(place, "--no-report", allowed=(0, 2))
        outcome.wrong += place.touched() + place.left()
    return outcome


# -- journals and notes of a campaign that was killed --------------------------------------------
def _killed(place: Place, kind: str, outcome: Outcome, rng: random.Random) -> None:
    name = rng.choice(["directory", "image"])
    seconds = kills.typical(place.folder.parent / "typical", name)
    kills.write(place, name)
    command = kills.start(place, rng)
    while not list(place.store.glob("journal/*.jsonl")) and command.status is None:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, seconds / 2))
    victims.strike("KILL", command.pid, rng)
    command.wait()
    outcome.wrong += place.remember()
    _JOURNALS[kind](place, rng)
    outcome.resume(place, "--no-report", allowed=(0, 2))
    outcome.wrong += place.remember() + place.touched()
    outcome.left = place.left()  # what a damaged journal no longer names stays
    if kind.startswith("forged"):  # the sound lines beside the forged ones are undone
        ours = [text for text in outcome.left if not text.startswith(("pending", "note"))]
        outcome.wrong += [f"left beside forged lines: {text}" for text in ours]
    outcome.look(place)


def _journal(place: Place) -> Path:
    return next(iter(place.store.glob("journal/*.jsonl")))


def _torn(place: Place, rng: random.Random) -> None:
    _cut(_journal(place), rng)


def _flipped(place: Place, rng: random.Random) -> None:
    _flip(_journal(place), rng)


def _garbage(place: Place, rng: random.Random) -> None:
    lines = [
        b"{",
        b"[1, 2]\n",
        b"null\n",
        rng.randbytes(200),
        b"{}\n" * 5,
        b"\x1b[31m\n",
        b'{"event": "begin"}\n',
        b'{"event": "end", "id": 7}\n',
        b"[" * 100_000 + b"\n",
    ]
    with _journal(place).open("ab") as file:
        file.write(b"".join(rng.choices(lines, k=rng.randint(1, 4))))


def _forged(place: Place, rng: random.Random) -> None:
    """Whole lines, with this store's own proof, that name foreign things."""
    own = proof.identity(place.store / "journal")
    image = place.image.stat()
    file = (place.target / "theirs").stat()
    behind = {"inode": image.st_ino, "filesystem": image.st_dev}
    names: list[tuple[str, dict[str, Any]]] = [
        ("mount", {"path": str(place.theirs), "source": "theirs"}),
        ("loop", {"image": str(place.image), **behind}),
        ("loop", {"image": str(place.image), "device": place.device, **behind}),
        ("image", {"path": str(place.image), "folder": str(place.folder), **behind}),
        (
            "image",
            {
                "path": str(place.target / "theirs"),
                "folder": str(place.target),
                "inode": file.st_ino,
                "filesystem": file.st_dev,
            },
        ),
        ("folder", {"path": str(place.target / "empty")}),
        ("tree", {"path": str(place.target / "empty"), "tag": "0123456789abcdef"}),
        ("tree", {"path": str(place.target), "tag": rng.randbytes(8).hex()}),
        ("device", {"device": place.device, "uuid": "0" * 36, "target": "here"}),
        ("mount", {"path": 7, "source": None}),
        ("unheard-of", {"path": str(place.target)}),
    ]
    for kind, facts in rng.sample(names, rng.randint(1, len(names))):
        line = {
            "event": "begin",
            "id": rng.randbytes(8).hex(),
            "kind": kind,
            "facts": facts,
            "host": socket.gethostname(),
            "boot_id": boot_id(),
            "pid": 4194000,
            "process_start": 1,
            "time": time.time(),
            "store": own.store,
            "home": str(own.folder),
        }
        with _journal(place).open("a") as journal:
            journal.write(f"{json.dumps(line)}\n")


def _note(place: Place, rng: random.Random) -> None:
    """A session's note that names a foreign process and foreign folders."""
    own = proof.identity(place.store / "journal")
    born = start_of(place.sleeper)
    note = {
        "boot_id": boot_id(),
        "host": os.uname().nodename,
        "store": own.store,
        "home": str(own.folder),
        "conductor": rng.choice([None, [4194000, 1]]),
        "processes": [[place.sleeper, born], [1, 1]],
        "scratch": [str(place.target), str(place.theirs), "fsmatrix-session-", "/"],
    }
    (place.store / "journal" / "session-elsewhere-1.json").write_text(json.dumps(note))


# -- files of a store that is complete -----------------------------------------------------------
def _complete(place: Place) -> None:
    """A store of a whole campaign: made once, then copied to the same place."""
    kept = place.folder.parent / "complete"
    kills.write(place, "directory")
    if kept.exists():
        shutil.copytree(kept, place.store)
    elif kills.start(place, random.Random(0)).wait() == 0:
        shutil.copytree(place.store, kept)
    else:
        raise SystemExit("a campaign that nothing hit failed")


def _documents(store: Path, rng: random.Random) -> None:
    path = store / rng.choice(DOCUMENTS)
    _flip(path, rng) if rng.random() < 0.5 else _cut(path, rng)


def _some_run(store: Path, rng: random.Random) -> Path:
    return rng.choice(sorted(store.glob("runs/*/*.h5")))


def _run_bits(store: Path, rng: random.Random) -> None:
    path = _some_run(store, rng)
    sealed = rng.random() < 0.5
    if sealed:
        path.write_bytes(path.read_bytes()[: -hdf.SEAL_SIZE])
    _flip(path, rng)
    if sealed:
        hostile.reseal(path)


def _run_torn(store: Path, rng: random.Random) -> None:
    _cut(_some_run(store, rng), rng)


def _run_hostile(store: Path, rng: random.Random) -> None:
    _craft(_some_run(store, rng), rng)


def _merged(store: Path) -> Path:
    """campaign.h5 alone: nothing can make it anew."""
    from fsmatrix.results.files.store import Store

    Store.open(store).merge()
    shutil.rmtree(store / "runs")
    return store / "campaign.h5"


def _campaign_bits(store: Path, rng: random.Random) -> None:
    _flip(_merged(store), rng)


def _campaign_hostile(store: Path, rng: random.Random) -> None:
    _craft(_merged(store), rng)


def _craft(path: Path, rng: random.Random) -> None:
    name = rng.choice(sorted(hostile.HDF5))
    hostile.craft(path, hostile.HDF5[name][0])


def _cut(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


_JOURNALS: dict[str, Callable[[Place, random.Random], None]] = {
    "torn journal": _torn,
    "bits of a journal": _flipped,
    "garbage in a journal": _garbage,
    "forged journal": _forged,
    "forged session note": _note,
}
_FILES: dict[str, Callable[[Path, random.Random], None]] = {
    "torn or flipped document": _documents,
    "bits of a run file": _run_bits,
    "torn run file": _run_torn,
    "hostile run file": _run_hostile,
    "bits of campaign.h5": _campaign_bits,
    "hostile campaign.h5": _campaign_hostile,
}
