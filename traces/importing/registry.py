"""Names of trace formats -> importers; other packages add theirs as entry points."""

from __future__ import annotations

from fsmatrix.results.registry import Registry
from fsmatrix.traces.importing.base import Importer

BUILTIN = {
    "strace": "fsmatrix.traces.importing.strace:Strace",
    "fio-iolog": "fsmatrix.traces.importing.iolog:Iolog",
    "dbench": "fsmatrix.traces.importing.dbench:Dbench",
    "darshan": "fsmatrix.traces.importing.darshan:Darshan",
    "blkparse": "fsmatrix.traces.importing.blkparse:Blkparse",
}
IMPORTERS: Registry[Importer] = Registry("fsmatrix.traces", BUILTIN, "trace format")
