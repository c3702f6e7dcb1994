"""Attributes of a container that say how dfuse caches: set on an own one, read of any."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.errors import BackendError

PREFIX = "dfuse-"  # of those that dfuse reads


def set_on(place: Place, given: Mapping[str, str]) -> None:
    """Set them, by their names without the prefix; BackendError on a container of others."""
    if not place.own:
        raise BackendError(f"container {place.container} is not the suite's: left as it is")
    pairs = ",".join(f"{PREFIX}{name}:{value}" for name, value in given.items())
    place.client.ask("container", "set-attr", place.pool, place.container, pairs)


def of(place: Place) -> dict[str, str]:
    """All that are set, by their names without the prefix."""
    answer = place.client.ask("container", "get-attr", place.pool, place.container)
    items = answer if isinstance(answer, list) else []
    return {
        str(item["name"]).removeprefix(PREFIX): _text(item.get("value"))
        for item in items
        if isinstance(item, dict) and str(item.get("name", "")).startswith(PREFIX)
    }


def _text(value: object) -> str:
    """The tool writes values, which are bytes, in base64."""
    try:
        return base64.b64decode(str(value or ""), validate=True).decode().rstrip("\0")
    except (binascii.Error, UnicodeDecodeError):
        return str(value)
