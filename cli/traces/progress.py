"""How far a command is in a trace, on standard error while it works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fsmatrix.cli import progress


@contextmanager
def bar(what: str, operations: int) -> Iterator[Callable[[int], None]]:
    """Calls with the number of operations done so far move it; it goes when they end."""
    from rich.progress import Progress

    with Progress(console=progress.console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=operations)
        yield lambda done: shown.update(task, completed=done)
