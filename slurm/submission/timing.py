"""How long runs really took, against what the plan estimated."""

from __future__ import annotations

import statistics

from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.files.run.runfile import read_duration
from fsmatrix.results.files.store import Store
from fsmatrix.suite.plan.estimate import run_seconds
from fsmatrix.suite.plan.plan import Plan

LOOKED_AT = 200  # runs, evenly over all that are stored


def speeds(store: Store, plan: Plan) -> dict[str, float]:
    """Median of measured / estimated seconds of stored runs that are ok, by entry.

    Entries without such a run are absent.
    """
    planned = {each.case.case_id: each for each in plan.cases}
    files = store.files()
    found: dict[str, list[float]] = {}
    for path in files[:: max(1, len(files) // LOOKED_AT)]:
        case = planned.get(path.stem.rsplit("-", 2)[0])
        if case is None:
            continue
        try:
            seconds = read_duration(path)
        except ResultError:  # damaged: `collect` names it
            continue
        if seconds is not None:
            guess = run_seconds(case, plan.pace(case))
            found.setdefault(case.entry, []).append(seconds / guess)
    return {entry: statistics.median(ratios) for entry, ratios in found.items()}
