"""A log of each transaction, as pgbench of PostgreSQL 15 writes it, counted within a window.

A line: client, number of the transaction, latency in microseconds (or how it failed), number of
the script, end as Unix seconds and microseconds, then with `--rate` the lag behind the schedule in
microseconds, then with `--max-tries` the retries.  With `--rate` the latency begins when the
transaction was due, so latency less lag is the time of service.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.results import histogram
from fsmatrix.results.files import safefile
from fsmatrix.suite.oltp import answers
from fsmatrix.suite.oltp.answers import Worked

CHUNK = 1 << 20  # lines read at once
FAILURES = ("serialization", "deadlock", "locked", "failed", "other")  # locked: SQLite's


@dataclass
class Times:
    """Latencies of one kind, in nanoseconds."""

    counts: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(histogram.BINS, np.int64)
    )
    total: float = 0.0
    least: float = float("inf")
    most: float = 0.0

    def add(self, nanoseconds: npt.NDArray[np.int64]) -> None:
        """More of them."""
        if nanoseconds.size:
            self.counts += np.bincount(histogram.bin_of(nanoseconds), minlength=histogram.BINS)
            self.total += float(nanoseconds.sum())
            self.least = min(self.least, float(nanoseconds.min()))
            self.most = max(self.most, float(nanoseconds.max()))

    @property
    def answer(self) -> answers.Times:
        """In seconds."""
        count = int(self.counts.sum())
        return answers.Times(
            count=count,
            total=self.total / 1e9,
            minimum=self.least / 1e9 if count else 0.0,
            maximum=self.most / 1e9,
            histogram=histogram.sparse(self.counts),
        )


@dataclass
class Counted:
    """What the logs say of one window."""

    names: tuple[str, ...]  # of the scripts, by number
    users: int
    window: tuple[float, float]  # Unix times
    outside: int = 0  # transactions that ended before or after
    retries: int = 0
    retried: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    of_users: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    each_second: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    latency: dict[str, Times] = field(default_factory=dict)
    service: dict[str, Times] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.of_users = np.zeros(self.users, np.int64)
        seconds = max(1, int(self.window[1] - self.window[0]))
        self.each_second = np.zeros(seconds, np.int64)

    def answer(
        self,
        began: float,
        account: str,
        settings: Mapping[str, str],
        database_bytes: tuple[int, int],
        wal_bytes: int | None = None,
        engine: str | None = None,
    ) -> Worked:
        """What the users' step answers."""
        return Worked(
            engine=engine,
            began=began,
            window=self.window,
            account=account,
            settings=settings,
            wal_bytes=wal_bytes,
            database_bytes=database_bytes,
            outside=self.outside,
            retries=self.retries,
            retried=self.retried,
            failures=self.failures,
            skipped=self.skipped,
            of_users=tuple(self.of_users.tolist()),
            each_second=tuple(self.each_second.tolist()),
            latency={name: times.answer for name, times in self.latency.items()},
            service={name: times.answer for name, times in self.service.items()},
        )

    def add(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        """Lines of a log, column by column."""
        ended = columns["seconds"] + columns["microseconds"] / 1e6
        inside = (ended >= self.window[0]) & (ended < self.window[1])
        self.outside += int((~inside).sum())
        texts = columns["time"][inside]
        kept = {name: values[inside] for name, values in columns.items()}
        good = np.char.isdigit(texts.astype(str)) if texts.size else np.zeros(0, bool)
        for word, count in zip(
            *np.unique(texts[~good].astype(str), return_counts=True), strict=True
        ):
            self._failed(str(word), int(count))
        ended = ended[inside][good]
        kept = {name: values[good] for name, values in kept.items()}
        self.of_users += np.bincount(kept["client"], minlength=self.users)[: self.users]
        second = np.minimum((ended - self.window[0]).astype(np.int64), self.each_second.size - 1)
        self.each_second += np.bincount(second, minlength=self.each_second.size)
        self.retries += int(kept["retries"].sum())
        self.retried += int((kept["retries"] > 0).sum())
        latency = texts[good].astype(np.int64) * 1000
        for number in np.unique(kept["script"]):
            of_script = kept["script"] == number
            name = self.names[int(number)]
            self.latency.setdefault(name, Times()).add(latency[of_script])
            if "lag" in kept:
                service = latency[of_script] - kept["lag"][of_script] * 1000
                self.service.setdefault(name, Times()).add(np.maximum(service, 0))

    def _failed(self, word: str, count: int) -> None:
        if word == "skipped":
            self.skipped += count
        else:
            name = word if word in FAILURES else "other"
            self.failures[name] = self.failures.get(name, 0) + count


def count(
    paths: Sequence[Path],
    names: tuple[str, ...],
    users: int,
    window: tuple[float, float],
    lag: bool,
) -> Counted:
    """All logs of one run; `lag`: it had a rate.  ValueError for a line that is none.

    ResultError for what is no regular file.
    """
    import pandas as pd  # it reads millions of lines a second

    columns = ["client", "number", "time", "script", "seconds", "microseconds"]
    columns += (["lag"] if lag else []) + ["retries"]
    types = dict.fromkeys(columns, "int64") | {"time": "str"}
    counted = Counted(names, users, window)
    for path in paths:
        # the account owns their folder: a link or a FIFO there is refused
        with os.fdopen(safefile.descriptor(path), "rb") as log:
            if not os.fstat(log.fileno()).st_size:
                continue
            reader = pd.read_csv(
                log, sep=" ", header=None, names=columns, dtype=types, chunksize=CHUNK, engine="c"
            )
            for part in reader:
                counted.add({name: part[name].to_numpy() for name in columns})
    return counted
