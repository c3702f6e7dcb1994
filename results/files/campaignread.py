"""Runs read back from a campaign file, as it holds them, to go into another one.

Before, its variables are checked: they fit each other, so that no index leads astray.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
import numpy.typing as npt

from fsmatrix.results import histogram, iterations
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.files import hdf_check, safefile
from fsmatrix.results.files.campaignfile import (
    FINDING_TEXTS,
    LATER,
    NUMBERS,
    RAGGED,
    TEXTS,
    Entry,
    Level,
)
from fsmatrix.results.files.hdf import HDF5_ERRORS, SIGNATURE, Source
from fsmatrix.results.files.run_rows import Row
from fsmatrix.results.files.runfile import STATES
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.schema import (
    CAMPAIGN_FORMAT,
    SCHEMA_VERSION,
    DamagedFileError,
    ForeignFileError,
    NewerSchemaError,
    decode_text,
    from_json,
)
from fsmatrix.results.files.texts import TextReader
from fsmatrix.results.record import Finding, Integers, Latency, Phase

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

# Campaign files opened: looked at before anything of them is read.
#
# Somebody else may have made them (a bundle, a mail): what HDF5 could be led to is refused
# (hdf_check.py), and so are columns and indexes that do not fit each other (`check`).


LARGE = 64 << 20  # bytes of a file of which only large pieces are unpacked to look at them


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
        if values.size and (values.min() < low or values.max() >= high):
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


@dataclass(frozen=True)
class Opened:
    """A campaign file that is open for reading and whose layout was checked."""

    file: h5py.File
    size: int  # bytes of the file
    unpacked: int  # bytes of its variables in memory


def opened(path: Path, follow: bool = True) -> Opened:
    """A campaign file that was looked at; the caller closes it.

    `follow`: the user named it, so that it may be a link.  ResultError (missing, no file,
    foreign, newer, damaged, refused) if it is none.
    """
    try:
        handle = safefile.descriptor(path, follow)
    except OSError as error:
        raise ResultError(path, _why(error)) from error
    try:
        return _opened(path, handle)
    finally:
        os.close(handle)  # HDF5 has opened the same file, by its descriptor, for itself


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return f"cannot be read: {error.strerror or error}"


def _opened(path: Path, handle: int) -> Opened:
    begin = os.pread(handle, len(SIGNATURE), 0)
    if not begin:
        raise DamagedFileError(path, "truncated: the file is empty")
    if begin != SIGNATURE:
        raise ForeignFileError(path, "not a campaign file of fsmatrix (not HDF5)")
    size = os.fstat(handle).st_size
    limits = hdf_check.LARGE_CAMPAIGN if size > LARGE else hdf_check.CAMPAIGN
    cache: dict[str, Json] = {"rdcc_nbytes": 0} if size > LARGE else {}  # one piece at a time
    try:
        file = h5py.File(f"/proc/self/fd/{handle}", "r", **cache)
    except HDF5_ERRORS as error:
        raise DamagedFileError(path, f"truncated or damaged HDF5 file ({error})") from error
    try:
        unpacked = hdf_check.check(
            path, file, size, lambda first, length: os.pread(handle, length, first), limits
        )
        _check_schema(path, file)
        check(path, file)
        return Opened(file, size, unpacked)
    except BaseException as error:
        file.close()
        if isinstance(error, ResultError) or not isinstance(error, HDF5_ERRORS):
            raise
        raise DamagedFileError(path, f"truncated or damaged HDF5 file ({error})") from error


def _check_schema(path: Path, file: h5py.File) -> None:
    attributes = Source(file).attributes()
    if attributes.get("format") != CAMPAIGN_FORMAT:
        raise ForeignFileError(path, "not a campaign file of fsmatrix")
    # a single number: netCDF's writers store it as an array of one
    version = int(np.asarray(attributes.get("schema_version", 0)).reshape(()))
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(path, version)


@contextmanager
def reading(path: Path | str) -> Iterator[h5py.File]:
    """An open campaign file.  ResultError (missing, foreign, newer, damaged) if it is none."""
    campaign = opened(Path(path))
    with campaign.file:
        yield campaign.file


def attributes(path: Path) -> dict[str, Json]:
    """The attributes of a campaign file, nothing else of it is looked at.

    ResultError and OSError as `opened`.
    """
    handle = safefile.descriptor(path)
    try:
        with h5py.File(f"/proc/self/fd/{handle}", "r") as file:
            return Source(file).attributes()
    except HDF5_ERRORS as error:
        raise DamagedFileError(path, f"truncated or damaged HDF5 file ({error})") from error
    finally:
        os.close(handle)


__all__ = ["entries", "reading", "run_of", "text", "texts_of"]
T = TypeVar("T")
AHEAD = 1 << 14  # elements read at once


def texts_of(path: Path | str, run_id: str) -> dict[str, str]:
    """Original texts by name of one run of a campaign file; empty if none were kept.

    LookupError if there is no such run; ResultError if the file cannot be read.
    """
    return _of_run(path, run_id, lambda file, first, _: TextReader(file).of_row(first))


def run_of(path: Path | str, run_id: str) -> Entry:
    """One run of a campaign file; errors as of `texts_of`."""
    return _of_run(path, run_id, lambda file, first, end: _Reader(file).entry(first, end))


def _of_run(path: Path | str, run_id: str, read: Callable[[h5py.File, int, int], T]) -> T:
    """What `read` makes of the rows from first to before end that are of a run."""
    with reading(path) as file:
        rows = np.flatnonzero(file["run_id"][...] == run_id.encode())
        try:
            if rows.size:
                return read(file, int(rows[0]), int(rows[-1]) + 1)
        except HDF5_ERRORS as error:
            raise _damaged(path, error) from error
    raise LookupError(f"{path}: no run {run_id}")


def entries(file: h5py.File, path: Path | str = "") -> Iterator[Entry]:
    """All runs of an open campaign file in its order, one in memory at a time; `path`: its name.

    DamagedFileError if what is there makes no sense.
    """
    try:
        reader = _Reader(file)
        run_ids = file["run_id"][...].tolist()
        starts = [
            row for row, run_id in enumerate(run_ids) if row == 0 or run_id != run_ids[row - 1]
        ]
    except HDF5_ERRORS as error:
        raise _damaged(path, error) from error
    for first, end in pairwise([*starts, len(run_ids)]):
        try:
            entry = reader.entry(first, end)
        except HDF5_ERRORS as error:
            raise _damaged(path, error) from error
        yield entry


def _damaged(path: Path | str, error: Exception) -> DamagedFileError:
    return DamagedFileError(path, f"cannot be read as a campaign file: {error}")


class _Column:
    """A variable read in ascending order, many elements at once."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self._dataset = dataset
        self._first = 0
        self._values: npt.NDArray[Any] = np.empty(0, dtype=dataset.dtype)

    def part(self, first: int, end: int) -> npt.NDArray[Any]:
        """Elements first..end."""
        low = self._first
        if first < low or end > low + len(self._values):
            self._first = low = first
            self._values = self._dataset[first : max(end, first + AHEAD)]
        return self._values[first - low : end - low]

    def value(self, row: int) -> Any:
        """One element: str, int or float."""
        value = self.part(row, row + 1)[0]
        return text(value) if isinstance(value, bytes) else value.item()


