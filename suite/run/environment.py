"""What is done around the steps of a run: its place, caches, settling, health, sampling."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.base import Backend
from fsmatrix.backends.registry import BACKENDS
from fsmatrix.results.case import Geometry
from fsmatrix.suite.plan.limits import with_links
from fsmatrix.suite.run.assemble import RunBuilder
from fsmatrix.suite.run.outputs import RunFailed
from fsmatrix.suite.run.spec import RunSpec, Settings
from fsmatrix.suite.session.client.client import Session
from fsmatrix.suite.session.survey import disagreements, members
from fsmatrix.suite.workloads.base import Step

HEALTH_SECONDS = 30.0
WATCH_SECONDS = 3.0  # between two looks at the storage's health while a step runs
FIRST_LOOK, LAST_LOOK = 2.0, 12.0  # seconds at most before and after the step
REST_SECONDS = 5.0  # for what follows a run's own time: removal, answers


class Surroundings:
    """Asks the node leaders of one session for what a run needs beside its steps."""

    def __init__(
        self,
        session: Session,
        access: Access,
        journal: Path,
        settings: Settings,
        provenance: Mapping[str, Any],
    ) -> None:
        self.session = session
        self.access = access
        self.backend = BACKENDS.load(access.backend)
        self.journal = journal
        self.settings = settings
        self.provenance = provenance

    @property
    def limit(self) -> str:
        """What a run's deadline comes from."""
        return f"limits.time_per_run ({self.settings.time_per_run:g} s)"

    def world(self, job: RunSpec, gathered: RunBuilder) -> None:
        """Who takes part, and whether the results lie on the system under test.

        RunFailed if the ranks of this geometry are not there, node by node.
        """
        geometry = job.case.geometry
        world = self.session.hello["ranks"]
        ranks = [world[i] for i in members(world, geometry)]
        gathered.evidence["world"] = world_of(geometry, ranks)
        on_target = False
        if isinstance(self.access, PathAccess):
            on_target = self.settings.out.stat().st_dev == Path(self.access.path).stat().st_dev
        gathered.evidence["output"] = {"on_target": on_target, "written": 0}
        if known := with_links(job.limits, ranks):
            gathered.evidence["limits"] = known
        if len(ranks) < geometry.processes:
            raise RunFailed(self._misplaced(geometry), evidence=gathered.evidence["world"])

    def _misplaced(self, geometry: Geometry) -> str:
        """What was asked for and where the launcher put the ranks of the whole session."""
        placed = Counter(rank["node"] for rank in self.session.hello["ranks"])
        hosts = {rank["node"]: rank["host"] for rank in self.session.hello["ranks"]}
        where = ", ".join(f"{count} on {hosts[node]}" for node, count in sorted(placed.items()))
        return (
            f"{geometry.nodes} client nodes with {geometry.processes_per_node} processes each "
            f"were asked for, the launcher {self.session.launcher.name!r} placed {where}: check "
            "its hosts, and the nodes and tasks per node of the allocation"
        )

    def make_run(self, job: RunSpec) -> str:
        """The run's own place, on every kernel; its root as drivers and programs know it."""
        access = self.access.to_json()
        programs = job.engine.name != "player"
        self.session.call(
            "make_run", access, self.journal, REST_SECONDS * 4, name=job.name, programs=programs
        )
        return self.backend.run_root(self.access, job.name)

    def remove_run(self, job: RunSpec) -> None:
        """Remove the run's own place."""
        access = self.access.to_json()
        seconds = self.settings.time_per_run + REST_SECONDS
        self.session.call("remove_run", access, self.journal, seconds, name=job.name)

    def look_at_health(self, step: Step, gathered: RunBuilder) -> None:
        """What the storage says is wrong with it, asked by one leader."""
        if self.backend.health.__func__ is Backend.health.__func__:  # type: ignore[attr-defined]
            return  # nothing to be asked
        answers = self.session.call(
            "health", self.access.to_json(), self.journal, HEALTH_SECONDS, only_first=True
        )
        found = [sentence for answer in answers for sentence in answer["value"]]
        self._unwell(step, found, gathered)

    @staticmethod
    def _unwell(step: Step, found: Iterable[str], gathered: RunBuilder) -> None:
        before = gathered.evidence.get("health", {}).get(step.name, [])
        gathered.put("health", step.name, united([*before, *found]))

    @contextmanager
    def health_watched(self, step: Step, gathered: RunBuilder) -> Iterator[None]:
        """Look at the health just before the step, while it runs and just after it.

        The conductor looks, over a connection of its own: no measured process takes part.
        """
        asked = self.backend.health_watch(self.access)
        if asked is None:
            yield
            return
        watch = HealthWatch(asked)
        try:
            yield
        finally:
            found = watch.stop(0.0 if self.session.stop.at_once else LAST_LOOK)
            self._unwell(step, found, gathered)
            before = gathered.evidence.get("health_watch", {}).get(step.name, {"looks": 0})
            told = {"looks": before["looks"] + watch.looks, "interval": WATCH_SECONDS}
            gathered.put("health_watch", step.name, told)

    def settle(self, step: Step, deadline: float, gathered: RunBuilder) -> None:
        """Wait, bounded, until every kernel is quiet."""
        timeout = self.settings.settle_timeout
        begin = time.monotonic()
        answers = self.session.call(
            "settle",
            self.access.to_json(),
            self.journal,
            timeout + left(deadline),
            limit=f"settle.timeout ({timeout:g} s) and what was left of {self.limit}",
            timeout=timeout,
        )
        values = [answer["value"] for answer in answers]
        worst = min(values, key=lambda value: value["reached"])
        gathered.spent("settle", time.monotonic() - begin)
        gathered.put("settle", step.name, worst)

    def cache(self, job: RunSpec, step: Step, deadline: float, gathered: RunBuilder) -> None:
        """Make the declared cache state on every kernel, and keep the evidence."""
        begin = time.monotonic()
        files = [str(Path(job.name) / name) for name in step.files or ("",)]
        answers = self.session.call(
            "cache",
            self.access.to_json(),
            self.journal,
            left(deadline),
            limit=self.limit,
            state="warm" if self.provenance["memory"] else job.case.cache,
            files=files,
            method=self._cache_method(job),
        )
        values = [answer["value"] for answer in answers]
        if self.provenance["memory"]:
            values = [{**value, "state": "memory"} for value in values]
        gathered.spent("cache", time.monotonic() - begin)
        # one kernel that did not reach the state spoils the run, and so does one time
        worst = min(values, key=lambda value: value["state"] == job.case.cache)
        found = {"declared": job.case.cache, "reads": True, **worst, "kernels": values}
        before = gathered.evidence.get("cache", {}).get(step.name, found)
        reached = before["state"] == job.case.cache
        gathered.put("cache", step.name, found if reached else before)

    def _cache_method(self, job: RunSpec) -> str:
        """Only drop_caches empties the caches of inodes and names, and only root may."""
        wanted = job.workload.cold_metadata and os.geteuid() == 0 and not self.provenance["memory"]
        method = self.settings.cache_method
        return "drop_caches" if wanted and method == "auto" else method

    def watch(self, begin: bool) -> list[dict[str, Any]]:
        """Begin or end sampling every kernel beside a program of the conductor's."""
        access = self.access.to_json()
        to = self.session.kernels
        command = {"do": "watch", "to": to, "begin": begin, "access": access}
        answers = self.session.checked(self.session.request(command, REST_SECONDS), "sampling")
        return [answer for answer in answers if "kernel" in answer]


