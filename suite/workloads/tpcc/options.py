"""Options of the workload `tpcc`, and the server's settings that a campaign may give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from fsmatrix.backends.allowed import Form, one_of
from fsmatrix.results.units import Duration, PositiveSize
from fsmatrix.suite.oltp.task import SQLITE
from fsmatrix.suite.workloads.base import WorkloadOptions

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
