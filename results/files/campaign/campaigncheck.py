"""Whether the variables of an open campaign file fit each other, so that no index leads astray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fsmatrix.results import histogram, iterations
from fsmatrix.results.files.campaign.campaignfile import LATER, NUMBERS, RAGGED, TEXTS
from fsmatrix.results.files.hdf5.hdf import Source
from fsmatrix.results.files.hdf5.schema import DamagedFileError, from_json
from fsmatrix.results.files.run.recordcheck import STATES

# variable -> the variable of whose rows it tells one
INDEXES = {
    "environment_index": "environment_json",
    "case_index": "case_json",
    "latency_kind": "kind_name",
    "latency_bin": "bin_lower",
    **{f"{dim}_run": "run_id" for dim in RAGGED},
}
JSON = ("factors", "left_out", "campaign")
SPAN = 1 << 20  # elements looked at at once


def check(path: Path, file: h5py.File) -> None:
    """DamagedFileError with what does not fit first."""
    reason = next(_misfits(file), "")
    if reason:
        raise DamagedFileError(path, f"is no whole campaign file: {reason}")


def _misfits(file: h5py.File) -> Iterator[str]:
    names = dict.fromkeys(file.keys())
    yield from _groups(file)
    if "run_id" not in names:
        yield "it has no run_id"
        return
    rows = file["run_id"].size
    factors = _factors(file)
    if factors is None or not set(factors) <= names.keys():
        yield "its factors are no columns of it"
        return
    for name in (*NUMBERS, *TEXTS, *factors, "last_attempt"):
        yield from _column(file, name, name in TEXTS, name in NUMBERS, rows)
    for dim, variables in RAGGED.items():
        sizes = {file[name].size for name in variables if name in names}
        if len(sizes) > 1:
            yield f"the variables of {dim} are not of one length"
        if sizes and f"{dim}_first" in names:
            yield from _parts(file, dim, sizes.pop())
    yield from _values(file)
    for name, of in INDEXES.items():
        if name in names and of in names:
            yield from _within(file[name], 0, file[of].size)
    if "bin_lower" in names and file["bin_lower"].size > histogram.BINS:
        yield "it has more latency bins than there are"
    yield from _states(file)


def _groups(file: h5py.File) -> Iterator[str]:
    for name, item in file.items():
        if not isinstance(item, h5py.Dataset) and name != "texts":
            yield f"{name!r:.80} is no variable"
        elif isinstance(item, h5py.Dataset) and item.ndim != 1:
            yield f"{name!r:.80} has not one dimension"


def _factors(file: h5py.File) -> list[str] | None:
    """Columns of the factors; None if they are not told as they should be."""
    attributes = Source(file).attributes()
    for name in JSON:
        if not isinstance(attributes.get(name, ""), str):
            return None
    try:
        factors = from_json(attributes.get("factors", ""))
    except ValueError:
        return None
    if not isinstance(factors, dict) or not all(isinstance(c, str) for c in factors.values()):
        return None
    return list(factors.values())


def _column(file: h5py.File, name: str, text: bool, number: bool, rows: int) -> Iterator[str]:
    if name not in file:
        return  # files of before have no shares and rates
    kind = file[name].dtype.kind
    if file[name].size != rows:
        yield f"{name!r:.80} has not as many rows as there are runs"
    if (text and kind not in "OS") or (number and kind not in "if"):
        yield f"{name!r:.80} is of another type"


def _parts(file: h5py.File, dim: str, size: int) -> Iterator[str]:
    """First row and number of rows of each run lie within the ragged dimension."""
    first, number = file[f"{dim}_first"], file.get(f"{dim}_size")
    if number is None or first.size != number.size or first.size != file["run_id"].size:
        yield f"{dim}_first and {dim}_size do not fit"
        return
    yield from _within(first, 0, size + 1)
    yield from _within(number, 0, size + 1)
    total = 0
    for at in range(0, first.size, SPAN):
        numbers = number[at : at + SPAN]
        total += int(numbers.sum())
        if ((first[at : at + SPAN] + numbers) > size).any() or total > size:
            yield f"{dim}_first and {dim}_size lead beyond its end"
            return


def _values(file: h5py.File) -> Iterator[str]:
    """Iterations have all their columns; they and what else came later can be measured."""
    names = [f"iteration_{part}" for part in ("run", "first", "size")]
    own = iterations.OWN_VARIABLES
    there = [name in file for name in (*names, *iterations.VARIABLES, *own)]
    if any(there) and not all(there):
        yield "it has iterations without all of their columns"
        return
    kinds = {name: kind for name, (kind, _, _) in iterations.VARIABLES.items() if any(there)}
    kinds |= {name: "f8" for name in (*own, *LATER) if name in file}
    for name, kind in kinds.items():
        variable = file[name]
        if variable.dtype.kind != kind[0]:
            yield f"{name} is of another type"
            return
        for at in range(0, variable.size, SPAN):
            if iterations.impossible(variable[at : at + SPAN]):
                yield f"{name} holds what cannot be measured"
                return


def _within(variable: h5py.Dataset, low: int, high: int) -> Iterator[str]:
    name = str(variable.name).strip("/")
    if variable.dtype.kind != "i":
        yield f"{name} is not made of whole numbers"
        return
    for at in range(0, variable.size, SPAN):
        values: Any = variable[at : at + SPAN]
        if (values < low).any() or (values >= high).any():
            yield f"{name} leads to rows that are not there"
            return


def _states(file: h5py.File) -> Iterator[str]:
    if "status" not in file:
        yield "it has no status"
        return
    allowed = {state.encode() for state in STATES}
    for at in range(0, file["status"].size, SPAN):
        stored = set(np.unique(file["status"][at : at + SPAN].astype("S")).tolist())
        if strange := sorted(stored - allowed):
            yield f"a run has the status {strange[0].decode('utf-8', 'replace')!r:.80}"
            return
