"""What a source of storage nodes' series is, and the watch that asks several of them during runs.

A source looks at its nodes when it is asked to, just before each timed step, every `interval`
while it runs, and just after it.  Whatever happens to a source or a node costs its series and is
said (`WatchedNode.why_not`); it never fails or delays a run by more than PATIENCE.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from fsmatrix.backends.system.tools import Overdue, within
from fsmatrix.results.evidence.nodes import WatchedNode, moving, unit_of
from fsmatrix.results.record import Monitor
from fsmatrix.suite.nodes.counters import Look, levels, rates

PATIENCE = 2.0  # seconds that a run waits for a look before and after a step
ANSWER_WITHIN = 5.0  # seconds in which a node or a server must answer
EVERY_NODE = "*"  # stands in the evidence for the nodes that a source could not even name


class Unwatched(Exception):
    """Why a source watches nothing."""


@dataclass(frozen=True)
class Asked:
    """What a source is asked to watch."""

    interval: float  # seconds between two looks
    nodes: tuple[str, ...] = ()  # host names; empty: those that the source knows itself
    bed: Any = None  # the StorageTestbed that the target is on, if any
    prometheus: str = ""  # address of the site's server


@dataclass
class Seen:
    """A node, and what was seen of it since the last run."""

    watched: WatchedNode
    looks: list[Look] = field(default_factory=list)


class Source(ABC):
    """One way to a node's counters.  All but `open` and `words` are called by one thread."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def words(cls, asked: Asked) -> list[str]:
        """What it will do, for `plan` and `run --dry-run`: the very command, if there is one."""

    @classmethod
    @abstractmethod
    def open(cls, asked: Asked) -> Source:
        """Begin a session; Unwatched, or any other error, says why it cannot."""

    @abstractmethod
    def look(self, at: float) -> None:
        """A look at every node, as of now (`at`, Unix time); it waits for nobody."""

    @abstractmethod
    def taken(self, began: float, ended: float) -> Mapping[str, Seen]:
        """Its nodes with all looks since the last call; ended within ANSWER_WITHIN.

        `began`, `ended`: Unix times of the first and last look of the run.
        """

    @abstractmethod
    def close(self) -> None:
        """End what it started."""


@dataclass
class _Opened:
    """A source of a session; `why_not`: why it has ended, or never began."""

    name: str
    source: Source | None = None
    why_not: str = ""

    def guarded(self, what: Callable[[Source], object]) -> Any:
        """What `what` gives; None if the source is lost, or lost by this."""
        if self.source is None:
            return None
        try:
            return what(self.source)
        except Unwatched as reason:
            self.lost(str(reason))
        except Exception as error:  # noqa: BLE001 - it costs the series, never the run
            self.lost(f"{type(error).__name__}: {error}")

    def lost(self, why_not: str) -> None:
        """It is not asked any more."""
        source, self.source, self.why_not = self.source, None, why_not
        if source is not None:
            with suppress(Exception):
                within(ANSWER_WITHIN, source.close)


