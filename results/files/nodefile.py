"""Series of storage nodes that were imported for a run: a file of their own beside the run's.

A run file is never changed.  What other tools told of the nodes meanwhile is in
`nodes/<xx>/<run_id>.h5` of the store, written whole, and read with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np

from fsmatrix.results.evidence.nodes import WatchedNode, unit_of
from fsmatrix.results.evidence.stored import StoredError, read
from fsmatrix.results.files import hdf, runfile, safefile
from fsmatrix.results.files.hdf import Source
from fsmatrix.results.files.schema import (
    NODES_FORMAT,
    SCHEMA_VERSION,
    InvalidRecordError,
    encode_text,
    from_json,
    to_json,
)
from fsmatrix.results.record import Floats, Monitor, RunRecord


@dataclass(frozen=True)
class Watched:
    """What is known of the storage nodes of one run beside its record."""

    started: str  # of the run, as in its record: another run of this name is not meant
    nodes: Mapping[str, WatchedNode]
    monitor: Monitor


def write(path: Path, watched: Watched) -> None:
    """Store it at `path`, durable and whole (an existing file is replaced).  OSError."""

    def fill(file: h5py.File) -> None:
        root = hdf.Group(file)
        root.attributes({"format": NODES_FORMAT, "schema_version": SCHEMA_VERSION})
        root.attributes({"started": encode_text(watched.started)})
        root.attributes({"nodes": to_json({n: v.document() for n, v in watched.nodes.items()})})
        runfile.write_monitor(root.group("nodes"), watched.monitor)

    safefile.write_whole(path, hdf.image(fill))


def read_watched(path: Path) -> Watched:
    """Inverse of `write`.  ResultError (newer, foreign, damaged, misfit) if there is none."""
    with hdf.reading(path, NODES_FORMAT) as file:
        root = Source(file)
        attributes = root.attributes()
        try:
            nodes = {
                name: read(WatchedNode, document, f"nodes.{name}")
                for name, document in from_json(attributes["nodes"]).items()
            }
        except StoredError as error:
            raise InvalidRecordError(path, f"holds nodes that cannot be used: {error}") from error
        monitor = runfile.read_monitor(root.group("nodes"))
        return Watched(attributes["started"], nodes, monitor)


def added(record: RunRecord, watched: Watched) -> RunRecord:
    """The record with these nodes too; of one that it has itself, what was imported."""
    own = record.nodes and without(record.nodes, watched.monitor.hosts)
    monitors = [monitor for monitor in (own, watched.monitor) if monitor and monitor.hosts]
    nodes = {**record.evidence.nodes, **watched.nodes}
    return replace(
        record,
        nodes=joined(monitors) if monitors else None,
        evidence=replace(record.evidence, nodes=nodes),
    )


def without(monitor: Monitor, hosts: Iterable[str]) -> Monitor:
    """A monitor without some hosts."""
    kept = [i for i, host in enumerate(monitor.hosts) if host not in set(hosts)]
    series = {name: values[kept] for name, values in monitor.series.items()}
    return replace(monitor, hosts=tuple(monitor.hosts[i] for i in kept), series=series)


def joined(monitors: Iterable[Monitor]) -> Monitor:
    """Several as one: all times, NaN where a host has no sample; later ones go before."""
    monitors = list(monitors)
    time = np.unique(np.concatenate([monitor.time for monitor in monitors]))
    hosts = tuple(dict.fromkeys(host for monitor in monitors for host in monitor.hosts))
    series: dict[str, Floats] = {}
    for monitor in monitors:
        rows = np.array([hosts.index(host) for host in monitor.hosts], dtype=np.int64)
        place = np.ix_(rows, np.searchsorted(time, monitor.time))
        for name, values in monitor.series.items():
            table = series.setdefault(name, np.full((len(hosts), time.size), np.nan))
            table[place] = np.where(np.isnan(values), table[place], values)
    return Monitor(hosts, time, series, {name: unit_of(name) for name in series})
