"""fio's logs: the windows of jobs on the Unix clock, and the series of bytes.

Asked for with `--log_avg_msec=N --log_unix_epoch=1 --per_job_logs=1`:

- `--write_lat_log` (for fio before 3.36, which has no job_start): fio closes each job's clat log
  when its loop has ended, so that the last time stamp is the job's end to the millisecond;
  its begin is that minus the runtime.  (Tried against job_start of 3.42: -1 to 0 ms off.  The
  first stamps of bandwidth logs are up to 100 ms late: the thread that writes them wakes late.)
- `--write_bw_log`: one line per N ms with the mean rate in KiB/s, without the last, open interval.
  The series is therefore approximate; it is fitted so that its sum is the job's bytes exactly.

A line: time in ms, value, direction (0 read, 1 write, 2 trim), ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.stored import read
from fsmatrix.results.formats.base import Note, Parsed
from fsmatrix.results.formats.fio.phase import PhaseFacts
from fsmatrix.results.record import Floats, Integers, Phase

UNCERTAINTY = 0.002  # end and runtime are whole milliseconds, and fio reads the clock twice
MOST_INTERVALS = 100_000
_NAME = re.compile(r"(?:^|.*/)[^/]*_(bw|clat)\.(\d{1,6})\.log")
_ROW = re.compile(r"^(\d{1,15}), *(\d{1,15}), *([0-2])\b", re.M)


@dataclass(frozen=True)
class JobLog:
    """What one log says; `rows` [entry, (ms, value, direction)]."""

    rows: npt.NDArray[np.int64]

    @property
    def last(self) -> float:
        """Time of the last entry, seconds."""
        return float(self.rows[:, 0].max()) / 1e3


def read_logs(files: Mapping[str, str]) -> dict[tuple[str, int], JobLog]:
    """("bw" or "clat", number of the job) -> log, of all files that are such logs.

    Lines that are damaged are left out.
    """
    logs = {}
    for name, text in files.items():
        if (match := _NAME.fullmatch(name)) and (rows := _ROW.findall(text)):
            table = np.array(rows, dtype=np.int64).reshape(-1, 3)
            logs[match[1], int(match[2])] = JobLog(table)
    return logs


def with_logs(parsed: Parsed, files: Mapping[str, str]) -> Parsed:
    """The same run with windows (where job_start did not give them) and interval series."""
    logs = read_logs(files)
    notes: list[Note] = []
    phases = []
    for phase in parsed.phases:
        placed = phase if phase.began else _placed(phase, logs, notes)
        phases.append(_with_series(placed, logs))
    return replace(parsed, phases=tuple(phases), notes=(*parsed.notes, *notes))


def _numbers(phase: Phase) -> list[int]:
    return [worker.number for worker in read(PhaseFacts, phase.facts, "facts").workers]


def _placed(phase: Phase, logs: Mapping[tuple[str, int], JobLog], notes: list[Note]) -> Phase:
    """Windows on the Unix clock, if every worker's clat log tells its end."""
    numbers = _numbers(phase)
    if any(("clat", number) not in logs for number in numbers):
        notes.append(Note("no-window", "fio's logs do not tell when its jobs ran", 0, phase.name))
        return phase
    ends = np.array([logs["clat", number].last for number in numbers])
    starts = ends - (phase.end - phase.start)
    began = float(starts.min())
    return replace(
        phase,
        start=starts - began,
        end=ends - began,
        began=began,
        clock_uncertainty=UNCERTAINTY,
        facts={**phase.facts, "window_source": "end of the clat log minus runtime"},
    )


def _with_series(phase: Phase, logs: Mapping[tuple[str, int], JobLog]) -> Phase:
    """Bytes per interval, all workers; none without a bandwidth log of every worker."""
    numbers = _numbers(phase)
    if not phase.began or any(("bw", number) not in logs for number in numbers):
        return phase
    tables = [logs["bw", number].rows for number in numbers]
    width = _period(tables)
    length = float(phase.end.max())
    if not 0 < length / width <= MOST_INTERVALS:
        return phase
    edges = np.arange(int(np.ceil(length / width)) + 1) * width
    total = np.zeros(len(edges))
    for worker, rows in enumerate(tables):
        start, end = float(phase.start[worker]), float(phase.end[worker])
        times, moved = _moved(rows, phase.began, start, end, int(phase.bytes[worker]), width)
        total += np.interp(edges, times, moved)
    return replace(
        phase,
        interval=width,
        interval_bytes=np.diff(np.round(total)).astype(np.int64),
        facts={**phase.facts, "interval_source": "mean rates of the bandwidth logs, fitted"},
    )


def _period(tables: list[Integers]) -> float:
    """log_avg_msec as the entries show it, seconds; 0.1 where there are too few of them."""
    steps = np.concatenate([np.diff(np.unique(rows[:, 0])) for rows in tables])
    steps = steps[steps > 1]
    return float(np.round(np.median(steps), -1) or 10) / 1e3 if steps.size else 0.1


def _moved(
    rows: Integers, began: float, start: float, end: float, total: int, width: float
) -> tuple[Floats, Floats]:
    """Times (relative to `began`, rising) and the bytes moved until each of them."""
    times = np.unique(rows[:, 0])
    rate = np.zeros(len(times))
    np.add.at(rate, np.searchsorted(times, rows[:, 0]), rows[:, 1].astype(np.float64) * 1024)
    relative = times / 1e3 - began
    inside = (relative > start) & (relative < end)
    relative, rate = relative[inside], rate[inside]
    gaps = np.minimum(np.diff(relative, prepend=start), 2 * width)
    bytes_ = np.cumsum(rate * gaps)
    if bytes_.size and bytes_[-1] > total:
        bytes_ *= total / bytes_[-1]
    return np.concatenate(([start], relative, [end])), np.concatenate(([0.0], bytes_, [total]))
