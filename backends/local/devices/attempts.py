"""Several devices taken down: what one of them objects does not keep the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fsmatrix.backends.errors import BackendError


def attempt(actions: Iterable[Callable[[], None]]) -> None:
    """Do all of them; BackendError at the end with what went wrong."""
    problems = []
    for action in actions:
        try:
            action()
        except BackendError as error:
            problems.append(str(error))
    if problems:
        raise BackendError("; ".join(problems))
