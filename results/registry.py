"""A lazy registry: plain dict `name -> "module:Class"` plus an entry-point group."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class UnknownName(LookupError):
    """A name that no registry knows; the text proposes near ones and lists all."""

    def __init__(self, kind: str, name: str, names: Iterable[str]) -> None:
        self.kind, self.name, self.names = kind, name, tuple(sorted(names))
        super().__init__(f"unknown {kind} {name!r}{did_you_mean(name, self.names, 'known')}")


class BrokenEntry(ImportError):
    """A registered name whose module or class cannot be loaded; the text says why."""


class Registry(Generic[T]):
    """Names of one kind of thing; nothing is imported before `load`.

    `builtin` wins over an entry point of the same name: another package cannot replace
    what a campaign means by a name of ours.
    """

    def __init__(self, group: str, builtin: Mapping[str, str], kind: str = "name") -> None:
        self.group, self.builtin, self.kind = group, builtin, kind

    def names(self) -> list[str]:
        """All names, of here and of entry points, sorted."""
        return sorted({*self.builtin, *self._outside()})

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._outside()

    def load(self, name: str) -> type[T]:
        """The class of that name; UnknownName, or BrokenEntry if it cannot be imported."""
        if name in self.builtin:
            return cast("type[T]", _load(self.kind, name, self.builtin[name]))
        outside = self._outside()
        if name not in outside:
            raise UnknownName(self.kind, name, {*self.builtin, *outside})
        try:
            return cast("type[T]", outside[name].load())
        except (ImportError, AttributeError) as error:
            raise BrokenEntry(f"{self.kind} {name!r} of an entry point: {error}") from error

    def outside(self) -> dict[str, str]:
        """Names that other packages add -> package and its version, sorted by name."""
        packages = {
            name: f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown package"
            for name, entry in self._outside().items()
        }
        return {name: packages[name] for name in sorted(packages) if name not in self.builtin}

    def _outside(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}


def did_you_mean(name: str, possible: Iterable[str], what: str = "allowed") -> str:
    """' (did you mean x?); allowed: a, b, x', to be appended to a message."""
    names, text = sorted(possible), str(name)
    close = [
        near
        for spelt in (text, text.lower())
        for near in difflib.get_close_matches(spelt, names, n=1, cutoff=0.6)
    ]
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{hint}; {what}: {', '.join(names) if names else 'none'}"


def _load(kind: str, name: str, where: str) -> Any:
    module, _, attribute = where.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BrokenEntry(f"{kind} {name!r} ({where}) cannot be loaded: {error}") from error
