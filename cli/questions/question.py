"""What every command of a question has: FILES, --where, --out and --json around its own options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from fsmatrix.cli import common
from fsmatrix.cli.questions import analyse, options

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.result import Result
    from fsmatrix.analysis.units import Level


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
        analyse.answer(files, out, as_json, lambda ds: ask(ds, options.levels(where)))

    first, *last = shared.values()
    parameters = [first, *(p for p in own if p.name != "files"), *last]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _shared(
    files: options.Files,
    where: options.Wheres = None,
    out: options.Out = None,
    as_json: common.Json = False,
) -> None:
    """The parameters that every question has."""
