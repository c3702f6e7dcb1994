"""nmon's files (`nmon -f`, a CSV): https://nmon.sourceforge.io, as of 16n of Debian 12.

A line `ZZZZ,T0001,14:21:02,29-NOV-2026` says when a snapshot was taken; the lines of its values
follow, or stand anywhere where the file was sorted: it is read twice.  Times are local, and no
line names their zone.  KB are 1024 bytes, MB 1024 * 1024.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

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

WANTED = "its CSV (nmon -f -s 1 -c 60)"
NAMES = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
MONTHS = {name: month for month, name in enumerate(NAMES.split(), 1)}
FIRST = 5000  # lines in which its head is
SNAPSHOT = re.compile(r"T\d{4,9}", re.ASCII)
CORE = re.compile(r"CPU\d+", re.ASCII)
# section -> metric, factor to its unit, what is left of a column's name
PER_DEVICE: dict[str, list[tuple[str, float, str]]] = {
    "DISKREAD": [("disk_read:", KIB, "")],
    "DISKWRITE": [("disk_written:", KIB, "")],
    "DISKREADS": [("disk_reads:", 1.0, "")],
    "DISKWRITES": [("disk_writes:", 1.0, "")],
    "DISKBUSY": [("disk_busy:", 0.01, "")],
    "NET": [("link_received:", KIB, "-read-KB/s"), ("link_sent:", KIB, "-write-KB/s")],
    "NETPACKET": [
        ("link_packets_received:", 1.0, "-read/s"),
        ("link_packets_sent:", 1.0, "-write/s"),
    ],
}
CPU = {"User%": "cpu_user", "Sys%": "cpu_system", "Wait%": "cpu_iowait", "Idle%": "cpu_idle"}
MEMORY_USED = ("memory_used",)
MEMORY = ("memtotal", "memfree", "buffers", "cached")


@dataclass
class Section:
    """What the columns of one kind of line are."""

    width: int  # columns
    names: tuple[str, ...]  # of series
    places: tuple[int, ...]  # of their columns
    factors: tuple[float, ...]
    moves: bool = False  # what links have moved

    def __post_init__(self) -> None:
        """Whether all columns are read as they stand."""
        self.every = tuple(range(self.width))


def head(text: Text) -> Head:
    """Host and interval; ParseError if it is not nmon's."""
    told: dict[str, str] = {}
    for number_, line in zip(range(FIRST), text.lines(), strict=False):
        words = line.split(",", 2)
        if words[0] == "AAA" and len(words) == 3:
            told.setdefault(words[1], words[2].strip())
        elif number_ > 0 and told and words[0] == "ZZZZ":
            break
    if "host" not in told and "progname" not in told:
        raise text.error(0, f"is not nmon's: {WANTED} begins with AAA,progname")
    try:
        interval = float(told.get("interval", "0").split(",")[0])
    except ValueError:
        interval = 0.0
    return Head(told.get("host", ""), None, interval)


def parse(text: Text, told: Head, clock: Clock, wanted: Spans) -> NodeSeries:
    """The series of a file."""
    gatherer = Gatherer(text, "nmon", told, wanted)
    samples = _snapshots(text, gatherer, clock)
    busiest: dict[int, float] = {}
    sections: dict[str, Section | None] = {}
    for at, line in enumerate(text.lines(), 1):
        kind, _, rest = line.partition(",")
        if kind in sections and rest[:1] == "T":
            section = sections[kind]
            snapshot, _, values = rest.partition(",")
            sample = samples.get(snapshot, -1)
            if section is None or sample < 0:
                continue
            if not gatherer.kept[sample] and not section.moves:
                continue
            words = values.rstrip("\r").split(",")
            if len(words) != section.width:
                reason = f"{kind} has {len(words)} values for {section.width} columns"
                raise text.error(at, f"{reason}: decimal commas? (LC_ALL=C nmon ...)")
            _take(text, at, gatherer, sample, section, words, busiest)
        elif kind not in sections and rest and not SNAPSHOT.match(rest):
            sections[kind] = _section(kind, rest)
    for sample, busy in busiest.items():
        gatherer.add(sample, ("cpu_core_max",), (busy,))
    return gatherer.series()


def _snapshots(text: Text, gatherer: Gatherer, clock: Clock) -> dict[str, int]:
    """Number of each snapshot's sample, by its name."""
    found: dict[str, int] = {}
    for at, line in enumerate(text.lines(), 1):
        if line.startswith("ZZZZ,"):
            try:
                _, snapshot, hours, date = (word.strip() for word in line.split(",")[:4])
                day, month, year = date.split("-")
                time = clock.unix((int(year), MONTHS[month.upper()], int(day)), seconds_of(hours))
            except (ValueError, KeyError):
                allowed = "ZZZZ,T0001,14:21:02,29-NOV-2026"
                raise text.error(at, f"{line[:60]!r} is no time as {allowed}") from None
            if snapshot in found:
                raise text.error(at, f"{snapshot} is there twice: two files in one? Cut it there")
            found[snapshot] = gatherer.sample(time)
    return found


def _section(kind: str, heading: str) -> Section | None:
    """Of a line of headings; None for what is not read."""
    columns = [column.strip() for column in heading.rstrip("\r").split(",")[1:]]
    while columns and not columns[-1]:
        columns.pop()
    if CORE.fullmatch(kind):
        places = tuple(columns.index(n) for n in ("Idle%", "Wait%") if n in columns)
        return Section(len(columns), (), places, ()) if places else None
    if kind == "CPU_ALL":
        told = [name for name in CPU if name in columns]
        return Section(
            len(columns),
            tuple(CPU[name] for name in told),
            tuple(map(columns.index, told)),
            (0.01,) * len(told),
        )
    if kind == "MEM" and all(name in columns for name in MEMORY):
        return Section(len(columns), MEMORY_USED, tuple(map(columns.index, MEMORY)), ())
    return _devices(kind.rstrip("0123456789"), columns)


def _devices(kind: str, columns: Sequence[str]) -> Section | None:
    found = [
        (metric + clean(column.removesuffix(end)), place, factor)
        for metric, factor, end in PER_DEVICE.get(kind, ())
        for place, column in enumerate(columns)
        if column.endswith(end) and column.removesuffix(end) != "lo"
    ]
    if not found:
        return None
    unique = {name: (place, factor) for name, place, factor in found}
    return Section(
        len(columns),
        tuple(unique),
        tuple(place for place, _ in unique.values()),
        tuple(factor for _, factor in unique.values()),
        kind == "NET",
    )


def _take(
    text: Text,
    at: int,
    gatherer: Gatherer,
    sample: int,
    section: Section,
    words: Sequence[str],
    busiest: dict[int, float],
) -> None:
    """The values of one line."""
    if section.places != section.every:
        words = [words[place] for place in section.places]
    try:
        if not section.names:  # of one core
            busiest[sample] = max(busiest.get(sample, 0.0), 1 - sum(map(float, words)) / 100)
        elif section.names == MEMORY_USED:
            total, *free = map(float, words)
            gatherer.add(sample, MEMORY_USED, ((total - sum(free)) * KIB * KIB,))
        else:
            if section.moves:
                gatherer.moves(sample, sum(map(float, words)) * KIB)
            gatherer.add(sample, section.names, map(float, words), section.factors)
    except ValueError:
        floats(text, at, words)
        raise


FORMAT = NodeFormat("nmon", WANTED, head, parse)
