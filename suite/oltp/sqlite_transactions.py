"""The five transactions on SQLite: what transactions.sql does in a server, done by the user.

Each is a function of a connection, its draws and its home warehouse.  Statements are prepared
once for each connection.  Money is in hundredths, as it is stored.  A function begins no
transaction and ends none, so that `perform` can try it again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.suite.oltp.clients import CANCELLED, NEW_ORDER
from fsmatrix.suite.oltp.tpcc_rows import DISTRICTS, ITEMS, SYLLABLES, Constants

# What is random in a transaction, drawn from its seed as the functions of transactions.sql do.
#
# The same seed gives the same numbers as PostgreSQL's `hashint8extended`: Bob Jenkins' lookup3
# (public domain), here for all numbers of a transaction at once.


Words = npt.NDArray[np.uint32]
FEW, MANY = 16, 256  # numbers that a transaction draws at most: a payment; an order of 15 lines
_START = np.uint32((0x9E3779B9 + 4 + 3923095) & 0xFFFFFFFF)
_MIX = (4, 6, 8, 16, 19, 4)
_FINAL = (14, 11, 25, 16, 4, 14, 24)


def _turned(word: Words, bits: int) -> Words:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))


def hashes(seed: int, size: int) -> list[int]:
    """hashint8extended(k, seed) without its sign bit, for k from 0 to size - 1; seed > 0."""
    a, b, c = (np.full(1, _START, np.uint32) for _ in range(3))
    a, b = a + np.uint32(seed >> 32), b + np.uint32(seed & 0xFFFFFFFF)
    for bits in _MIX:  # three words take turns
        a = (a - c) ^ _turned(c, bits)
        c = c + b
        a, b, c = b, c, a
    k = np.arange(size, dtype=np.uint32)
    a, b, c = a + k, b + np.zeros_like(k), c + np.zeros_like(k)
    for bits in _FINAL:
        c = (c ^ b) - _turned(b, bits)
        a, b, c = b, c, a
    # after seven turns the words have moved by one place
    b, c = a, b
    whole = (b.astype(np.uint64) << np.uint64(32)) | c
    return [int(value) for value in whole & np.uint64(0x7FFFFFFFFFFFFFFF)]


@dataclass(frozen=True)
class Draws:
    """The numbers of one transaction."""

    hashes: list[int]
    constants: Constants
    warehouses: int

    @classmethod
    def of(cls, seed: int, size: int, constants: Constants, warehouses: int) -> Draws:
        """Those of a seed, of which `size` at most are asked for."""
        return cls(hashes(seed, size), constants, warehouses)

    def draw(self, k: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        return low + self.hashes[k] % (high - low + 1)

    def nurand(self, k: int, a: int, x: int, y: int, c: int) -> int:
        """Non-uniform, clause 2.1.6."""
        return ((self.draw(k, 0, a) | self.draw(k + 1, x, y)) + c) % (y - x + 1) + x

    def last_name(self, k: int) -> str:
        """Of a customer who is looked for."""
        n = self.nurand(k, 255, 0, 999, self.constants.last_run)
        return "".join(SYLLABLES[digit] for digit in (n // 100, n // 10 % 10, n % 10))

    def elsewhere(self, k: int, home: int) -> int:
        """Another warehouse than `home`; `home` if there is no other."""
        if self.warehouses == 1:
            return home
        return (home + self.draw(k, 1, self.warehouses - 1) - 1) % self.warehouses + 1


LONGEST_DATA = 500  # characters of c_data


class Undone(Exception):
    """The user undoes his order, clause 2.4.1.4."""


def new_order(db: sqlite3.Connection, draws: Draws, home: int, *, cancelled: bool = False) -> None:
    """An order of 5 to 15 lines; `cancelled`: its last item does not exist."""
    d = draws.draw(1, 1, DISTRICTS)
    c = draws.nurand(2, 1023, 1, 3000, draws.constants.customer)
    count = draws.draw(4, 5, 15)
    row_of(db, "SELECT w_tax FROM warehouse WHERE w_id = ?", home)
    after, _ = row_of(
        db, "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ?", home, d
    )
    do(
        db,
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?",
        home,
        d,
    )
    row_of(
        db,
        "SELECT c_discount FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
        home,
        d,
        c,
    )
    do(db, "INSERT INTO new_order VALUES (?, ?, ?)", after, d, home)
    lines = sorted(_line(draws, home, n, cancelled and n == count) for n in range(1, count + 1))
    for w, i, n, quantity in lines:
        item = db.execute("SELECT i_price FROM item WHERE i_id = ?", (i,)).fetchone()
        if item is None:
            raise Undone
        dist = _take(db, (w, i), quantity, d, is_remote=w != home)
        do(
            db,
            "INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)",
            after,
            d,
            home,
            n,
            i,
            w,
            quantity,
            quantity * item[0],
            dist,
        )
    local = int(all(w == home for w, *_ in lines))
    do(
        db,
        "INSERT INTO orders VALUES (?, ?, ?, ?, ?, NULL, ?, ?)",
        after,
        d,
        home,
        c,
        now(),
        count,
        local,
    )


def cancelled_order(db: sqlite3.Connection, draws: Draws, home: int) -> None:
    """An order that its user undoes; raises Undone."""
    new_order(db, draws, home, cancelled=True)


def _line(draws: Draws, home: int, n: int, is_wrong: bool) -> tuple[int, int, int, int]:
    """Warehouse, item, number and quantity of a line: all orders take their stocks in one order."""
    k = 100 + 10 * n
    i = ITEMS + 1 if is_wrong else draws.nurand(k, 8191, 1, ITEMS, draws.constants.item)
    w = draws.elsewhere(k + 3, home) if draws.draw(k + 2, 1, 100) == 1 else home
    return w, i, n, draws.draw(k + 4, 1, 10)


def _take(
    db: sqlite3.Connection, stock: tuple[int, int], quantity: int, d: int, *, is_remote: bool
) -> str:
    """Take from a stock; the text for the order's line."""
    left, dist = row_of(
        db, f"SELECT s_quantity, s_dist_{d:02} FROM stock WHERE s_w_id = ? AND s_i_id = ?", *stock
    )
    left -= quantity if left >= quantity + 10 else quantity - 91
    do(
        db,
        "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, "
        "s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
        *(left, quantity, int(is_remote), *stock),
    )
    return str(dist)


