"""The marker by which a thing is known as the suite's own, wherever it is: what it holds.

A file `.fsmatrix` in a directory, on any file system or through libcephfs; an object of that name
in a RADOS namespace.
"""

from __future__ import annotations

import json

MARKER = ".fsmatrix"
LIMIT = 4096  # bytes of a marker that are read


def marker_of(tag: str) -> bytes:
    """What a marker of `tag` holds."""
    return json.dumps({"tag": tag, "made_by": "fsmatrix"}).encode()


def tag_in(data: bytes) -> str | None:
    """The tag in what a marker holds; None if it is none of ours."""
    try:
        known = json.loads(data)
    except ValueError:
        return None
    tag = known.get("tag") if isinstance(known, dict) else None
    return tag if isinstance(tag, str) and tag else None


def whose(found: str | None) -> str:
    """In words, whose a thing is in which that tag was found."""
    return "has no marker" if found is None else f"belongs to {found!r}"
