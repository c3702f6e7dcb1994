"""IOR's outputs, as real releases wrote them."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.results.formats import ior
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Phase

DATA = Path(__file__).parents[1] / "data" / "ior"
MIB = 1 << 20
# outputs that ended well
GOOD = [
    "ior-3.2.1-fpp.txt",
    "ior-3.2.1-random.json",
    "ior-3.2.1-stdout.json",
    "ior-3.2.1-wearout.txt",
    "ior-3.3.0-fpp.txt",
    "ior-3.3.0-stdout.json",
    "ior-3.3.0-wearout.txt",
    "ior-4.0.0-fpp.txt",
    "ior-4.0.0-random.json",
    "ior-4.0.0-wearout.txt",
    "ior-4.1-random-shared.txt",
    "ior-4.1-ranks.txt",
    "ior-4.1-script.json",
    "ior-4.1-script.txt",
    "ior-4.1-stonewall.csv",
    "ior-4.1-stonewall.txt",
    "ior-4.1-verify.txt",
    "ior-4.1-wearout-stdout.json",
    "ior-4.1-wearout.json",
    "ior-4.1-wearout.txt",
    "ior-dfs-fpp.txt",
    "ior-dfs.json",
    "ior-posix-fpp.json",
    "ior-posix-shared.txt",
    "ior-random.csv",
]


def text_of(name: str) -> str:
    return (DATA / name).read_text(errors="replace")


def runs(name: str) -> list[Parsed]:
    return ior.parse(text_of(name), name)


def only(name: str) -> Parsed:
    (run,) = runs(name)
    return run


def phase(run: Parsed, name: str) -> Phase:
    (found,) = [p for p in run.phases if p.name == name]
    return found


def keys(run: Parsed) -> set[str]:
    return {note.key for note in run.notes}
