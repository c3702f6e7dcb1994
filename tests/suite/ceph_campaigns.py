"""Campaigns on a real cluster that breaks: the bed, what is run, and what must not be left."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsmatrix.backends.journal.journal import PREFIX, Journal
from fsmatrix.backends.system import mounts
from fsmatrix.backends.testbed.ceph_testbed import CephTestbed, status
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import RunRecord
from tests import ceph_beds
from tests.suite.running import Running
from tests.waiting import until

SINGLE = "single"  # a pool of one copy
WRITTEN = 16  # objects in a pool that a run is writing to; it has one or two from the start
CEPH_FIRST, CEPH_AROUND = 1, 1  # seeds: of two targets ceph is the first; the first and last of 2x2
CAMPAIGN = """
campaign: cephfaults
seed: {seed}
targets:
  ceph: {{backend: {backend}, options: {{conf: {conf}, {target}}}}}
{others}
workloads:
  io: {{workload: {workload}, options: {{{work}}}}}
factors: {{{factor}: [{level}]}}
repetitions: {repetitions}
order: {{attachments: {attachments}, block: {block}}}
settle: {{timeout: 1s}}
limits: {{time_per_run: {limit}}}
"""


@dataclass(frozen=True)
class Place:
    """Where one test works."""

    folder: Path
    bed: CephTestbed
    started: list[Any] = field(default_factory=list)  # campaigns

    @property
    def directory(self) -> Path:
        """The target that is a directory of this machine."""
        return self.folder / "directory"

    @property
    def out(self) -> Path:
        """The campaign's output."""
        return self.folder / "out"

    def campaign(
        self,
        backend: str,
        *,
        target: str,
        workload: str = "pattern",
        work: str = "bytes_per_process: 4MiB, chunk: 64KiB",
        repetitions: int = 2,
        attachments: int = 1,
        limit: str = "40s",
        beside: bool = False,
        seed: int = 1,
    ) -> Path:
        """Write a campaign; `beside`: with a target that is a directory of this machine."""
        self.directory.mkdir()
        other = f"  here: {{backend: directory, options: {{path: {self.directory}}}}}"
        text = CAMPAIGN.format(
            backend=backend,
            conf=self.bed.conf,
            target=target,
            others=other if beside else "",
            workload=workload,
            factor="rw" if workload == "fio" else "pattern",
            level="write" if workload == "fio" else "seq-write",
            work=work,
            repetitions=repetitions,
            attachments=attachments,
            block=max(1, repetitions // attachments),
            limit=limit,
            seed=seed,
        )
        path = self.folder / "faults.yaml"
        path.write_text(text)
        return path

    def start(self, *words: object, **campaign: Any) -> Any:
        """A campaign that runs; see `campaign`."""
        backend = campaign.pop("backend")
        self.started.append(Running(self.campaign(backend, **campaign), "-o", self.out, *words))
        return self.started[-1]

    def until_writing(self, running: Any, pool: str) -> None:
        """Into the middle of the first run on the target `ceph`: its data lie in `pool`."""
        while " ceph " not in running.until("run")["text"]:
            pass
        with self.bed.cluster() as cluster, cluster.ioctx(pool, "\x01") as every:
            until(lambda: sum(1 for _ in every.entries()) >= WRITTEN)

    def stop(self) -> None:
        """End the campaigns that a test which failed has left running."""
        for running in self.started:
            if running.process.poll() is None:
                running.process.terminate()
                running.end()

    def records(self) -> list[RunRecord]:
        """All records, in the order in which they ran."""
        store = Store.open(self.out)
        return sorted((store.read(run) for run in store.ids()), key=lambda one: one.started)

    def pending(self) -> list[str]:
        """Kinds of what the journal says is left."""
        journals = (self.out / "journal").glob("*.jsonl")
        return [entry.kind for path in journals for entry in Journal(path).pending()]

    def left(self) -> list[str]:
        """What a campaign must not leave: on this machine, and in the cluster."""
        found = [f"mount {mount.point}" for mount in mounts.mounted_below(self.folder)]
        daemons = {one["pid"] for one in status(self.bed.directory)["daemons"]}  # restarted ones
        processes = processes_of(self.folder)
        found += [f"process {pid} {words}" for pid, words in processes if pid not in daemons]
        found += [f"journal {kind}" for kind in self.pending()]
        with self.bed.cluster() as cluster:
            for pool in (self.bed.pools["rados"], SINGLE):
                with cluster.ioctx(pool, "\x01") as every:
                    found += [f"object {space}/{name}" for name, space in every.entries()]
        names = ceph_beds.root(self.bed)
        return found + [f"directory {name}" for name in names if name.startswith(PREFIX)]


def processes_of(folder: Path) -> list[tuple[int, str]]:
    """Processes that a test in `folder` has started, by their environment (see conftest)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"XDG_CONFIG_HOME={folder}/".encode() in (entry / "environ").read_bytes()
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if mine:
            found.append((int(entry.name), words))
    return found


def audits(record: RunRecord) -> set[str]:
    """Names of a record's findings."""
    return {finding.audit for finding in record.findings}


def single_copy(bed: CephTestbed) -> None:
    """Make the pool SINGLE."""
    with bed.cluster() as cluster:
        cluster.mon("osd pool create", pool=SINGLE, pg_num=8, size=1)
        cluster.mon("osd pool set", pool=SINGLE, var="size", val="1", yes_i_really_mean_it=True)
        cluster.mon("osd pool application enable", pool=SINGLE, app="fsmatrix")


def revive_osd(bed: CephTestbed, osd: int) -> None:
    """Let a stopped one go on; start one that has ended."""
    running = {one["role"]: one["state"] for one in status(bed.directory)["daemons"]}
    if running[f"osd.{osd}"] == "stopped":
        bed.resume(f"osd.{osd}")
    elif running[f"osd.{osd}"] != "running":
        bed.restart(f"osd.{osd}")
