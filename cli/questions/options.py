"""Options of the questions: each is declared here once, and read here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from fsmatrix.cli import completion
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    from fsmatrix.analysis.units import Level

Correction = Literal["max-t", "holm", "benjamini-hochberg", "none"]


def factor(name: str, text: str) -> Any:
    """An option that takes the name of a factor; `text`: its help."""
    return typer.Option(name, help=text, autocompletion=completion.factors)


def side(name: str, text: str) -> Any:
    """An option that takes levels of the factor that --by names."""
    return typer.Option(name, help=text, autocompletion=completion.sides)


def known(given: Any) -> Any:
    """--metric as given; a misspelt one is refused before any file is read.

    One that is like no number of a campaign file may be a factor of this one: the file tells.
    """
    from fsmatrix.results.files.campaign.campaignfile import NUMBERS

    for name in [given] if isinstance(given, str) else given or ():
        if name not in NUMBERS and (close := difflib.get_close_matches(name, NUMBERS, n=1)):
            raise refuse(Origin(f"--metric {name}"), "", f"no metric: did you mean {close[0]!r}?")
    return given


Cells = Annotated[
    bool, typer.Option("--cells", help="All that is said, and a table with a row for each cell.")
]
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES...",
        help="Results directories, campaign.h5 files, or published:NAME.",
        show_default=False,
        autocompletion=completion.results,
    ),
]
MetricName = Annotated[
    str,
    typer.Option(
        "--metric",
        help="bandwidth, iops, latency_p99, ...",
        autocompletion=completion.metrics,
        callback=known,
    ),
]
OwnMetric = Annotated[
    str,
    typer.Option(
        "--metric",
        help="bandwidth, iops, latency_p99, ...  Default: bandwidth; iops if no run has any.",
        show_default=False,
        autocompletion=completion.metrics,
        callback=known,
    ),
]
UnitName = Annotated[
    str | None, typer.Option("--unit", help="Unit to show: MiB/s, Mb/s, ms, ... (as fits).")
]
Wheres = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Only runs of this level: pattern=seq-read (repeatable).",
        autocompletion=completion.levels,
    ),
]
Tolerance = Annotated[
    str, typer.Option("--tolerance", help="Largest difference that does not matter: 5% or 0.05.")
]
Alpha = Annotated[
    float, typer.Option("--alpha", help="Probability of any false claim over all cells.")
]
CorrectionName = Annotated[
    str,
    typer.Option("--correction", help="For many cells: max-t, holm, benjamini-hochberg or none."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--out",
        help="Write a figure (.png, .svg or .pdf) or the table (.csv, .tex or .md).",
    ),
]


def levels(wheres: Sequence[str] | None) -> dict[str, Level]:
    """--where factor=level as factor -> level; a number as a number, a size in bytes."""
    from fsmatrix.analysis.units import wanted_level

    chosen: dict[str, Level] = {}
    for text in wheres or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise refuse(Origin(f"--where {text}"), "", "must be factor=level")
        chosen[name] = wanted_level(value)
    return chosen


def share(option: str, text: str) -> float:
    """The share that `5%` or `0.05` stands for; other texts are refused."""
    try:
        value = float(text.rstrip("%").strip()) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value < 10:
        raise refuse(Origin(f"{option} {text}"), "", "must be a share such as 5% or 0.05")
    return value


def corrected(name: str) -> Correction:
    """The correction that --correction names; other names are refused."""
    if name not in get_args(Correction):
        allowed = ", ".join(get_args(Correction))
        raise refuse(Origin(f"--correction {name}"), "", f"one of {allowed}")
    return cast(Correction, name)
