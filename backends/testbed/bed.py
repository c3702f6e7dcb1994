"""The life of a test bed, whatever runs in it: brought up, looked at, taken down.

All state of a bed is in a directory of its own (home.py), and what is done to the machine is
journalled there before it is done, so that a bed can be taken down also after a crash.  The
bed of a system is a subclass of `BaseTestbed`: it says what cannot be, how it comes up, how it is
and how it ends.  Its module gives `up`, `down`, `status` and `missing` to others.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fsmatrix.backends.contract import SpeedEstimate
from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof, tree
from fsmatrix.backends.journal.journal import Entry, read, refuse_foreign
from fsmatrix.backends.system import mounts, tools, trusted
from fsmatrix.backends.testbed import daemons, network
from fsmatrix.backends.testbed.daemons import Daemon
from fsmatrix.backends.testbed.home import (
    Home,
    Kind,
    Recorded,
    Step,
    Steps,
    fresh_id,
    remove_sockets,
)
from fsmatrix.results.evidence.nodes import SERVICES
from fsmatrix.results.evidence.stored import Json, JsonObject, Scalar, inside
from fsmatrix.results.process import boot_id
from fsmatrix.results.registry import Registry

LEFT = "left alone: "  # begins a sentence of what could not be undone
_UNTOLD = ("complete", "id", "made")  # entries of bed.json that are not in a bed's status

OptionsT = TypeVar("OptionsT", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class BaseTestbed(ABC, Generic[OptionsT]):
    """A test bed that is up.

    A field of the same name as an entry of bed.json is read from it.
    """

    kind: ClassVar[Kind]
    Options: ClassVar[type[BaseModel]]  # OptionsT

    directory: str
    conf: str
    options: OptionsT
    facts: JsonObject
    steps: tuple[Step, ...] = ()
    _home: Home = field(repr=False, compare=False)

    # What each system says of its own

    @classmethod
    @abstractmethod
    def refusal(cls, options: OptionsT, folder: Path) -> str:
        """Why there can be no such bed in this directory (empty: there can)."""

    @classmethod
    def chosen(cls) -> dict[str, Json]:
        """Entries of bed.json that are known before anything is made."""
        return {}

    @classmethod
    @abstractmethod
    def bring_up(
        cls, home: Home, options: OptionsT, identity: JsonObject, steps: Steps
    ) -> dict[str, Json]:
        """Make it; returns the rest of bed.json, `facts` among them.

        `identity` has `id` (see `fresh_id`) and what was `chosen`.  Whatever is raised has what was
        made taken down.
        """

    @classmethod
    @abstractmethod
    def end(cls, home: Home, entries: list[Entry]) -> list[str]:
        """End and undo what these entries of the journal (of this boot) name, whole or not.

        One sentence for each thing; those of what stays begin with LEFT, and its entries stay in
        the journal.
        """

    @abstractmethod
    def look(self, states: Sequence[Daemon]) -> dict[str, Json]:
        """What the status says beside the daemons' states; `health` (empty: well) among it.

        It never hangs.
        """

    # The life of every bed

    @classmethod
    def open(cls, directory: Path | str) -> Self:
        """The bed in `directory`; BackendError if there is none or it is not whole."""
        home = Home.at(directory, cls.kind)
        if home.exists():
            home.refuse_distrusted()
        recorded = home.read() if home.exists() else None
        if recorded is None:
            raise BackendError(f"{home.folder} holds no {cls.kind.words}")
        if not recorded.complete:
            raise BackendError(f"{home.folder}: bringing this test bed up was interrupted: down")
        return cls._of(home, recorded)

    @classmethod
    def _of(cls, home: Home, recorded: Recorded) -> Self:
        names = {each.name for each in fields(cls)}
        own: Any = {name: value for name, value in recorded.more.items() if name in names}
        own |= {"facts": recorded.facts or {}, "steps": recorded.steps}
        own["options"] = cls.Options.model_validate(recorded.options)
        return cls(**own, directory=str(home.folder), conf=str(home.conf), _home=home)

    @classmethod
    def up(
        cls,
        options: OptionsT,
        directory: Path | str,
        *,
        begun: Callable[[str], None] = lambda _: None,
        ended: Callable[[Step], None] = lambda _: None,
    ) -> Self:
        """Bring a bed up; `begun` and `ended` tell of each step.

        BackendError if it is refused (then nothing was started) or fails (then what was made is
        taken down again).
        """
        home = Home.at(directory, cls.kind)
        if reason := cls.refusal(options, home.folder):
            raise BackendError(reason)
        with trusted.closed_to_others():
            return cls._up(home, options, Steps(begun, ended))

    @classmethod
    def _up(cls, home: Home, options: OptionsT, steps: Steps) -> Self:
        home.make()
        with home.locked():
            recorded: dict[str, Json] = {
                "complete": False,
                "id": fresh_id(),
                "made": time.time(),
                **cls.chosen(),
                "options": options.model_dump(),
            }
            with cls._taken_down_on_failure(home):
                home.write(recorded)
                facts = cls.bring_up(home, options, recorded, steps)
                timed = [step.as_json() for step in steps.all]
                home.write({**recorded, "complete": True, **facts, "steps": timed})
        return cls.open(home.folder)

    @classmethod
    @contextmanager
    def _taken_down_on_failure(cls, home: Home) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            left = left_alone(cls._take_down(home))
            for line in left:
                error.add_note(line)
            if left and isinstance(error, Exception):
                raise BackendError(f"{error}; {'; '.join(left)}") from error
            raise

    @classmethod
    def down(cls, directory: Path | str) -> list[str]:
        """Take the bed in `directory` down, whole or not; [] if there is none.

        One sentence for each thing that was ended, removed or left alone.  What is left alone
        stays in the journal, and so does the bed's directory: `down` can be said again.
        BackendError if the bed belongs to another host, or something is mounted in it.
        """
        home = Home.at(directory, cls.kind)
        if not home.exists():
            return []
        if reason := home.distrust():  # what its journal says may be a stranger's wish
            return [f"{LEFT}{reason}"]
        with home.locked():
            return cls._take_down(home)

    @classmethod
    def _take_down(cls, home: Home) -> list[str]:
        written = read(home.journal.path)
        refuse_foreign(written.entries, home.journal.identity)
        if written.faults:
            raise BackendError(f"{written.faults[0]}: nothing of this test bed was touched")
        entries = home.journal.pending()
        _refuse(home, entries)
        sentences = cls.end(home, [entry for entry in entries if entry.boot_id == boot_id()])
        return sentences if left_alone(sentences) else [*sentences, _remove(home)]

    @classmethod
    def status(cls, directory: Path | str) -> dict[str, Json]:
        """How the bed is: its `state`, daemons, health, facts.

        The state is none, distrusted, interrupted, up or degraded.

        It never hangs.
        """
        home = Home.at(directory, cls.kind)
        if not home.exists():
            return {"directory": str(home.folder), "state": "none"}
        if reason := home.distrust():
            return {"directory": str(home.folder), "state": "distrusted", "health": [reason]}
        recorded, states = home.read(), daemons.states(home)
        stored = recorded.document() if recorded else {}
        state: dict[str, Json] = {
            "directory": str(home.folder),
            "conf": str(home.conf),
            "daemons": [daemon.document() for daemon in states],
            **{name: value for name, value in stored.items() if name not in _UNTOLD},
        }
        if recorded is None or not recorded.complete:
            return {**state, "state": "interrupted"}
        state |= cls._of(home, recorded).look(states)
        running = all(daemon.state == "running" for daemon in states)
        return {**state, "state": "up" if running and not state["health"] else "degraded"}

    def pid(self, role: str) -> int:
        """The pid of a daemon, by its role in the bed's status."""
        return daemons.pid_of(daemons.entry_of(self._home, role))

    # Faults, of a daemon by its role; BackendError if the bed has none of that name

    def kill(self, role: str) -> None:
        """SIGKILL; returns when it is gone."""
        daemons.kill(self._home, role)

    def stop(self, role: str) -> None:
        """SIGSTOP: what waits for it hangs; returns when it stands still."""
        daemons.stop(self._home, role)

    def resume(self, role: str) -> None:
        """SIGCONT: it goes on."""
        daemons.signal_daemon(self._home, role, signal.SIGCONT)

    def restart(self, role: str) -> Entry:
        """Start it again as it was started (one that runs is killed first); returns at once."""
        return daemons.restart(self._home, role)


