"""Dataclasses that are stored as JSON objects: written and read back in this one place.

What an object holds beside the fields of its class is kept (`more`): facts that another package
adds, keys of another version.  Keys keep their order, so that what is read and written again is
the same text.  Standard library only: ranks import it.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from fsmatrix.results.evidence.values import Json, JsonObject

PRIMITIVES: Mapping[Any, tuple[type, ...]] = {
    float: (int, float), int: (int,), str: (str,), bool: (bool,),
}  # fmt: skip
OWN = frozenset({"more", "keys"})  # fields that are no keys of the object


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
