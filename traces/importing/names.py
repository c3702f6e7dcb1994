"""Which name in the trace a path of a source gets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fsmatrix.traces.importing.base import Malformed
from fsmatrix.traces.model import name_problem
from fsmatrix.traces.roots import Roots, normal


class Names:
    """Names of paths below the roots, or of all without roots; relative ones begin at "/"."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """`roots`: absolute; ValueError if one contains another."""
        self._roots = Roots([os.fsencode(root) for root in roots] or [b"/"])

    def name(self, path: bytes) -> bytes | None:
        """The name of a path as the source writes it; None: outside the roots, or a root itself.

        Malformed for what can be no path.
        """
        whole = normal(b"", path)
        name = None if whole in self._roots.paths else self._roots.name(whole)
        if name and (reason := name_problem(name)):
            raise Malformed(reason)
        return name
