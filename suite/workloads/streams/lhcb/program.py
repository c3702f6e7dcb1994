"""One process of the LHCb analysis: `main ENGINE probe|describe|write|read ...`, a line of JSON.

It is started by the path of a Python that has the engine, which need not be fsmatrix's own
(`words` in suite/engines/python.py).  What it cannot do it says in its answer.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.suite.workloads.streams.lhcb import analysis as generator
from fsmatrix.suite.workloads.streams.lhcb.analysis import ALL, Columns, Selected, select, share

# What a program of the LHCb analysis is asked, what it answers, and how that is written.


MARK = "fsmatrix-lhcb: "  # before the answer, on a line of its own
FAILED = 3  # exit status of a program that says in its answer why


class Refused(Exception):
    """The program cannot do what it is asked; the text says why."""


@dataclass(frozen=True)
class Request:
    """Part of a data set that is written or read by one process."""

    events: int
    seed: int
    parts: int = 1
    source: str = ""  # a user's file instead of the generator; absolute path
    tree: str = ""  # its TTree or RNTuple
    compression: str = "none"
    page_size: int = 1 << 20  # bytes, uncompressed
    cluster_size: int = 0  # bytes, compressed; 0: what the engine does
    object_class: str = ""  # on DAOS
    threads: int = 1
    fsync: bool = True

    def text(self) -> str:
        """As a word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Request:
        """Inverse of `text`."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Times:
    """Of one process, Unix seconds: what was done is between two neighbours."""

    began: float  # the program, its libraries loaded and its data made
    opened: float  # file or container open, columns known
    moved: float  # the event loop
    ended: float  # closed; fsync


@dataclass(frozen=True)
class Answer:
    """What one process tells of its part."""

    engine: str
    version: str
    times: Times
    events: int
    stored: int  # bytes in the file, or read of it; compressed
    selected: Mapping[str, object]  # selection.Selected
    facts: Mapping[str, object] = field(default_factory=dict)

    def text(self) -> str:
        """The line that the program prints."""
        return MARK + json.dumps(asdict(self))


# A user's TTree or RNTuple in place of the generator: looked at, checked, made plain columns.


REALS = frozenset({"double", "float", "Double_t", "Float_t", "Double32_t"})
WHOLES = frozenset(
    {"int", "Int_t", "std::int32_t", "int32_t", "std::int16_t", "int16_t", "short", "Short_t"}
    | {"std::int8_t", "int8_t", "bool", "Bool_t", "std::uint8_t", "uint8_t", "std::uint16_t"}
)


def checked(engine: Any, source: str, tree: str) -> int:
    """Events of the file; Refused with all columns that lack or are of another type."""
    events, types = engine.described(source, tree)
    reasons = []
    if missing := [name for name in ALL if name not in types]:
        reasons.append(f"no column {', '.join(missing)}")
    other = [
        f"{name} is of type {types[name]}, not {'double' if kind == 'f8' else 'int'}"
        for name, kind in ALL.items()
        if name in types and types[name] not in (REALS if kind == "f8" else WHOLES)
    ]
    if reasons or other:
        raise Refused(f"{source}, {tree}: {'; '.join([*reasons, *other])}")
    return int(events)


def columns(
    engine: Any, source: str, tree: str, first: int, last: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Events first <= i < last as double and int32; Refused if a number is not finite.

    Cuts drop NaN without a word, and two programs may do so in different places.
    """
    checked(engine, source, tree)  # types of other columns are never handed to an interpreter
    values = engine.values(source, tree, list(ALL), first, last)
    arrays = {
        name: np.ascontiguousarray(values[name].astype(kind, copy=False))
        for name, kind in ALL.items()
    }
    wrong = {
        name: int((~np.isfinite(values)).sum())
        for name, values in arrays.items()
        if values.dtype.kind == "f"
    }
    if bad := [f"{count} in {name}" for name, count in wrong.items() if count]:
        where = f"events {first} to {last - 1}"
        raise Refused(
            f"{source}, {tree}: NaN or infinite: {', '.join(bad)} ({where}); "
            "leave such events out of the file"
        )
    return arrays


ENGINES = ("root", "uproot")
DAOS = "daos://"
MESSAGE = 800  # characters of an error's text


def main(words: list[str]) -> int:
    """Exit status: 0, or FAILED with the reason in the answer."""
    name, action, *rest = words
    try:
        engine = _engine(name)
        print(_DO[action](engine, *rest), flush=True)
    except Exception as error:  # noqa: BLE001  (the answer tells of it)
        print(MARK + json.dumps({"error": _reason(error)}), flush=True)
        return FAILED
    return 0


def _engine(name: str) -> Any:
    if name not in ENGINES:
        raise Refused(f"no engine {name!r}; there are: {', '.join(ENGINES)}")
    return importlib.import_module(f"fsmatrix.suite.workloads.streams.lhcb.with_{name}")


def _reason(error: Exception) -> str:
    """Of the engine's exceptions the first line says what, the others where in its source."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, OSError) and error.errno:
        code = errno.errorcode.get(error.errno, str(error.errno))
        return f"{code}: {os.strerror(error.errno)} ({error.filename or 'writing or reading'})"
    text = " ".join(str(error).split())[:MESSAGE]
    if os.strerror(errno.ENOSPC) in text:
        return f"ENOSPC: {text}"
    return f"{type(error).__name__}: {text}"


def probe(engine: Any) -> str:
    """Versions, and what the build can do."""
    facts = {"version": engine.version(), "features": engine.features()}
    return MARK + json.dumps(facts | {"python": platform.python_version(), "numpy": np.__version__})


def describe(engine: Any, path: str, tree: str) -> str:
    """How many events a user's file has, if it has the columns."""
    return MARK + json.dumps({"events": checked(engine, path, tree)})


def write(engine: Any, text: str, place: str, part: str) -> str:
    """Make or read this part's events, write them, and say what the analysis must find in them."""
    request, on_daos = Request.of(text), place.startswith(DAOS)
    columns = _columns(engine, request, int(part))
    wanted = select(columns)
    engine.load(request.threads, on_daos)
    times, stored = engine.write(request, place, int(part), columns)
    if not on_daos:
        synced = _synced(place) if request.fsync else times.ended
        times, stored = replace(times, ended=max(synced, times.ended)), Path(place).stat().st_size
    return _answer(engine, times, stored, wanted)


def read(engine: Any, text: str, place: str, part: str) -> str:
    """The analysis of this part."""
    request = Request.of(text)
    engine.load(request.threads, place.startswith(DAOS))
    times, stored, selected = engine.read(request, place, int(part))
    return _answer(engine, times, stored, selected)


def _columns(engine: Any, request: Request, part: int) -> Columns:
    first, last = share(request.events, part, request.parts)
    if request.source:
        return columns(engine, request.source, request.tree, first, last)
    return generator.events(request.seed, first, last)


def _synced(path: str) -> float:
    """When what was written had reached the storage."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return time.time()


def _answer(engine: Any, times: Any, stored: int, selected: Selected) -> str:
    return Answer(
        engine.NAME, engine.version(), times, selected.events, stored, selected.document()
    ).text()


_DO: dict[str, Callable[..., str]] = {f.__name__: f for f in (probe, describe, write, read)}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
