"""sar's data as JSON (`sadf -j FILE -- -A`) of sysstat 11 to 12.

`"utc": 1` says that times are UTC.  Without it they are local, and the field `timezone` names the
zone of whoever took them, not the one that they are written in.  KB are 1024 bytes, sectors 512.
sar tells the requests of a device in sum, not reads and writes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from fsmatrix.results.formats.nodes.node_series import (
    KIB,
    LONGEST,
    MOST_NAMES,
    Clock,
    Gatherer,
    Head,
    NodeFormat,
    NodeSeries,
    Spans,
    Text,
    clean,
    seconds_of,
)
from fsmatrix.results.formats.parsed import ParseError

WANTED = "sadf's JSON (sadf -j FILE -- -A)"
SECTOR = 512.0
NAN = float("nan")
BEGIN = re.compile(r'"statistics"\s*:\s*\[\s*')
HOST = re.compile(r'"nodename"\s*:\s*("(?:[^"\\\n]|\\.){0,255}")')
INSIDE = re.compile(r'"utc"\s*:\s*([01])')
EVERY = re.compile(r'"interval"\s*:\s*(\d{1,7})')
STAMP = re.compile(r'\{\s*"timestamp"\s*:\s*(\{[^{}]{0,200}\})')
LINKS = re.compile(r'"net-dev"\s*:\s*\[')
NEXT = re.compile(r"[\s,]*")
Values = Mapping[str, Any]


def head(text: Text) -> Head:
    """Host, zone and interval; ParseError if it is not sadf's JSON."""
    seen = ""
    for piece in text.pieces():
        seen += piece
        if EVERY.search(seen) or len(seen) > LONGEST:
            break
    if not seen.lstrip().startswith("{") or '"sysstat"' not in seen:
        raise text.error(0, f"is not what is read of sar: {WANTED} is")
    host, inside, every = (pattern.search(seen) for pattern in (HOST, INSIDE, EVERY))
    return Head(
        json.loads(host[1]) if host else "",
        UTC if inside and inside[1] == "1" else None,
        float(every[1]) if every else 0.0,
    )


def parse(text: Text, told: Head, clock: Clock, wanted: Spans) -> NodeSeries:
    """The series of a file."""
    gatherer = Gatherer(text, "sar", told, wanted)

    def skipped(stamp: Values) -> bool:
        try:
            near = 3 * float(stamp.get("interval", 0)) + 3 * told.interval
            return not wanted.near(_time(stamp, clock), near)
        except (LookupError, TypeError, ValueError, AttributeError):
            return False

    for line, values in _statistics(text, gatherer.notes, skipped):
        try:
            _take(gatherer, values, clock, told.zone is not None)
        except ParseError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"a sample that is not as sadf writes it: {error!r:.120}"
            raise text.error(line, reason) from None
    return gatherer.series()


def _statistics(
    text: Text, notes: list[str], skipped: Callable[[Values], bool]
) -> Iterator[tuple[int, Values]]:
    """Each sample, and the line where it begins; what a cut file has whole.

    Of samples with a timestamp that is `skipped`, only that and the links.
    """
    decode = json.JSONDecoder().raw_decode
    buffer, at, counted, line, begun = "", 0, 0, 1, False
    why: Exception | None = None
    for piece in text.pieces():
        line += buffer.count("\n", counted, at)
        buffer, at, counted = buffer[at:] + piece, 0, 0
        if not begun:
            begin = BEGIN.search(buffer)
            if begin is None:
                continue
            begun, at = True, begin.end()
        while True:
            at = NEXT.match(buffer, at).end()  # type: ignore[union-attr]
            if buffer[at : at + 1] == "]":
                return
            line += buffer.count("\n", counted, at)
            counted = at
            try:
                value, at = _light(decode, buffer, at, skipped) or decode(buffer, at)
            except (ValueError, RecursionError) as error:
                why = error
                break
            yield line, value
        if len(buffer) - at > LONGEST:
            raise text.error(line, f"is no JSON as sadf writes it: {why}")
    if not begun:
        raise text.error(0, "holds no statistics")
    rest = buffer[at:]
    if rest.count("{") - rest.count("}") < 1 and rest.strip():
        raise text.error(line, "is no JSON as sadf writes it")
    notes.append("it ends within a sample, or after one: what comes then is missing")


def _light(
    decode: Callable[[str, int], tuple[Any, int]],
    buffer: str,
    at: int,
    skipped: Callable[[Values], bool],
) -> tuple[Values, int] | None:
    """Of a sample that is not wanted its time and links alone, and where it ends; else None."""
    stamp = STAMP.match(buffer, at)
    following = buffer.find('"timestamp"', stamp.end()) if stamp else -1
    if stamp is None or following < 0 or not skipped(told := json.loads(stamp[1])):
        return None
    links = LINKS.search(buffer, at, following)
    found = decode(buffer, links.end() - 1)[0] if links else ()
    return {"timestamp": told, "network": {"net-dev": found}}, buffer.rfind("{", at, following)


