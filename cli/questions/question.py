"""What every command of a question has: FILES, --where, --out and --json around its own options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from fsmatrix.cli import common
from fsmatrix.cli.questions import analyse

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.result import Result
    from fsmatrix.analysis.units import Level


class Ask(Protocol):
    """A question with its options: asks a campaign, of runs of these levels only."""

    def __call__(self, ds: xr.Dataset, where: dict[str, Level], /) -> Result: ...


def question(options: Callable[..., Ask]) -> Callable[..., None]:
    """A command of what a question's options come to.

    `options` has the question's own; FILES before them (which it may take too), and --where, --out
    and --json after them, are the same for every question.
    """
    hints = get_type_hints(options, include_extras=True)
    own = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(options).parameters.items()
    ]
    shared = inspect.signature(_shared, eval_str=True).parameters
    takes_files = "files" in hints

    @functools.wraps(options)
    def command(
        files: list[str],
        where: list[str] | None,
        out: Path | None,
        as_json: bool,
        **values: Any,
    ) -> None:
        ask = options(**values, **({"files": files} if takes_files else {}))
        analyse.answer(files, out, as_json, lambda ds: ask(ds, analyse.levels(where)))

    first, *last = shared.values()
    parameters = [first, *(p for p in own if p.name != "files"), *last]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _shared(
    files: analyse.Files,
    where: analyse.Wheres = None,
    out: analyse.Out = None,
    as_json: common.Json = False,
) -> None:
    """The parameters that every question has."""
