"""What is done around the steps of a run: its place, caches, settling, health, sampling."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fsmatrix.backends.access import Access, PathAccess
from fsmatrix.backends.base import Backend
from fsmatrix.backends.registry import BACKENDS
from fsmatrix.suite.assemble import Gathered
from fsmatrix.suite.job import Job, Settings
from fsmatrix.suite.session.client import Session
from fsmatrix.suite.workloads.base import Step

HEALTH_SECONDS = 30.0
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

    def world(self, job: Job, gathered: Gathered) -> None:
        """Who takes part, and whether the results lie on the system under test."""
        geometry = job.case.geometry
        ranks = [self.session.hello["ranks"][i] for i in self.session.members(geometry)]
        threads = geometry.threads * geometry.processes_per_node
        cpus = len(ranks[0]["cpus"]) if ranks else 0
        kernels = {rank["boot_id"] for rank in ranks}
        per_kernel = threads * geometry.nodes // max(len(kernels), 1)
        gathered.evidence["world"] = {
            "asked_ranks": geometry.processes,
            "got_ranks": len(ranks),
            "asked_nodes": geometry.nodes,
            "got_nodes": len({rank["node"] for rank in ranks}),
            "kernels": len(kernels),
            "oversubscribed": per_kernel > cpus,
            "emulated_nodes": len(kernels) < geometry.nodes,
        }
        on_target = False
        if isinstance(self.access, PathAccess):
            on_target = self.settings.out.stat().st_dev == Path(self.access.path).stat().st_dev
        gathered.evidence["output"] = {"on_target": on_target}

    def make_run(self, job: Job) -> str:
        """The run's own place, on every kernel; its root as drivers and programs know it."""
        access = self.access.to_json()
        self.session.call("make_run", access, self.journal, REST_SECONDS * 4, name=job.name)
        return self.backend.run_root(self.access, job.name)

    def remove_run(self, job: Job) -> None:
        """Remove the run's own place."""
        access = self.access.to_json()
        seconds = self.settings.time_per_run + REST_SECONDS
        self.session.call("remove_run", access, self.journal, seconds, name=job.name)

    def look_at_health(self, step: Step, gathered: Gathered) -> None:
        """What the storage says is wrong with it, asked by one leader."""
        if self.backend.health.__func__ is Backend.health.__func__:  # type: ignore[attr-defined]
            return  # nothing to be asked
        answers = self.session.call(
            "health", self.access.to_json(), self.journal, HEALTH_SECONDS, only_first=True
        )
        before = gathered.evidence.get("health", {}).get(step.name, [])
        found = [sentence for answer in answers for sentence in answer["value"]]
        gathered.put("health", step.name, list(dict.fromkeys([*before, *found])))

    def settle(self, step: Step, deadline: float, gathered: Gathered) -> None:
        """Wait, bounded, until every kernel is quiet."""
        timeout = self.settings.settle_timeout
        begin = time.monotonic()
        answers = self.session.call(
            "settle",
            self.access.to_json(),
            self.journal,
            timeout + left(deadline),
            timeout=timeout,
        )
        values = [answer["value"] for answer in answers]
        worst = min(values, key=lambda value: value["reached"])
        gathered.spent("settle", time.monotonic() - begin)
        gathered.put("settle", step.name, worst)

    def cache(self, job: Job, step: Step, deadline: float, gathered: Gathered) -> None:
        """Make the declared cache state on every kernel, and keep the evidence."""
        begin = time.monotonic()
        files = [str(Path(job.name) / name) for name in step.files or ("",)]
        answers = self.session.call(
            "cache",
            self.access.to_json(),
            self.journal,
            left(deadline),
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

    def _cache_method(self, job: Job) -> str:
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


def left(deadline: float) -> float:
    """Seconds until a deadline on the monotonic clock, at least a little."""
    return max(deadline - time.monotonic(), 0.1)