def lacking(programs: Sequence[str], *more: str) -> str:
    """Why a bed of these programs cannot be brought up here (empty: it can).

    `more`: what it needs beside them (backends/system/packages.tsv), installed with them.
    """
    if os.geteuid() != 0:
        return "a test bed needs root: run it with sudo"
    for program in programs:
        if tools.find(program) is None:
            missing = f"{program} is missing: {tools.install(*programs, *more)}"
            return tools.refusal(program) or missing
    return ""


def left_alone(sentences: Sequence[str]) -> list[str]:
    """Those sentences that say what could not be undone."""
    return [line for line in sentences if line.startswith(LEFT)]


def end_daemons(entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """Kill the processes of these entries: (sentences, roles of those that cannot be killed)."""
    killed, stuck = daemons.end_process([daemons.proven(entry) for entry in entries])
    sentences = [f"ended {', '.join(sorted(killed))}"] if killed else []
    return sentences + [
        f"{LEFT}{role} was killed and is not gone after {daemons.GONE_WITHIN:g} s" for role in stuck
    ], stuck


def _refuse(home: Home, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if entry.boot_id != boot_id() and entry.host != socket.gethostname():
            raise BackendError(f"{home.folder}: this test bed runs on host {entry.host}")
    inside = mounts.mounted_below(home.folder)
    if inside:
        raise BackendError(
            f"{home.folder}: {inside[0].point} is mounted in the test bed's directory; "
            "unmount it first"
        )


def _remove(home: Home) -> str:
    foreign = home.foreign()
    if foreign:
        return (
            f"{LEFT}{home.folder} holds {', '.join(foreign[:3])}, which the test bed did not "
            "make: move it away and take the bed down again"
        )
    tree.remove_tree(home.folder, home.kind.tag)
    return f"removed {home.folder}" if not os.path.lexists(home.folder) else ""


# Beds of storage systems, which targets of a campaign can be put on.


_BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def parse_rate(text: str) -> int:
    """Bits per second of "1Gbit" or "250Mbit"; 0 for "none"; ValueError otherwise."""
    if text == "none":
        return 0
    match = re.fullmatch(r"([1-9][0-9]*(?:\.[0-9]+)?) ?(kbit|mbit|gbit)", text.strip().lower())
    if match is None:
        raise ValueError(f"network {text!r}: write none, 1Gbit, 250Mbit...")
    return int(float(match[1]) * _BITS[match[2]])


class StorageOptions(BaseModel):
    """What every storage system's bed may look like."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: int = Field(default=3, ge=1, le=32, description="storage nodes")
    network: str = Field(
        default="none", description="speed of each node's link, such as 1Gbit, or none"
    )

    @field_validator("network")
    @classmethod
    def _known_network(cls, value: str) -> str:
        parse_rate(value)
        return value

    @property
    def bits_per_second(self) -> int:
        """Speed of a node's link; 0: not limited."""
        return parse_rate(self.network)

    def refusal(self) -> str:
        """Why this bed cannot be, on any machine (empty: it can)."""
        return ""


StorageOptionsT = TypeVar("StorageOptionsT", bound=StorageOptions)


@dataclass
class BedNode:
    """What a storage node of a bed consists of, for those who watch it."""

    pids: dict[str, int] = field(default_factory=dict)  # of its daemons, by role
    is_apart: bool = False  # it has a network of its own
    drives: dict[str, str] = field(default_factory=dict)  # role -> its emulated drive: loop3
    link_limit: float = 0.0  # bytes/s each way; 0: none is known
    drive_limits: dict[str, float] = field(default_factory=dict)  # disk_read:loop3 -> bytes/s


@dataclass(frozen=True, kw_only=True)
class StorageTestbed(BaseTestbed[StorageOptionsT]):
    """A bed of a storage system that is up."""

    Options: ClassVar[type[StorageOptions]]  # StorageOptionsT
    # cluster factor -> option of the bed that makes its levels
    factors: ClassVar[Mapping[str, str]] = {"storage_nodes": "nodes"}
    paths: ClassVar[frozenset[str]] = frozenset({"conf"})  # of what `offer` tells: paths of files

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Why no such bed can be brought up here, now, with these rights (empty: it can)."""

    @classmethod
    @abstractmethod
    def attributes(cls, options: StorageOptionsT) -> dict[str, Scalar]:
        """Coordinates of the cluster that the options tell; "none" stands for what is not made."""

    @classmethod
    @abstractmethod
    def pace(cls, options: StorageOptionsT, pace: SpeedEstimate) -> SpeedEstimate:
        """What planning guesses of a backend on such a bed, of what it guesses elsewhere."""

    @classmethod
    def device_limit(cls, options: StorageOptionsT) -> tuple[float, str]:
        """Bytes/s that all its emulated drives cannot exceed, and what says so; 0: no limit."""
        del options
        return 0.0, ""

    def node_of(self, role: str) -> str:
        """The storage node that a daemon is of; empty: of none."""
        del role
        return ""

    def drives_of(self, role: str) -> tuple[str, dict[str, float]]:
        """Name of the drive that was made for a daemon, and its limits as `BedNode` has them."""
        del role
        return "", {}

    def nodes(self) -> dict[str, BedNode]:
        """Its storage nodes by name, with the daemons that run now."""
        found: dict[str, BedNode] = {}
        for entry in self._home.journal.pending("process"):
            role, pid = str(entry.facts["role"]), daemons.proven(entry).pid
            if pid is None:
                continue
            name = self.node_of(role)
            node = found.setdefault(name or SERVICES, BedNode())
            node.pids[role] = pid
            if name and inside(entry.facts, "launch").get("namespace"):
                node.is_apart, node.link_limit = True, self.options.bits_per_second / 8
            drive, limits = self.drives_of(role)
            if drive:
                node.drives[role] = drive
                node.drive_limits |= limits
        return found

    def environment(self) -> dict[str, str]:
        """What clients need in their environment to reach it."""
        return {}

    def offer(self, what: str) -> str:
        """What a backend asks for by its `testbed_options`."""
        return str(getattr(self, what))


# The beds of storage systems by name, which is what `Backend.testbed` says; other packages add
# theirs by the entry-point group.


BUILTIN: dict[str, str] = {
    "ceph": "fsmatrix.backends.testbed.ceph_testbed:CephTestbed",
    "daos": "fsmatrix.backends.testbed.daos_testbed:DaosTestbed",
}
TESTBEDS: Registry[StorageTestbed[Any]] = Registry("fsmatrix.testbeds", BUILTIN, "test bed")


# Undo what a bed's journal names, and nothing else: parts of every bed's `end`.


Undo = Callable[[Entry], str]  # what was done ("" if it was gone); raises what says why not

_JUST_STARTED = 0.1  # seconds in which a program that a killed process started shows its name
# names that a bed gives: six hex digits of its own in each
_OWN = re.compile(
    r"fsmatrix-[0-9a-f]{6}-(osd|node)\d+|fsm[0-9a-f]{6}(b|n\d+)|fsmatrix-bed-[0-9a-f]{6}"
)


def processes(home: Home, entries: Iterable[Entry]) -> list[str]:
    """End the processes of these entries, the youngest first: some end with those before them.

    A sentence for what was ended or left alone.
    """
    started = [entry for entry in entries if entry.kind == "process"][::-1]
    if any("pid" not in entry.facts for entry in started):
        time.sleep(_JUST_STARTED)
    sentences, stuck = end_daemons(started)
    for entry in started:
        if entry.facts["role"] not in stuck:
            home.journal.end(entry)
    return sentences


def things(home: Home, entries: Iterable[Entry], kinds: Mapping[str, Undo]) -> list[str]:
    """Undo the entries of these kinds, kind by kind, the youngest first.

    One sentence for each thing that was removed or left alone; the latter stays in the journal.
    """
    here, sentences = list(entries), []
    for kind, undo in kinds.items():
        for entry in reversed([entry for entry in here if entry.kind == kind]):
            line = _undone(undo, entry)
            if line:
                sentences.append(line)
            if not line.startswith(LEFT):
                home.journal.end(entry)
    return sentences


def _undone(undo: Undo, entry: Entry) -> str:
    try:
        return undo(entry)
    except (BackendError, proof.NotProvenOurs, OSError, KeyError, ValueError, TypeError) as error:
        return f"{LEFT}{error}"


def is_own(name: str) -> bool:
    """Whether it is a name that beds give."""
    return _OWN.fullmatch(name) is not None


def own_name(entry: Entry) -> str:
    """The name of what an entry names; NotProvenOurs if it is none that beds give."""
    name = Path(str(entry.facts.get("path") or entry.facts.get("name"))).name
    if not is_own(name):
        raise proof.NotProvenOurs(f"{name} is no {entry.kind} of a test bed: not removed")
    return name


def _sockets(entry: Entry) -> str:
    own_name(entry)
    return remove_sockets(Path(str(entry.facts["path"])))


NETWORK: Mapping[str, Undo] = {
    "link": lambda entry: network.remove_link(own_name(entry)),
    "sockets": _sockets,
    "namespace": lambda entry: network.remove_namespace(own_name(entry)),
}
