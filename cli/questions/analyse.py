"""What commands of the analysis share: options, files in, a result out as text, JSON or picture.

Each option of the questions is declared here once, and read here.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, cast, get_args, get_type_hints

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from fsmatrix.cli import common, completion, progress
from fsmatrix.suite.campaign.yamlio import Origin, refuse

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from fsmatrix.analysis.result import Result
    from fsmatrix.analysis.units import Level, Unit

Correction = Literal["max-t", "holm", "benjamini-hochberg", "none"]

PUBLISHED = "published:"
ROW = 100  # characters that a row may take in a terminal that is narrower
NARROW = 12  # to which a column of words is folded
GAP = 2  # blanks between columns


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
    from fsmatrix.results.files.campaignfile import NUMBERS

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


@contextlib.contextmanager
def bad_input(files: Sequence[str]) -> Iterator[None]:
    """What the analysis refuses as a message that names the files."""
    try:
        yield
    except ValueError as error:
        raise refuse(Origin(" ".join(files)), "", str(error)) from error


def labels(files: Sequence[str]) -> list[str]:
    """A short name for each file: its own, or its directory's if it is called campaign.h5."""
    short = [
        Path(f).resolve().parent.name if Path(f).name == "campaign.h5" else Path(f).name or f
        for f in files
    ]
    return short if len(set(short)) == len(short) else list(files)


def opened(files: Sequence[str]) -> xr.Dataset:
    """The files as one campaign; several are told apart by a factor `campaign`."""
    from fsmatrix.analysis.comparison.counted_rows import together
    from fsmatrix.analysis.data.load import open_campaign

    if len(set(files)) < len(files):
        raise ValueError("the same file is given twice: it cannot be compared with itself")
    common.limit_algebra_threads()
    datasets = [open_campaign(_path(name)) for name in files]
    if len(files) == 1:
        return datasets[0]
    return together(dict(zip(labels(files), datasets, strict=True)))


def _path(name: str) -> str | Path:
    return name if name.startswith(PUBLISHED) else common.campaign_file(Path(name))


def unit(ds: xr.Dataset, metric: str, name: str | None) -> Unit | None:
    """A display unit by its name; None if none is asked for."""
    from fsmatrix.analysis.data.matrices import unit_of

    return unit_of(ds, metric, name) if name else None


def picture(out: Path | None, *more: str) -> None:
    """Refuse a file that no picture or table can be written to, before anything is computed.

    `more`: suffixes of what else the command writes.
    """
    from fsmatrix.analysis.draw import pictures, tables

    if out is None:
        return
    suffixes = (*more, *pictures.FORMATS, *tables.FORMATS)
    if out.suffix.lower() not in suffixes:
        raise refuse(Origin(f"--out {out}"), "", f"must end in {', '.join(suffixes)}")
    if not out.parent.is_dir():
        raise refuse(Origin(f"--out {out}"), "", f"no directory {out.parent}")


def answer(
    files: Sequence[str], out: Path | None, as_json: bool, ask: Callable[[xr.Dataset], Result]
) -> None:
    """Ask the files' campaign; print the result, and draw it if asked to."""
    picture(out)
    with bad_input(files):
        result = ask(opened(files))
    deliver(result, out, as_json)


def deliver(result: Result, out: Path | None, as_json: bool) -> None:
    """Print sentences and table, or JSON; draw if asked to."""
    if as_json:
        common.print_json(result.to_dict())
    else:
        show(result)
    if out:
        drawn([result], out)


def show(result: Result) -> None:
    """Sentences and table; what all rows share stands once above them."""
    from fsmatrix.analysis.draw.tables import text

    print_lines(result.says)
    frame, shared = without_shared_columns(text(result.table()))
    print_lines([f"In all rows: {shared}."] if shared else [])
    if not frame.columns.empty:
        words = [
            len({*frame[name]}) and frame[name].str.contains("[A-Za-z]").any()
            for name in frame.columns
        ]
        fold = next((i for i, word in enumerate(words) if not word), len(words))
        grid([str(name) for name in frame.columns], frame.to_numpy().tolist(), fold)


def drawn(results: Sequence[Any], out: Path) -> None:
    """Write the pictures or tables and say where, on standard error: output may be JSON.

    What cannot be drawn is refused, with the reason.
    """
    from fsmatrix.analysis.draw import pictures, tables

    save = tables.save if out.suffix.lower() in tables.FORMATS else pictures.save
    with bad_input([f"--out {out}"]):
        written = save(list(results), out)
    for path in written:
        progress.echo(str(path), err=True)
    if not written:
        progress.echo(f"not made: {out}: {tables.EMPTY}", err=True)


