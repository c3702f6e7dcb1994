"""Types of the values that are stored: levels of factors, and whatever else is JSON.

Standard library only: ranks import what is typed by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

T = TypeVar("T")
Scalar: TypeAlias = str | int | float | bool
LevelValue: TypeAlias = Scalar | Sequence[Scalar]  # a list where what varies is one
Level: TypeAlias = Mapping[str, LevelValue]  # factor -> its level
if TYPE_CHECKING:
    Json: TypeAlias = Scalar | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json = Any  # stored.py takes what a key of it holds as it is
JsonObject: TypeAlias = Mapping[str, Json]


def positive(value: Json) -> int | None:
    """A whole number, 1 or more; None if it is anything else (true is no number)."""
    return value if isinstance(value, int) and value is not True and value > 0 else None


def inside(value: Json, *path: str) -> JsonObject:
    """The object at a path of keys; empty where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def number(value: Json) -> float:
    """What must be a number; TypeError if it is not."""
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r:.80} is not a number")
    return value


def numbers(value: Json) -> tuple[float, ...]:
    """As `number`, of a list."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r:.80} is not a list of numbers")
    return tuple(map(number, value))


def text(of: JsonObject, key: str) -> str:
    """What must be text there; KeyError or TypeError if it is not."""
    if not isinstance(value := of[key], str):
        raise TypeError(f"{key} is {value!r:.80}, not text")
    return value


def mapping(of: JsonObject, key: str) -> JsonObject:
    """As `text`, of an object; `inside` is for what may be missing."""
    if not isinstance(value := of[key], Mapping):
        raise TypeError(f"{key} is {value!r:.80}, not an object")
    return value


def whole(of: JsonObject, key: str) -> int:
    """As `text`, of a whole number."""
    if not isinstance(value := of[key], int) or isinstance(value, bool):
        raise TypeError(f"{key} is {value!r:.80}, not a whole number")
    return value


def texts(of: JsonObject, key: str) -> tuple[str, ...]:
    """As `text`, of a list."""
    return tuple(_items(of, key, str, "texts"))


def wholes(of: JsonObject, key: str) -> tuple[int, ...]:
    """As `whole`, of a list."""
    return tuple(_items(of, key, int, "whole numbers"))


def objects(of: JsonObject, key: str) -> tuple[JsonObject, ...]:
    """As `text`, of a list of objects."""
    return tuple(_items(of, key, dict, "objects"))


def _items(of: JsonObject, key: str, kind: type[T], what: str) -> list[T]:
    value = of[key]
    if isinstance(value, list | tuple):
        items = [item for item in value if isinstance(item, kind) and not isinstance(item, bool)]
        if len(items) == len(value):
            return items
    raise TypeError(f"{key} is {value!r:.80}, not a list of {what}")
