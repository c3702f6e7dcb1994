"""`fsmatrix findings`: what the audits found, and which cells and runs it concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fsmatrix.cli import common, completion, progress
from fsmatrix.cli.questions import analyse, options
from fsmatrix.results.units import plural

if TYPE_CHECKING:
    from fsmatrix.analysis.questions.findings import FindingGroup, Findings

STYLE = {"invalid": "bold red", "warning": "yellow", "info": "cyan"}
MOST_CELLS, MOST_RUNS, MOST_MESSAGES = 4, 2, 2  # shown, unless --audit asks for all


def findings(
    files: options.Files,
    audit: Annotated[
        list[str] | None,
        typer.Option(
            "--audit",
            help="Only findings of this audit, with all cells and runs (repeatable).",
            autocompletion=completion.audits,
        ),
    ] = None,
    where: options.Wheres = None,
    out: options.Out = None,
    as_json: common.AsJson = False,
) -> None:
    """Show what the audits found, by severity and audit, with the cells and runs.

    What each audit examines, and its threshold: docs/audits.md.

    Example: fsmatrix findings out --where target=xfs

    Example: fsmatrix findings out --audit not-stationary --json
    """
    from fsmatrix.analysis.questions.findings import findings as analysis

    analyse.picture(out)
    with analyse.bad_input(files):
        result = analysis(analyse.opened(files), where=options.levels(where), audits=audit or ())
        if as_json:
            common.print_json(result.to_dict())
        else:
            _print(result, whole=bool(audit))
        if out is not None:
            analyse.drawn([result], out)


def _print(result: Findings, whole: bool) -> None:
    analyse.print_lines(result.says)
    console = progress.console()
    for group in result.groups:
        head = Text(f"\n{group.severity}", style=STYLE.get(group.severity, ""))
        head.append(f" {group.audit}: {_counted(group, result)}", style="default")
        console.print(head, soft_wrap=True)
        analyse.print_lines([f"  {line}" for line in _lines(group, whole)])


def _counted(group: FindingGroup, result: Findings) -> str:
    runs, cells = plural(result.runs, "run"), plural(result.cells, "cell")
    return f"{group.runs} of {runs}, {len(group.cells)} of {cells}"


def _lines(group: FindingGroup, whole: bool) -> list[str]:
    """Messages, advice, cells with their runs."""
    messages = group.messages if whole else group.messages[:MOST_MESSAGES]
    lines = [*messages]
    if left := len(group.messages) - len(messages):
        lines.append(f"and {left} more like these")
    lines += [f"what to do: {group.advice}"] if group.advice else []
    cells = group.cells if whole else group.cells[:MOST_CELLS]
    for cell in cells:
        runs = cell.run_ids if whole else cell.run_ids[:MOST_RUNS]
        more = ", ..." if len(runs) < len(cell.run_ids) else ""
        named = f"{cell.named or 'the only cell'}: " + ", ".join(runs) + more
        lines.append(f"- {named}")
    if left := len(group.cells) - len(cells):
        lines.append(f"- and {left} more cells (--audit {group.audit} lists all)")
    return lines
