"""The workload `tpcc`: transactions like those of TPC-C on a database of the run's own.

By PostgreSQL, or by SQLite if it is named or where only that can be used.

Derived from TPC-C and not audited: users neither key nor think, and the numbers are transactions
per second of all types and new orders per second, never tpmC.  Three steps, each of which starts
the server on the run's directory and ends it (suite/oltp): the database is made, the users work,
and the standard's consistency conditions are asked for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from fsmatrix.backends.access import Access
from fsmatrix.backends.allowed import Form, one_of
from fsmatrix.backends.system.cgroups import MemoryUse, memory_refusal
from fsmatrix.results import histogram
from fsmatrix.results.evidence.stored import JsonObject, Stored, read
from fsmatrix.results.formats.parsed import Note, Parsed, ParseError
from fsmatrix.results.record import Case, Floats, Latency, Monitor, Phase
from fsmatrix.results.units import Duration, PositiveSize
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.oltp import account
from fsmatrix.suite.oltp.account import (
    DATA,
    POSTGRESQL,
    RESULT,
    SQLITE,
    SQLITE_DATA,
    TASK,
    OltpError,
    Task,
)
from fsmatrix.suite.oltp.answers import Answer, Checked, Loaded, Times, Worked
from fsmatrix.suite.oltp.clients import CANCELLED, NEW_ORDER
from fsmatrix.suite.workloads.workload import (
    Argv,
    Footprint,
    Output,
    Role,
    Step,
    Workload,
    WorkloadOptions,
)

# Options of the workload `tpcc`, and the server's settings that a campaign may give.


PAGE = 8192  # bytes of PostgreSQL's block, fixed when it is built
LEAST_BUFFERS = 16 * PAGE
LEAST_MEMORY = 16 << 20  # bytes beside the buffers: with less no server starts
PAGES = tuple(1 << n for n in range(9, 17))  # bytes of SQLite's
STUDY_PAGE = 4096

_SWITCH = one_of("on", "off")
_SIZE = Form("a size in PostgreSQL's units: 64MB, 512kB, 2GB", r"[1-9]\d{0,8}(kB|MB|GB)")
_TIME = Form("a time in PostgreSQL's units: 200ms, 30s, 5min", r"[1-9]\d{0,8}(ms|s|min|h)")
_COUNT = Form("a whole number", r"\d{1,9}")
_SHARE = Form("a number from 0 to 1", r"0(\.\d{1,6})?|1(\.0{1,6})?")
_COST = Form("a number", r"\d{1,6}(\.\d{1,6})?")

# Settings of postgresql.conf that are handed on.  None names a path, a program or a library, opens
# a connection, or turns off what keeps the data safe (fsync) and the server to itself.
SETTINGS: Mapping[str, Form] = {
    "autovacuum": _SWITCH,
    "backend_flush_after": _SIZE,
    "bgwriter_delay": _TIME,
    "bgwriter_lru_maxpages": _COUNT,
    "checkpoint_completion_target": _SHARE,
    "checkpoint_timeout": _TIME,
    "commit_delay": _COUNT,
    "commit_siblings": _COUNT,
    "effective_cache_size": _SIZE,
    "effective_io_concurrency": _COUNT,
    "full_page_writes": _SWITCH,
    "huge_pages": one_of("off", "try"),
    "maintenance_work_mem": _SIZE,
    "max_wal_size": _SIZE,
    "min_wal_size": _SIZE,
    "random_page_cost": _COST,
    "seq_page_cost": _COST,
    "synchronous_commit": _SWITCH,
    "temp_buffers": _SIZE,
    "wal_buffers": _SIZE,
    "wal_compression": one_of("off", "on", "pglz", "lz4", "zstd"),
    "wal_init_zero": _SWITCH,
    "wal_recycle": _SWITCH,
    "wal_sync_method": one_of("fdatasync", "fsync", "open_datasync", "open_sync"),
    "wal_writer_delay": _TIME,
    "work_mem": _SIZE,
}
REFUSED = {
    "fsync": "it stays on: without it a crash loses the data that the run says it wrote",
    "shared_buffers": "use the option shared_buffers",
    "default_transaction_isolation": "use the option isolation",
    "max_connections": "it follows from virtual_users",
    "listen_addresses": "the server listens on a Unix socket of its own only",
    "block_size": "PostgreSQL's block of 8 KiB is fixed when it is built",
}


def _settings(value: Any) -> Any:
    """YAML's words for on and off, and its numbers, as PostgreSQL writes them."""
    if not isinstance(value, Mapping):
        return value
    words = {True: "on", False: "off"}
    return {
        name: words[given]
        if isinstance(given, bool)
        else str(given)
        if isinstance(given, int | float)
        else given
        for name, given in value.items()
    }


