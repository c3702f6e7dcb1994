"""Options that name a file: it is known by the SHA-256 of its bytes, never by its path."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PREFIX = "sha256:"
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ContentFile:
    """A file by its content; `path` is known where it can be read."""

    sha256: str
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        """What stands in cases."""
        return f"{PREFIX}{self.sha256}"


def stored_digest(text: str, what: str) -> str:
    """The digest in a text of a case, `sha256:...`; empty for a path.

    `what` it is of, for the ValueError of a digest that is none.
    """
    if not text.startswith(PREFIX):
        return ""
    digest = text.removeprefix(PREFIX)
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"{text!r} is no SHA-256 of a {what}")
    return digest
