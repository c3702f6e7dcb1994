"""The conductor: takes a plan through blocks and whole plots, whatever breaks on the way.

For each plot: provision, mount, a session, the plot's runs, unmount, release.  A session that
dies costs the run that it was in; the next session goes on with what is left.  What the
conductor did to the machine is in the journal, so that the next one can undo it.
"""

from __future__ import annotations

import platform
import re
import secrets
import select
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fsmatrix.backends.access import Access
from fsmatrix.backends.contract import Backend, ProvisionContext, Space
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal.journal import LEFT_ALONE, Journal, undo_pending
from fsmatrix.backends.journal.proof import PlannedPaths
from fsmatrix.backends.system import workfolder
from fsmatrix.backends.system.tools import Overdue, within
from fsmatrix.backends.testbed.bed import StorageTestbed
from fsmatrix.results.evidence.stored import Level
from fsmatrix.results.evidence.target import MEMORY_TYPES, Deployment, storage_hosts
from fsmatrix.results.files import safefile
from fsmatrix.results.files.store import Store, StoreError
from fsmatrix.results.record import Finding, Geometry, RunRecord
from fsmatrix.results.units import plural
from fsmatrix.suite.cases.target import PlannedTestbed, down_all
from fsmatrix.suite.launchers.launcher import Launcher, LauncherError
from fsmatrix.suite.nodes.node_watch import NodeWatch
from fsmatrix.suite.plan.estimate import short_of_room
from fsmatrix.suite.registry import SOURCES
from fsmatrix.suite.run import maxima
from fsmatrix.suite.run.assemble import RunSpec, Settings, reason_of
from fsmatrix.suite.run.environment import Environment, SessionContext, gather
from fsmatrix.suite.run.events import Event, Facts, Listener
from fsmatrix.suite.run.health import HEALTH_SECONDS, SHOWN, asked_once, new_ones
from fsmatrix.suite.run.record_writer import RecordWriter, Summary
from fsmatrix.suite.run.runner import Runner
from fsmatrix.suite.session import orphaned_sessions
from fsmatrix.suite.session.client import Session, SessionError, StorageStalled
from fsmatrix.suite.session.messages import Call
from fsmatrix.suite.session.programs import Interrupted, StopFlag

# A target that was full: which runs of a plot need not be begun after that.


FULL = re.compile(r"\b(ENOSPC|EDQUOT)\b|No space left on device|Disk quota exceeded")
SECONDS = 10.0  # for an answer about the space


def met(record: RunRecord) -> bool:
    """Whether the run failed for want of space."""
    return record.status == "failed" and bool(FULL.search(record.error))


def hopeless_target(
    spec: RunSpec, todo: Sequence[RunSpec], space: Callable[[], Space]
) -> list[RunSpec]:
    """Those of `todo` that hold as much as the run that failed, or more than there is now.

    None where that run would fit by now: what it met is no full target (a disk that shrank).
    """
    try:
        room = within(SECONDS, space)
    except (BackendError, OSError, Overdue):
        room = Space(None, None, "unknown")
    least, files = _needs(spec)
    if room.bytes is not None and not any(short_of_room(least, files, room)):
        return []

    def fits(other: RunSpec) -> bool:
        size, files = _needs(other)
        return size < least and not any(short_of_room(size, files, room))

    return [other for other in todo if not fits(other)]


def _needs(spec: RunSpec) -> tuple[int, int]:
    """Bytes and files that a run holds at once; 0 where what planned them has gone."""
    try:
        needs = spec.workload.footprint(spec.case)
    except Exception:  # noqa: BLE001 - of another package, perhaps
        return 0, 0
    return needs.space, needs.files


def reason(record: RunRecord) -> str:
    """Why they are not begun."""
    return f"not begun, because a run before met a full target ({record.error}): make room there"


MOUNT_SECONDS = 120.0
MAX_EMPTY_SESSIONS = 3  # sessions in a row that give no run: the plot is given up


class LimitReached(Exception):
    """The campaign may not write any more."""


ENDS = (LimitReached, StoreError, Interrupted)  # of a campaign; all else is a failure of runs


@dataclass(frozen=True)
class Attachment:
    """A whole plot with what it needs: one mounting of a target level."""

    name: str
    block: int
    target: str
    backend: Backend
    level: Level
    geometry: Geometry  # the largest of the plot: the size of its session
    specs: Sequence[RunSpec]
    provision_options: Mapping[str, str] = field(default_factory=dict)
    block_seed: str = ""  # what random choices of this block are made of
    testbed: PlannedTestbed | None = (
        None  # the backend then works on a test bed that is brought up first
    )
    bed: StorageTestbed[Any] | None = None  # that which is up
    planned: Deployment = field(default_factory=Deployment)  # what was known of it before


