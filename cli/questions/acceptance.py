"""What commands share that pass or fail: conditions, and the status that comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.analysis.acceptance.acceptance import Condition

FAILED = 1  # status of a condition that is met; 2 is bad input
TESTS = "Acceptance tests"

FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        rich_help_panel=TESTS,
        help="Exit with status 1 if met (repeatable): 'slower > 10 %' (the same work takes more "
        "than 1.1 times as long: the interval of the ratio lies wholly beyond that, p corrected "
        "over all cells), slower, faster, 'faster > 5 %', undecided (cells without a proven "
        "answer). Lost cells of the baseline (missing, failed, invalid) fail too, and so does a "
        "comparison in which no cell can be decided.",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="WORD",
        rich_help_panel=TESTS,
        help="Do not fail for these cells (repeatable): missing, failed, invalid, undecided.",
    ),
]


def conditions(fail_if: Sequence[str] | None, allow: Sequence[str] | None) -> tuple[Condition, ...]:
    """--fail-if read; refuses what is not a condition, and --allow without any."""
    from fsmatrix.analysis.acceptance.acceptance import parse

    if allow and not fail_if:
        raise refuse(Origin(f"--allow {allow[0]}"), "", "only with --fail-if")
    parsed = []
    for text in fail_if or ():
        try:
            parsed.append(parse(text))
        except ValueError as error:
            raise refuse(Origin(f"--fail-if {text}"), "", str(error)) from error
    return tuple(dict.fromkeys(parsed))


def of_baseline(
    fail_if: Sequence[str] | None,
    allow: Sequence[str] | None,
    baseline: str | None,
    by: str | None,
    sides: str | None,
) -> tuple[Condition, ...]:
    """The conditions of `compare`, which needs a baseline for them."""
    parsed = conditions(fail_if, allow)
    if parsed and baseline is None:
        raise refuse(Origin(f"--fail-if {parsed[0]}"), "", "only with --baseline OLD")
    other = f"--by {by}" if by not in (None, "campaign") else f"--levels {sides}" if sides else ""
    if baseline is not None and other:
        raise refuse(Origin(other), "", "not with --baseline: campaigns are compared")
    return parsed
