"""The engine uproot: RNTuple in pure Python; the analysis in numpy, cluster by cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import awkward as awkward  # what uproot needs for RNTuple: asked for here, not in mid-run
import cramjam as cramjam
import numpy as np
import numpy.typing as npt
import uproot
import xxhash as xxhash

from fsmatrix.suite.workloads.streams.lhcb.analysis import (
    ALL,
    READ,
    TREE,
    Columns,
    Selected,
    select,
)
from fsmatrix.suite.workloads.streams.lhcb.program import Refused, Request, Times

NAME = "uproot"
ITEM = 8  # bytes of the widest column
STEP = 1 << 19  # events that are looked at together, at least
COMPRESSION = {"none": None, "zlib": uproot.ZLIB(1), "lz4": uproot.LZ4(4), "zstd": uproot.ZSTD(5)}


def version() -> str:
    """uproot's."""
    return str(uproot.__version__)


def features() -> list[str]:
    """Nothing that differs between installations."""
    return []


def load(threads: int, on_daos: bool) -> None:
    """Refused for what uproot does not have."""
    if on_daos:
        raise Refused("uproot has no DAOS: use ROOT")
    if threads > 1:
        raise Refused(f"uproot works in one thread, not {threads}")


def write(request: Request, place: str, part: int, columns: Columns) -> tuple[Times, int]:
    """One file; its times.  A page of each column is a cluster: that is how uproot writes."""
    del part
    began = time.time()
    events, step = len(columns["H1_PX"]), max(request.page_size // ITEM, 1)
    with uproot.recreate(place, compression=COMPRESSION[request.compression]) as file:
        ntuple = file.mkrntuple(TREE, {name: columns[name][:0] for name in ALL})
        opened = time.time()
        for first in range(0, events, step):
            ntuple.extend({name: columns[name][first : first + step] for name in ALL})
        moved = time.time()
    return Times(began, opened, moved, time.time()), 0


def read(request: Request, place: str, part: int) -> tuple[Times, int, Selected]:
    """The analysis of one file."""
    del part
    before, began = _read_so_far(), time.time()
    source = uproot.source.file.MultithreadedFileSource  # a map would hide what is read
    with uproot.open(place, handler=source, num_workers=1) as file:
        ntuple = file[TREE]
        events = int(ntuple.num_entries)
        opened, selected = time.time(), Selected()
        step = max(STEP, request.page_size // ITEM)
        for first in range(0, events, step):
            arrays = ntuple.arrays(
                list(READ), entry_start=first, entry_stop=min(first + step, events), library="np"
            )
            selected.add(select(arrays))
        moved = time.time()
    return Times(began, opened, moved, time.time()), _read_so_far() - before, selected


def _read_so_far() -> int:
    """Bytes that this process has read by system calls."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


# -- a user's file --------------------------------------------------------------------------
def described(source: str, tree: str) -> tuple[int, dict[str, str]]:
    """Events and types of all columns of a TTree or RNTuple; Refused if it is none."""
    if not Path(source).is_file():
        raise Refused(f"{source}: {os.strerror(2)}")
    try:
        file = uproot.open(source)
    except ValueError as error:
        raise Refused(f"{source} is no file of ROOT") from error
    with file:
        names = sorted({name.partition(";")[0] for name in file.keys(recursive=False)})
        if tree not in names:
            raise Refused(f"{source} has no {tree!r}; it has: {', '.join(names) or 'nothing'}")
        ntuple = file[tree]
        if not hasattr(ntuple, "num_entries"):
            raise Refused(f"{source}: {tree!r} is no TTree and no RNTuple")
        return int(ntuple.num_entries), {
            name: str(ntuple[name].typename) for name in ntuple.keys(recursive=False) if name in ALL
        }


def values(
    source: str, tree: str, names: Sequence[str], first: int, last: int
) -> dict[str, npt.NDArray[Any]]:
    """Columns of a user's file, events first <= i < last."""
    with uproot.open(source) as file:
        arrays = file[tree].arrays(list(names), entry_start=first, entry_stop=last, library="np")
        return {name: np.asarray(arrays[name]) for name in names}
