"""`fsmatrix trace`: what programs do to their files, written down to be looked at and replayed."""

from __future__ import annotations

from collections.abc import Callable

import typer

from fsmatrix.cli.traces import anonymise, capture, generate, import_, info

app = typer.Typer(
    no_args_is_help=True,
    help="Capture what programs do to their files; import, examine and anonymise traces.",
)
COMMANDS: dict[str, Callable[..., None]] = {
    "capture": capture.capture,
    "rank": capture.rank,
    "import": import_.import_,
    "generate": generate.generate,
    "info": info.info,
    "anonymise": anonymise.anonymise,
}
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)
