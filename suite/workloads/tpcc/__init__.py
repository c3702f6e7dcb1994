"""The workload `tpcc`: transactions like those of TPC-C on a database of the run's own.

By PostgreSQL, or by SQLite if it is named or where only that can be used.

Derived from TPC-C and not audited: users neither key nor think, and the numbers are transactions
per second of all types and new orders per second, never tpmC.  Three steps, each of which starts
the server on the run's directory and ends it (suite/oltp): the database is made, the users work,
and the standard's consistency conditions are asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from fsmatrix.backends.access import Access
from fsmatrix.backends.system.cgroups import memory
from fsmatrix.results.case import Case
from fsmatrix.results.evidence.stored import read
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.results.formats.base import Note, Parsed, ParseError
from fsmatrix.results.record import Monitor
from fsmatrix.suite.engines.base import Engine
from fsmatrix.suite.oltp import account
from fsmatrix.suite.oltp.answers import Checked, Loaded, Worked
from fsmatrix.suite.oltp.problems import OltpError
from fsmatrix.suite.oltp.task import (
    DATA,
    POSTGRESQL,
    RESULT,
    SQLITE,
    SQLITE_DATA,
    TASK,
    Task,
)
from fsmatrix.suite.workloads.base import (
    Argv,
    Footprint,
    Output,
    Role,
    Step,
    Workload,
    WorkloadOptions,
)
from fsmatrix.suite.workloads.tpcc.options import TpccOptions
from fsmatrix.suite.workloads.tpcc.reading import (
    OBSERVED,
    TRANSACTIONS,
    Measured,
    answer,
    engine_note,
    memory_note,
    observed,
    transactions,
)

LOAD, CHECK = "load", "consistency"
NOT_AUDITED = "TPC-C derived, not audited: no keying or think times, no tpmC"
# Of a new database, and what a transaction adds: measured with PostgreSQL 15, log included.
WAREHOUSE, BASE, WAL = 130 << 20, 64 << 20, 1 << 30
GROWTH = 2 << 10  # bytes of a transaction
FASTEST = 500  # transactions per second of a user, for estimates of space
FILES = 1200


class Tpcc(Workload):
    """Five transactions in the standard's mix, by pgbench or by SQLite's users."""

    name: ClassVar[str] = "tpcc"
    Options: ClassVar[type[WorkloadOptions]] = TpccOptions
    accesses: ClassVar[frozenset[str]] = frozenset({"path"})
    engines: ClassVar[tuple[str, ...]] = (POSTGRESQL, SQLITE)
    cold_metadata: ClassVar[bool] = True
    options: TpccOptions

    @classmethod
    def default_engine(cls, usable: Callable[[str], bool]) -> str:
        """PostgreSQL where it can be used; SQLite where only that can."""
        return SQLITE if not usable(POSTGRESQL) and usable(SQLITE) else POSTGRESQL

    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """Make the database, let the users work, ask for the conditions."""
        del case, access
        return [
            self._step(LOAD, "setup", "load", engine),
            self._step(TRANSACTIONS, "timed", "run", engine),
            self._step(CHECK, "check", "check", engine),
        ]

    def _step(self, name: str, role: Role, do: str, engine: Engine) -> Step:
        options, embedded = self.options, engine.name == SQLITE
        task = Task(
            do=do,
            programs=str(Path(engine.program).parent),
            path="{path}",
            seed="{seed}",
            warehouses=options.warehouses,
            users=options.users,
            settings=options.sqlite_settings() if embedded else options.server_settings(),
            warm_up=int(options.warm_up),
            seconds=int(options.runtime),
            rate=options.rate or 0.0,
            max_tries=options.max_tries,
            engine=engine.name,
            memory=(options.memory or 0) if role == "timed" else 0,
            journal="{journal}" if options.memory else "",
        )
        what = Argv(
            (sys.executable, "-P", "-m", "fsmatrix.suite.oltp", "{scratch}"),
            files={TASK: task.text()},
            collect=(RESULT,),
        )
        timed = role == "timed"
        data = SQLITE_DATA if embedded else DATA
        return Step(name, "node", role, what, reads=timed, files=(data,) * timed)

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """The phase `transactions`; a violated condition is a failure, with its numbers."""
        del case
        by_step = {output.step: output for output in outputs}
        if TRANSACTIONS not in by_step:
            return Parsed()
        result = answer(Worked, by_step[TRANSACTIONS])
        try:
            phase = transactions(result, by_step[TRANSACTIONS], self.options.rate or 0.0)
        except (KeyError, TypeError, ValueError) as error:
            raise ParseError(
                TRANSACTIONS, 0, f"{RESULT} is not of this version: {error}"
            ) from error
        loaded = answer(Loaded, by_step[LOAD]) if LOAD in by_step else None
        checked = answer(Checked, by_step[CHECK]) if CHECK in by_step else None
        failure = checked.says if checked else ""
        if not failure and not phase.operations.any():
            failure = "no transaction ended within the measured time"
        engine = result.engine or POSTGRESQL
        notes = [Note("tpc-derived", NOT_AUDITED), engine_note(engine, result.settings)]
        if result.memory:
            notes.append(memory_note(result.memory))
        facts: JsonObject = {
            "block_size": int(result.settings.get("block_size", 0)),
            "settings": result.settings,
            "account": result.account,
            "load": loaded.document() if loaded else {},
            "consistency": checked.document() if checked else {},
            "memory": result.memory.document() if result.memory else None,
            "database_bytes": result.database_bytes,
        }
        return Parsed(
            engine=engine,
            version=result.settings.get("server_version", "").partition(" ")[0],
            phases=(phase,),
            nodes=1,
            processes=self.options.users,
            failure=failure,
            notes=tuple(notes),
            facts=facts,
        )

    def with_samples(self, case: Case, parsed: Parsed, monitor: Monitor | None) -> Parsed:
        """CPU shares and requests of devices, of the middle two thirds of the measured time."""
        del case
        phases = []
        for phase in parsed.phases:
            before = read(Measured, phase.facts, "facts").observed
            seen = {**before, **observed(phase, monitor)}
            phases.append(replace(phase, facts={**phase.facts, OBSERVED: seen}))
        return replace(parsed, phases=tuple(phases))

    def explain(self, output: Output) -> str:
        """The sentence that the step wrote."""
        lines = [line for line in output.stderr.splitlines() if line.startswith("tpcc: ")]
        return lines[-1].removeprefix("tpcc: ") if lines else ""

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        geometry = case.geometry
        if geometry.nodes > 1 or geometry.processes_per_node > 1 or geometry.threads > 1:
            return (
                "tpcc has one database server, on one client node: its load grows with warehouses "
                "and virtual_users, not with nodes, processes_per_node or threads"
            )
        if case.cache == "bypass":
            return "a database reads and writes through the page cache: say cache: cold or warm"
        if case.cache == "warm" and self.options.memory is not None:
            return (
                "memory: pages that are warm before the users work are not charged to them: say "
                "cache: cold"
            )
        return ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this cannot be run here (empty: it can)."""
        del case
        embedded = engine.name == SQLITE
        if access not in self.accesses:
            return f"{'SQLite' if embedded else 'PostgreSQL'} works on paths, not on {access}"
        if reason := self.options.foreign(engine.name):
            return reason
        if self.options.memory is not None and (reason := memory.refusal()):
            return f"memory: {self.options.memory}: {reason}"
        if os.geteuid() == 0 and not embedded:
            try:
                account.choose().words("KILL")
            except OltpError as error:
                return str(error)
        return ""

    def footprint(self, case: Case) -> Footprint:
        """An estimate: the new database and what transactions add at a good speed."""
        del case
        options = self.options
        seconds = options.runtime + options.warm_up
        fastest = min(options.rate or float("inf"), FASTEST * options.users, 5000.0)
        grown = int(seconds * fastest * GROWTH)
        new = BASE + WAREHOUSE * options.warehouses
        log = min(WAL, _bytes(options.settings.get("max_wal_size", "1GB")))
        return Footprint(
            space=new + grown + log,
            written=2 * new + 3 * grown,
            files=FILES,
            seconds=seconds,
            read=new,
        )


def _bytes(text: str) -> int:
    """A size in PostgreSQL's units."""
    return int(text[:-2]) * {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[text[-2:]]
