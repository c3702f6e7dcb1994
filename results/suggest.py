"""What a message proposes for a name that nothing has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], what: str = "allowed") -> str:
    """' (did you mean x?); allowed: a, b, x', to be appended to a message."""
    names, text = sorted(known), str(name)
    close = [
        near
        for spelt in (text, text.lower())
        for near in difflib.get_close_matches(spelt, names, n=1, cutoff=0.6)
    ]
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{hint}; {what}: {', '.join(names) if names else 'none'}"
