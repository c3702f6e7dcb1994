"""The iterations of the phases of a run file, and what engines say of them in sum.

Contiguous ragged arrays as in a campaign file: those of a phase lie together, `iterations` [phase]
says how many.  What a phase does not tell is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fsmatrix.results import iterations
from fsmatrix.results.files.hdf5.hdf import Group, Source
from fsmatrix.results.iterations import NAN, PREFIX
from fsmatrix.results.record import Phase


def write(root: Group, phases: Sequence[Phase]) -> None:
    """Iterations and summaries of all phases; what no phase has is left out."""
    for name, (unit, meaning) in iterations.SUMMARY.items():
        values = np.array([phase.summary.get(name, NAN) for phase in phases], dtype=np.float64)
        if any(name in phase.summary for phase in phases):
            root.variable(
                iterations.OWN + name, values, ["phase"], {"units": unit, "long_name": meaning}
            )
    sizes = [iterations.size(phase.iterations) for phase in phases]
    if not sum(sizes):
        return
    root.variable(
        "iterations",
        np.array(sizes, dtype=np.int64),
        ["phase"],
        {"units": "1", "long_name": "number of iterations"},
    )
    root.dimension("iteration", sum(sizes))
    filled = [iterations.filled(phase.iterations) for phase in phases]
    for name, (_, unit, meaning) in iterations.COLUMNS.items():
        if any(name in phase.iterations for phase in phases):
            column = np.concatenate([columns[name] for columns in filled if columns])
            attributes = {"units": unit, "long_name": meaning}
            root.variable(PREFIX + name, column, ["iteration"], attributes)


def read(root: Source, phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases with theirs; of run files of before from the facts, which lose them.

    ValueError if there are others than it says.
    """
    own = {
        name: root.array(iterations.OWN + name)
        for name in iterations.SUMMARY
        if iterations.OWN + name in root
    }
    summed = [
        replace(phase, summary={n: c[i].item() for n, c in own.items() if c[i] == c[i]})
        for i, phase in enumerate(phases)
    ]
    if "iterations" not in root:
        pairs = [(phase, iterations.of_facts(phase.facts)) for phase in summed]
        return tuple(replace(p, facts=facts, iterations=table) for p, (facts, table) in pairs)
    columns = {
        name: root.array(PREFIX + name) for name in iterations.COLUMNS if PREFIX + name in root
    }
    sizes = root.array("iterations")
    ends = np.cumsum(sizes)
    if (sizes < 0).any() or any(column.shape != (ends[-1],) for column in columns.values()):
        raise ValueError("iterations that are more or fewer than their phases have")
    return tuple(
        replace(
            phase,
            iterations=iterations.stripped({n: c[end - size : end] for n, c in columns.items()}),
        )
        for phase, size, end in zip(summed, sizes.tolist(), ends.tolist(), strict=True)
    )
