"""Values that are stored as JSON: their types, and dataclasses written and read in this one place.

What an object holds beside the fields of its class is kept (`more`): facts that another package
adds, keys of another version.  Keys keep their order, so that what is read and written again is
the same text.  Standard library only: ranks import it.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

T = TypeVar("T")
Scalar: TypeAlias = str | int | float | bool
LevelValue: TypeAlias = Scalar | Sequence[Scalar]  # a list where what varies is one
Level: TypeAlias = Mapping[str, LevelValue]  # factor -> its level
if TYPE_CHECKING:
    Json: TypeAlias = Scalar | Sequence["Json"] | Mapping[str, "Json"] | None
else:
    Json = Any  # `Stored` takes what a key of it holds as it is
JsonObject: TypeAlias = Mapping[str, Json]

PRIMITIVES: Mapping[Any, tuple[type, ...]] = {
    float: (int, float), int: (int,), str: (str,), bool: (bool,),
}  # fmt: skip
OWN = frozenset({"more", "keys"})  # fields that are no keys of the object


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


class StoredError(ValueError):
    """JSON that is not what its key should hold; the text names the key."""


@dataclass(frozen=True)
class Stored:
    """A JSON object.  A new one stores all fields but those that are None or {} by default."""

    more: JsonObject = field(default_factory=dict, kw_only=True, hash=False)
    keys: tuple[str, ...] = field(default=(), kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Complete `keys`: all that are stored, in the order in which they came."""
        kind: Any = type(self)
        own = [
            name
            for name, each in _fields(kind).items()
            if name not in self.keys and self._is_stored(each)
        ]
        if own or self.more:
            object.__setattr__(self, "keys", tuple(dict.fromkeys((*self.keys, *own, *self.more))))

    def _is_stored(self, each: Field[Any]) -> bool:
        value = getattr(self, each.name)
        is_new = not self.keys and not _has_default(each)
        return is_new or not (value is None or value == {})

    def document(self) -> dict[str, Json]:
        """The object as JSON-able data."""
        return {
            key: _plain(self.more[key] if key in self.more else getattr(self, key))
            for key in self.keys
        }


S = TypeVar("S", bound=Stored)


def read(kind: type[S], value: Any, key: str, exact: bool = False) -> S:
    """The object of that class; StoredError if `value`, which stands at `key`, is none.

    A field that may be None is None where the object has no such key.  `exact`: a key that is no
    field is an error too.
    """
    if not isinstance(value, Mapping):
        raise StoredError(f"{key} is {value!r:.80}, not a mapping")
    of_kind: Any = kind
    hints, values = _hints(of_kind), {}
    for name, each in _fields(of_kind).items():
        if name in value:
            values[name] = _read(hints[name], value[name], f"{key}.{name}", exact)
        elif not _has_default(each):
            if typing.get_origin(hints[name]) is not types.UnionType:
                raise StoredError(f"{key}.{name} is missing")
            values[name] = None
    more = {name: item for name, item in value.items() if name not in hints or name in OWN}
    if exact and more:
        raise StoredError(f"{key}.{next(iter(more))} is unknown")
    return kind(**values, more=more, keys=tuple(value))


def _read(hint: Any, value: Any, key: str, exact: bool) -> Any:
    if type(value) is hint:  # a short way for what is most common
        return value
    origin, arguments = _parts(hint)
    if hint is Any:
        return value
    if origin is typing.Literal:
        if value not in arguments:
            raise StoredError(
                f"{key} is {value!r:.80}, not one of {', '.join(map(str, arguments))}"
            )
        return value
    if origin is types.UnionType:  # X | None
        return None if value is None else _read(arguments[0], value, key, exact)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise StoredError(f"{key} is {value!r:.80}, not a mapping")
        inner = arguments[1]
        return {name: _read(inner, item, f"{key}.{name}", exact) for name, item in value.items()}
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise StoredError(f"{key} is {value!r:.80}, not a list")
        inner = arguments[0]
        if {*map(type, value)} <= {*PRIMITIVES.get(inner, ())}:  # a short way for long lists
            return tuple(value)
        return tuple(_read(inner, item, f"{key}[{i}]", exact) for i, item in enumerate(value))
    if hint in PRIMITIVES:
        if not isinstance(value, PRIMITIVES[hint]) or isinstance(value, bool) != (hint is bool):
            raise StoredError(f"{key} is {value!r:.80}, not of type {hint.__name__}")
        return value
    return read(hint, value, key, exact)


def _plain(value: Any) -> Any:
    if isinstance(value, Stored):
        return value.document()
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _has_default(each: Field[Any]) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


@functools.cache
def _fields(kind: Any) -> dict[str, Field[Any]]:
    return {each.name: each for each in fields(kind) if each.name not in OWN}


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