class TpccOptions(WorkloadOptions):
    """What is played, by whom, on which server."""

    warehouses: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(
        default=1, description="size of the database: about 120 MB for each when it is new"
    )
    virtual_users: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = Field(
        default=None,
        description="users that work at once, without keying or think times; as many as "
        "warehouses if absent, each with a home warehouse of its own",
    )
    runtime: Duration = Field(default=60.0, description="measured time, after the warm-up")
    warm_up: Duration = Field(default=10.0, description="time before it, which is not measured")
    rate: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None,
        description="transactions of all types per second, by a schedule (open loop): latencies "
        "count from when each was due; as fast as possible if absent",
    )
    shared_buffers: PositiveSize = Field(
        default=8 << 20,
        description="the database's own buffers (flash study: 8 MiB); with SQLite, each user's",
    )
    memory: PositiveSize | None = Field(
        default=None,
        description="bytes that the server and its users may use together, page cache "
        "included (by a cgroup); all of the machine's memory if absent",
    )
    isolation: Literal["read committed", "repeatable read", "serializable"] = Field(
        default="read committed",
        description="of transactions; failures that it causes are retried.  SQLite: serializable",
    )
    max_tries: Annotated[int, Field(strict=True, ge=1, le=100)] = Field(
        default=10, description="of a transaction that other transactions block"
    )
    page_size: Annotated[int, Field(strict=True)] | None = Field(
        default=None,
        description="bytes of SQLite's pages, a power of two from 512 to 65536; 4096 if absent, as "
        "in the flash study",
    )
    journal_mode: Literal["wal", "delete", "truncate", "persist"] | None = Field(
        default=None,
        description="of SQLite: its log, or a rollback journal and how it ends; `wal` if absent",
    )
    synchronous: Literal["normal", "full", "extra"] | None = Field(
        default=None, description="of SQLite: when it syncs; `full` if absent"
    )
    settings: Annotated[dict[str, str], BeforeValidator(_settings)] = Field(
        default={},
        description="PostgreSQL's settings, by their own names; those listed in SECURITY.md",
    )

    @field_validator("runtime", "warm_up")
    @classmethod
    def _whole(cls, value: float) -> float:
        if not value.is_integer():
            raise ValueError(f"pgbench takes whole seconds, not {value:g}")
        return value

    @field_validator("runtime")
    @classmethod
    def _enough(cls, value: float) -> float:
        if value < 3:
            raise ValueError("in less than 3 s there are no middle two thirds to look at")
        return value

    @field_validator("shared_buffers")
    @classmethod
    def _buffers(cls, value: int) -> int:
        if value < LEAST_BUFFERS or value % PAGE:
            raise ValueError(
                f"{value} bytes: whole blocks of {PAGE} bytes, at least {LEAST_BUFFERS} bytes"
            )
        return value

    @model_validator(mode="after")
    def _memory(self) -> TpccOptions:
        if self.memory is not None and self.memory < LEAST_MEMORY + self.shared_buffers:
            raise ValueError(
                f"memory of {self.memory} bytes: at least {LEAST_MEMORY} bytes more than "
                f"shared_buffers, {LEAST_MEMORY + self.shared_buffers} bytes"
            )
        return self

    @field_validator("page_size")
    @classmethod
    def _pages(cls, value: int | None) -> int | None:
        if value is not None and value not in PAGES:
            raise ValueError(f"{value}: one of {', '.join(map(str, PAGES))}")
        return value

    @field_validator("settings")
    @classmethod
    def _allowed(cls, value: dict[str, str]) -> dict[str, str]:
        for name, given in value.items():
            if name in REFUSED:
                raise ValueError(f"{name}: {REFUSED[name]}")
            if name not in SETTINGS:
                allowed = ", ".join(sorted(SETTINGS))
                raise ValueError(f"{name} is not handed on to PostgreSQL; allowed are {allowed}")
            if reason := SETTINGS[name].refusal(given):
                raise ValueError(f"{name}: {reason}")
        return dict(sorted(value.items()))

    @property
    def users(self) -> int:
        """How many work at once."""
        return self.warehouses if self.virtual_users is None else self.virtual_users

    def sqlite_settings(self) -> dict[str, str]:
        """All that a connection to SQLite gets from this campaign."""
        return {
            "page_size": str(self.page_size or STUDY_PAGE),
            "journal_mode": self.journal_mode or "wal",
            "synchronous": self.synchronous or "full",
            "cache_size": f"-{self.shared_buffers // 1024}",  # KiB
        }

    def foreign(self, engine: str) -> str:
        """Why an option is none of this engine's (empty: none is)."""
        if engine == SQLITE:
            if self.settings:
                names = ", ".join(self.settings)
                return f"settings ({names}) are PostgreSQL's: leave them out for SQLite"
            if self.isolation == "repeatable read":
                return "isolation: SQLite's transactions are serializable: leave it out"
            return ""
        if self.page_size is not None:
            fixed = f"PostgreSQL's block is fixed when it is built, to {PAGE} bytes"
            return f"page_size is SQLite's: {fixed}"
        for name in ("journal_mode", "synchronous"):
            if getattr(self, name) is not None:
                return f"{name} is SQLite's: PostgreSQL has its log always, see settings"
        return ""

    def server_settings(self) -> dict[str, str]:
        """All that the server gets from this campaign."""
        return {
            **self.settings,
            "shared_buffers": f"{self.shared_buffers // 1024}kB",
            "default_transaction_isolation": self.isolation,
            "max_connections": str(self.users + 10),
        }


