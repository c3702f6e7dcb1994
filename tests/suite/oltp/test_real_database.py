"""A real PostgreSQL: made, filled, used, checked, killed, and out of space."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fsmatrix.suite.oltp.account import DATA, Account
from fsmatrix.suite.oltp.answers import CONDITIONS
from fsmatrix.suite.oltp.server import Programs, Server, of_directory
from fsmatrix.suite.oltp.sqlite_steps import Database
from fsmatrix.suite.oltp.sqlite_transactions import TRANSACTIONS, Draws, perform
from fsmatrix.suite.oltp.tpcc_rows import Rows
from tests.suite import oltp_steps
from tests.suite.oltp_steps import (
    answer,
    in_background,
    left_running,
    small_disk,
    statements,
    step,
)

pytestmark = [pytest.mark.needs("postgresql", "own folders"), pytest.mark.xdist_group("oltp")]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's directory with a new database of one warehouse; not to be changed."""
    path = tmp_path_factory.mktemp("loaded")
    told = answer(step("load", path))
    assert told["database_bytes"] > 100 << 20
    assert left_running(path) == []
    return path


@pytest.fixture
def place(loaded: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    copied(loaded, tmp_path)
    return tmp_path


def copied(loaded: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", str(loaded / DATA), str(to)], check=True)


def shared_memory(place: Path) -> list[str]:
    """System V segments of servers on a run's directory: their keys begin with its inode."""
    inode = (place / DATA).stat().st_ino
    keys = {str((inode + number + 2**31) % 2**32 - 2**31) for number in range(8)}
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return [line for line in lines if line.split()[0] in keys]


def test_a_new_database_is_consistent_and_the_account_s(loaded: Path) -> None:
    owner = pwd.getpwuid((loaded / DATA).stat().st_uid)
    assert owner.pw_uid != 0
    assert (loaded / DATA).stat().st_mode & 0o777 == 0o700
    assert not list((loaded / DATA).glob("postmaster.pid"))


def stopped_booting(data: Path) -> int:
    """Pid of a server of initdb that is stopped while it has POSIX shared memory; 0 if none is.

    One that merely was seen with it may have ended its work before a signal comes.
    """
    for pid in of_directory(data):
        place = Path(f"/proc/{pid}")
        with suppress(OSError):
            if not {b"--boot", b"--single"} & {*(place / "cmdline").read_bytes().split(b"\0")}:
                continue
            os.kill(pid, signal.SIGSTOP)
            while (state := (place / "stat").read_text().rpartition(")")[2].split()[0]) not in "TZ":
                time.sleep(0.001)
            if state == "T" and "/dev/shm/PostgreSQL." in (place / "maps").read_text():
                return pid
            os.kill(pid, signal.SIGCONT)
    return 0


@pytest.mark.root
def test_a_killed_server_of_initdb_leaves_no_shared_memory(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").glob("PostgreSQL.*"))
    with in_background("load", tmp_path) as running:
        while not running.done and not (pid := stopped_booting(tmp_path / DATA)):
            time.sleep(0.005)
        assert pid, running.done
        os.kill(pid, signal.SIGKILL)
    assert running.done[0].returncode == 1
    assert "initdb failed" in running.done[0].stderr
    assert set(Path("/dev/shm").glob("PostgreSQL.*")) <= before


def test_users_work_and_the_conditions_hold(place: Path) -> None:
    told = answer(step("run", place, seconds=4))
    counts = {name: kind["count"] for name, kind in told["latency"].items()}
    whole = sum(counts.values())
    assert sum(told["of_users"]) == whole == sum(told["each_second"]) > 0
    assert min(told["of_users"]) > 0
    orders = counts["new-order"] + counts.get("new-order-cancelled", 0)
    if whole > 200:
        assert orders / whole == pytest.approx(0.45, abs=0.12)
        assert counts["payment"] / whole == pytest.approx(0.43, abs=0.12)
    assert told["settings"]["block_size"] == "8192"
    assert told["settings"]["fsync"] == "on"
    assert told["settings"]["listen_addresses"] == ""
    assert told["settings"]["shared_buffers"] == "8MB"
    assert told["wal_bytes"] > 0
    checked = answer(step("check", place))
    assert checked["violations"] == {str(number): 0 for number in CONDITIONS}
    assert checked["says"] == ""
    assert left_running(place) == []
    assert shared_memory(place) == []


def test_a_schedule_is_kept(place: Path) -> None:
    told = answer(step("run", place, rate=20.0, seconds=4))
    done = sum(told["of_users"]) + sum(told["failures"].values())
    assert 30 <= done <= 150
    assert told["service"]
    for name, service in told["service"].items():
        assert service["total"] <= told["latency"][name]["total"]


def test_violated_conditions_are_counted(place: Path) -> None:
    statements(
        place,
        """
        UPDATE warehouse SET w_ytd = w_ytd + 1;
        DELETE FROM order_line WHERE ol_d_id = 3 AND ol_o_id = 7 AND ol_number = 1;
        UPDATE district SET d_next_o_id = 9000 WHERE d_id IN (4, 5);
        DELETE FROM new_order WHERE no_d_id = 6 AND no_o_id = 2500;
        """,
    )
    told = answer(step("check", place))
    wrong = {int(n): count for n, count in told["violations"].items() if count}
    assert wrong == {1: 1, 2: 2, 3: 1, 4: 1, 5: 1, 6: 1, 8: 1, 11: 1}
    assert "1 (1 times), 2 (2 times), 3 (1 times), 4 (1 times)" in told["says"]


def test_cancelled_orders_change_nothing(place: Path) -> None:
    """All of the order is undone, also its lines before the item that does not exist."""
    text = statements(
        place,
        """
        SELECT count(*), sum(d_next_o_id), (SELECT count(*) FROM order_line),
            (SELECT sum(s_ytd) FROM stock) FROM district;
        SELECT sum(cancelled_order(1, 1, n)) FROM generate_series(1, 50) AS n;
        SELECT count(*), sum(d_next_o_id), (SELECT count(*) FROM order_line),
            (SELECT sum(s_ytd) FROM stock) FROM district;
        """,
    )
    before, cancelled, after = eval(text)  # noqa: S307 - what our own script printed
    assert cancelled == ["0"]
    assert before == after


def test_a_transaction_s_seed_decides_what_it_does(loaded: Path, tmp_path: Path) -> None:
    seen = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        copied(loaded, tmp_path / name)
        question = """
            SELECT new_order(1, 1, n), payment(1, 1, n), delivery(1, n), order_status(1, n),
                stock_level(1, n) FROM generate_series(1, 20) AS n;
            SELECT sum(hashtext((ol_i_id, ol_quantity, ol_amount, ol_dist_info)::text))
            FROM order_line;
        """
        seen.append(statements(tmp_path / name, question))
    assert seen[0] == seen[1]


def test_both_engines_do_the_same(place: Path) -> None:
    """The same rows, and the same transactions by their seeds; money is whole in SQLite."""
    questions = """
        SELECT sum(s_quantity * s_i_id), sum(s_ytd), sum(s_order_cnt * s_i_id) FROM stock;
        SELECT count(*), sum(ol_i_id * ol_number), sum(ol_quantity * ol_o_id), max(ol_dist_info),
            HUNDREDTHS(ol_amount) FROM order_line WHERE ol_o_id > 2100;
        SELECT sum(c_payment_cnt * c_id), sum(c_delivery_cnt * c_id), HUNDREDTHS(c_balance)
            FROM customer;
        SELECT sum(o_carrier_id * o_id), sum(o_ol_cnt), sum(o_c_id * o_id) FROM orders;
        SELECT count(*), sum(no_o_id), sum(no_d_id) FROM new_order;
        SELECT count(*), sum(h_c_id), HUNDREDTHS(h_amount) FROM history;
        SELECT sum(d_next_o_id * d_id), HUNDREDTHS(d_ytd * d_id), max(d_name) FROM district;
    """
    text = statements(
        place,
        """
        SELECT new_order(1, 1, n), cancelled_order(1, 1, n), payment(1, 1, n), delivery(1, n),
            order_status(1, n), stock_level(1, n) FROM generate_series(1, 25) AS n;
        """
        + re.sub(r"HUNDREDTHS\((.*?)\)", r"(sum(\1) * 100)::bigint", questions),
    )
    database = Database(place, oltp_steps.SQLITE_SETTINGS)
    rows = Rows(1, 42)
    database.load(rows)
    with closing(database.connect()) as db:
        for seed in range(1, 26):
            for name, (_, size, _) in TRANSACTIONS.items():
                perform(db, name, Draws.of(seed, size, rows.constants, 1), 1)
    assert (
        database.sql(re.sub(r"HUNDREDTHS\((.*?)\)", r"sum(\1)", questions))
        == (
            eval(text)[25:]  # noqa: S307 - what our own script printed
        )
    )


def test_two_warehouses_order_and_pay_elsewhere(place: Path) -> None:
    """Of 20000 drawn: 1 % of lines, 15 % of payments, never at home."""
    text = statements(
        place,
        """
        SELECT avg((elsewhere(n, 3, 2, 5) = 2)::int), min(elsewhere(n, 3, 2, 5)),
            max(elsewhere(n, 3, 2, 5)), count(DISTINCT elsewhere(n, 3, 2, 5)),
            avg((draw(n, 2, 1, 100) > 85)::int), avg((draw(n, 112, 1, 100) = 1)::int),
            elsewhere(1, 3, 1, 1), min(nurand(n, 100, 8191, 1, 100000, 77)),
            max(nurand(n, 100, 8191, 1, 100000, 77))
        FROM generate_series(1, 20000) AS n;
        """,
    )
    ((same, low, high, kinds, payments, lines, alone, least, most),) = eval(text)  # noqa: S307
    assert (float(same), low, high, kinds, alone) == (0, "1", "5", "4", "1")
    assert float(payments) == pytest.approx(0.15, abs=0.01)
    assert float(lines) == pytest.approx(0.01, abs=0.004)
    assert 1 <= int(least) < int(most) <= 100_000


def test_a_killed_server_recovers_and_is_consistent(place: Path) -> None:
    with in_background("run", place, seconds=60) as running:
        os.kill(running.server(), signal.SIGKILL)
    (done,) = running.done
    assert done.returncode == 1
    assert "PostgreSQL ended by SIGKILL while it worked; started again it recovered in" in (
        done.stderr
    )
    assert "and the consistency conditions hold" in done.stderr
    assert left_running(place) == []
    assert shared_memory(place) == []


def test_a_server_that_is_still_ending_is_waited_for(tmp_path: Path) -> None:
    """Its users see their connections end before it is a process that has ended."""
    child = subprocess.Popen(["sleep", "0.5"])
    account = Account(pwd.getpwuid(os.getuid()).pw_name, os.getuid(), os.getgid())
    server = Server(Programs(tmp_path), tmp_path, tmp_path, tmp_path, account, _process=child)
    assert not server.ended()
    assert server.ended(60)
    assert "ended with status 0" in server.died()


def test_killed_users_end_the_run(place: Path) -> None:
    with in_background("run", place, seconds=60) as running:
        os.kill(running.pgbench(), signal.SIGKILL)
    (done,) = running.done
    assert done.returncode == 1
    assert "pgbench was ended by signal 9" in done.stderr
    assert left_running(place) == []
    assert answer(step("check", place))["says"] == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_step_leaves_nothing(place: Path, number: signal.Signals) -> None:
    with in_background("run", place, seconds=60) as running:
        os.kill(running.driver(), number)
    assert running.done[0].returncode in (-9, 143)
    assert left_running(place) == []
    assert shared_memory(place) == []
    assert answer(step("check", place))["says"] == ""


def test_a_directory_in_use_is_refused(place: Path) -> None:
    with in_background("run", place, seconds=5) as running:
        pid = running.server()
        second = step("check", place)
        assert second.returncode == 1
        assert f"{place / DATA} is in use by another server, pid" in second.stderr
        assert pid
    assert running.done[0].returncode == 0, running.done[0].stderr


def test_a_directory_that_is_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    done = step("load", tmp_path)
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert list((tmp_path / DATA).iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 MiB."""
    with small_disk(tmp_path / "small", 400) as point:
        yield point


@pytest.mark.root
def test_a_full_disk_is_named(loaded: Path, small: Path) -> None:
    copied(loaded, small)
    room = shutil.disk_usage(small).free
    with (small / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, room - (2 << 20))
    done = step("run", small, seconds=60, users=4)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert left_running(small) == []
    shutil.rmtree(small / DATA)
    (small / "filler").unlink()
    with (small / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(small).free - (90 << 20))
    done = step("load", small)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert left_running(small) == []


def test_a_server_that_cannot_start_says_why(place: Path) -> None:
    done = step("run", place, settings={"shared_buffers": "8192kB", "wal_sync_method": "nonsense"})
    assert done.returncode == 1
    assert 'invalid value for parameter "wal_sync_method"' in done.stderr
    assert left_running(place) == []