def world_of(geometry: Geometry, ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The evidence `world`: what was asked for, and who `ranks` (of the hello) really are."""
    on_kernel: dict[str, list[Mapping[str, Any]]] = {}
    for rank in ranks:
        on_kernel.setdefault(rank["boot_id"], []).append(rank)
    crowded = any(
        len(here) * geometry.threads > len(set().union(*(rank["cpus"] for rank in here)))
        for here in on_kernel.values()
    )
    nodes = len({rank["node"] for rank in ranks})
    return {
        "asked_ranks": geometry.processes,
        "got_ranks": len(ranks),
        "asked_nodes": geometry.nodes,
        "got_nodes": nodes,
        "kernels": len(on_kernel),
        "processors": len({rank["processor"] for rank in ranks}),
        "shared_memories": len({rank["shared"] for rank in ranks}),
        "disagreements": disagreements(ranks),
        "oversubscribed": crowded,
        "emulated_nodes": len(on_kernel) < nodes,
    }


class HealthWatch:
    """Looks in a thread of its own: when it is made, every WATCH_SECONDS, and at `stop`."""

    def __init__(self, asked: Any) -> None:
        """`asked`: with `look() -> sentences` and `close()`, used by this thread only.

        Returns after the first look, or after FIRST_LOOK seconds if it hangs.
        """
        self._asked = asked
        self._begun, self._over = threading.Event(), threading.Event()
        self._found: list[str] = []
        self._failure: Exception | None = None
        self.looks = 0
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)
        self._thread.start()
        self._begun.wait(FIRST_LOOK)

    def _run(self) -> None:
        try:
            self._look()
            self._begun.set()
            while not self._over.wait(WATCH_SECONDS):
                self._look()
            self._look()
        except Exception as error:  # noqa: BLE001  raised again by `stop`
            self._failure = error
        finally:
            self._begun.set()
            self._asked.close()

    def _look(self) -> None:
        self._found = united([*self._found, *self._asked.look()])
        self.looks += 1

    def stop(self, patience: float) -> list[str]:
        """Look once more and end; the sentences of all looks.

        What has no answer within `patience` seconds is said; the thread is left behind and ends
        with the call that hangs.
        """
        self._over.set()
        self._thread.join(patience)
        if self._failure is not None:
            raise self._failure
        if self._thread.is_alive():
            late = f"the storage's health is not known: no answer within {patience:g} s"
            return [*self._found, late]
        return self._found


def united(sentences: Iterable[str]) -> list[str]:
    """Of sentences that differ in numbers only (how much is left to recover), the last."""
    number = r"(?<![\w.])\d+(\.\d+)?(?!\w)"  # not a part of a name such as osd.0
    return list({re.sub(number, "#", text): text for text in sentences}.values())


def left(deadline: float) -> float:
    """Seconds until a deadline on the monotonic clock, at least a little."""
    return max(deadline - time.monotonic(), 0.1)
