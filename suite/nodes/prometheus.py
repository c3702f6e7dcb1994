"""Storage nodes as a Prometheus of the site has scraped them: its samples, at its own times.

Raw samples are asked for (an instant query of a range), never values between them: a gap stays a
gap, and a scrape every 10 s says nothing of a window of 0.3 s.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsmatrix.results.evidence.nodes import WatchedNode
from fsmatrix.suite.nodes.counters import MEMORY, Look
from fsmatrix.suite.nodes.node_watch import ANSWER_WITHIN, Asked, Seen, Source, Unwatched

MOST_READ = 64 << 20  # bytes of an answer
BEFORE = 120.0  # seconds: two scrapes of the slowest usual kind lie in them
FEWEST = 2  # scrapes within a step: fewer give no value that is of it alone
# Links and disks that count what others count too, or no hardware
NO_LINK = re.compile(r"lo|veth.*|docker.*|br-.*|cni.*|flannel.*|virbr.*|bond[0-9]+|.*\.[0-9]+")
NO_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr)[0-9]+|(sd|vd|xvd)[a-z]+[0-9]+|nvme.*p[0-9]+")


@dataclass(frozen=True)
class Query:
    """Metrics of one exporter: how they become counters."""

    counters: Mapping[str, str]  # metric -> counter; {device} is the label of that name
    cpu: str = ""  # metric with the labels cpu and mode, in seconds
    memory: tuple[str, ...] = ()  # all, and what is to be taken off
    name: str = ""  # metric whose label `nodename` is the node's own name


EXPORTERS: Mapping[str, Query] = {
    "node_exporter": Query(
        counters={
            "node_disk_read_bytes_total": "disk_read:{device}",
            "node_disk_written_bytes_total": "disk_written:{device}",
            "node_disk_reads_completed_total": "disk_reads:{device}",
            "node_disk_writes_completed_total": "disk_writes:{device}",
            "node_disk_io_time_seconds_total": "busy:{device}",
            "node_disk_io_time_weighted_seconds_total": "queue:{device}",
            "node_disk_read_time_seconds_total": "waited:{device}",
            "node_disk_write_time_seconds_total": "waited:{device}",
            "node_network_receive_bytes_total": "link_received:{device}",
            "node_network_transmit_bytes_total": "link_sent:{device}",
            "node_network_receive_packets_total": "link_packets_received:{device}",
            "node_network_transmit_packets_total": "link_packets_sent:{device}",
            "node_network_receive_drop_total": "link_drops:{device}",
            "node_network_transmit_drop_total": "link_drops:{device}",
        },
        cpu="node_cpu_seconds_total",
        memory=(
            "node_memory_MemTotal_bytes",
            "node_memory_MemFree_bytes",
            "node_memory_Buffers_bytes",
            "node_memory_Cached_bytes",
            "node_memory_SReclaimable_bytes",
        ),
        name="node_uname_info",
    ),
}
MODES = {"user": "user", "nice": "user", "system": "system", "irq": "system",
         "softirq": "system", "iowait": "iowait", "idle": "idle"}  # fmt: skip
SPEED = "node_network_speed_bytes"


class _Stays(urllib.request.HTTPRedirectHandler):
    """A server that sends elsewhere is not followed."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the answer counts as an error."""


@dataclass
class Instance:
    """What one exporter told: counters by time of scrape."""

    instance: str
    names: set[str] = field(default_factory=set)  # by which the node may be called
    at: dict[float, dict[str, float]] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)
    known: set[tuple[str, ...]] = field(default_factory=set)  # series that are in `at`

    def add(self, at: float, counter: str, value: float) -> None:
        """Counters that several metrics make are added up."""
        counters = self.at.setdefault(at, {})
        counters[counter] = counters.get(counter, 0.0) + value


