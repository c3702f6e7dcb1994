"""Namespaces of the suite's own in a RADOS pool: one for an attachment, one for each of its runs.

An attachment owns the prefix `fsmatrix-<tag>-<target>-<8 random digits>`.  The namespace of that
very name holds the marker and one object `run.<name>` for each run, written before the run's own
namespace `<prefix>.<name>` is used.  Only namespaces that are recorded so are emptied, and only
if the marker holds the tag.  Of the pool's objects without a namespace those are removed whose
names begin with `<prefix>.<name>.`, after a run that was recorded as one of programs.

To list a namespace, OSDs go through all objects of the pool: a pool of its own is faster.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

from fsmatrix.backends.ceph.bindings.capi import CephError, harmless
from fsmatrix.backends.ceph.bindings.librados import Cluster, IoCtx, Login
from fsmatrix.backends.journal.tree import LIMIT, MARKER, marker_of, tag_in, whose
from fsmatrix.results.evidence.values import JsonObject

RUN = "run."
PROGRAMS = b"programs"


@dataclass(frozen=True)
class Space:
    """The prefix of an attachment in a pool, with the tag that its marker holds."""

    login: Login
    pool: str
    prefix: str
    tag: str

    @property
    def facts(self) -> dict[str, str]:
        """For accesses and journal entries; `of` reads them."""
        values = {name: getattr(self, name) for name in ("pool", "prefix", "tag")}
        return {**self.login.facts, **values}

    @classmethod
    def of(cls, facts: JsonObject) -> Space:
        """The space that such facts describe."""
        return cls(Login.of(facts), *(str(facts[name]) for name in ("pool", "prefix", "tag")))

    def namespace(self, run: str) -> str:
        """The namespace that a run works in."""
        return f"{self.prefix}.{run}"

    def make(self) -> None:
        """Write the marker; CephError if anything is in a namespace of that name."""
        with self.login.connect() as cluster, cluster.ioctx(self.pool, self.prefix) as markers:
            if next(iter(markers.names()), None) is not None:
                raise CephError(
                    f"namespace {self.prefix} of pool {self.pool} exists and is not the suite's: "
                    "left alone"
                )
            markers.write_full(MARKER, marker_of(self.tag))

    def found_tag(self, cluster: Cluster) -> str | None:
        """The tag in the marker; None if there is none."""
        with cluster.ioctx(self.pool, self.prefix) as markers:
            return _tag(markers)

    def make_run(self, run: str, programs: bool = False) -> None:
        """Record a run; its namespace needs no making.  Harmless if it is recorded.

        `programs`: IOR and fio know no namespaces, so their objects have the run's namespace for a
        prefix of their names, in the namespace that has no name.
        """
        with self.login.connect() as cluster, cluster.ioctx(self.pool, self.prefix) as markers:
            self._require(_tag(markers))
            markers.write_full(f"{RUN}{run}", PROGRAMS if programs else b"")

    def remove_run(self, run: str) -> None:
        """Remove the objects of a recorded run; harmless if it is gone."""
        with self.login.connect() as cluster, cluster.ioctx(self.pool, self.prefix) as markers:
            self._require(_tag(markers))
            if markers.exists(f"{RUN}{run}"):
                self._empty(cluster, markers, run)

    def remove(self) -> bool:
        """Remove all of it, the marker last; False if there is nothing.

        CephError, with nothing removed, if objects are there without our marker.
        """
        with self.login.connect() as cluster:
            try:
                markers = cluster.ioctx(self.pool, self.prefix)
            except CephError as error:
                if error.errno == errno.ENOENT:  # with its pool it has gone as well
                    return False
                raise
            names = list(markers.names())
            if not names:
                return False
            self._require(_tag(markers))
            for name in names:
                if name.startswith(RUN):
                    self._empty(cluster, markers, name.removeprefix(RUN))
            markers.remove_many([name for name in names if name != MARKER])
            markers.remove_many([MARKER])
        return True

    def _empty(self, cluster: Cluster, markers: IoCtx, run: str) -> None:
        if markers.read(f"{RUN}{run}", len(PROGRAMS)) == PROGRAMS:
            with cluster.ioctx(self.pool) as plain:  # the whole pool has to be gone through
                first = f"{self.namespace(run)}."
                plain.remove_many([name for name in plain.names() if name.startswith(first)])
        with cluster.ioctx(self.pool, self.namespace(run)) as space:
            space.remove_all()
        markers.remove_many([f"{RUN}{run}"])

    def _require(self, marker_tag: str | None) -> None:
        if marker_tag != self.tag:
            raise CephError(
                f"namespace {self.prefix} of pool {self.pool} {whose(marker_tag)}: not touched "
                f"(expected {self.tag!r})"
            )


def _tag(markers: IoCtx) -> str | None:
    with harmless(errno.ENOENT):
        return tag_in(markers.read(MARKER, LIMIT))
    return None
