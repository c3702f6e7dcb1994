"""collectl's plot form (`collectl -P -f FILE`, or to standard output), of version 4.

The comments at the head of a file tell its host and how far local time was from UTC.  A file that
collectl goes on with after a restart has another head inside.  KB are 1024 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta, timezone

import numpy as np
import numpy.typing as npt

from fsmatrix.results.evidence.nodes import LINKS
from fsmatrix.results.formats.nodes.node_series import (
    KIB,
    Clock,
    Gatherer,
    Head,
    NodeFormat,
    NodeSeries,
    Spans,
    Text,
    clean,
    floats,
    seconds_of,
)
from fsmatrix.results.record import Floats, Integers

WANTED = "its plot form (collectl -scdnmCDN -P -f FILE)"
FIRST = 100  # lines in which its head is
HOST = re.compile(r"# Host:\s+(\S+)")
ZONE = re.compile(r"# Date: .*\bTZ:\s*([+-])(\d\d)(\d\d)")
OPTIONS = re.compile(r"# Collectl:.*?Options:(.*)")
INTERVAL = re.compile(r"# SubSys:.*\bInterval:\s*(\d{1,9}(?:\.\d{1,9})?)")
HEADINGS = re.compile(r"#(?:Date(.)Time|UTC)(.)(?=\[)")
NOT_RATES = re.compile(r"(?:^|\s)-o\s?[A-Za-z]*n")
COLUMN = re.compile(r"\[([A-Z]+)(?::(.*))?\]([^\[\]]+)")
PER_DEVICE: dict[tuple[str, str], tuple[str, float]] = {
    ("DSK", "RKBytes"): ("disk_read:", KIB),
    ("DSK", "WKBytes"): ("disk_written:", KIB),
    ("DSK", "Reads"): ("disk_reads:", 1.0),
    ("DSK", "Writes"): ("disk_writes:", 1.0),
    ("DSK", "Util"): ("disk_busy:", 0.01),
    ("DSK", "QueLen"): ("disk_queue:", 1.0),
    ("DSK", "Wait"): ("disk_latency:", 0.001),
    ("NET", "RxKB"): ("link_received:", KIB),
    ("NET", "TxKB"): ("link_sent:", KIB),
    ("NET", "RxPkt"): ("link_packets_received:", 1.0),
    ("NET", "TxPkt"): ("link_packets_sent:", 1.0),
}
CPU = {
    "cpu_user": ("User%", "Nice%"),
    "cpu_system": ("Sys%", "Irq%", "Soft%"),
    "cpu_iowait": ("Wait%",),
    "cpu_idle": ("Idle%",),
}
Sum = tuple[str, tuple[tuple[int, float], ...]]  # name of a series, (column, factor) to add up
Columns = dict[tuple[str, str, str], int]  # (kind, device or "", name) -> its place


def head(text: Text) -> Head:
    """Host, zone and interval; ParseError if it is not collectl's."""
    found, seen = Head(), False
    for _, line in zip(range(FIRST), text.lines(), strict=False):
        if match := HOST.match(line):
            found = replace(found, host=match[1])
        elif match := ZONE.match(line):
            ahead = timedelta(hours=int(match[2]), minutes=int(match[3]))
            found = replace(found, zone=timezone(-ahead if match[1] == "-" else ahead))
        elif match := INTERVAL.match(line):
            found = replace(found, interval=float(match[1]))
        elif HEADINGS.match(line):
            seen = True
        elif seen:
            stamp = line[:40].split(".")
            fine = len(stamp) > 1 and stamp[0][-2:].isdigit() and stamp[1][:3].isdigit()
            return replace(found, resolution=0.001 if fine else 1.0)
    if not seen:
        raise text.error(0, f"is not what is read of collectl: {WANTED} is")
    return found


@dataclass(frozen=True)
class Headings:
    """What the columns of the lines below are."""

    separator: str
    width: int
    in_utc: bool  # Unix time in the first column, not date and time in two
    names: tuple[str, ...]  # of series; each is the sum of some columns
    places: tuple[int, ...]  # of all these columns
    factors: Floats
    starts: Integers  # where those of each series begin
    moved: npt.NDArray[np.bool_]  # [series], whether links have moved it
    latency: npt.NDArray[np.bool_]  # [series]
    cores: tuple[tuple[int, int], ...]  # columns of idle and waiting of each


