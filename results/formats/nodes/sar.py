"""sar's data as JSON (`sadf -j FILE -- -A`) of sysstat 11 to 12.

`"utc": 1` says that times are UTC.  Without it they are local, and the field `timezone` names the
zone of whoever took them, not the one that they are written in.  KB are 1024 bytes, sectors 512.
sar tells the requests of a device in sum, not reads and writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from fsmatrix.results.formats.base import ParseError
from fsmatrix.results.formats.nodes.base import (
    KIB,
    LONGEST,
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

WANTED = "sadf's JSON (sadf -j FILE -- -A)"
SECTOR = 512.0
NAN = float("nan")
BEGIN = re.compile(r'"statistics"\s*:\s*\[\s*')
HOST = re.compile(r'"nodename"\s*:\s*("(?:[^"\\\n]|\\.){0,255}")')
INSIDE = re.compile(r'"utc"\s*:\s*([01])')
EVERY = re.compile(r'"interval"\s*:\s*(\d{1,7})')
NEXT = re.compile(r"[\s,]*")
Values = Mapping[str, Any]
Rate = tuple[str, Callable[[Values], float]]


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
    for line, values in _statistics(text, gatherer.notes):
        try:
            _take(gatherer, values, clock, told.zone is not None)
        except ParseError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"a sample that is not as sadf writes it: {error!r:.120}"
            raise text.error(line, reason) from None
    return gatherer.series()


def _statistics(text: Text, notes: list[str]) -> Iterator[tuple[int, Values]]:
    """Each sample, and the line where it begins; what a cut file has whole."""
    decode = json.JSONDecoder().raw_decode
    buffer, at, line, begun = "", 0, 1, False
    for piece in text.pieces():
        line += buffer.count("\n", 0, at)
        buffer, at = buffer[at:] + piece, 0
        if not begun:
            begin = BEGIN.search(buffer)
            if begin is None:
                continue
            begun, at = True, begin.end()
        while True:
            at = NEXT.match(buffer, at).end()  # type: ignore[union-attr]
            if buffer[at : at + 1] == "]":
                return
            try:
                value, end = decode(buffer, at)
            except (ValueError, RecursionError) as error:
                broken, why = line + buffer.count("\n", 0, at), error
                break
            yield line + buffer.count("\n", 0, at), value
            at = end
        if len(buffer) - at > LONGEST:
            raise text.error(broken, f"is no JSON as sadf writes it: {why}")
    if not begun:
        raise text.error(0, "holds no statistics")
    rest = buffer[at:]
    if rest.count("{") - rest.count("}") < 1 and rest.strip():
        raise text.error(line + buffer.count("\n", 0, at), "is no JSON as sadf writes it")
    notes.append("it ends within a sample, or after one: what comes then is missing")


def _take(gatherer: Gatherer, values: Values, clock: Clock, in_utc: bool) -> None:
    stamp = values.get("timestamp")
    if stamp is None:  # sadf writes one without when nothing was chosen
        return
    if in_utc != (stamp.get("utc", 0) == 1):
        raise ValueError("times that are UTC and others that are not")
    year, month, day = map(int, stamp["date"].split("-"))
    time = clock.unix((year, month, day), seconds_of(stamp["time"]))
    sample = gatherer.sample(time, float(stamp.get("interval", 0)))
    if sample < 0:
        return
    network = values.get("network", {})
    links = [*_of_each(network.get("net-dev", ()), "iface", LINK)]
    gatherer.moves(sample, sum((v for n, v in links if n.startswith(MOVED)), 0.0 if links else NAN))
    if not gatherer.kept[sample]:
        return
    told = [*links, *_of_each(network.get("net-edev", ()), "iface", DROPS)]
    told += _of_each(values.get("disk", ()), "disk-device", DISK)
    told += _processors(values.get("cpu-load", values.get("cpu-load-all", ())))
    told += _memory(values.get("memory", {}))
    if told:
        unique = dict(told)
        gatherer.add(sample, tuple(unique), unique.values())


def _of_each(
    devices: Sequence[Values], key: str, rates: Sequence[Rate]
) -> Iterator[tuple[str, float]]:
    for device in devices:
        name = clean(str(device[key]))
        if name == "lo":
            continue
        for metric, rate in rates:
            yield metric + name, rate(device)


def _kib(key: str) -> Callable[[Values], float]:
    return lambda device: float(device[key]) * KIB


def _read(new: str, sectors: str) -> Callable[[Values], float]:
    """Of a device: kB, or sectors as sysstat before 11.7 tells them alone."""

    def rate(device: Values) -> float:
        return float(device[new]) * KIB if new in device else float(device[sectors]) * SECTOR

    return rate


def _wait(device: Values) -> float:
    """Nothing is known of the latency where there was no request."""
    return float(device["await"]) / 1000 if float(device["tps"]) > 0 else NAN


LINK: tuple[Rate, ...] = (
    ("link_received:", _kib("rxkB")),
    ("link_sent:", _kib("txkB")),
    ("link_packets_received:", lambda link: float(link["rxpck"])),
    ("link_packets_sent:", lambda link: float(link["txpck"])),
)
MOVED = ("link_received:", "link_sent:")
DROPS: tuple[Rate, ...] = (
    ("link_drops:", lambda link: float(link["rxdrop"]) + float(link["txdrop"])),
)
DISK: tuple[Rate, ...] = (
    ("disk_read:", _read("rkB", "rd_sec")),
    ("disk_written:", _read("wkB", "wr_sec")),
    ("disk_busy:", lambda disk: float(disk["util-percent"]) / 100),
    ("disk_queue:", lambda disk: float(disk.get("aqu-sz", disk.get("avgqu-sz", NAN)))),
    ("disk_latency:", _wait),
)


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