class Conductor:
    """Carries out attachments on this machine; one per shard of a campaign."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        launcher: Launcher,
        named: PlannedPaths,
        stop: StopFlag,
        tell: Listener,
        lock_lost: Callable[[], str] = lambda: "",
    ) -> None:
        self.store = store
        self.settings = settings
        self.launcher = launcher
        self.named = named  # places that the stored plan names
        self.stop = stop
        self.tell = tell
        self.lock_lost = lock_lost  # why this part of the campaign is no longer ours
        self.journals = store.directory / "journal"
        self.summary = Summary()
        self.records = RecordWriter(store, self.summary, tell)
        self._written = 0
        self._given_up: set[tuple[str, str]] = set()  # target, reason
        self._used: dict[str, tuple[Backend, ProvisionContext]] = {}
        self._left_alone: set[str] = set()  # what `recover` could not take down, in sentences

    def recover(self) -> None:
        """End and take down what an earlier conductor of this store left."""
        safefile.make_folder(self.journals)
        safefile.make_folder(self.store.directory / "state")
        safefile.require_trusted(self.store.directory)
        ended = orphaned_sessions.end_leftovers(self.journals)
        ended += self._take_down_earlier()
        gone = [*self.store.remove_abandoned(), *workfolder.sweep()]
        ended += [f"removed {path}, which a killed process had made" for path in gone]
        for sentence in [*ended, *down_all(self.store.directory / "state")]:
            self.tell(Event("recovered", sentence))

    def _recover_rest(self) -> None:
        for sentence in self._take_down_earlier():
            self.tell(Event("recovered", sentence))

    def _take_down_earlier(self) -> list[str]:
        """What is new of it since the last time, in sentences."""
        sentences = undo_pending(self.journals, self.named)
        new = [sentence for sentence in sentences if sentence not in self._left_alone]
        self._left_alone = {text for text in sentences if text.startswith(LEFT_ALONE)}
        return new

    def run(self, attachments: Iterator[Attachment]) -> Summary:
        """All attachments; returns what came of them, also when interrupted."""
        try:
            with self.records:
                for attachment in attachments:
                    if self.stop.signal:
                        raise Interrupted
                    self._attachment(attachment)
        except (LimitReached, StoreError) as reason:
            self.summary.stopped = str(reason)
            self.tell(Event("stopped", str(reason)))
        except Interrupted:
            self.summary.interrupted, self.summary.signal = True, self.stop.signal
            self.tell(Event("stopped", "stopped on request; --resume goes on from here"))
        finally:
            for target, (backend, context) in self._used.items():
                self._quietly(f"clean up of {target}", partial(backend.finish, context))
            if self._left_alone:  # what was in use then may be free now
                self._quietly("taking down what an earlier run left", self._recover_rest)
            self._tell_what_stays()
        return self.summary

    # -- one attachment ----------------------------------------------------------------------
    def _attachment(self, attachment: Attachment) -> None:
        self.records.flush()  # what is told of this attachment includes all runs before it
        todo = []
        for spec in attachment.specs:
            if stored := self._done(spec):
                self.records.count(attachment.target, *stored)
            else:
                todo.append(spec)
        there = len(attachment.specs) - len(todo)
        self.summary.skipped += there
        if there:
            text = f"{attachment.name}: {there} runs are stored already"
            whole = int(not todo)
            tally = self.summary.tally
            facts = Facts(target=attachment.target, runs=there, attachments=whole, tally=tally)
            self.tell(Event("skipped", text, facts))
        if not todo:
            return
        context = self._context(attachment)
        if attachment.testbed is None:  # of a bed nothing stays
            self._used[attachment.target] = (attachment.backend, context)
        facts = Facts(
            attachment=attachment.name,
            target=attachment.target,
            runs=len(todo),
            tally=self.summary.tally,
        )
        self.tell(Event("attach", f"{attachment.name}: attach {attachment.target}", facts))
        try:
            attachment = self._on_testbed(attachment, context)
            access = attachment.backend.provision(attachment.level, context)
        except ENDS:
            raise
        except Exception as error:  # noqa: BLE001 - only these runs are lost by it
            self._take_down(attachment, context)
            self._give_up(todo, f"{attachment.target} could not be provided: {reason_of(error)}")
            return
        try:
            self._check_allowed(access)
            self._sessions(attachment, access, todo)
        except ENDS:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(todo, reason_of(error))
        finally:
            self._quietly("release", lambda: attachment.backend.release(access, context))
            self._take_down(attachment, context)

    def _on_testbed(self, attachment: Attachment, context: ProvisionContext) -> Attachment:
        """With its test bed up, if it has one: the bed is at the attachment's level."""
        if attachment.testbed is None:
            return attachment
        bed = attachment.testbed
        backend, there = bed.up(attachment.level, context)
        level = bed.rest(attachment.level)
        return replace(attachment, backend=backend, level=level, bed=there)

    def _take_down(self, attachment: Attachment, context: ProvisionContext) -> None:
        if attachment.testbed is not None:
            bed = attachment.testbed
            self._quietly("taking the test bed down", lambda: bed.down(context))

    def _check_allowed(self, access: Access) -> None:
        """The place that was really chosen, links followed, may be used on this site."""
        for folder in access.folders:
            if reason := self.settings.refused(folder):
                raise BackendError(reason)

    def _context(self, attachment: Attachment) -> ProvisionContext:
        state = self.store.directory / "state" / attachment.target
        state.mkdir(exist_ok=True)
        options, block_seed = attachment.provision_options, attachment.block_seed
        tag = secrets.token_hex(8)  # drawn for each attachment: no other store can have it
        return ProvisionContext(attachment.target, state, self._journal(), tag, options, block_seed)

    def _journal(self) -> Journal:
        return Journal(self.journals / f"{platform.node()}.jsonl")

    def _sessions(self, attachment: Attachment, access: Access, todo: list[RunSpec]) -> None:
        """Sessions until every run is done; `todo` loses what is recorded."""
        barren = 0
        reason = ""
        stalled: StorageStalled | None = None
        try:
            while todo and barren < MAX_EMPTY_SESSIONS:
                before = len(todo)
                try:
                    if stalled is not None:
                        self._require_well(attachment.backend, access, stalled)
                    self._session(attachment, access, todo)
                except (SessionError, LauncherError, OSError) as error:
                    reason = str(error)
                    stalled = error if isinstance(error, StorageStalled) else None
                    self.tell(Event("warning", f"the session ended: {reason}"))
                barren = 0 if len(todo) < before else barren + 1
            if todo:
                self._give_up(todo, f"no session came up: {reason}")
        finally:
            self._quietly("unmount", lambda: attachment.backend.unmount(access, self._journal()))

    def _require_well(self, backend: Backend, access: Access, stalled: StorageStalled) -> None:
        """StorageStalled, after a pause, if the storage on which a run stood still is not well."""
        said = asked_once(partial(backend.responds, access), HEALTH_SECONDS)
        if said := new_ones(said, stalled.known):
            select.select([self.stop], [], [], self.settings.time_without_progress)
            if self.stop.signal:
                raise Interrupted
            raise StorageStalled(
                "no operation completed in a run before, and the storage still said: "
                f"{'; '.join(said[:SHOWN])}",
                stalled.known,
            )

    def _session(self, attachment: Attachment, access: Access, todo: list[RunSpec]) -> None:
        scratch = orphaned_sessions.Scratch.drawn(self.journals)
        geometry, job = attachment.geometry, self.settings.in_job
        nodes: NodeWatch | None = None
        session = Session(
            self.launcher,
            geometry,
            self.stop,
            scratch=scratch,
            in_job=job,
            network=attachment.backend.network,
        )
        try:
            session.start()
            orphaned_sessions.remember(self.journals, session.pids, scratch)
            kernels = session.hello.kernels
            session.call(Call.of(kernels, "mount", access, self.journals), MOUNT_SECONDS)
            environment = gather(
                attachment.backend, access, session, attachment.target, attachment.planned
            )
            nodes = self._watch(attachment, environment)
            context = SessionContext(
                session=session,
                access=access,
                journal=self.journals,
                settings=self.settings,
                session_id=uuid.uuid4().hex[:12],
                environment=environment,
                driver=attachment.backend.driver,
                in_memory=environment.target.get("filesystem") in MEMORY_TYPES,
                programs_speak=attachment.backend.foreseen(attachment.level).programs_speak,
                nodes=nodes,
            )
            runner = Runner(context, self.records.flush, lambda: self.records.written)
            while todo:
                self._next(runner, todo, partial(attachment.backend.space, access))
                if self.stop.signal:
                    raise Interrupted
        finally:
            if nodes is not None:
                nodes.close()
            if session.alive:
                unmount = Call.of(session.hello.kernels, "unmount", access, self.journals)
                self._quietly("unmount", lambda: session.call(unmount, MOUNT_SECONDS, urgent=True))
            session.close()
            orphaned_sessions.forget(self.journals, scratch)

    def _watch(self, attachment: Attachment, environment: Environment) -> NodeWatch | None:
        """What watches the target's storage nodes; None if nothing can be asked to."""
        asked, bed = self.settings.monitor, attachment.bed
        # on a bed its own source, unless others were chosen, and elsewhere no such source
        names = [name for name in self.settings.sources if name != "testbed" or bed is not None]
        if not names:
            return None
        known = storage_hosts(environment.document())
        asked = replace(asked, nodes=asked.nodes or known, bed=bed)
        return NodeWatch(asked, {name: SOURCES.load(name) for name in names})

    def _next(self, runner: Runner, todo: list[RunSpec], space: Callable[[], Space]) -> None:
        """One run; SessionError if its session is gone (the run is recorded all the same).

        `space`: what may be written on its target.
        """
        spec = todo[0]
        self.store.require()
        if reason := self.lock_lost():
            raise StoreError(self.store.directory, reason)
        if spec.closed_loop:
            self.records.flush()
            try:
                spec = maxima.measured(self.store, spec)
            except maxima.LoadUnknown as error:
                todo.pop(0)
                self._give_up([spec], str(error))
                return
        facts = Facts(run=spec.name, coordinates=spec.coordinates)
        self.tell(Event("run", f"{spec.name} {spec.case.target} {spec.case.workload}", facts))
        record, broken = runner.run(spec)
        self.records.keep(record)
        todo.pop(0)
        if broken is not None:
            raise broken
        if met(record):
            self._without_room(spec, record, todo, space)
        self._count(spec.written(record))

    def _without_room(
        self, spec: RunSpec, record: RunRecord, todo: list[RunSpec], space: Callable[[], Space]
    ) -> None:
        """Give up what would meet the full target that a run has met."""
        hopeless = hopeless_target(spec, todo, space)
        todo[:] = [each for each in todo if each not in hopeless]
        if hopeless:
            self._give_up(hopeless, reason(record))

    def _count(self, written: int) -> None:
        """Stop when the runs of this conductor have written more than is allowed."""
        self._written += written
        limit = self.settings.bytes_limit
        if limit is not None and self._written > limit:
            raise LimitReached(
                f"{self._written} bytes were written, more than limits.bytes_written or the "
                f"site's cap allows ({limit})"
            )

    def _give_up(self, todo: list[RunSpec], reason: str) -> None:
        """Record every run of a plot as failed for the same reason, which is said once.

        Interrupted if everything here is being stopped: what was ended by that is no failure.
        """
        if not todo:
            self.tell(Event("warning", reason))
            return
        if self.stop.is_coming(self.settings.in_job):
            raise Interrupted
        target = todo[0].case.target
        text = f"{plural(len(todo), 'run')} of {target}: {reason}"
        again = (target, reason) in self._given_up
        self._given_up.add((target, reason))
        self.tell(Event("given_up", text, Facts(target=target, runs=len(todo), again=again)))
        for spec in todo:
            self.records.keep(spec.not_begun(reason))
        todo.clear()

    def _done(self, spec: RunSpec) -> tuple[str, tuple[Finding, ...]] | None:
        return self.store.done(spec.case.case_id, spec.repetition, self.settings.retry_failed)

    def _tell_what_stays(self) -> None:
        """What this process has made and could not remove, by name."""
        try:
            left = [entry.thing for entry in self._journal().pending() if entry.is_own]
        except BackendError as error:
            left = [f"what the journals hold: {error}"]
        if left:
            named = ", ".join(dict.fromkeys(left))
            self.tell(Event("warning", f"still there: {named}; `run --resume` removes it"))

    def _quietly(self, what: str, action: Callable[[], object]) -> None:
        """Clean-up goes on whatever fails; what failed is told, and stays in the journal."""
        try:
            action()
        except ENDS:
            raise
        except Exception as error:  # noqa: BLE001 - it may be of another package
            self.tell(Event("warning", f"{what} failed: {reason_of(error)}"))
