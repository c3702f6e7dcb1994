"""The formats that import knows, recognised by content; a module is loaded when first asked.

A name is that of a family, and stands for a `tuple[Format, ...]`.  A directory that IO500 wrote
is one run: `io500.parse_directory` is given the texts of all its files.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from fsmatrix.results.formats.base import Format, Parsed
from fsmatrix.results.registry import Registry

# the most specific first: what IO500 prints holds what IOR prints, and not the other way
BUILTIN: dict[str, str] = {
    name: f"fsmatrix.results.formats.{name}:FORMATS"
    for name in ("io500", "elbencho", "fio", "mdtest", "ior", "dbench")
}
# only to say what to do instead
BUILTIN["fio-text"] = "fsmatrix.results.formats.fio:TEXTS"
BUILTIN["elbencho-text"] = "fsmatrix.results.formats.elbencho:OTHER_FORMATS"
BUILTIN |= {
    f"{name}-headless": f"fsmatrix.results.formats.{name}:HEADLESS"
    for name in ("fio", "mdtest", "ior")
}
# values are tuples of Format
FORMATS: Registry[Any] = Registry("fsmatrix.formats", BUILTIN, "format")


@dataclass(frozen=True)
class KnownFormat:
    """A format and the family (a name of FORMATS) that it belongs to."""

    family: str
    format: Format


@dataclass(frozen=True)
class DirectoryFormat:
    """A directory that is one run.

    `summaries`: names of the files that may tell, the preferred first; the directory is
    recognised if `format` recognises the text of one.
    """

    name: str
    summaries: tuple[str, ...]
    format: Format
    parse: Callable[[Mapping[str, str], str], Parsed]  # (name -> text, source); ParseError


@functools.cache
def formats() -> tuple[KnownFormat, ...]:
    """All formats in the order in which they are tried; those of other packages come last.

    BrokenEntry if another package's cannot be loaded.
    """
    return tuple(
        KnownFormat(name, known_format)
        for name in (*BUILTIN, *FORMATS.outside())
        for known_format in cast("tuple[Format, ...]", FORMATS.load(name))
    )


@functools.cache
def directory_formats() -> tuple[DirectoryFormat, ...]:
    """All directories that are one run."""
    io500 = importlib.import_module("fsmatrix.results.formats.io500")
    return tuple(
        DirectoryFormat(
            "io500 directory",
            ("result_summary.txt", "result.txt"),
            known_format,
            io500.parse_directory,
        )
        for known_format in io500.FORMATS
    )


def matching(text: str, candidates: Sequence[KnownFormat] | None = None) -> list[KnownFormat]:
    """The formats that recognise `text`, one for each family, the most specific first.

    `candidates`: formats to try; all of `formats()` without it.
    """
    matches: dict[str, KnownFormat] = {}
    for known_format in formats() if candidates is None else candidates:
        if known_format.family not in matches and known_format.format.recognises(text):
            matches[known_format.family] = known_format
    return list(matches.values())


def recognise(text: str, candidates: Sequence[KnownFormat] | None = None) -> Format | None:
    """The format of `text`; None if there is none."""
    matches = matching(text, candidates)
    return matches[0].format if matches else None
