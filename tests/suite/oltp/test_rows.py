"""The rows of a new database."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.suite.oltp.tpcc_rows import DELTAS, Constants, Rows, digits

WIDTHS = {
    "item": 5,
    "warehouse": 9,
    "district": 11,
    "stock": 17,
    "customer": 21,
    "history": 8,
    "orders": 8,
    "order_line": 10,
    "new_order": 3,
}
SIZES = {
    "item": 100_000,
    "warehouse": 2,
    "district": 20,
    "stock": 200_000,
    "customer": 60_000,
    "history": 60_000,
    "orders": 60_000,
    "new_order": 18_000,
}


@pytest.fixture(scope="module")
def tables() -> dict[str, list[list[bytes]]]:
    return {
        name: [line.split(b"\t") for line in b"".join(pieces()).splitlines()]
        for name, pieces in Rows(2, 7).tables().items()
    }


def test_sizes_are_the_standard_s(tables: dict[str, list[list[bytes]]]) -> None:
    assert {name: len(lines) for name, lines in tables.items() if name != "order_line"} == SIZES
    for name, lines in tables.items():
        assert {len(line) for line in lines} == {WIDTHS[name]}, name
    lines_of_orders = sum(int(order[6]) for order in tables["orders"])
    assert len(tables["order_line"]) == lines_of_orders
    assert {int(order[6]) for order in tables["orders"]} == set(range(5, 16))


def test_texts_have_their_lengths(tables: dict[str, list[list[bytes]]]) -> None:
    data = [len(line[4]) for line in tables["item"]]
    assert (min(data), max(data)) == (26, 50)
    data = [len(line[20]) for line in tables["customer"]]
    assert (min(data), max(data)) == (300, 500)
    assert {len(field) for line in tables["stock"] for field in line[3:13]} == {24}
    assert all(line[10].endswith(b"11111") and len(line[10]) == 9 for line in tables["customer"])


def test_a_tenth_is_original_or_of_bad_credit(tables: dict[str, list[list[bytes]]]) -> None:
    for name, column, word in (("item", 4, b"ORIGINAL"), ("stock", 16, b"ORIGINAL")):
        share = sum(word in line[column] for line in tables[name]) / len(tables[name])
        assert share == pytest.approx(0.1, abs=0.01)
    bad = Counter(line[13] for line in tables["customer"])
    assert set(bad) == {b"GC", b"BC"}
    assert bad[b"BC"] / 60_000 == pytest.approx(0.1, abs=0.01)


def test_last_names_and_open_orders(tables: dict[str, list[list[bytes]]]) -> None:
    district = [line for line in tables["customer"] if (int(line[1]), int(line[2])) == (3, 2)]
    assert [line[5] for line in district[:12:11]] == [b"BARBARBAR", b"BAROUGHTOUGHT"]
    assert len({line[5] for line in district[:1000]}) == 1000
    assert len({line[5] for line in district[1000:]}) > 500
    orders = [line for line in tables["orders"] if (int(line[1]), int(line[2])) == (3, 2)]
    assert {int(line[3]) for line in orders} == set(range(1, 3001))
    assert [line[5] == rb"\N" for line in orders] == [False] * 2100 + [True] * 900
    lines = [line for line in tables["order_line"] if (int(line[1]), int(line[2])) == (3, 2)]
    assert all((line[6] == rb"\N") == (int(line[0]) > 2100) for line in lines)
    assert all((line[8] == b"0000.00") == (int(line[0]) <= 2100) for line in lines)


def test_the_same_seed_gives_the_same_rows() -> None:
    def first(seed: int) -> bytes:
        return next(iter(Rows(1, seed).tables()["stock"]()))

    assert first(1) == first(1)
    assert first(1) != first(2)


@given(st.integers(0, 2**63 - 1))
def test_constants_differ_as_the_standard_wants(seed: int) -> None:
    constants = Constants.drawn(seed)
    assert constants == Constants.drawn(seed)
    assert constants.last_run - constants.last_load in DELTAS
    assert not {96, 112} & set(DELTAS)
    assert 0 <= constants.last_load < constants.last_run <= 255
    assert 0 <= constants.customer <= 1023
    assert 0 <= constants.item <= 8191


@given(st.lists(st.integers(0, 10**9 - 1), min_size=1))
def test_digits(values: list[int]) -> None:
    import numpy as np

    found = digits(np.array(values), 9)
    assert [int(bytes(row)) for row in found] == values
