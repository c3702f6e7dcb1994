"""The columns of an event, B -> h h h, as LHCb's open data have them (B2HHH)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Columns = Mapping[str, npt.NDArray[np.generic]]  # name -> values, [event]

TREE = "DecayTree"
HADRONS = ("H1", "H2", "H3")
OF_HADRON = {
    "PX": "f8",
    "PY": "f8",
    "PZ": "f8",
    "ProbK": "f8",
    "ProbPi": "f8",
    "IpChi2": "f8",
    "Charge": "i4",
    "isMuon": "i4",
}
# name -> type; 26 of them
ALL: dict[str, str] = {"B_FlightDistance": "f8", "B_VertexChi2": "f8"} | {
    f"{hadron}_{name}": kind for hadron in HADRONS for name, kind in OF_HADRON.items()
}
READ_PARTS = ("isMuon", "ProbK", "ProbPi", "PX", "PY", "PZ")
# what the analysis reads; 18 of them
READ: dict[str, str] = {
    f"{hadron}_{part}": ALL[f"{hadron}_{part}"] for part in READ_PARTS for hadron in HADRONS
}


def width(columns: Mapping[str, str]) -> int:
    """Bytes of one event in these columns, uncompressed."""
    return sum(np.dtype(kind).itemsize for kind in columns.values())


EVENT_BYTES = width(ALL)  # 184
READ_BYTES = width(READ)  # 132


def share(events: int, part: int, parts: int) -> tuple[int, int]:
    """First and last (exclusive) event of a part, of several that differ by one at most."""
    return events * part // parts, events * (part + 1) // parts