# What the steps of a `tpcc` run answered, as phases.


TRANSACTIONS = "transactions"
SHARE = 2 / 3  # of the measured time, its middle: where devices and CPUs are looked at
OBSERVED = "observed"  # the fact that campaign files take as columns (results/files/run_rows.py)
# settings of SQLite and of PostgreSQL by which a commit returns before its log is on the device
RETURNS_BEFORE = {"synchronous": "normal", "synchronous_commit": "off"}
MIB = 1 << 20
A = TypeVar("A", bound=Answer)
CPU_TIMES = ("busy", "idle", "iowait", "steal")
REQUESTS = (
    *("device_reads", "device_writes", "device_read_seconds", "device_write_seconds"),
    *("device_read_bytes", "device_written_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class Measured(Stored):
    """The facts of the phase `transactions` that are read again here."""

    local_window: tuple[float, float]  # Unix times of the client
    observed: Mapping[str, float]


def answer(kind: type[A], output: Output) -> A:
    """What a step answered; ParseError if it did not."""
    try:
        return read(kind, json.loads(output.files.get(RESULT, "")), RESULT)
    except ValueError as error:
        where = f"{output.step} on {output.host}"
        raise ParseError(where, 0, f"no {RESULT} of this version: {error}") from error


def engine_note(engine: str, settings: Mapping[str, str]) -> Note:
    """What is to be known of the engine beside the numbers."""
    size = int(settings.get("block_size", 0))
    if engine != SQLITE:
        return Note("block-size", f"PostgreSQL's block has {size} bytes, fixed when it was built")
    mode, sync = settings.get("journal_mode"), settings.get("synchronous")
    return Note(
        "embedded-database",
        f"SQLite with pages of {size} bytes, journal_mode {mode}, synchronous {sync}: no server, a "
        "process and a cache for each user",
    )


def memory_note(use: MemoryUse) -> Note:
    """What a limit of memory did."""
    peak = f"{use.peak / MIB:.4g}" if use.peak is not None else "unknown"
    return Note(
        "memory-limit",
        f"the database had {use.limit / MIB:.4g} MiB of memory, page cache included (cgroup "
        f"v{use.version}): peak {peak} MiB, limit reached {use.reached} times, "
        f"{use.oom_kills} processes killed",
    )


def transactions(result: Worked, output: Output, rate: float) -> Phase:
    """The phase `transactions`: one worker for each user."""
    begin, end = result.window
    seconds = end - begin
    done = np.array(result.of_users, dtype=np.int64)
    errors = np.zeros(done.size, np.int64)
    errors[0] = sum(result.failures.values()) + result.skipped
    latency = {name: _latency(times) for name, times in result.latency.items()}
    latency |= {f"{n}/service": _latency(times) for n, times in result.service.items()}
    counts = {name: times.count for name, times in result.latency.items()}
    return Phase(
        TRANSACTIONS,
        start=np.zeros(done.size),
        end=np.full(done.size, seconds),
        bytes=np.zeros(done.size, np.int64),
        operations=done,
        errors=errors,
        latency=latency,
        interval=1.0,
        interval_operations=np.array(result.each_second, dtype=np.int64),
        began=begin + output.clock_correction,
        clock_uncertainty=output.clock_uncertainty,
        facts={
            "synced": not RETURNS_BEFORE.items() & result.settings.items(),
            "window_seconds": seconds,
            "transactions": counts,
            "failures": result.failures,
            "skipped": result.skipped,
            "retries": result.retries,
            "retried": result.retried,
            "rolled_back": counts.get(CANCELLED, 0),
            "outside_window": result.outside,
            "rate": rate,
            "wal_bytes": result.wal_bytes,
            "local_window": [begin, end],
            OBSERVED: {
                "transaction_rate": float(done.sum()) / seconds,
                "new_order_rate": counts.get(NEW_ORDER, 0) / seconds,
            },
        },
    )


def _latency(times: Times) -> Latency:
    return Latency(
        counts=histogram.dense(times.histogram),
        total=float(times.total),
        minimum=float(times.minimum),
        maximum=float(times.maximum),
    )


def observed(phase: Phase, monitor: Monitor | None) -> dict[str, float]:
    """CPU shares and the devices' requests in the middle of the measured time.

    From the samplers' series of the one client: what counted between two samples is shared out
    evenly.  Without what nobody counted.
    """
    if monitor is None or not monitor.hosts:
        return {}
    begin, end = read(Measured, phase.facts, "facts").local_window
    cut = (end - begin) * (1 - SHARE) / 2
    first, last = begin + cut, end - cut
    went = {
        name: _between(monitor.time, series[0], first, last)
        for name, series in monitor.series.items()
    }
    return _cpu(went) | _requests(went, last - first)


def _cpu(went: Mapping[str, float]) -> dict[str, float]:
    whole = sum(went.get(f"cpu_{name}", np.nan) for name in CPU_TIMES)
    if not (np.isfinite(whole) and whole > 0):
        return {}
    busy, user = went["cpu_busy"] / whole, went.get("cpu_user", np.nan) / whole
    return {
        "cpu_busy": busy,
        "cpu_user": user,
        "cpu_system": max(busy - user, 0.0),
        "cpu_iowait": went["cpu_iowait"] / whole,
        "cpu_idle": went["cpu_idle"] / whole,
    }


def _requests(went: Mapping[str, float], seconds: float) -> dict[str, float]:
    if not all(np.isfinite(went.get(name, np.nan)) for name in REQUESTS):
        return {}
    reads, writes = went["device_reads"], went["device_writes"]
    moved = went["device_read_bytes"] + went["device_written_bytes"]
    times = {
        "device_latency": (
            went["device_read_seconds"] + went["device_write_seconds"],
            reads + writes,
        ),
        "read_latency": (went["device_read_seconds"], reads),
        "write_latency": (went["device_write_seconds"], writes),
    }
    return {
        "device_iops": (reads + writes) / seconds,
        "read_iops": reads / seconds,
        "write_iops": writes / seconds,
        "device_rate": moved / seconds,
        **{name: waited / count for name, (waited, count) in times.items() if count > 0},
    }


def _between(time: Floats, values: Floats, first: float, last: float) -> float:
    """How far a counter went between two moments; NaN if it was not looked at then."""
    finite = np.isfinite(time) & np.isfinite(values)
    times, looks = time[finite], values[finite]
    if times.size < 2 or first < times[0] or last > times[-1]:
        return float("nan")
    ends = np.interp([first, last], times, looks)
    return float(ends[1] - ends[0])


LOAD, CHECK = "load", "consistency"
NOT_AUDITED = "TPC-C derived, not audited: no keying or think times, no tpmC"
# Of a new database, and what a transaction adds: measured with PostgreSQL 15, log included.
WAREHOUSE, BASE, WAL = 130 << 20, 64 << 20, 1 << 30
GROWTH = 2 << 10  # bytes of a transaction
FASTEST = 500  # transactions per second of a user, for estimates of space
FILES = 1200


class Tpcc(Workload):
    """Five transactions in the standard's mix, by pgbench or by SQLite's users."""

    name: ClassVar[str] = "tpcc"
    Options: ClassVar[type[WorkloadOptions]] = TpccOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path"})
    engines: ClassVar[tuple[str, ...]] = (POSTGRESQL, SQLITE)
    cold_metadata: ClassVar[bool] = True
    options: TpccOptions

    @classmethod
    def default_engine(cls, usable: Callable[[str], bool]) -> str:
        """PostgreSQL where it can be used; SQLite where only that can."""
        return SQLITE if not usable(POSTGRESQL) and usable(SQLITE) else POSTGRESQL

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """Make the database, let the users work, ask for the conditions."""
        del case, access
        return [
            self._step(LOAD, "setup", "load", engine),
            self._step(TRANSACTIONS, "timed", "run", engine),
            self._step(CHECK, "check", "check", engine),
        ]

    def _step(self, name: str, role: Role, do: str, engine: Engine) -> Step:
        options, embedded = self.options, engine.name == SQLITE
        task = Task(
            do=do,
            programs=str(Path(engine.program).parent),
            path="{path}",
            seed="{seed}",
            warehouses=options.warehouses,
            users=options.users,
            settings=options.sqlite_settings() if embedded else options.server_settings(),
            warm_up=int(options.warm_up),
            seconds=int(options.runtime),
            rate=options.rate or 0.0,
            max_tries=options.max_tries,
            engine=engine.name,
            memory=(options.memory or 0) if role == "timed" else 0,
            journal="{journal}" if options.memory else "",
        )
        what = Argv(
            (sys.executable, "-P", "-m", "fsmatrix.suite.oltp", "{scratch}"),
            files={TASK: task.text()},
            collect=(RESULT,),
        )
        timed = role == "timed"
        data = SQLITE_DATA if embedded else DATA
        return Step(name, "node", role, what, reads=timed, files=(data,) * timed)

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The phase `transactions`; a violated condition is a failure, with its numbers."""
        del case
        by_step = {output.step: output for output in outputs}
        if TRANSACTIONS not in by_step:
            return Parsed()
        result = answer(Worked, by_step[TRANSACTIONS])
        try:
            phase = transactions(result, by_step[TRANSACTIONS], self.options.rate or 0.0)
        except (KeyError, TypeError, ValueError) as error:
            raise ParseError(
                TRANSACTIONS, 0, f"{RESULT} is not of this version: {error}"
            ) from error
        loaded = answer(Loaded, by_step[LOAD]) if LOAD in by_step else None
        checked = answer(Checked, by_step[CHECK]) if CHECK in by_step else None
        failure = checked.says if checked else ""
        if not failure and not phase.operations.any():
            failure = "no transaction ended within the measured time"
        engine = result.engine or POSTGRESQL
        notes = [Note("tpc-derived", NOT_AUDITED), engine_note(engine, result.settings)]
        if result.memory:
            notes.append(memory_note(result.memory))
        facts: JsonObject = {
            "block_size": int(result.settings.get("block_size", 0)),
            "settings": result.settings,
            "account": result.account,
            "load": loaded.document() if loaded else {},
            "consistency": checked.document() if checked else {},
            "memory": result.memory.document() if result.memory else None,
            "database_bytes": result.database_bytes,
        }
        return Parsed(
            engine=engine,
            version=result.settings.get("server_version", "").partition(" ")[0],
            phases=(phase,),
            nodes=1,
            processes=self.options.users,
            failure=failure,
            notes=tuple(notes),
            facts=facts,
        )

    def with_samples(self, case: Case, parsed: Parsed, monitor: Monitor | None) -> Parsed:
        """CPU shares and requests of devices, of the middle two thirds of the measured time."""
        del case
        phases = []
        for phase in parsed.phases:
            before = read(Measured, phase.facts, "facts").observed
            seen = {**before, **observed(phase, monitor)}
            phases.append(replace(phase, facts={**phase.facts, OBSERVED: seen}))
        return replace(parsed, phases=tuple(phases))

    def explain(self, output: Output) -> str:
        """The sentence that the step wrote."""
        lines = [line for line in output.stderr.splitlines() if line.startswith("tpcc: ")]
        return lines[-1].removeprefix("tpcc: ") if lines else ""

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        geometry = case.geometry
        if geometry.nodes > 1 or geometry.processes_per_node > 1 or geometry.threads > 1:
            return (
                "tpcc has one database server, on one client node: its load grows with warehouses "
                "and virtual_users, not with nodes, processes_per_node or threads"
            )
        if case.cache == "bypass":
            return "a database reads and writes through the page cache: say cache: cold or warm"
        if case.cache == "warm" and self.options.memory is not None:
            return (
                "memory: pages that are warm before the users work are not charged to them: say "
                "cache: cold"
            )
        return ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this cannot be run here (empty: it can)."""
        del case
        embedded = engine.name == SQLITE
        if access not in self.accesses:
            return f"{'SQLite' if embedded else 'PostgreSQL'} works on paths, not on {access}"
        if reason := self.options.foreign(engine.name):
            return reason
        if self.options.memory is not None and (reason := memory_refusal()):
            return f"memory: {self.options.memory}: {reason}"
        if os.geteuid() == 0 and not embedded:
            try:
                account.choose().words("KILL")
            except OltpError as error:
                return str(error)
        return ""

    def footprint(self, case: Case) -> Footprint:
        """An estimate: the new database and what transactions add at a good speed."""
        del case
        options = self.options
        seconds = options.runtime + options.warm_up
        fastest = min(options.rate or float("inf"), FASTEST * options.users, 5000.0)
        grown = int(seconds * fastest * GROWTH)
        new = BASE + WAREHOUSE * options.warehouses
        log = min(WAL, _bytes(options.settings.get("max_wal_size", "1GB")))
        return Footprint(
            space=new + grown + log,
            written=2 * new + 3 * grown,
            files=FILES,
            seconds=seconds,
            read=new,
        )


def _bytes(text: str) -> int:
    """A size in PostgreSQL's units."""
    return int(text[:-2]) * {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[text[-2:]]
