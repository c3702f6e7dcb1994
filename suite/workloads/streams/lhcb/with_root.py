"""The engine ROOT: RNTuple written and read by loops in C++ that ROOT's interpreter compiles."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.suite.workloads.streams.lhcb import analysis
from fsmatrix.suite.workloads.streams.lhcb.analysis import (
    ALL,
    CUTS,
    HADRONS,
    TREE,
    Columns,
    Selected,
)
from fsmatrix.suite.workloads.streams.lhcb.program import Refused, Request, Times

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the wheel's: it is in alpha stage
    import ROOT

NAME = "root"
LOOP = Path(__file__).with_name("loop.C")
# ROOT's own pairs of algorithm and level (Compression.h)
COMPRESSION = {"none": 0, "zlib": 101, "lz4": 404, "zstd": 505}
DAOS = "daos://"


def version() -> str:
    """ROOT's."""
    return str(ROOT.gROOT.GetVersion())


def features() -> list[str]:
    """What this build was configured with that matters here."""
    return sorted({"daos", "imt", "uring"} & set(str(ROOT.gROOT.GetConfigFeatures()).split()))


def load(threads: int, on_daos: bool) -> None:
    """Compile the loops; threads > 1: ROOT's implicit multi-threading."""
    if on_daos and "daos" not in features():
        raise Refused(f"ROOT {version()} was built without DAOS")
    ROOT.gEnv.SetValue("Root.Stacktrace", "no")  # takes a debugger half a minute
    if threads > 1:
        ROOT.EnableImplicitMT(threads)
    _compile(on_daos)


@functools.cache
def _compile(on_daos: bool) -> None:
    text = LOOP.read_text(encoding="utf-8")
    if not ROOT.gInterpreter.Declare(("#define WITH_DAOS\n" if on_daos else "") + text):
        raise Refused(f"ROOT {version()} cannot compile {LOOP}: 6.36 or newer is needed")


def write(request: Request, place: str, part: int, columns: Columns) -> tuple[Times, int]:
    """One file, or one ntuple of a container; its times, and the bytes stored."""
    pointers = np.array([columns[name].ctypes.data for name in ALL], np.uint64)
    times = np.zeros(4)
    stored = ROOT.fsmatrix_lhcb.write(
        place,
        _ntuple(place, part),
        ROOT.std.vector["std::string"](list(ALL)),
        "".join(kind[0] for kind in ALL.values()),
        pointers,
        len(columns["H1_PX"]),
        COMPRESSION[request.compression],
        request.page_size,
        request.cluster_size,
        request.object_class,
        times,
    )
    return Times(*times.tolist()), int(stored)


def read(request: Request, place: str, part: int) -> tuple[Times, int, Selected]:
    """The analysis of one file, or one ntuple of a container."""
    del request
    times, passed = np.zeros(4), np.zeros(6, np.int64)
    counts = np.zeros(analysis.BINS, np.int64)
    stored = ROOT.fsmatrix_lhcb.read(place, _ntuple(place, part), passed, counts, times)
    cuts = dict(zip(CUTS, passed.tolist(), strict=True))
    return Times(*times.tolist()), int(stored), Selected(**cuts, counts=counts)


def _ntuple(place: str, part: int) -> str:
    return f"{TREE}{part}" if place.startswith(DAOS) else TREE


# -- a user's file --------------------------------------------------------------------------
def described(source: str, tree: str) -> tuple[int, dict[str, str]]:
    """Events and types of all columns of a TTree or RNTuple; Refused if it is none."""
    if not Path(source).is_file():
        raise Refused(f"{source}: {os.strerror(2)}")
    try:
        file = ROOT.TFile.Open(source)
    except OSError as error:
        raise Refused(f"{source} is no file of ROOT") from error
    names = sorted({str(key.GetName()) for key in file.GetListOfKeys()})
    file.Close()
    if tree not in names:
        raise Refused(f"{source} has no {tree!r}; it has: {', '.join(names) or 'nothing'}")
    frame = ROOT.RDataFrame(tree, source)
    columns = [str(name) for name in frame.GetColumnNames()]
    types = {name: str(frame.GetColumnType(name)) for name in columns if name in ALL}
    return int(frame.Count().GetValue()), types


def values(
    source: str, tree: str, names: Sequence[str], first: int, last: int
) -> dict[str, npt.NDArray[Any]]:
    """Columns of a user's file, events first <= i < last."""
    frame = ROOT.RDataFrame(tree, source)
    if first or last < int(frame.Count().GetValue()):
        frame = frame.Range(first, last)
    columns = frame.AsNumpy(list(names))
    return {name: np.asarray(columns[name]) for name in names}


assert HADRONS == ("H1", "H2", "H3")  # loop.C names them
