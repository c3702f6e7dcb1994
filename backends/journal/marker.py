"""The marker by which a thing is known as the suite's own, wherever it is: what it holds.

A file `.fsmatrix` in a directory, on any file system or through libcephfs; an object of that name
in a RADOS namespace.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

MARKER = ".fsmatrix"
LIMIT = 4096  # bytes of a marker that are read


@dataclass(frozen=True)
class Mark:
    """What a marker says: which thing it is, and which store made it ("": not told)."""

    tag: str
    store: str = ""


def marker_of(tag: str, store: str = "") -> bytes:
    """What a marker of `tag` holds; `store` is what proves the store (identity.py)."""
    return json.dumps({"tag": tag, "store": store, "made_by": "fsmatrix"}).encode()


def mark_in(data: bytes) -> Mark | None:
    """What a marker holds; None if it is none of ours."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    tag = content.get("tag") if isinstance(content, dict) else None
    if not isinstance(tag, str) or not tag:
        return None
    store = content.get("store")
    return Mark(tag, store if isinstance(store, str) else "")


def tag_in(data: bytes) -> str | None:
    """The tag in what a marker holds; None if it is none of ours."""
    mark = mark_in(data)
    return None if mark is None else mark.tag


def whose(tag: str | None) -> str:
    """In words, whose a thing is in which that tag was found."""
    return "has no marker" if tag is None else f"belongs to {tag!r}"