def payment(db: sqlite3.Connection, draws: Draws, home: int) -> None:
    """Of a customer of another warehouse in 15 %."""
    d = draws.draw(1, 1, DISTRICTS)
    is_remote = draws.warehouses > 1 and draws.draw(2, 1, 100) > 85
    cw = draws.elsewhere(3, home) if is_remote else home
    cd = draws.draw(4, 1, DISTRICTS) if is_remote else d
    amount = draws.draw(5, 100, 500_000)
    do(db, "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?", amount, home)
    (w_name,) = row_of(db, "SELECT w_name FROM warehouse WHERE w_id = ?", home)
    do(db, "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?", amount, home, d)
    (d_name,) = row_of(db, "SELECT d_name FROM district WHERE d_w_id = ? AND d_id = ?", home, d)
    c = chosen_customer(db, draws, cw, cd)
    history = f"{c} {cd} {cw} {d} {home} {amount / 100:.2f} "
    do(
        db,
        "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, "
        "c_payment_cnt = c_payment_cnt + 1, c_data = CASE c_credit WHEN 'BC' "
        f"THEN substr(? || c_data, 1, {LONGEST_DATA}) ELSE c_data END "
        "WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
        *(amount, amount, history, cw, cd, c),
    )
    do(
        db,
        "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        c,
        cd,
        cw,
        d,
        home,
        now(),
        amount,
        f"{w_name}    {d_name}",
    )


