"""The claims of a whole study judged on campaigns in which nothing has an effect."""

from __future__ import annotations

import dataclasses

import numpy as np

from fsmatrix.analysis.stats.estimates.medians import of_independent
from fsmatrix.analysis.studies.claims import claims_file
from fsmatrix.analysis.studies.claims.claim_cells import Data, data_of
from fsmatrix.analysis.studies.claims.claims import judge
from fsmatrix.analysis.studies.claims.judge import JudgedClaim
from tests.analysis import study_data


def verdicts(campaigns: int) -> tuple[list[bool], list[int]]:
    """Of each campaign: whether any verdict is wrong, and how many claims are decided.

    The SSD cluster study, 16 attachments; two levels of storage nodes keep it fast.
    """
    ds = study_data.table3(nodes=(2, 5), attachments=16)
    ds = ds.where(ds["chunk"] != study_data.MIB, drop=True).assign_attrs(ds.attrs)
    for name in ("target", "workload", "phase", "status", "engine", "attachment"):
        ds[name] = ds[name].astype(str)
    file = claims_file.load("ssd-cluster")
    data = data_of(ds, file)
    random = np.random.default_rng(7)
    found = [judge(null_of(data, random), file).judged for _ in range(campaigns)]
    decided = [sum(one.kind in ("holds", "does not hold") for one in judged) for judged in found]
    return [any(map(false, judged)) for judged in found], decided


def null_of(data: Data, rng: np.random.Generator) -> Data:
    """The same cells without any effect: attachments share their own, runs theirs."""
    shift: dict[str, float] = {}
    changed = {}
    for name, of in data.studies.items():
        cells = []
        for cell in of.cells:
            own = [shift.setdefault(a, rng.normal(0, 0.02)) for a in cell.attachments]
            values = np.exp(np.array(own) + rng.normal(0, 0.03, len(own)))
            cells.append(dataclasses.replace(cell, values=values, median=of_independent(values)))
        changed[name] = dataclasses.replace(of, cells=tuple(cells))
    return Data(changed, data.absent)


def false(one: JudgedClaim) -> bool:
    """Whether a verdict is wrong where nothing has an effect: every ratio 1, every r 0."""
    low, high = one.claim.bounds
    nothing = 0.0 if one.claim.scale == "r" else 1.0
    if one.claim.compare is not None and one.claim.compare.knee:
        return one.kind == "holds"
    if low < nothing < high and one.claim.quantifier != "range":
        return one.kind == "does not hold"
    if nothing in (low, high):
        return one.kind in ("holds", "does not hold")
    return one.kind == "holds"