class NodeWatch:
    """The sources of one session."""

    def __init__(self, asked: Asked, sources: Mapping[str, type[Source]]) -> None:
        """Opens them side by side: no longer than the slowest, and ANSWER_WITHIN each."""
        self._asked = asked
        self._sources = [_Opened(name) for name in sources]
        threads = [
            threading.Thread(target=self._open, args=(each, sources[each.name]), daemon=True)
            for each in self._sources
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 2 * ANSWER_WITHIN
        for thread, each in zip(threads, self._sources, strict=True):
            thread.join(max(deadline - time.monotonic(), 0.0))
            if each.source is None and not each.why_not:
                each.why_not = f"it did not begin within {2 * ANSWER_WITHIN:g} s"
        self._steps: list[tuple[float, float]] = []

    def _open(self, opened: _Opened, kind: type[Source]) -> None:
        try:
            source = kind.open(self._asked)
        except Unwatched as reason:
            opened.why_not = opened.why_not or str(reason)
        except Exception as error:  # noqa: BLE001 - as `guarded`
            opened.why_not = opened.why_not or f"{type(error).__name__}: {error}"
        else:
            if opened.why_not:  # it came too late
                source.close()
            else:
                opened.source = source

    @contextmanager
    def step(self) -> Iterator[None]:
        """Look just before a timed step, every interval while it runs, and just after it."""
        live = [each for each in self._sources if each.source is not None]
        if not live:
            yield
            return
        begun, over = threading.Event(), threading.Event()
        thread = threading.Thread(
            target=self._looking, args=(live, begun, over), name="nodes", daemon=True
        )
        began = time.time()
        thread.start()
        begun.wait(PATIENCE)
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE)
            self._steps.append((began, time.time()))
            if thread.is_alive():  # one hangs: the thread is left behind, and so are they all
                for each in live:
                    each.lost(f"no answer within {PATIENCE:g} s")

    def _looking(
        self, live: Sequence[_Opened], begun: threading.Event, over: threading.Event
    ) -> None:
        def look() -> None:
            at = time.time()
            for each in live:
                each.guarded(lambda source: source.look(at))

        look()
        begun.set()
        due = time.monotonic()
        while True:
            # what was missed is not caught up with
            due = max(due + self._asked.interval, time.monotonic())
            if over.wait(due - time.monotonic()):
                break
            look()
        look()

    def taken(self) -> tuple[Monitor | None, dict[str, WatchedNode]]:
        """The series of the steps since the last call, and where they came from."""
        steps, self._steps = self._steps, []
        found: dict[str, Seen] = {}
        reasons: dict[str, list[str]] = {}  # of a node by each source that does not see it
        for each in self._sources:
            seen: Mapping[str, Seen] = {}
            if steps:
                began, ended = steps[0][0], steps[-1][1]
                seen = each.guarded(partial(_taken, began=began, ended=ended)) or {}
            for name, node in seen.items():
                if name not in found or len(node.looks) > len(found[name].looks) < 2:
                    found[name] = node
                if node.watched.why_not:
                    reasons.setdefault(name, []).append(f"{each.name}: {node.watched.why_not}")
            for name in (self._asked.nodes or (EVERY_NODE,)) if each.why_not else ():
                found.setdefault(name, Seen(WatchedNode(source=each.name)))
                reasons.setdefault(name, []).append(f"{each.name}: {each.why_not}")
        watched = {
            name: replace(node.watched, why_not="; ".join(reasons[name]))
            if name in reasons and len(node.looks) < 2
            else node.watched
            for name, node in found.items()
        }
        return monitor({name: node.looks for name, node in found.items()}), watched

    def close(self) -> None:
        """End all sources, within ANSWER_WITHIN each."""
        for each in self._sources:
            each.lost(each.why_not or "the session has ended")


def _taken(source: Source, began: float, ended: float) -> Mapping[str, Seen]:
    try:
        return within(ANSWER_WITHIN + PATIENCE, lambda: source.taken(began, ended))
    except Overdue:
        raise Unwatched(f"no series within {ANSWER_WITHIN + PATIENCE:g} s") from None


def monitor(looks: Mapping[str, Sequence[Look]]) -> Monitor | None:
    """Series of all nodes by the times of their looks; NaN where a node has none.

    None without any.  What is 0 on all nodes of devices and links is left out.
    """
    values = {name: dict(_values(of_node)) for name, of_node in looks.items()}
    values = {name: of_node for name, of_node in values.items() if of_node}
    if not values:
        return None
    times = sorted({at for of_node in values.values() for at in of_node})
    column = {at: index for index, at in enumerate(times)}
    hosts = sorted(values)
    series: dict[str, Any] = {}
    for row, host in enumerate(hosts):
        for at, of_look in values[host].items():
            for name, value in of_look.items():
                if name not in series:
                    series[name] = np.full((len(hosts), len(times)), np.nan)
                series[name][row, column[at]] = value
    kept = {name: series[name] for name in sorted(moving(series))}
    units = {name: unit_of(name) for name in kept}
    return Monitor(tuple(hosts), np.array(times), kept, units)


def _values(looks: Sequence[Look]) -> Iterator[tuple[float, dict[str, float]]]:
    """Of each look its time and values; the first one has no rates, and dates the second's."""
    if len(looks) < 2:
        return
    yield looks[0].at, levels(looks[0])
    for before, after in pairwise(looks):
        if values := rates(before, after):
            yield after.at, values


def told(nodes: Iterable[str], most: int = 8) -> str:
    """Names for a line of text."""
    names = list(nodes)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