def print_lines(sentences: Sequence[str]) -> None:
    """Print sentences, each on a line of its own."""
    console = progress.console()
    for line in sentences:
        console.print(Text(line), soft_wrap=True)


def grid(
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    fold: int = 0,
    *,
    must: bool = True,
) -> bool:
    """A table that loses no column, however narrow the terminal is; whether it was printed.

    Where a row would be wider than ROW and the terminal, headings are wrapped, then the first
    `fold` columns, down to NARROW.  A table that then is too wide is printed if it `must`.
    """
    texts = [[Text(c) if isinstance(c, str) else c for c in row] for row in rows]
    heads = list(columns)
    console = progress.console()
    room = max(ROW, console.width if console.is_terminal else 0)
    widths = _widths(heads, texts, room)
    if sum(widths) + GAP * len(widths) > room and not must:
        return False
    widths = _folded(widths, fold, room)
    table = Table(box=None, header_style="bold", padding=(0, GAP, 0, 0), pad_edge=False)
    for place, (head, width) in enumerate(zip(heads, widths, strict=True)):
        lines = textwrap.wrap(head, width, break_long_words=place < fold) or [""]
        table.add_column(
            Text("\n".join(lines)), width=width, no_wrap=place >= fold, overflow="fold"
        )
    for row in texts:
        table.add_row(*row)
    console.width = max(console.width, sum(widths) + GAP * len(widths))
    console.print(table, crop=False)
    return True


def _widths(heads: Sequence[str], rows: Sequence[Sequence[Text]], room: int) -> list[int]:
    """Characters that each column takes; headings whole, or wrapped between words if need be."""
    body = [max((row[i].cell_len for row in rows), default=0) for i in range(len(heads))]
    whole = [max(cell_len(head), wide) for head, wide in zip(heads, body, strict=True)]
    if sum(whole) + GAP * len(whole) <= room:
        return whole
    return [
        max(wide, *(cell_len(word) for word in head.split() or [""]))
        for head, wide in zip(heads, body, strict=True)
    ]


def _folded(widths: Sequence[int], fold: int, room: int) -> list[int]:
    """The first `fold` columns narrower, the widest first, until all fit."""
    folded = list(widths)
    while sum(folded) + GAP * len(folded) > room:
        place = max(range(fold), key=lambda i: folded[i], default=-1)
        if place < 0 or folded[place] <= NARROW:
            break
        folded[place] -= 1
    return folded


def without_shared_columns(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """(the table without columns that are empty or alike in all rows, what all rows share)."""
    from fsmatrix.analysis.units import MISSING

    if len(frame) < 2:
        return frame, ""
    shared, kept = [], []
    for name in frame.columns:
        values = set(frame[name])
        if len(values) > 1:
            kept.append(name)
        elif not values & {"", MISSING}:
            shared.append(f"{name} {values.pop()}")
    return frame[kept], ", ".join(shared)


# What every command of a question has: FILES, --where, --out and --json around its own options.


class Ask(Protocol):
    """A question with its options: asks a campaign, of runs of these levels only."""

    def __call__(self, ds: xr.Dataset, where: dict[str, Level], /) -> Result: ...


def question(ask_with: Callable[..., Ask]) -> Callable[..., None]:
    """A command of what a question's options come to.

    `ask_with` has the question's own; FILES before them (which it may take too), and --where, --out
    and --json after them, are the same for every question.
    """
    hints = get_type_hints(ask_with, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(ask_with).parameters.items()
    ]
    shared = inspect.signature(_shared, eval_str=True).parameters
    takes_files = "files" in hints

    @functools.wraps(ask_with)
    def command(
        files: list[str],
        where: list[str] | None,
        out: Path | None,
        as_json: bool,
        **values: Any,
    ) -> None:
        ask = ask_with(**values, **({"files": files} if takes_files else {}))
        answer(files, out, as_json, lambda ds: ask(ds, levels(where)))

    first, *last = shared.values()
    parameters = [first, *(p for p in own if p.name != "files"), *last]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _shared(
    files: Files,
    where: Wheres = None,
    out: Out = None,
    as_json: common.AsJson = False,
) -> None:
    """The parameters that every question has."""