def text(value: bytes) -> str:
    """The text that a stored string stands for."""
    return decode_text(value.decode("utf-8"))


class _Reader:
    """All columns of a campaign file."""

    def __init__(self, file: h5py.File) -> None:
        factors = from_json(file.attrs["factors"])
        per_run = {*NUMBERS, *TEXTS, *factors.values(), "environment_index", "case_index"}
        per_run |= {f"{dim}_{part}" for dim in RAGGED for part in ("first", "size")}
        several = {name for variables in RAGGED.values() for name in variables}
        self._columns = {name: _Column(file[name]) for name in (per_run | several) & file.keys()}
        self._factors: Mapping[str, str] = factors
        self._kinds = [text(kind) for kind in file["kind_name"][...].tolist()]
        self._tables = {name: file[f"{name}_json"] for name in ("environment", "case")}
        self._texts = TextReader(file)

    def entry(self, first: int, end: int) -> Entry:
        """The run of these rows."""
        return Entry(
            rows=[self._row(row) for row in range(first, end)],
            levels={name: self._level(column, first) for name, column in self._factors.items()},
            environment=self._table("environment", first),
            case=self._table("case", first),
            texts=self._texts.of_row(first),
        )

    def _level(self, column: str, row: int) -> Level:
        """A level; whole numbers are whole also where a column of floats held them."""
        value: Level = self._columns[column].value(row)
        if isinstance(value, float):
            if value != value:
                return None
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
        return None if value == "" else value

    def _table(self, name: str, row: int) -> str:
        return text(self._tables[name][self._columns[f"{name}_index"].value(row)])

    def _row(self, row: int) -> Row:
        texts = {name: str(self._columns[name].value(row)) for name in TEXTS}
        stored = self._columns.keys()  # files of before have no shares and rates
        numbers = {name: self._columns[name].value(row) for name in NUMBERS if name in stored}
        phase = self._phase(row, texts["phase"], numbers) if texts["phase"] else None
        return Row(numbers, texts, phase, self._findings(row))

    def _ragged(self, dim: str, row: int) -> dict[str, npt.NDArray[Any]]:
        if f"{dim}_first" not in self._columns:
            return {}  # files of before have no iterations
        first = self._columns[f"{dim}_first"].value(row)
        end = first + self._columns[f"{dim}_size"].value(row)
        if end == first:
            return {}
        names = [name for name in RAGGED[dim] if name not in LATER or name in self._columns]
        return {name: self._columns[name].part(first, end) for name in names}

    def _phase(self, row: int, name: str, numbers: Mapping[str, float]) -> Phase:
        workers, series = self._ragged("worker", row), self._ragged("interval", row)
        empty = np.empty(0)
        return Phase(
            name=name,
            start=workers.get("worker_start", empty),
            end=workers.get("worker_end", empty),
            bytes=workers.get("worker_bytes", empty),
            operations=workers.get("worker_operations", empty),
            errors=workers.get("worker_errors", empty),
            latency=self._latencies(row),
            interval=numbers["interval_width"],
            interval_bytes=series.get("interval_bytes"),
            interval_operations=series.get("interval_operations"),
            interval_latency_max=series.get("interval_latency_max"),
            iterations=iterations.stripped(
                {
                    name.removeprefix(iterations.PREFIX): column
                    for name, column in self._ragged("iteration", row).items()
                }
            ),
            began=numbers["began"],
            clock_uncertainty=numbers["clock_uncertainty"],
        )

    def _latencies(self, row: int) -> dict[str, Latency]:
        """Counts by kind; sums and extremes stand in the columns of the row."""
        bins = self._ragged("latency", row)
        result: dict[str, Latency] = {}
        for code in dict.fromkeys(bins["latency_kind"].tolist()) if bins else ():
            counts: Integers = np.zeros(histogram.BINS, dtype=np.int64)
            of_kind = bins["latency_kind"] == code
            counts[bins["latency_bin"][of_kind]] = bins["latency_count"][of_kind]
            nan = float("nan")
            result[self._kinds[code]] = Latency(counts, nan, nan, nan)
        return result

    def _findings(self, row: int) -> list[Finding]:
        columns = self._ragged("finding", row)
        if not columns:
            return []
        texts = {
            name: [text(value) for value in columns[f"finding_{name}"].tolist()]
            for name in FINDING_TEXTS
        }
        return [
            Finding(version=int(version), **{name: column[i] for name, column in texts.items()})  # type: ignore[arg-type]
            for i, version in enumerate(columns["finding_version"].tolist())
        ]
