"""SQLite as the engine of transactions: made, filled, used, checked, killed, and out of space."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fsmatrix import analysis
from fsmatrix.suite.oltp.account import SQLITE, SQLITE_DATA
from fsmatrix.suite.oltp.answers import CONDITIONS
from fsmatrix.suite.oltp.sqlite_steps import FILE
from fsmatrix.suite.oltp.sqlite_transactions import MANY, Draws, hashes, perform
from fsmatrix.suite.oltp.tpcc_rows import Rows
from fsmatrix.suite.session.programs import Finished
from tests.suite import oltp_steps
from tests.suite.oltp_steps import (
    SQLITE_SETTINGS,
    answer,
    in_background,
    left_running,
    small_disk,
)
from tests.suite.running import fsmatrix

pytestmark = pytest.mark.xdist_group("sqlite")
# what hashint8extended(k, seed) & 9223372036854775807 is in PostgreSQL 15, for k from 1 to 3
KNOWN = {
    42: [2207685931686633351, 403280637362415369, 5331535880289719894],
    2**53 - 1: [3809827133725394189, 4724750438490076844, 2246873905195886671],
}


def step(do: str, path: Path, **more: Any) -> Finished:
    return oltp_steps.step(do, path, engine=SQLITE, **more)


def settings(journal_mode: str) -> dict[str, str]:
    return {**SQLITE_SETTINGS, "journal_mode": journal_mode}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's directory with a new database of one warehouse; not to be changed."""
    path = tmp_path_factory.mktemp("loaded")
    assert answer(step("load", path))["database_bytes"] > 50 << 20
    return path


