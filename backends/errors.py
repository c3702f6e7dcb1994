"""Errors of the backends."""

from __future__ import annotations


class BackendError(Exception):
    """A backend cannot do what was asked; the text says why and what to do."""


class ToolError(BackendError):
    """A program is missing, failed or did not end within its deadline."""
