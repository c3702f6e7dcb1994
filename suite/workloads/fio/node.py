"""One node's fio: from its output to a run whose windows stand on the common clock."""

from __future__ import annotations

from dataclasses import replace

from fsmatrix.results.evidence.values import number
from fsmatrix.results.formats import fio as fio_format
from fsmatrix.results.formats.base import Note, Parsed, ParseError
from fsmatrix.results.formats.fio.logs import with_logs
from fsmatrix.results.formats.fio.merge import shifted
from fsmatrix.suite.workloads.base import Output

SLACK = 0.01  # seconds by which the common clock itself may be off


def run_of_node(output: Output) -> Parsed:
    """One node's run, its windows checked against the time in which its fio ran."""
    runs = fio_format.parse(output.stdout, f"fio on {output.host}" if output.host else "fio")
    if len(runs) != 1:
        raise ParseError(f"fio on {output.host}", 0, f"{len(runs)} runs in the output of one")
    return _on_common_clock(with_logs(runs[0], output.files), output.began, output.ended)


def _on_common_clock(run: Parsed, began: float, ended: float) -> Parsed:
    """The run with a node's clock put right, if its windows lie outside [began, ended].

    fio prints after its jobs and before it ends: the clock is off by at most
    ended - printed, and by at least began - start; the width of that is the uncertainty.
    """
    placed = [phase for phase in run.phases if phase.began]
    printed = number(run.facts.get("printed", 0.0))
    if not placed or not printed or ended <= began:
        return run
    start = min(phase.began for phase in placed)
    if began - SLACK <= start and printed <= ended + SLACK:
        return run
    least, most = began - start, ended - printed
    text = f"this node's clock is {-most:.3f} s ahead of the common one: its windows were moved"
    if least > most + 2 * SLACK:
        text = "fio's own times do not fit into the time in which it ran"
        return replace(run, notes=(*run.notes, Note("contradiction", text)))
    moved = shifted(run, most, max(most - least, SLACK))
    return replace(moved, notes=(*moved.notes, Note("clock-shifted", text)))