@pytest.fixture
def place(loaded: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    copied(loaded, tmp_path)
    return tmp_path


def copied(loaded: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", str(loaded / SQLITE_DATA), str(to)], check=True)


def asked(path: Path, question: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path / SQLITE_DATA / FILE, isolation_level=None)) as db:
        return db.execute(question, values).fetchall()


def counts(path: Path) -> dict[str, int]:
    return {
        name: asked(path, f"SELECT count(*) FROM {name}")[0][0]
        for name in ("orders", "history", "order_line", "item", "stock", "customer")
    }


def test_a_new_database_has_the_pages_and_rows_that_were_asked_for(loaded: Path) -> None:
    folder = loaded / SQLITE_DATA
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [FILE]
    with (folder / FILE).open("rb") as file:
        header = file.read(20)
    assert int.from_bytes(header[16:18], "big") == 4096
    assert header[18:20] == b"\2\2"  # a log, not a rollback journal
    found = counts(loaded)
    assert (found["item"], found["stock"], found["customer"]) == (100_000, 100_000, 30_000)
    types = (
        "SELECT DISTINCT typeof(c_balance), c_balance, typeof(c_zip), typeof(c_id) FROM customer"
    )
    assert asked(loaded, types) == [("integer", -1000, "text", "integer")]


@pytest.mark.parametrize(("mode", "page_size"), [("wal", "4096"), ("truncate", "8192")])
def test_users_work_and_the_conditions_hold(
    mode: str, page_size: str, loaded: Path, tmp_path: Path
) -> None:
    given = {**settings(mode), "page_size": page_size}
    if mode == "wal":
        copied(loaded, tmp_path)
    else:
        answer(step("load", tmp_path, settings=given))
    before = counts(tmp_path)
    told = answer(step("run", tmp_path, settings=given, warm_up=0, seconds=3))
    done = {name: kind["count"] for name, kind in told["latency"].items()}
    assert sum(told["of_users"]) == sum(done.values()) == sum(told["each_second"]) > 0
    assert told["engine"] == SQLITE
    used = told["settings"]
    assert (used["journal_mode"], used["block_size"]) == (mode, page_size)
    assert (used["synchronous"], used["cache_size"]) == ("full", "-8192")
    after = counts(tmp_path)
    assert told["outside"] <= 2  # of each user the one that was open at the end
    assert 0 <= after["orders"] - before["orders"] - done["new-order"] <= told["outside"]
    assert 0 <= after["history"] - before["history"] - done["payment"] <= told["outside"]
    assert after["stock"] == before["stock"]
    checked = answer(step("check", tmp_path, settings=given))
    assert checked == {"violations": {str(number): 0 for number in CONDITIONS}, "says": ""}
    assert left_running(tmp_path, SQLITE_DATA) == []


def test_a_schedule_is_kept(place: Path) -> None:
    told = answer(step("run", place, rate=20.0))
    done = sum(told["of_users"]) + sum(told["failures"].values())
    assert 25 <= done <= 120
    assert told["service"]
    for name, service in told["service"].items():
        assert service["total"] <= told["latency"][name]["total"]


def test_transactions_that_others_keep_out_are_failures(place: Path) -> None:
    before = counts(place)
    with closing(sqlite3.connect(place / SQLITE_DATA / FILE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        told = answer(step("run", place, warm_up=0, seconds=6, max_tries=1))
        other.execute("ROLLBACK")
    assert told["failures"]["locked"] >= 1
    assert set(told["latency"]) <= {"order-status", "stock-level"}  # readers need no lock
    assert counts(place) == before


def test_violated_conditions_are_counted(place: Path) -> None:
    for statement in (
        "UPDATE warehouse SET w_ytd = w_ytd + 1",
        "DELETE FROM order_line WHERE ol_d_id = 3 AND ol_o_id = 7 AND ol_number = 1",
        "UPDATE district SET d_next_o_id = 9000 WHERE d_id IN (4, 5)",
        "DELETE FROM new_order WHERE no_d_id = 6 AND no_o_id = 2500",
    ):
        asked(place, statement)
    told = answer(step("check", place))
    wrong = {int(n): count for n, count in told["violations"].items() if count}
    assert wrong == {1: 1, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1, 8: 1, 11: 1}
    assert "1 (1 times), 2 (2 times), 3 (1 times), 4 (1 times)" in told["says"]


def test_cancelled_orders_change_nothing(place: Path) -> None:
    """All of the order is undone, also its lines before the item that does not exist."""
    state = (
        "SELECT count(*), sum(d_next_o_id), (SELECT count(*) FROM order_line), "
        "(SELECT sum(s_ytd) FROM stock), (SELECT count(*) FROM new_order) FROM district"
    )
    before = asked(place, state)
    with closing(sqlite3.connect(place / SQLITE_DATA / FILE, isolation_level=None)) as db:
        for seed in range(1, 20):
            draws = Draws.of(seed, MANY, Rows(1, 42).constants, 1)
            perform(db, "new-order-cancelled", draws, 1)
        assert db.total_changes > 100
    assert asked(place, state) == before


def test_draws_are_postgresql_s() -> None:
    assert hashes(42, 4)[1:] == KNOWN[42]
    assert hashes(2**53 - 1, 4)[1:] == KNOWN[2**53 - 1]


def test_warehouses_order_and_pay_elsewhere() -> None:
    constants = Rows(5, 1).constants
    of = [Draws.of(seed, MANY, constants, 5) for seed in range(1, 3000)]
    places = [draws.elsewhere(3, 2) for draws in of]
    assert set(places) == {1, 3, 4, 5}
    assert sum(d.draw(2, 1, 100) > 85 for d in of) / len(of) == pytest.approx(0.15, abs=0.03)
    assert Draws.of(1, MANY, constants, 1).elsewhere(3, 1) == 1


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_killed_user_ends_the_run_and_the_database_recovers(place: Path, mode: str) -> None:
    asked(place, f"PRAGMA journal_mode = {mode}")
    with in_background("run", place, engine=SQLITE, settings=settings(mode), seconds=60) as running:
        os.kill(running.users(2)[0], signal.SIGKILL)
    (done,) = running.done
    assert done.returncode == 1
    assert "ended by SIGKILL while it worked; opened again it recovered in" in done.stderr
    assert "and the consistency conditions hold" in done.stderr
    assert left_running(place, SQLITE_DATA) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_step_leaves_nothing(place: Path, number: signal.Signals) -> None:
    with in_background("run", place, engine=SQLITE, seconds=60) as running:
        os.kill(oltp_steps.parent(running.users(2)[0]), number)
    assert running.done[0].returncode in (-9, 143)
    assert left_running(place, SQLITE_DATA) == []
    assert answer(step("check", place))["says"] == ""


def test_directories_that_are_there_or_in_use_are_refused(place: Path) -> None:
    with in_background("run", place, engine=SQLITE, seconds=4) as running:
        running.users(2)
        second = step("check", place)
    assert second.returncode == 1
    assert f"{place / SQLITE_DATA} is in use by another process, pid" in second.stderr
    assert running.done[0].returncode == 0, running.done[0].stderr
    again = step("load", place)
    assert again.returncode == 1
    assert "exists already" in again.stderr


def test_what_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / SQLITE_DATA).mkdir()
    (tmp_path / SQLITE_DATA / FILE).write_bytes(b"no database" * 1000)
    done = step("check", tmp_path)
    assert done.returncode == 1
    assert "file is not a database" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 MiB."""
    with small_disk(tmp_path / "small", 200) as point:
        yield point


@pytest.mark.root
def test_a_full_disk_is_named(loaded: Path, small: Path) -> None:
    copied(loaded, small)
    fill(small, leave=1 << 20)
    done = step("run", small, seconds=60)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert left_running(small, SQLITE_DATA) == []
    shutil.rmtree(small / SQLITE_DATA)
    fill(small, leave=20 << 20)
    done = step("load", small)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


def fill(place: Path, leave: int) -> None:
    (place / "filler").unlink(missing_ok=True)
    with (place / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(place).free - leave)


CAMPAIGN = """
campaign: embedded
targets:
  here: {backend: directory, options: {path: PATH}}
workloads:
  tpcc: {workload: tpcc, engine: sqlite, options: {warm_up: 0s, runtime: 3s}}
repetitions: 1
order: {attachments: 1}
cache: warm
launcher: local
limits: {time_per_run: 4min, space: 2GiB}
"""


def test_a_campaign_by_sqlite(tmp_path: Path) -> None:
    place, out = tmp_path / "place", tmp_path / "out"
    place.mkdir(mode=0o700)
    (tmp_path / "c.yaml").write_text(CAMPAIGN.replace("PATH", str(place)))
    done = fsmatrix("run", tmp_path / "c.yaml", "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(place.iterdir()) == []
    assert fsmatrix("collect", out).returncode == 0
    ds = analysis.open(str(out))
    assert ds["status"].values.tolist() == ["ok"]
    assert ds["engine"].values.tolist() == [SQLITE]
    assert ds["engine_version"].values.tolist() == [sqlite3.sqlite_version]
    assert 0 < float(ds["new_order_rate"][0]) < float(ds["transaction_rate"][0])
