"""Errors that backends raise, and how a look that fails is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class BackendError(Exception):
    """A backend cannot do what was asked; the text says why and what to do."""


class ToolError(BackendError):
    """A program is missing, failed or did not end within its deadline."""


class NoAnswer(ToolError):
    """A program did not end within its deadline; it was killed."""


def value_or_error(look: Callable[[], Any]) -> Any:
    """What `look` gives, or why it gave nothing: {"error": reason}."""
    try:
        return look()
    except BackendError as error:
        return {"error": str(error)}
