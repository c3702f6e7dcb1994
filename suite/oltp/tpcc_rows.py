"""The rows of a new database (TPC-C clause 4.3.3), as the text that PostgreSQL's COPY reads.

A table is made as matrices of bytes [row, column of the text]: numbers with leading zeros, texts
of varying length with a mask of what is not there.  All is drawn from a seed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from fsmatrix.suite.oltp import account as accounts
from fsmatrix.suite.oltp.account import Account, OltpError, reason_of
from fsmatrix.suite.oltp.server import DATABASE, Server

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

ITEMS = 100_000
DISTRICTS = 10
CUSTOMERS = 3_000  # of a district; orders too
DELIVERED = 2_100  # of a district's orders
CHUNK = 10_000  # rows that are made at once
LETTERS = bytes.maketrans(  # each byte -> a letter or digit; 64 of them, all as likely
    bytes(range(256)), b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+" * 4
)
SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
WHEN = b"2026-01-01 00:00:00"
DELTAS = tuple(d for d in range(65, 120) if d not in (96, 112))  # clause 2.1.6.1


@dataclass(frozen=True)
class Constants:
    """The constants C of NURand (clause 2.1.6): of last names when loading and when running."""

    last_load: int
    last_run: int
    customer: int
    item: int

    @classmethod
    def drawn(cls, seed: int) -> Constants:
        """From a seed; the two of last names differ as the clause wants."""
        rng = np.random.default_rng([seed, 1])
        load = int(rng.integers(0, 256 - max(DELTAS)))
        return cls(
            load,
            load + int(rng.choice(DELTAS)),
            int(rng.integers(0, 1024)),
            int(rng.integers(0, 8192)),
        )


@dataclass
class Text:
    """The rows of one chunk, column by column."""

    size: int
    rng: np.random.Generator
    _parts: list[tuple[Bytes, Mask | None]] = field(default_factory=list)

    def number(self, values: npt.ArrayLike, width: int) -> Text:
        """Whole numbers >= 0 of at most `width` digits."""
        column = np.broadcast_to(np.asarray(values, dtype=np.int64), (self.size,))
        return self._add(digits(column, width))

    def decimal(self, values: npt.ArrayLike, width: int, places: int) -> Text:
        """Whole numbers as so many units of the last of `places` decimal places."""
        column = np.broadcast_to(np.asarray(values, dtype=np.int64), (self.size,))
        plain = digits(column, width)
        point = np.full((self.size, 1), ord("."), np.uint8)
        return self._add(np.hstack([plain[:, :-places], point, plain[:, -places:]]))

    def constant(self, text: bytes) -> Text:
        """The same text in each row."""
        return self._add(np.broadcast_to(np.frombuffer(text, np.uint8), (self.size, len(text))))

    def texts(self, chosen: npt.NDArray[np.intp], among: tuple[bytes, ...]) -> Text:
        """One of a few texts: number `chosen` [row]."""
        table, mask = padded(among)
        return self._add(table[chosen], mask[chosen])

    def unless(self, left_out: Mask, text: bytes) -> Text:
        r"""A text; none (\N) where `left_out` [row]."""
        return self.texts(left_out.astype(np.intp), (text, rb"\N"))

    def letters(self, least: int, most: int = 0, original: Mask | None = None) -> Text:
        """Random letters and digits, `least` to `most` of them (most 0: exactly `least`).

        `original` [row]: where the word ORIGINAL stands somewhere in it.
        """
        width = most or least
        raw = bytearray(self.rng.bytes(self.size * width).translate(LETTERS))
        values = np.frombuffer(raw, np.uint8).reshape(self.size, width)
        lengths = self.rng.integers(least, width + 1, self.size) if most else None
        if original is not None:
            word = np.frombuffer(b"ORIGINAL", np.uint8)
            rows = np.flatnonzero(original)
            place = self.rng.integers(0, least - word.size + 1, rows.size)
            values[rows[:, None], place[:, None] + np.arange(word.size)] = word
        mask = None if lengths is None else np.arange(width) < lengths[:, None]
        return self._add(values, mask)

    def zip(self) -> Text:
        """Four random digits and 11111."""
        code = digits(self.rng.integers(0, 10_000, self.size), 4)
        return self._add(np.hstack([code, np.full((self.size, 5), ord("1"), np.uint8)]))

    def address(self) -> Text:
        """Two streets, a city, a state and a zip code."""
        return self.letters(10, 20).letters(10, 20).letters(10, 20).letters(2).zip()

    def _add(self, values: Bytes, mask: Mask | None = None) -> Text:
        self._parts.append((values, mask))
        return self

    def lines(self) -> bytes:
        """All rows, tabs between the columns."""
        width = sum(values.shape[1] + 1 for values, _ in self._parts)
        whole = np.empty((self.size, width), np.uint8)
        masked = any(mask is not None for _, mask in self._parts)
        keep = np.ones((self.size, width), np.bool_) if masked else None
        at = 0
        for values, mask in self._parts:
            end = at + values.shape[1]
            whole[:, at:end] = values
            whole[:, end] = ord("\t")
            if keep is not None and mask is not None:
                keep[:, at:end] = mask
            at = end + 1
        whole[:, -1] = ord("\n")
        return (whole if keep is None else whole[keep]).tobytes()


def digits(values: Numbers, width: int) -> Bytes:
    """Shape [n, width]: leading zeros."""
    left = values.astype(np.uint32 if width < 10 else np.uint64)
    out = np.empty((values.size, width), np.uint8)
    for place in range(width - 1, -1, -1):
        left, digit = np.divmod(left, 10)
        out[:, place] = digit
    out += ord("0")
    return out


def padded(texts: tuple[bytes, ...]) -> tuple[Bytes, Mask]:
    """Texts of different lengths as a matrix, and what of it is text."""
    width = max(map(len, texts))
    table = np.frombuffer(b"".join(text.ljust(width) for text in texts), np.uint8)
    mask = np.arange(width) < np.array([len(text) for text in texts])[:, None]
    return table.reshape(-1, width), mask


LAST_NAMES = tuple(
    f"{SYLLABLES[n // 100]}{SYLLABLES[n // 10 % 10]}{SYLLABLES[n % 10]}".encode()
    for n in range(1000)
)


@dataclass(frozen=True)
class Rows:
    """All rows of a database of so many warehouses."""

    warehouses: int
    seed: int

    @property
    def constants(self) -> Constants:
        """Those of this seed."""
        return Constants.drawn(self.seed)

    def tables(self) -> dict[str, Callable[[], Iterator[bytes]]]:
        """Name of a table -> its text, piece by piece."""
        return {
            "item": self._item,
            "warehouse": self._warehouse,
            "district": self._district,
            "stock": self._stock,
            "customer": self._customer,
            "history": self._history,
            "orders": self._orders,
            "order_line": self._order_line,
            "new_order": self._new_order,
        }

    def _rng(self, *which: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence([self.seed, 2, *which])))

    def _item(self) -> Iterator[bytes]:
        rng = self._rng(1)
        for first in range(1, ITEMS + 1, CHUNK):
            text = Text(CHUNK, rng).number(np.arange(first, first + CHUNK), 6)
            text.number(rng.integers(1, 10_001, CHUNK), 5).letters(14, 24)
            text.decimal(rng.integers(100, 10_001, CHUNK), 5, 2)
            yield text.letters(26, 50, rng.random(CHUNK) < 0.1).lines()

    def _warehouse(self) -> Iterator[bytes]:
        rng, size = self._rng(2), self.warehouses
        text = Text(size, rng).number(np.arange(1, size + 1), 6).letters(6, 10).address()
        yield text.decimal(rng.integers(0, 2001, size), 5, 4).constant(b"300000.00").lines()

    def _district(self) -> Iterator[bytes]:
        rng = self._rng(3)
        for w in range(1, self.warehouses + 1):
            text = Text(DISTRICTS, rng).number(np.arange(1, DISTRICTS + 1), 2).number(w, 6)
            text.letters(6, 10).address().decimal(rng.integers(0, 2001, DISTRICTS), 5, 4)
            yield text.constant(b"30000.00").number(CUSTOMERS + 1, 4).lines()

    def _stock(self) -> Iterator[bytes]:
        for w in range(1, self.warehouses + 1):
            rng = self._rng(4, w)
            for first in range(1, ITEMS + 1, CHUNK):
                text = Text(CHUNK, rng).number(np.arange(first, first + CHUNK), 6).number(w, 6)
                text.number(rng.integers(10, 101, CHUNK), 3)
                for _ in range(DISTRICTS):
                    text.letters(24)
                text.constant(b"0").constant(b"0").constant(b"0")
                yield text.letters(26, 50, rng.random(CHUNK) < 0.1).lines()

    def _places(self) -> Iterator[tuple[int, int]]:
        for w in range(1, self.warehouses + 1):
            for d in range(1, DISTRICTS + 1):
                yield w, d

    def _customer(self) -> Iterator[bytes]:
        a, constant = 255, self.constants.last_load
        for w, d in self._places():
            rng, n = self._rng(5, w, d), CUSTOMERS
            drawn = rng.integers(0, a + 1, n) | rng.integers(0, 1000, n)
            names = np.where(np.arange(n) < 1000, np.arange(n), (drawn + constant) % 1000)
            text = Text(n, rng).number(np.arange(1, n + 1), 4).number(d, 2).number(w, 6)
            text.letters(8, 16).constant(b"OE").texts(names, LAST_NAMES).address()
            text.number(rng.integers(0, 10**15, n), 16).constant(WHEN)
            text.texts((rng.random(n) < 0.1).astype(np.intp), (b"GC", b"BC"))
            text.constant(b"50000.00").decimal(rng.integers(0, 5001, n), 5, 4)
            text.constant(b"-10.00").constant(b"10.00").constant(b"1").constant(b"0")
            yield text.letters(300, 500).lines()

    def _history(self) -> Iterator[bytes]:
        for w, d in self._places():
            text = Text(CUSTOMERS, self._rng(6, w, d)).number(np.arange(1, CUSTOMERS + 1), 4)
            text.number(d, 2).number(w, 6).number(d, 2).number(w, 6).constant(WHEN)
            yield text.constant(b"10.00").letters(12, 24).lines()

    def _lines_of(self, w: int, d: int) -> Numbers:
        """How many lines each order of a district has, [order]; two tables need it."""
        return self._rng(7, w, d).integers(5, 16, CUSTOMERS)

    def _orders(self) -> Iterator[bytes]:
        numbers = np.arange(1, CUSTOMERS + 1)
        for w, d in self._places():
            rng = self._rng(8, w, d)
            carriers = (*(b"%d" % n for n in range(1, 11)), rb"\N")
            carrier = np.where(numbers > DELIVERED, 10, rng.integers(0, 10, CUSTOMERS))
            text = Text(CUSTOMERS, rng).number(numbers, 4).number(d, 2).number(w, 6)
            text.number(rng.permutation(numbers), 4).constant(WHEN).texts(carrier, carriers)
            yield text.number(self._lines_of(w, d), 2).constant(b"1").lines()

    def _order_line(self) -> Iterator[bytes]:
        for w, d in self._places():
            rng, lines = self._rng(9, w, d), self._lines_of(w, d)
            order = np.repeat(np.arange(1, CUSTOMERS + 1), lines)
            size, is_open = order.size, order > DELIVERED
            place = np.arange(size) - np.repeat(np.cumsum(lines) - lines, lines) + 1
            text = Text(size, rng).number(order, 4).number(d, 2).number(w, 6).number(place, 2)
            text.number(rng.integers(1, ITEMS + 1, size), 6).number(w, 6).unless(is_open, WHEN)
            text.constant(b"5")
            text.decimal(np.where(is_open, rng.integers(1, 1_000_000, size), 0), 6, 2)
            yield text.letters(24).lines()

    def _new_order(self) -> Iterator[bytes]:
        numbers = np.arange(DELIVERED + 1, CUSTOMERS + 1)
        for w, d in self._places():
            text = Text(numbers.size, self._rng(10)).number(numbers, 4).number(d, 2)
            yield text.number(w, 6).lines()


# Filling a new database: tables, rows by COPY from a pipe while they are made, keys, functions.
#
# The server reads named pipes in a folder of ours (COPY FROM a file), so that no row passes a
# client. Everything that the tables begin with is one transaction, as PostgreSQL's manual advises
# for COPY.


PIPE = "rows"
LOOK = 0.001
AHEAD = 8  # pieces that are made before the server wants them
T = TypeVar("T")


def script(name: str) -> str:
    """A file of statements in this folder."""
    return resources.files("fsmatrix.suite.oltp").joinpath(name).read_text("utf-8")


def load(server: Server, rows: Rows) -> dict[str, float]:
    """Make the database with all its rows; seconds of its parts."""
    server.sql(f"CREATE DATABASE {DATABASE};", database="postgres")
    began = time.monotonic()
    copy(server, rows)
    loaded = time.monotonic()
    server.sql(constants(rows.constants) + script("transactions.sql"))
    server.sql("VACUUM ANALYZE;\nCHECKPOINT;\n")
    return {"copy": loaded - began, "vacuum": time.monotonic() - loaded}


def constants(values: Constants) -> str:
    """Functions for the constants of NURand."""
    numbers = {
        "c_last_constant": values.last_run,
        "c_id_constant": values.customer,
        "i_id_constant": values.item,
    }
    return "".join(
        f"CREATE FUNCTION {name}() RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT {number}';\n"
        for name, number in numbers.items()
    )


def copy(server: Server, rows: Rows, keys: bool = True) -> None:
    """Tables and rows, and their keys, in one transaction; OltpError with the server's words."""
    tables = rows.tables()
    pipes = {name: server.files / f"{PIPE}-{name}" for name in tables}
    copies = "".join(f"COPY {name} FROM '{pipe}' WITH (FREEZE);\n" for name, pipe in pipes.items())
    text = f"BEGIN;\n{script('schema.sql')}{copies}{script('keys.sql') if keys else ''}COMMIT;\n"
    for pipe in pipes.values():
        _make_pipe(pipe, server.account)
    process = subprocess.Popen(
        accounts.started(server.psql(), server.account, "KILL"),
        cwd=server.run,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(text.encode())
        process.stdin.close()
        process.stdin = None
        each = ((name, piece) for name, pieces in tables.items() for piece in pieces())
        with contextlib.closing(ahead(each)) as made:
            for name, of_table in itertools.groupby(made, key=itemgetter(0)):
                if not _write(pipes[name], (piece for _, piece in of_table), process):
                    break
        _, error = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in pipes.values():
            pipe.unlink(missing_ok=True)
    if process.returncode:
        raise OltpError(f"loading failed: {reason_of(error.decode(errors='replace'))}")


def ahead(pieces: Iterator[T]) -> Generator[T, None, None]:
    """The same; a thread makes the next ones while the server takes one."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(next, pieces, end) for _ in range(AHEAD))
        while (piece := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, pieces, end))
            yield cast("T", piece)


def _make_pipe(path: Path, account: Account) -> None:
    os.mkfifo(path, 0o600)
    accounts.own(path, account, 0o600)


def _write(pipe: Path, pieces: Iterator[bytes], reader: subprocess.Popen[bytes]) -> bool:
    """Write a table into its pipe once the server reads it; False if psql ended before."""
    handle = -1
    while handle < 0:
        try:
            handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody reads it yet
                raise
            if reader.poll() is not None:
                return False
            time.sleep(LOOK)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb", buffering=0) as stream, contextlib.suppress(BrokenPipeError):
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[stream.write(view) :]
    return True  # also if the server ended its COPY: psql says why
