"""Whether a record that was read from a file fits itself: ids, states, sizes, values.

A file's form says nothing about its contents: somebody may have written anything into it.
What does not fit is named and left out of everything that looks at many runs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from fsmatrix.results import iterations
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.results.files.hdf5.schema import from_json
from fsmatrix.results.files.run import phases, runfile
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.record import ID_LENGTH, SEVERITIES, Phase, RunRecord, Status, digest

STATES = get_args(Status)
NUMBER = 1 << 31  # repetitions, attempts, blocks are below
NAME = 500  # characters of a name: columns of strings are as wide as the longest
LEVEL = 1 << 16  # characters of a level: options of a program may be one
HOSTS = 1 << 18  # characters of all host names: 10,000 nodes
FACTORS = 500  # each is a column; campaigns have some twenty
PHASES = 10_000  # a run has one to some hundred (IO500: 13)
ANONYMISED = "anonymised"  # in `environment`: the case's names were replaced, its ids stayed
NOT_WORK = ("target", "level", "device_state")  # of a case
# what rows and columns make of contents that are not what they should be
NONSENSE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)


class MisfitError(ResultError):
    """A run file whose contents contradict themselves, or its name."""


def read(path: Path) -> RunRecord:
    """The record of a run file in a store.  ResultError if it cannot be read or does not fit."""
    record = runfile.read_run(path)
    check(path, record)
    return record


def check(path: Path, record: RunRecord) -> None:
    """MisfitError with the first thing that does not fit."""
    if path.stem != record.run_id:
        raise MisfitError(path, f"holds run {record.run_id[:NAME]}: renamed, or copied here")
    try:
        reason = next(_misfits(record), "")
        phases.check(path, record.phases)
    except NONSENSE as error:
        raise MisfitError(path, f"holds a run that cannot be merged: {error}") from error
    if reason:
        raise MisfitError(path, f"holds a run that cannot be merged: {reason}")


def _misfits(record: RunRecord) -> Iterator[str]:
    yield from _documents(record)
    yield from _case(record)
    if record.status not in STATES:
        yield f"its status is {record.status[:NAME]!r}, not one of {', '.join(STATES)}"
    for name in ("repetition", "attempt", "block"):
        if not 0 <= getattr(record, name) < NUMBER:
            yield f"{name} is {getattr(record, name)}"
    if not (math.isfinite(record.duration) and record.duration >= 0):
        yield f"its duration is {record.duration}"
    if len(record.phases) > PHASES:
        yield f"it has {len(record.phases)} phases"
    for phase in record.phases:
        yield from _phase(phase)
    for finding in record.findings:
        if finding.severity not in SEVERITIES:
            yield f"a finding has the severity {finding.severity[:NAME]!r}"
        if len(finding.audit) > NAME or len(finding.phase) > NAME:
            yield "a finding has a name that is too long"


def _case(record: RunRecord) -> Iterator[str]:
    """Ids are hashes of the case: nobody can give a run another's id by mistake."""
    case = from_json(record.case)
    if not isinstance(case, dict) or not all(
        isinstance(case.get(name), str) and 0 < len(case[name]) <= NAME
        for name in ("target", "workload")
    ):
        yield f"not the canonical JSON of a case: {record.case[:80]!r}"
        return
    for name in ("options", "level", "geometry"):
        if not isinstance(case.get(name, {}), dict):
            yield f"its case has {name} that are no mapping"
    if record.environment.get(ANONYMISED) is True:
        return
    expected = hashlib.sha256(record.case.encode()).hexdigest()[:ID_LENGTH]
    if record.case_id not in (expected, digest(case)):
        yield f"its case has the id {digest(case)}, not {record.case_id[:NAME]}"
    work = digest({name: value for name, value in case.items() if name not in NOT_WORK})
    if record.work_id != work:
        yield f"its work has the id {work}, not {record.work_id[:NAME]}"


def _documents(record: RunRecord) -> Iterator[str]:
    """What stands in the file as JSON is of the types that we write."""
    for name in ("failure", "coordinates", "environment"):
        if not isinstance(getattr(record, name), dict):
            yield f"{name} is no mapping"
            return
    if not all(isinstance(word, str) for words in record.argv for word in words):
        yield "argv holds something else than words"
    if not all(isinstance(run_id, str) for run_id in record.companions):
        yield "companions holds something else than ids"
    if sum(map(len, {rank.host for rank in record.ranks})) > HOSTS:
        yield "its ranks have host names that are too long"
    if len(record.coordinates) > FACTORS:
        yield f"it has {len(record.coordinates)} factors"
    for name, level in record.coordinates.items():
        if not 0 < len(name) <= NAME or len(str(level)) > LEVEL:
            yield f"the factor {name[:80]!r} has a name or a level that is too long"


def _phase(phase: Phase) -> Iterator[str]:
    name = f"phase {phase.name[:80]!r}"
    if len(phase.name) > NAME or any(len(kind) > NAME for kind in phase.latency):
        yield f"{name} has a name that is too long"
    for field in ("began", "clock_uncertainty", "interval"):
        value = getattr(phase, field)
        if not math.isfinite(value) or value < 0:
            yield f"{name}: {field} is {value}"
    for field in (*phases.TIMES, *phases.OPTIONAL_TIMES):
        values = getattr(phase, field)
        if values is not None and (values.dtype.kind != "f" or np.isinf(values).any()):
            yield f"{name}: {field} holds what is no time"
    for field in (*phases.COUNTS, *phases.SERIES):
        values = getattr(phase, field)
        if values is not None and (values.dtype.kind != "i" or (values < 0).any()):
            yield f"{name}: {field} holds what is no count"
    for field in phases.TIME_SERIES:
        values = getattr(phase, field)
        if values is not None and (values.dtype.kind != "f" or iterations.impossible(values)):
            yield f"{name}: {field} holds what is no time"
    for kind, latency in phase.latency.items():
        numbers = (latency.total, latency.minimum, latency.maximum)
        if (latency.counts < 0).any() or any(math.isinf(n) or n < 0 for n in numbers):
            yield f"{name}: latencies of {kind[:80]!r} are negative or infinite"
    if reason := iterations.misfit(phase.iterations, phase.summary):
        yield f"{name}: {reason}"
    for column, values in phase.iterations.items():
        if iterations.impossible(values):
            yield f"{name}: {column} of an iteration is negative or infinite"
    if any(math.isinf(value) or value < 0 for value in phase.summary.values()):
        yield f"{name}: a summary of iterations is negative or infinite"
    if not isinstance(phase.facts, dict) or not isinstance(phase.errors_by_errno, dict):
        yield f"{name}: facts or errors_by_errno is no mapping"


def numbers(path: Path, rows: Sequence[JsonObject]) -> None:
    """MisfitError if a column of numbers of these rows would get something else."""
    for row in rows:
        for name, value in row.items():
            if not isinstance(value, int | float | np.number):
                raise MisfitError(path, f"holds a run that cannot be merged: {name} is no number")
