"""Outputs of real fios (tests/data/fio), as text and as parsed JSON."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.results.formats.fio import parse
from fsmatrix.results.formats.parsed import Parsed

DATA = Path(__file__).parents[1] / "data" / "fio"


def text_of(name: str) -> str:
    return (DATA / name).read_text()


def run_of(name: str) -> Parsed:
    (run,) = parse(text_of(name), name)
    return run


def keys(run: Parsed) -> set[str]:
    return {note.key for note in run.notes}


OUTPUTS = [*sorted(p.name for p in DATA.glob("*.json")), "3.33-plain-warning.txt"]
