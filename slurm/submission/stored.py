"""What is stored of a submitted campaign's runs: statuses and times, each file opened once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fsmatrix.results.files import safefile
from fsmatrix.results.files.errors import ResultError
from fsmatrix.results.files.hdf5.hdf import write_whole
from fsmatrix.results.files.hdf5.schema import from_json
from fsmatrix.results.files.run.runfile import read_outline
from fsmatrix.results.files.store import NAME, Store
from fsmatrix.slurm.submission import submission as files

SEEN = "seen.json"  # what run files say: they are not opened twice


class Stored(NamedTuple):
    """The newest attempt of a run; seconds since 1970 (UTC), NaN where the file has no time."""

    status: str  # ok, failed or timeout
    begin: float
    end: float


def stored(store: Store) -> dict[tuple[str, int], Stored]:
    """(case id, repetition) -> its newest attempt, of all runs that can be read."""
    cache = files.folder(store.directory) / SEEN
    before = dict(_remembered(cache))
    seen: dict[str, Stored] = {}
    runs: dict[tuple[str, int], Stored] = {}
    for run_id in store.ids():  # attempts of a run follow each other
        try:
            seen[run_id] = before.get(run_id) or _read(store.path(run_id))
        except (ResultError, FileNotFoundError):  # damaged: it does not count, as on resume
            continue
        match = NAME.fullmatch(run_id)
        assert match is not None
        runs[match["case"], int(match["repetition"])] = seen[run_id]
    if seen.keys() != before.keys():
        _remember(cache, seen)
    return runs


def _read(path: Path) -> Stored:
    status, started, duration = read_outline(path)
    try:
        begin = datetime.fromisoformat(started).timestamp()
    except ValueError:
        begin = math.nan
    return Stored(status, begin, begin + duration)


def _remembered(cache: Path) -> Iterator[tuple[str, Stored]]:
    """What was seen before; what is not of today's form is read again."""
    try:
        known = from_json(safefile.read_text(cache))
    except (FileNotFoundError, ValueError):
        return
    for run_id, values in known.items() if isinstance(known, dict) else ():
        match values:
            case [str(status), float(begin), float(end)]:
                yield run_id, Stored(status, begin, end)


def _remember(cache: Path, seen: Mapping[str, Stored]) -> None:
    try:
        write_whole(cache, json.dumps(seen).encode())
    except OSError:  # somebody else's directory, or a full one: it is only a cache
        return
