"""What is stored of a submitted campaign's runs: verdicts and times, each file opened once."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fsmatrix.results.audits.tally import Tally
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.files import safefile
from fsmatrix.results.files.atomic_write import write_whole
from fsmatrix.results.files.hdf5.schema import from_json
from fsmatrix.results.files.run.runfile import read_outline
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import NAME, Store
from fsmatrix.slurm.submission import submission as files

SEEN = "seen.json"  # what run files say: they are not opened twice


class Stored(NamedTuple):
    """The newest attempt of a run; seconds since 1970 (UTC), NaN where the file has no time."""

    verdict: Tally  # of this run alone
    begin: float
    end: float

    @property
    def status(self) -> str:
        """As in the run's file."""
        return "timeout" if self.verdict.timeout else "failed" if self.verdict.failed else "ok"


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
    status, findings, started, duration = read_outline(path)
    try:
        begin = datetime.fromisoformat(started).timestamp()
    except ValueError:
        begin = math.nan
    return Stored(Tally().plus(status, findings), begin, begin + duration)


def _remembered(cache: Path) -> Iterator[tuple[str, Stored]]:
    """What was seen before; what is not of today's form is read again."""
    try:
        cached = from_json(safefile.read_text(cache))
    except (FileNotFoundError, ValueError):
        return
    for run_id, values in cached.items() if isinstance(cached, dict) else ():
        match values:
            case [dict(verdict), float(begin), float(end)]:
                with contextlib.suppress(StoredError):
                    yield run_id, Stored(read(Tally, verdict, run_id), begin, end)


def _remember(cache: Path, seen: Mapping[str, Stored]) -> None:
    try:
        known = {run: (one.verdict.document(), one.begin, one.end) for run, one in seen.items()}
        write_whole(cache, json.dumps(known).encode())
    except OSError:  # somebody else's directory, or a full one: it is only a cache
        return
