"""Outputs of real mdtests (tests/data/mdtest), and what is told of each beside its text."""

from __future__ import annotations

from pathlib import Path

from fsmatrix.results.formats import mdtest
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Phase, window

DATA = Path(__file__).parents[1] / "data" / "mdtest"
TEXTS = {path.stem: path.read_text() for path in DATA.glob("*.txt") if "help" not in path.stem}
RANKS = {path.stem: path.read_text() for path in DATA.glob("*.csv")}


def phases(run: Parsed) -> dict[str, Phase]:
    return {phase.name: phase for phase in run.phases}


def known(run: Parsed) -> set[tuple[str, int, int, float]]:
    return {
        (phase.name, int(phase.bytes.sum()), int(phase.operations.sum()), window(phase))
        for phase in run.phases
    }


KNOWN = {
    name: {one for run in mdtest.parse(text, name) for one in known(run)}
    for name, text in TEXTS.items()
}
