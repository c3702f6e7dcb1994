"""What the steps on a client node answer, the conditions of consistency among it.

Answers are the JSON that the workload finds in its folder.  Bytes are bytes, times seconds or Unix
times.

The consistency conditions are those of TPC-C, clause 3.3.2, as questions to the database.  Each
counts the violations: rows (warehouses, districts, orders, customers) for which the
condition does not hold, in words that PostgreSQL and SQLite both understand.  Condition 11 speaks
of a new database; here with what was delivered since.  Condition 6 is asked in two halves: SQLite
makes no index for a full join.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fsmatrix.backends.system.cgroups import MemoryUse
from fsmatrix.results.evidence.stored import JsonObject, Stored
from fsmatrix.suite.oltp.tpcc_rows import DELIVERED

# number -> a question whose answer is a count of violations
CONDITIONS: dict[int, str] = {
    1: """
        SELECT count(*) FROM warehouse LEFT JOIN
            (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY 1) AS of_districts
        ON d_w_id = w_id WHERE ytd IS DISTINCT FROM w_ytd""",
    2: """
        SELECT count(*) FROM district
        LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last FROM orders GROUP BY 1, 2) AS a
            ON (o_w_id, o_d_id) = (d_w_id, d_id)
        LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest FROM new_order GROUP BY 1, 2)
            AS b ON (no_w_id, no_d_id) = (d_w_id, d_id)
        WHERE d_next_o_id - 1 IS DISTINCT FROM last OR coalesce(newest, last) <> last""",
    3: """
        SELECT count(*) FROM (SELECT 1 FROM new_order GROUP BY no_w_id, no_d_id
            HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) AS districts""",
    4: """
        SELECT count(*) FROM
            (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS lines FROM orders GROUP BY 1, 2) AS a
        FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line GROUP BY 1, 2) AS b
            ON (ol_w_id, ol_d_id) = (o_w_id, o_d_id)
        WHERE lines IS DISTINCT FROM found""",
    5: """
        SELECT count(*) FROM orders
        FULL JOIN new_order ON (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_id)
        WHERE o_id IS NULL OR (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)""",
    6: """
        SELECT (SELECT count(*) FROM orders LEFT JOIN
                (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS found FROM order_line
                    GROUP BY 1, 2, 3) AS lines
                ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
                WHERE o_ol_cnt IS DISTINCT FROM found)
            + (SELECT count(*) FROM (SELECT DISTINCT ol_w_id, ol_d_id, ol_o_id FROM order_line)
                AS lines LEFT JOIN orders ON (o_w_id, o_d_id, o_id) = (ol_w_id, ol_d_id, ol_o_id)
                WHERE o_id IS NULL)""",
    7: """
        SELECT count(*) FROM order_line LEFT JOIN orders
            ON (o_w_id, o_d_id, o_id) = (ol_w_id, ol_d_id, ol_o_id)
        WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)""",
    8: """
        SELECT count(*) FROM warehouse LEFT JOIN
            (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY 1) AS payments
            ON h_w_id = w_id WHERE paid IS DISTINCT FROM w_ytd""",
    9: """
        SELECT count(*) FROM district LEFT JOIN
            (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2) AS payments
            ON (h_w_id, h_d_id) = (d_w_id, d_id) WHERE paid IS DISTINCT FROM d_ytd""",
    10: """
        SELECT count(*) FROM customer
        LEFT JOIN delivered ON (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id)
        LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history
            GROUP BY 1, 2, 3) AS payments ON (h_c_w_id, h_c_d_id, h_c_id) = (c_w_id, c_d_id, c_id)
        WHERE c_balance <> coalesce(amount, 0) - coalesce(paid, 0)""",
    11: f"""
        SELECT count(*) FROM
            (SELECT o_w_id, o_d_id, count(*) AS ordered FROM orders GROUP BY 1, 2) AS a
        LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS open FROM new_order GROUP BY 1, 2) AS b
            ON (no_w_id, no_d_id) = (o_w_id, o_d_id)
        LEFT JOIN (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS since FROM customer GROUP BY 1, 2)
            AS c ON (c_w_id, c_d_id) = (o_w_id, o_d_id)
        WHERE ordered - coalesce(open, 0) IS DISTINCT FROM {DELIVERED} + since""",
    12: """
        SELECT count(*) FROM customer
        LEFT JOIN delivered ON (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id)
        WHERE c_balance + c_ytd_payment <> coalesce(amount, 0)""",
}
_DELIVERED = """
    CREATE TEMPORARY TABLE delivered AS SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS amount
    FROM orders JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
    WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3;
    ANALYZE delivered;
"""


class Database(Protocol):
    """What is asked."""

    @property
    def snapshot(self) -> str:
        """The statement that begins a transaction which sees one state of the database."""

    def sql(self, text: str) -> list[list[str]]:
        """Rows of the answers."""


def violations(database: Database) -> dict[int, int]:
    """How often each condition is violated, of one and the same state of the database."""
    questions = "".join(
        f"SELECT {number}, ({question});\n" for number, question in CONDITIONS.items()
    )
    text = f"{database.snapshot};\n{_DELIVERED}{questions}COMMIT;\n"
    return {int(number): int(count) for number, count in database.sql(text)}


def sentence(found: Mapping[int, int]) -> str:
    """What is violated, with numbers; empty if nothing is."""
    broken = [f"{n} ({count} times)" for n, count in sorted(found.items()) if count]
    if not broken:
        return ""
    return f"consistency conditions of TPC-C (clause 3.3.2) are violated: {', '.join(broken)}"


@dataclass(frozen=True, kw_only=True)
class Answer(Stored):
    """Of any step."""

    memory: MemoryUse | None = None  # of the step's processes, if it was limited


@dataclass(frozen=True, kw_only=True)
class Loaded(Answer):
    """A database was made."""

    account: str | None = None  # of the server, if there is one
    database_bytes: int
    seconds: Mapping[str, float]  # of its parts, and of all


@dataclass(frozen=True, kw_only=True)
class Checked(Answer):
    """The consistency conditions were asked for."""

    start_seconds: float | None = None  # of the server, if there is one
    violations: Mapping[str, int]  # condition -> how often
    says: str  # a sentence; empty if they hold

    @classmethod
    def of(cls, violations: Mapping[int, int], start_seconds: float | None = None) -> Checked:
        """From the answer of consistency.violations."""
        return cls(
            start_seconds=start_seconds,
            violations={str(number): count for number, count in violations.items()},
            says=sentence(violations),
        )


@dataclass(frozen=True, kw_only=True)
class Times(Stored):
    """Latencies of one kind of transaction."""

    count: int
    total: float
    minimum: float
    maximum: float
    histogram: JsonObject  # of histogram.sparse


@dataclass(frozen=True, kw_only=True)
class Worked(Answer):
    """The users have worked; what they did in the measured time."""

    engine: str | None = None  # None: PostgreSQL
    began: float
    window: tuple[float, float]  # the measured time
    account: str
    settings: Mapping[str, str]
    wal_bytes: int | None  # None: not counted
    database_bytes: tuple[int, int]  # before, after
    outside: int  # transactions that ended before or after the measured time
    retries: int
    retried: int
    failures: Mapping[str, int]
    skipped: int
    of_users: tuple[int, ...]  # transactions, [user]
    each_second: tuple[int, ...]
    latency: Mapping[str, Times]
    service: Mapping[str, Times]
