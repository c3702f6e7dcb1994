"""Filling a new database: tables, rows by COPY from a pipe while they are made, keys, functions.

The server reads named pipes in a folder of ours (COPY FROM a file), so that no row passes a client.
Everything that the tables begin with is one transaction, as PostgreSQL's manual advises for COPY.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import subprocess
import time
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import TypeVar, cast

from fsmatrix.suite.oltp import account as accounts
from fsmatrix.suite.oltp.account import Account
from fsmatrix.suite.oltp.problems import OltpError, reason_of
from fsmatrix.suite.oltp.rows import Constants, Rows
from fsmatrix.suite.oltp.server import DATABASE, Server

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
