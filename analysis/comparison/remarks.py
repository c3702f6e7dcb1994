"""What must stand beside a comparison: what differs, what was left out, what is emulated."""

from __future__ import annotations

from collections.abc import Sequence

from fsmatrix.analysis import units
from fsmatrix.analysis.comparison.cells import Matched
from fsmatrix.analysis.comparison.checks import common, versions
from fsmatrix.analysis.comparison.rows import CAMPAIGN, Table
from fsmatrix.analysis.data import cluster
from fsmatrix.analysis.data.load import rows
from fsmatrix.analysis.units import level_text
from fsmatrix.results.units import plural


def remarks(
    of: Table,
    matched_cells: Matched,
    sides: tuple[str, str],
    free: Sequence[str],
    ignore: Sequence[str],
) -> tuple[str, ...]:
    """What must stand beside the comparison."""
    sentences = [
        f"Beside {' and '.join(of.by)}, {name} differs: {level_text(name, x)} against "
        f"{level_text(name, y)}."
        for name, (x, y) in matched_cells.differs.items()
    ]
    same = common(matched_cells.matches)
    mixed = sorted({n for match in matched_cells.matches for n in match.differs})
    for name in mixed:
        asked = " (as requested)" if name in (*free, *ignore) else ""
        if name in same:
            x, y = (level_text(name, level) for level in same[name])
            sentences.append(f"In all cells, {name} differs{asked}: {x} against {y}.")
            continue
        sentences.append(f"Cells differ in {name} between the sides{asked}.")
    sentences += [
        f"{name} is a reference, here because it was named."
        for name in sides
        if name in of.references
    ]
    for name in sides:
        left = {"failed run": of.failed.get(name, 0), "invalid run": of.invalid.get(name, 0)}
        if counted := [plural(number, what) for what, number in left.items() if number]:
            sentences.append(f"Left out of {name}: {' and '.join(counted)}.")
    data = rows(of.ds)
    if "target" in data.factors:
        columns = {name: data.factor(name) for name in data.factors}
        emulated = cluster.emulated(of.ds, data, columns)
        sentences += [f"{units.factor_title(n)}{how}." for n, how in emulated.items()]
        sentences += [cluster.EMULATED] if emulated else []
    if CAMPAIGN in of.by:
        sentences.append("Two campaigns share no block: it takes more blocks than within one.")
    return (*sentences, *versions(of, matched_cells.matches, sides))
