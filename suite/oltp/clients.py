"""The virtual users: pgbench, which calls the five transactions in the standard's mix.

Each user has a home warehouse and waits for nothing between two transactions.  A new order that
is to be undone is a script of its own, so that pgbench's log tells it from the others.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.suite.oltp import account as accounts
from fsmatrix.suite.oltp.account import OltpError, reason_of
from fsmatrix.suite.oltp.server import Server

LOG = "log"
NEW_ORDER, CANCELLED = "new-order", "new-order-cancelled"
# name -> weight in 10000, statement; clause 5.2.3: at least 43, 4, 4, 4 %, the rest new orders,
# of which 1 % are undone (2.4.1.4)
SCRIPTS: Mapping[str, tuple[int, str]] = {
    NEW_ORDER: (4455, "SELECT new_order(:home, :warehouses, :seed);"),
    CANCELLED: (45, "SELECT cancelled_order(:home, :warehouses, :seed);"),
    "payment": (4300, "SELECT payment(:home, :warehouses, :seed);"),
    "order-status": (400, "SELECT order_status(:home, :seed);"),
    "delivery": (400, "SELECT delivery(:home, :seed);"),
    "stock-level": (400, "SELECT stock_level(:home, :seed);"),
}
BEFORE = "\\set home :client_id % :warehouses + 1\n\\set seed random(1, 9007199254740991)\n"


@dataclass(frozen=True)
class Users:
    """Who works, how long, and how fast."""

    users: int
    warehouses: int
    seconds: int
    seed: int
    max_tries: int
    rate: float = 0.0  # transactions per second of all users; 0: as fast as they can

    def argv(self, server: Server) -> list[str]:
        """pgbench's command line; it writes its logs into the account's folder."""
        jobs = min(self.users, len(os.sched_getaffinity(0)))
        words = [
            *(server.programs.path("pgbench"), "-n", "-l", f"--log-prefix={server.run / LOG}"),
            *("-h", str(server.run), "-U", "tpcc", "-M", "prepared"),
            *("-c", str(self.users), "-j", str(jobs), "-T", str(self.seconds)),
            *(f"--random-seed={self.seed}", f"--max-tries={self.max_tries}"),
            *("--failures-detailed", "-D", f"warehouses={self.warehouses}"),
        ]
        if self.rate:
            words.append(f"--rate={self.rate!r}")
        for name, (weight, _) in SCRIPTS.items():
            words += ["-f", f"{server.files / name}.sql@{weight}"]
        return [*words, "tpcc"]

    def write_scripts(self, server: Server) -> None:
        """The transactions' scripts."""
        for name, (_, statement) in SCRIPTS.items():
            path = server.files / f"{name}.sql"
            path.write_text(f"{BEFORE}{statement}\n")
            accounts.own(path, server.account, 0o600)

    def start(self, server: Server) -> subprocess.Popen[str]:
        """The running pgbench; it ends with this process."""
        return subprocess.Popen(
            server.limited(self.argv(server), "KILL"),
            cwd=server.run,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )


def logs(folder: Path) -> list[Path]:
    """What pgbench's threads wrote."""
    return sorted(folder.glob(f"{LOG}.*"))


def problem(code: int, output: str) -> OltpError:
    """pgbench ended badly."""
    how = f"ended with status {code}" if code > 0 else f"was ended by signal {-code}"
    return OltpError(f"pgbench {how}: {reason_of(output)}")