def chosen_customer(db: sqlite3.Connection, draws: Draws, w: int, d: int) -> int:
    """By last name in 60 %, the middle one of that name."""
    if draws.draw(10, 1, 100) > 60:
        return draws.nurand(11, 1023, 1, 3000, draws.constants.customer)
    customers = db.execute(
        "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
        (w, d, draws.last_name(13)),
    ).fetchall()
    return int(customers[(len(customers) + 1) // 2 - 1][0])


def order_status(db: sqlite3.Connection, draws: Draws, home: int) -> None:
    """A customer, his last order and its lines."""
    d = draws.draw(1, 1, DISTRICTS)
    c = chosen_customer(db, draws, home, d)
    row_of(
        db,
        "SELECT c_balance, c_first, c_middle, c_last FROM customer "
        "WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
        *(home, d, c),
    )
    (o,) = row_of(
        db,
        "SELECT o_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? "
        "ORDER BY o_id DESC LIMIT 1",
        *(home, d, c),
    )
    db.execute(
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line "
        "WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
        (home, d, o),
    ).fetchall()


def delivery(db: sqlite3.Connection, draws: Draws, home: int) -> None:
    """The oldest open order of each district, at once."""
    carrier = draws.draw(1, 1, 10)
    for d in range(1, DISTRICTS + 1):
        (o,) = row_of(
            db, "SELECT min(no_o_id) FROM new_order WHERE no_w_id = ? AND no_d_id = ?", home, d
        )
        if o is None:
            continue
        key = (home, d, o)
        do(db, "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?", *key)
        of_order = "WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?"
        do(db, f"UPDATE orders SET o_carrier_id = ? {of_order}", carrier, *key)
        (c,) = row_of(db, f"SELECT o_c_id FROM orders {of_order}", *key)
        of_lines = "WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?"
        db.execute(f"UPDATE order_line SET ol_delivery_d = ? {of_lines}", (now(), *key))
        (total,) = row_of(db, f"SELECT sum(ol_amount) FROM order_line {of_lines}", *key)
        do(
            db,
            "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 "
            "WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            *(total, home, d, c),
        )


def stock_level(db: sqlite3.Connection, draws: Draws, home: int) -> None:
    """Items of a district's last 20 orders of which there are few."""
    d = draws.draw(1, 1, DISTRICTS)
    threshold = draws.draw(2, 10, 20)
    (after,) = row_of(db, "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?", home, d)
    row_of(
        db,
        "SELECT count(DISTINCT s_i_id) FROM order_line "
        "JOIN stock ON s_w_id = ?1 AND s_i_id = ol_i_id AND s_quantity < ?2 "
        "WHERE ol_w_id = ?1 AND ol_d_id = ?3 AND ol_o_id >= ?4 - 20 AND ol_o_id < ?4",
        *(home, threshold, d, after),
    )


def row_of(db: sqlite3.Connection, statement: str, *values: object) -> tuple[Any, ...]:
    """The one row that a question has; LookupError if there is none."""
    row = db.execute(statement, values).fetchone()
    if row is None:
        raise LookupError(f"no row for {values}: {statement}")
    return tuple(row)


def do(db: sqlite3.Connection, statement: str, *values: object) -> None:
    """Change the one row that a statement is about; LookupError if there is none."""
    if db.execute(statement, values).rowcount != 1:
        raise LookupError(f"no row for {values}: {statement}")


def now() -> str:
    """As the new rows have it."""
    return datetime.now().isoformat(" ", "seconds")


Transaction = Callable[[sqlite3.Connection, Draws, int], None]
# name -> the function, how many numbers it draws at most, and whether it writes
TRANSACTIONS: Mapping[str, tuple[Transaction, int, bool]] = {
    NEW_ORDER: (new_order, MANY, True),
    CANCELLED: (cancelled_order, MANY, True),
    "payment": (payment, FEW, True),
    "order-status": (order_status, FEW, False),
    "delivery": (delivery, FEW, True),
    "stock-level": (stock_level, FEW, False),
}


def perform(db: sqlite3.Connection, name: str, draws: Draws, home: int) -> None:
    """One transaction from its begin to its end; sqlite3.Error: nothing of it is done."""
    function, _, writes = TRANSACTIONS[name]
    db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    try:
        function(db, draws, home)
        db.execute("COMMIT")
    except Undone:
        db.execute("ROLLBACK")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