class PrometheusSource(Source):
    """Asks after each run; nothing happens while one is timed."""

    name = "prometheus"

    @classmethod
    def words(cls, asked: Asked) -> list[str]:
        """The requests."""
        server = asked.prometheus or "(the site file names no server: `prometheus`)"
        return [f"GET {server}/api/v1/query, after each run"]

    @classmethod
    def open(cls, asked: Asked) -> PrometheusSource:
        """Unwatched if the server does not answer."""
        if not asked.prometheus:
            raise Unwatched("the site file names no server (prometheus: http://HOST:9090)")
        return cls(asked)

    def __init__(self, asked: Asked) -> None:
        self._server, self._nodes = asked.prometheus, asked.nodes
        self._opener = urllib.request.build_opener(_Stays, urllib.request.ProxyHandler({}))
        trips = [self._round_trip() for _ in range(3)]
        self._trip, self._offset = min(trips)

    def _round_trip(self) -> tuple[float, float]:
        began, sent = time.monotonic(), time.time()
        _, value = self._ask("time()", began + ANSWER_WITHIN)
        trip = time.monotonic() - began
        return trip, float(value[1]) - (sent + trip / 2)

    def look(self, at: float) -> None:
        """Its server looks."""

    def close(self) -> None:
        """Nothing stays open."""

    def taken(self, began: float, ended: float) -> Mapping[str, Seen]:
        """What was scraped from BEFORE the run to its end, of nodes that were asked for."""
        deadline = time.monotonic() + ANSWER_WITHIN
        found: dict[str, Instance] = {}
        for query in EXPORTERS.values():
            names = [*query.counters, query.cpu, *query.memory, query.name, SPEED]
            match = "|".join(name for name in names if name)
            span = f"{int(ended - began + BEFORE) + 1}s"
            text = f'{{__name__=~"{match}"}}[{span}]'
            _, series = self._ask(text, deadline, time=f"{ended + self._offset:.3f}")
            for each in series:
                _put(found, query, each["metric"], each["values"])
        seen = {}
        # of several that scrape one node the one that does so most often counts
        for instance in sorted(found.values(), key=lambda each: len(each.at)):
            if not instance.at:
                continue
            called = [name for name in self._nodes if name in instance.names]
            if self._nodes and not called:
                continue
            seen[(called or sorted(instance.names, key=len))[0]] = self._seen(
                instance, began, ended
            )
        for name in self._nodes:
            if name not in seen:
                seen[name] = self._unseen(found)
        return seen

    def _unseen(self, found: Mapping[str, Instance]) -> Seen:
        known = sorted({name for each in found.values() for name in each.names})
        there = ", ".join(known[:8]) or "none"
        return Seen(WatchedNode(source=self.name, why_not=f"no exporter of it; there are: {there}"))

    def _seen(self, instance: Instance, began: float, ended: float) -> Seen:
        """Looks on the runs' clock: the last one before the run, and those within it."""
        times = sorted(instance.at)
        interval = float(np.median(np.diff(times))) if len(times) > 1 else None
        looks = [Look(at - self._offset, at, _complete(instance.at[at])) for at in times]
        before = [look for look in looks if look.at <= began]
        within = [look for look in looks if began < look.at <= ended]
        why_not = None
        if not looks[1:]:
            why_not = "it was scraped once"
        elif interval is not None and len(within) < FEWEST:
            why_not = (
                f"scraped every {interval:.3g} s: too coarse for a run of {ended - began:.3g} s; "
                "its values are of a longer time"
            )
        watched = WatchedNode(
            source=self.name,
            interval=interval,
            offset=self._offset,
            uncertainty=self._trip / 2,
            link_limits=instance.speed,
            why_not=why_not,
        )
        return Seen(watched, [*before[-1:], *within] if within else before[-2:])

    def _ask(self, query: str, deadline: float, **more: str) -> tuple[str, Any]:
        """Type and result of an instant query; Unwatched if there is none by the deadline."""
        words = urllib.parse.urlencode({"query": query, "timeout": f"{ANSWER_WITHIN:g}s", **more})
        url = f"{self._server}/api/v1/query?{words}"
        left = max(deadline - time.monotonic(), 0.1)
        try:
            with self._opener.open(url, timeout=left) as answer:
                told = json.loads(_read(answer, deadline))
        except urllib.error.HTTPError as error:
            raise Unwatched(f"{self._server} answered {error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise Unwatched(f"{self._server}: {error}") from error
        if not isinstance(told, dict) or told.get("status") != "success":
            raise Unwatched(f"{self._server} answered {str(told)[:200]}")
        return told["data"]["resultType"], told["data"]["result"]


def _read(answer: Any, deadline: float) -> bytes:
    """All of an answer; OSError if it is too long, or too slow."""
    parts, size = [], 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MOST_READ or time.monotonic() > deadline:
            raise OSError(f"its answer is longer than {size} bytes, or slower than the deadline")
    return b"".join(parts)


def _put(
    found: dict[str, Instance], query: Query, labels: Mapping[str, str], values: list[Any]
) -> None:
    """Put one series of an exporter where it belongs."""
    name, instance = labels["__name__"], labels.get("instance", "")
    into = found.setdefault(f"{labels.get('job', '')} {instance}", Instance(instance))
    series = (name, *(labels.get(label, "") for label in ("device", "cpu", "mode")))
    if series in into.known:
        return  # told twice, by replicas of the server
    into.known.add(series)
    into.names |= {instance, instance.rpartition(":")[0] or instance} - {""}
    device = labels.get("device", "")
    if name == query.name and labels.get("nodename"):
        own = labels["nodename"]
        into.names |= {own, own.partition(".")[0]}
    elif name == SPEED:
        if not NO_LINK.fullmatch(device) and (speed := float(values[-1][1])) > 0:
            into.speed[device] = speed
    else:
        for counter in _counters(query, name, labels, device):
            for at, value in values:
                into.add(float(at), counter, float(value))


def _counters(query: Query, name: str, labels: Mapping[str, str], device: str) -> Iterator[str]:
    """The counters that a series adds to."""
    if name in query.counters:
        no = NO_DISK if name.startswith("node_disk") else NO_LINK
        if not no.fullmatch(device):
            yield query.counters[name].format(device=device)
    elif name == query.cpu:
        mode = labels.get("mode", "")
        yield "cpu:all"
        if mode in MODES:
            yield f"cpu:{MODES[mode]}"
        if mode not in ("idle", "iowait"):
            yield f"core:{labels.get('cpu', '')}"
    elif name in query.memory:
        yield "memory:all" if name == query.memory[0] else "memory:free"


def _complete(counters: Mapping[str, float]) -> dict[str, float]:
    """With the memory in use."""
    rest = {name: value for name, value in counters.items() if not name.startswith("memory:")}
    if "memory:all" in counters:
        rest[MEMORY] = counters["memory:all"] - counters.get("memory:free", 0.0)
    return rest
