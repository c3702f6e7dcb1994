"""Workload tpcc: options, refusals, what is started, and what is made of outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fsmatrix.backends.access import PathAccess
from fsmatrix.results import histogram
from fsmatrix.results.files import run_rows
from fsmatrix.results.formats.parsed import ParseError
from fsmatrix.results.record import Case, Geometry, Monitor
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.oltp.account import RESULT, TASK
from fsmatrix.suite.workloads.tpcc import REFUSED, SETTINGS, Tpcc, TpccOptions
from fsmatrix.suite.workloads.workload import Argv, Output

ROOT = Path(__file__).resolve().parents[3]
ENGINE = Engine("postgresql", "15.1", "/opt/pg/bin/postgres")
SQLITE = Engine("sqlite", "3.40.1", "/usr/bin/python3")
ACCESS = PathAccess("directory", "t", path="/t")


def workload(**options: Any) -> Tpcc:
    return Tpcc(TpccOptions.model_validate(options))


def case_of(cache: str = "cold", **geometry: int) -> Case:
    return Case("t", "tpcc", geometry=Geometry(**geometry), cache=cache)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": {"archive_command": "touch /tmp/x"}}, "archive_command is not handed on"),
        ({"settings": {"shared_preload_libraries": "x"}}, "shared_preload_libraries is not"),
        ({"settings": {"include": "/etc/passwd"}}, "include is not handed on"),
        ({"settings": {"fsync": False}}, "fsync: it stays on"),
        ({"settings": {"listen_addresses": "*"}}, "listen_addresses: the server listens on a Unix"),
        ({"settings": {"shared_buffers": "1GB"}}, "shared_buffers: use the option shared_buffers"),
        ({"settings": {"max_wal_size": "1GB; x"}}, "max_wal_size: '1GB; x' is not a size"),
        ({"settings": {"wal_sync_method": "magic"}}, "wal_sync_method: 'magic' is not one of"),
        ({"settings": {"work_mem": [1]}}, "settings.work_mem"),
        ({"shared_buffers": "8KiB"}, "at least 131072 bytes"),
        ({"shared_buffers": 1000001}, "whole blocks of 8192 bytes"),
        ({"memory": "16MiB"}, "at least 16777216 bytes more than shared_buffers, 25165824 bytes"),
        ({"memory": "much"}, "memory"),
        ({"warehouses": 0}, "greater than or equal to 1"),
        ({"warehouses": True}, "valid integer"),
        ({"virtual_users": 1001}, "less than or equal to 1000"),
        ({"runtime": "2s"}, "in less than 3 s"),
        ({"warm_up": "1.5s"}, "whole seconds, not 1.5"),
        ({"rate": 0}, "greater than 0"),
        ({"isolation": "none"}, "read committed"),
        ({"page_size": 4000}, "4000: one of 512, 1024, 2048, 4096"),
        ({"page_size": "4KiB"}, "valid integer"),
        ({"journal_mode": "off"}, "'wal', 'delete', 'truncate' or 'persist'"),
        ({"synchronous": "off"}, "'normal', 'full' or 'extra'"),
        ({"fsync": False}, "Extra inputs"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        workload(**options)


def test_settings_as_yaml_has_them() -> None:
    options = TpccOptions.model_validate(
        {"settings": {"autovacuum": False, "commit_delay": 100, "max_wal_size": "64MB"}}
    )
    given = options.server_settings()
    assert (given["autovacuum"], given["commit_delay"]) == ("off", "100")
    assert given["shared_buffers"] == "8192kB"
    assert given["max_connections"] == "11"


def test_security_lists_the_settings() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| `settings` of tpcc"))
    listed = row.split(" | ")[2].partition("`")[2].partition("`")[0]
    assert listed.split() == sorted(SETTINGS)
    assert not set(SETTINGS) & set(REFUSED)
    forbidden = re.compile("command|library|libraries|directory|file|address|include|preload|ssl")
    assert not [name for name in SETTINGS if forbidden.search(name)]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (case_of(nodes=2), "one database server, on one client node"),
        (case_of(processes_per_node=2), "warehouses and virtual_users"),
        (case_of(threads=2), "one database server"),
        (case_of(cache="bypass"), "through the page cache: say cache: cold or warm"),
    ],
)
def test_what_cannot_be(case: Case, message: str) -> None:
    assert message in workload().refusal(case)
    assert workload().refusal(case_of()) == ""
    assert "PostgreSQL works on paths" in workload().unsupported(case_of(), "rados", ENGINE)


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        (ENGINE, {"page_size": 4096}, "page_size is SQLite's: PostgreSQL's block is fixed"),
        (ENGINE, {"journal_mode": "wal"}, "journal_mode is SQLite's"),
        (ENGINE, {"synchronous": "full"}, "synchronous is SQLite's"),
        (SQLITE, {"settings": {"work_mem": "1MB"}}, "settings (work_mem) are PostgreSQL's"),
        (SQLITE, {"isolation": "repeatable read"}, "SQLite's transactions are serializable"),
    ],
)
def test_options_of_the_other_engine_are_refused(
    engine: Engine, options: dict[str, Any], message: str
) -> None:
    assert message in workload(**options).unsupported(case_of(), "path", engine)


def test_sqlite_is_used_where_only_that_can_be() -> None:
    assert Tpcc.default_engine(lambda _: True) == "postgresql"
    assert Tpcc.default_engine(lambda name: name == "sqlite") == "sqlite"
    assert Tpcc.default_engine(lambda _: False) == "postgresql"  # which says what to install
    assert workload().unsupported(case_of(), "path", SQLITE) == ""
    assert "SQLite works on paths" in workload().unsupported(case_of(), "rados", SQLITE)


def test_steps_of_sqlite() -> None:
    made = workload(journal_mode="delete").steps(case_of(), ACCESS, SQLITE)
    assert [step.files for step in made] == [(), ("sqlite",), ()]
    assert isinstance(made[1].what, Argv)
    asked = json.loads(made[1].what.files[TASK])
    assert asked["engine"] == "sqlite"
    assert asked["settings"] == {
        "page_size": "4096",
        "journal_mode": "delete",
        "synchronous": "full",
        "cache_size": "-8192",
    }


def test_three_steps() -> None:
    made = workload(warehouses=3, rate=7.5).steps(case_of(), ACCESS, ENGINE)
    assert [(s.name, s.role, s.reads) for s in made] == [
        ("load", "setup", False),
        ("transactions", "timed", True),
        ("consistency", "check", False),
    ]
    for step, do in zip(made, ("load", "run", "check"), strict=True):
        assert isinstance(step.what, Argv)
        assert step.what.argv[-1] == "{scratch}"
        asked = json.loads(step.what.files[TASK])
        assert asked["do"] == do
        assert (asked["programs"], asked["path"]) == ("/opt/pg/bin", "{path}")
        assert (asked["seed"], asked["users"], asked["rate"]) == ("{seed}", 3, 7.5)


def test_more_is_foreseen_for_more() -> None:
    small, large = (workload(warehouses=n).footprint(case_of()) for n in (1, 10))
    assert large.space > small.space > 100 << 20
    assert workload(settings={"max_wal_size": "64MB"}).footprint(case_of()).space < small.space


def kind(count: int, nanoseconds: int) -> dict[str, Any]:
    counts = np.zeros(histogram.BINS, np.int64)
    counts[histogram.bin_of(nanoseconds)] = count
    seconds = nanoseconds / 1e9
    return {
        "count": count,
        "total": count * seconds,
        "minimum": seconds,
        "maximum": seconds,
        "histogram": histogram.sparse(counts),
    }


TOLD = {
    "began": 90.0,
    "window": [100.0, 112.0],
    "of_users": [70, 50],
    "each_second": [10] * 12,
    "failures": {"deadlock": 2},
    "skipped": 1,
    "retries": 5,
    "retried": 4,
    "outside": 9,
    "wal_bytes": 4096,
    "latency": {"new-order": kind(60, 10**7), "payment": kind(59, 10**6)}
    | {"new-order-cancelled": kind(1, 10**7)},
    "service": {},
    "settings": {"block_size": "8192", "server_version": "15.1 (Debian 15.1-1)"},
    "account": "postgres",
    "database_bytes": [1, 2],
}


def outputs(told: Any = TOLD, says: str = "") -> list[Output]:
    loaded = {"database_bytes": 1, "seconds": {"all": 1.0}}
    checked = {"violations": {"3": 0}, "says": says}
    answers = {"load": loaded, "transactions": told, "consistency": checked}
    return [
        Output(name, "n1", 0, files={RESULT: json.dumps(value)}, clock_correction=0.5)
        for name, value in answers.items()
    ]


def test_a_limit_of_memory_is_of_the_users_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tpcc = workload(memory="512MiB")
    tasks = []
    for step in tpcc.steps(case_of(), ACCESS, ENGINE):
        assert isinstance(step.what, Argv)
        tasks.append(json.loads(step.what.files[TASK]))
    assert [task["memory"] for task in tasks] == [0, 512 << 20, 0]
    assert tasks[1]["journal"] == "{journal}"
    assert "not charged to them" in tpcc.refusal(case_of("warm"))
    assert tpcc.refusal(case_of("cold")) == ""
    monkeypatch.setattr(
        "fsmatrix.suite.workloads.tpcc.memory_refusal", lambda: "no cgroup hierarchy here"
    )
    refused = tpcc.unsupported(case_of(), "path", SQLITE)
    assert refused == "memory: 536870912: no cgroup hierarchy here"
    assert workload().unsupported(case_of(), "path", SQLITE) == ""


def test_what_outputs_become() -> None:
    parsed = workload(virtual_users=2).parse(case_of(), outputs())
    (phase,) = parsed.phases
    assert (parsed.engine, parsed.version, parsed.failure) == ("postgresql", "15.1", "")
    assert phase.name == "transactions"
    assert phase.operations.tolist() == [70, 50]
    assert phase.errors.sum() == 3
    assert phase.began == 100.5
    assert phase.facts["rolled_back"] == 1
    found = run_rows.observed_of(phase)
    assert found == {"transaction_rate": 10.0, "new_order_rate": 5.0}
    assert {note.key for note in parsed.notes} == {"tpc-derived", "block-size"}
    assert "8192 bytes" in parsed.notes[1].message


@pytest.mark.parametrize(("commit", "synced"), [("on", True), ("off", False)])
def test_a_commit_that_returns_early_is_not_synced(commit: str, synced: bool) -> None:
    settings = TOLD["settings"] | {"synchronous_commit": commit}
    parsed = workload(virtual_users=2).parse(case_of(), outputs(TOLD | {"settings": settings}))
    assert parsed.phases[0].facts["synced"] is synced


@pytest.mark.parametrize(("synchronous", "synced"), [("full", True), ("normal", False)])
def test_what_outputs_of_sqlite_become(synchronous: str, synced: bool) -> None:
    settings = {"block_size": "4096", "server_version": "3.40.1", "journal_mode": "wal"}
    settings |= {"synchronous": synchronous}
    told = {**TOLD, "engine": "sqlite", "settings": settings, "wal_bytes": None}
    parsed = workload(virtual_users=2).parse(case_of(), outputs(told))
    assert (parsed.engine, parsed.version, parsed.failure) == ("sqlite", "3.40.1", "")
    assert parsed.phases[0].facts["synced"] is synced
    assert {note.key for note in parsed.notes} == {"tpc-derived", "embedded-database"}
    assert "SQLite with pages of 4096 bytes, journal_mode wal" in parsed.notes[1].message
    assert parsed.facts["block_size"] == 4096


def test_a_violated_condition_fails_the_run() -> None:
    says = "consistency conditions of TPC-C (clause 3.3.2) are violated: 3 (2 times)"
    assert workload().parse(case_of(), outputs(says=says)).failure == says


def test_no_transactions_fail_the_run() -> None:
    idle = {**TOLD, "of_users": [0, 0], "latency": {}}
    assert "no transaction ended" in workload().parse(case_of(), outputs(idle)).failure


@pytest.mark.parametrize("told", [[], {"window": [1, 2]}, "x"])
def test_damaged_answers_are_errors(told: Any) -> None:
    with pytest.raises(ParseError):
        workload().parse(case_of(), outputs(told))


def test_devices_and_cpus_of_the_middle() -> None:
    """Nothing counts but the seconds 102 to 110."""
    time = np.arange(95.0, 120.0, 0.5)
    inside = np.clip(time, 102.0, 110.0) - 102.0
    other = np.where(time < 102, 0.0, 1e6) * (time > 111)
    series = {
        "device_reads": 3 * inside,
        "device_writes": 5 * inside + other,
        "device_read_seconds": 0.03 * inside,
        "device_write_seconds": 0.1 * inside,
        "device_read_bytes": 4096 * inside,
        "device_written_bytes": 8192 * inside,
        "cpu_busy": 1.5 * inside,
        "cpu_user": 1.0 * inside,
        "cpu_idle": 0.2 * inside,
        "cpu_iowait": 0.3 * inside,
        "cpu_steal": 0.0 * inside,
    }
    monitor = Monitor(("n1",), time, {name: row[None] for name, row in series.items()})
    work = workload(virtual_users=2)
    parsed = work.with_samples(case_of(), work.parse(case_of(), outputs()), monitor)
    found = run_rows.observed_of(parsed.phases[0])
    assert found == pytest.approx(
        {
            "transaction_rate": 10.0,
            "new_order_rate": 5.0,
            "device_iops": 8.0,
            "read_iops": 3.0,
            "write_iops": 5.0,
            "device_rate": 12288.0,
            "device_latency": 0.13 / 8,
            "read_latency": 0.01,
            "write_latency": 0.02,
            "cpu_busy": 0.75,
            "cpu_user": 0.5,
            "cpu_system": 0.25,
            "cpu_iowait": 0.15,
            "cpu_idle": 0.1,
        }
    )


@pytest.mark.parametrize("times", [[], [50.0, 103.0], [103.0, 104.0]])
def test_what_nobody_counted_is_absent(times: list[float]) -> None:
    work = workload(virtual_users=2)
    series = {"device_reads": np.array([times])}
    monitor = Monitor(("n1",), np.array(times), series) if times else None
    parsed = work.with_samples(case_of(), work.parse(case_of(), outputs()), monitor)
    assert set(run_rows.observed_of(parsed.phases[0])) == {"transaction_rate", "new_order_rate"}


def test_the_sentence_of_a_step_is_the_reason() -> None:
    failed = Output("load", "n1", 0, 1, stderr="noise\ntpcc: initdb failed: no\n")
    assert workload().explain(failed) == "initdb failed: no"
    assert workload().explain(Output("load", "n1", 0, 1, stderr="Traceback")) == ""