def parse(text: Text, told: Head, clock: Clock, wanted: Spans) -> NodeSeries:
    """The series of a file."""
    gatherer = Gatherer(text, "collectl", told, wanted)
    headings: Headings | None = None
    begins = True
    for at, line in enumerate(text.lines(), 1):
        if line.startswith("#"):
            match = OPTIONS.match(line)
            if match and NOT_RATES.search(match[1]):
                raise text.error(at, "was made with -on: its values are not per second")
            if HEADINGS.match(line):
                headings, begins = _headings(text, at, line.rstrip("\r")), True
        elif headings and line[:1].isdigit():
            words = line.rstrip("\r").split(headings.separator)
            if len(words) != headings.width:
                reason = f"has {len(words)} values for {headings.width} columns"
                raise text.error(at, reason)
            time = _time(text, at, headings, words, clock)
            sample = gatherer.sample(time, told.interval if begins else 0.0)
            begins = False
            if sample >= 0 and (gatherer.kept[sample] or headings.moved.any()):
                _take(text, at, gatherer, sample, headings, words)
    return gatherer.series()


def _time(text: Text, at: int, headings: Headings, words: Sequence[str], clock: Clock) -> float:
    try:
        if headings.in_utc:
            return float(words[0])
        date = words[0].replace("-", "").replace("/", "")
        return clock.unix((int(date[:4]), int(date[4:6]), int(date[6:])), seconds_of(words[1]))
    except ValueError:
        reason = f"{' '.join(words[:2])[:60]!r} is no time as 20261129 14:21:02"
        raise text.error(at, reason) from None


def _headings(text: Text, at: int, line: str) -> Headings:
    match = HEADINGS.match(line)
    assert match is not None
    names = line.split(match[2])
    columns: Columns = {}
    for place, name in enumerate(names):
        if parts := COLUMN.fullmatch(name):
            columns[parts[1], parts[2] or "", parts[3]] = place
    if not columns:
        raise text.error(at, "names no column as [CPU]User%")
    sums = dict([*_whole(columns), *_of_devices(columns)])
    cores = [device for kind, device, name in columns if kind == "CPU" and name == "Idle%"]
    parts_of = [part for parts in sums.values() for part in parts]
    sizes = [len(parts) for parts in sums.values()]
    return Headings(
        separator=match[2],
        width=len(names),
        in_utc=match[1] is None,
        names=tuple(sums),
        places=tuple(place for place, _ in parts_of),
        factors=np.array([factor for _, factor in parts_of], dtype=np.float64),
        starts=np.cumsum([0, *sizes[:-1]], dtype=np.int64),
        moved=np.array([n.startswith(LINKS) for n in sums], dtype=bool),
        latency=np.array([n.startswith("disk_latency:") for n in sums], dtype=bool),
        cores=tuple(
            (columns["CPU", core, "Idle%"], columns["CPU", core, "Wait%"])
            for core in cores
            if core and ("CPU", core, "Wait%") in columns
        ),
    )


def _whole(columns: Columns) -> Iterator[Sum]:
    """Of the node as a whole."""
    for metric, names in CPU.items():
        places = [columns[key] for name in names if (key := ("CPU", "", name)) in columns]
        if places:
            yield metric, tuple((place, 0.01) for place in places)
    memory = [("MEM", "", name) for name in ("Used", "Buf", "Cached")]
    if all(key in columns for key in memory):  # Used: all that is not free
        factors = (KIB, -KIB, -KIB)
        yield (
            "memory_used",
            tuple((columns[key], factor) for key, factor in zip(memory, factors, strict=True)),
        )


def _of_devices(columns: Columns) -> Iterator[Sum]:
    """Of each device and link."""
    for (kind, device, name), place in columns.items():
        if device == "lo":
            continue
        if device and (kind, name) in PER_DEVICE:
            metric, factor = PER_DEVICE[kind, name]
            yield metric + clean(device), ((place, factor),)
        sent = columns.get((kind, device, "TxDrp"))
        if kind == "NET" and device and name == "RxDrp" and sent is not None:
            yield "link_drops:" + clean(device), ((place, 1.0), (sent, 1.0))


def _take(
    text: Text, at: int, gatherer: Gatherer, sample: int, headings: Headings, words: Sequence[str]
) -> None:
    """The values of one line."""
    if headings.names:
        told = np.array(floats(text, at, [words[place] for place in headings.places]))
        values = np.add.reduceat(told * headings.factors, headings.starts)
        if headings.moved.any():
            gatherer.moves(sample, float(values[headings.moved].sum()))
        # told in whole ms: 0 is no request, or one of less than that
        values[headings.latency & (values == 0)] = np.nan
        gatherer.add(sample, headings.names, values.tolist())
    if headings.cores:
        free = [floats(text, at, [words[idle], words[wait]]) for idle, wait in headings.cores]
        gatherer.add(sample, ("cpu_core_max",), (1 - min(map(sum, free)) / 100,))


FORMAT = NodeFormat("collectl", WANTED, head, parse)