def _time(stamp: Values, clock: Clock) -> float:
    year, month, day = map(int, stamp["date"].split("-"))
    return clock.unix((year, month, day), seconds_of(stamp["time"]))


def _take(gatherer: Gatherer, values: Values, clock: Clock, in_utc: bool) -> None:
    stamp = values.get("timestamp")
    if stamp is None:  # sadf writes one without when nothing was chosen
        return
    if in_utc != (stamp.get("utc", 0) == 1):
        raise ValueError("times that are UTC and others that are not")
    sample = gatherer.sample(_time(stamp, clock), float(stamp.get("interval", 0)))
    if sample < 0:
        return
    network = values.get("network", {})
    links = _each(network.get("net-dev", ()), "iface", LINK, _link)
    moved = [received + sent for _, (received, sent, *_) in links]
    gatherer.moves(sample, sum(moved) if moved else NAN)
    if not gatherer.kept[sample]:
        return
    drops = _each(network.get("net-edev", ()), "iface", DROPS, _drops)
    disks = _each(values.get("disk", ()), "disk-device", DISK, _disk)
    for group in (links, drops, disks):
        if group:
            names = _all_names(tuple(names for names, _ in group))
            gatherer.add(sample, names, (value for _, values in group for value in values))
    told = [*_processors(values.get("cpu-load", values.get("cpu-load-all", ())))]
    told += _memory(values.get("memory", {}))
    if told:
        unique = dict(told)
        gatherer.add(sample, tuple(unique), unique.values())


LINK = ("link_received:", "link_sent:", "link_packets_received:", "link_packets_sent:")
DROPS = ("link_drops:",)
DISK = ("disk_read:", "disk_written:", "disk_busy:", "disk_queue:", "disk_latency:")


def _each(
    devices: Sequence[Values],
    key: str,
    metrics: tuple[str, ...],
    rates: Callable[[Values], tuple[float, ...]],
) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
    """Names and values of the series of each device; of each one once."""
    found = {str(device[key]): rates(device) for device in devices}
    return [(_names(metrics, name), values) for name, values in found.items() if name != "lo"]


@functools.lru_cache(MOST_NAMES)
def _names(metrics: tuple[str, ...], device: str) -> tuple[str, ...]:
    return tuple(metric + clean(device) for metric in metrics)


@functools.lru_cache(100)
def _all_names(groups: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(name for names in groups for name in names)


def _link(link: Values) -> tuple[float, ...]:
    return link["rxkB"] * KIB, link["txkB"] * KIB, float(link["rxpck"]), float(link["txpck"])


def _drops(link: Values) -> tuple[float, ...]:
    return (float(link["rxdrop"] + link["txdrop"]),)


def _disk(disk: Values) -> tuple[float, ...]:
    """Nothing is known of the latency where there was no request."""
    if "rkB" in disk:
        read, written = disk["rkB"] * KIB, disk["wkB"] * KIB
    else:  # sysstat before 11.7
        read, written = disk["rd_sec"] * SECTOR, disk["wr_sec"] * SECTOR
    queue = disk["aqu-sz"] if "aqu-sz" in disk else disk.get("avgqu-sz", NAN)
    latency = disk["await"] / 1000 if disk["tps"] > 0 else NAN
    return read, written, disk["util-percent"] / 100, queue, latency


def _processors(loads: Sequence[Values]) -> Iterator[tuple[str, float]]:
    cores = []
    for load in loads:
        user = sum(float(load.get(n, 0)) for n in ("usr", "user", "nice", "guest", "gnice"))
        system = sum(float(load.get(n, 0)) for n in ("sys", "system", "irq", "soft"))
        idle, waiting = float(load["idle"]), float(load["iowait"])
        if load["cpu"] == "all":
            yield "cpu_user", user / 100
            yield "cpu_system", system / 100
            yield "cpu_iowait", waiting / 100
            yield "cpu_idle", idle / 100
        else:
            cores.append(1 - (idle + waiting) / 100)
    if cores:
        yield "cpu_core_max", max(cores)


def _memory(memory: Values) -> Iterator[tuple[str, float]]:
    """sysstat before 11.7 counts buffers and caches as used; later ones neither, nor the slab."""
    if not all(name in memory for name in ("memfree", "memused", "buffers", "cached")):
        return
    used = float(memory["memused"])
    share = float(memory.get("memused-percent", 0))
    total = used * 100 / share if share > 0 else NAN
    if abs(used + float(memory["memfree"]) - total) < 0.01 * total:
        used -= float(memory["buffers"]) + float(memory["cached"])
    yield "memory_used", used * KIB


FORMAT = NodeFormat("sar", WANTED, head, parse)
