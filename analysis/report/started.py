"""How a campaign's engines were started: the command lines of one run of each case."""

from __future__ import annotations

import shlex

from fsmatrix.analysis.data.load import Rows
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.files.store import Store

MOST_CASES = 100
OWN = "player"  # how the names of engines begin that are no program


def command_lines(data: Rows, place: str) -> list[str]:
    """Lines of text; none without the results directory `place`, or without other programs."""
    runs: dict[str, str] = {}  # case id -> a run of it
    for run, engine in zip(data["run_id"].tolist(), data["engine"].tolist(), strict=True):
        if not engine.startswith(OWN):
            runs.setdefault(run.rpartition("-r")[0], run)
    if not runs or not place:
        return []
    try:
        store = Store.open(place)
        records = [store.read(run) for run in list(runs.values())[:MOST_CASES]]
    except (ResultError, KeyError, OSError):  # the runs were moved, or one is damaged
        return []
    lines = []
    for record in filter(lambda one: one.argv, records):
        lines += [f"# {record.coordinates.get('target', '')}, run {record.run_id}"]
        lines += [shlex.join(argv) for argv in record.argv]
    more = len(runs) - MOST_CASES
    return [*lines, f"# and {more} more cases: show --run ID"] if more > 0 else lines
