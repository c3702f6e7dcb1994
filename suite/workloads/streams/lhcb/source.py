"""A user's TTree or RNTuple in place of the generator: looked at, checked, made plain columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fsmatrix.suite.workloads.streams.lhcb.columns import ALL
from fsmatrix.suite.workloads.streams.lhcb.request import Refused

REALS = frozenset({"double", "float", "Double_t", "Float_t", "Double32_t"})
WHOLES = frozenset(
    {"int", "Int_t", "std::int32_t", "int32_t", "std::int16_t", "int16_t", "short", "Short_t"}
    | {"std::int8_t", "int8_t", "bool", "Bool_t", "std::uint8_t", "uint8_t", "std::uint16_t"}
)


def checked(engine: Any, source: str, tree: str) -> int:
    """Events of the file; Refused with all columns that lack or are of another type."""
    events, types = engine.described(source, tree)
    reasons = []
    if missing := [name for name in ALL if name not in types]:
        reasons.append(f"no column {', '.join(missing)}")
    other = [
        f"{name} is of type {types[name]}, not {'double' if kind == 'f8' else 'int'}"
        for name, kind in ALL.items()
        if name in types and types[name] not in (REALS if kind == "f8" else WHOLES)
    ]
    if reasons or other:
        raise Refused(f"{source}, {tree}: {'; '.join([*reasons, *other])}")
    return int(events)


def columns(
    engine: Any, source: str, tree: str, first: int, last: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Events first <= i < last as double and int32; Refused if a number is not finite.

    Cuts drop NaN without a word, and two programs may do so in different places.
    """
    checked(engine, source, tree)  # types of other columns are never handed to an interpreter
    values = engine.values(source, tree, list(ALL), first, last)
    arrays = {
        name: np.ascontiguousarray(values[name].astype(kind, copy=False))
        for name, kind in ALL.items()
    }
    wrong = {
        name: int((~np.isfinite(values)).sum())
        for name, values in arrays.items()
        if values.dtype.kind == "f"
    }
    if bad := [f"{count} in {name}" for name, count in wrong.items() if count]:
        where = f"events {first} to {last - 1}"
        raise Refused(
            f"{source}, {tree}: NaN or infinite: {', '.join(bad)} ({where}); "
            "leave such events out of the file"
        )
    return arrays
