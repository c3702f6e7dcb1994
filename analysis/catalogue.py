"""Which analyses there are, what each needs, and how it is called: for report and figures.

The names are those of the commands.  A new analysis is one module and one line here, or in
another package an `Analysis` and an entry point of the group `fsmatrix.analyses`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fsmatrix.analysis.data.factors import ROLES
from fsmatrix.analysis.data.load import Rows
from fsmatrix.analysis.studies import flash, pagecache
from fsmatrix.analysis.units import OWN
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.registry import Registry

if TYPE_CHECKING:
    import xarray as xr

    from fsmatrix.analysis.result import Result


@dataclass(frozen=True)
class Analysis:
    """A function `Dataset -> Result`, and what it needs of a campaign."""

    title: str
    place: str  # module:function, below `package`
    needs: Mapping[str, int] = field(default_factory=dict)  # role -> least number of its levels
    options: JsonObject = field(default_factory=dict)
    factors: tuple[str, ...] = ()  # one of them must have several levels
    metric: str = ""  # a column that must have values
    text_column: str = ""  # a column of texts of which some must not be empty
    drawn: bool = True  # whether the report draws it too (models take seconds a page)
    command: str = ""  # of fsmatrix, if it is not the name
    package: str = "fsmatrix.analysis"

    def run(self, ds: xr.Dataset) -> Result:
        """The result; ValueError for what the data does not allow."""
        module, _, name = self.place.partition(":")
        function = getattr(importlib.import_module(f"{self.package}.{module}"), name)
        result: Result = function(ds, **self.options)
        return result


STUDIES: dict[str, Analysis] = {
    "scalability": Analysis(
        "Scalability over storage nodes", "questions.scalability:scalability",
        {"storage_nodes": 2}, {"metric": "bandwidth"},
    ),
    "response": Analysis(
        "Throughput against latency", "questions.response:response",
        factors=("load", "rate", "iodepth"), metric="latency_p99",
    ),
    "bottleneck": Analysis(
        "Where bandwidth stops growing", "questions.bottleneck.bottleneck:bottleneck",
        {"chunk": 2, "processes": 2},
    ),
    "models": Analysis(
        "Models of bandwidth over chunk size", "questions.models.models:models", {"chunk": 3},
        {"metric": "bandwidth", "hold_out": None}, drawn=False,
    ),
    "correlation": Analysis(
        "Correlation of factors and metrics", "questions.correlation:correlation",
        {"chunk": 3, "processes": 2},
    ),
    "page-size": Analysis(
        "Bandwidth over page sizes", "studies.cern:parameters", factors=("page_size",),
        command="curves --along page_size",
    ),
    "transactions": Analysis(
        "Transactions over users", "studies.flash:throughput", factors=flash.USERS,
        metric="transaction_rate", command="curves --metric transaction_rate --along warehouses",
    ),
    "oltp": Analysis(
        "Transactions by type: TPC-C derived, not audited", "studies.oltp:oltp",
        metric="new_order_rate", command="curves --metric transaction_rate --along warehouses",
    ),
    "adapters": Analysis(
        "Devices that share a host adapter", "studies.pagecache:adapters", factors=pagecache.DEVICES
    ),
    "replay": Analysis(
        "Replayed operations over threads", "studies.pagecache:replay", factors=pagecache.TRACES,
        metric="iops", command="curves --metric iops --along threads",
    ),
    "lhcb": Analysis("The LHCb analysis on RNTuple", "studies.lhcb:lhcb", text_column="lhcb"),
    "cpu": Analysis("Where CPU time goes", "studies.flash:cpu", metric="cpu_user"),
}  # fmt: skip
VARIATION: dict[str, Analysis] = {
    "effects": Analysis(
        "What the factors do", "questions.effects:effects", {}, {"metric": OWN}
    ),
    "variability": Analysis(
        "How runs vary", "questions.variability:variability", {}, {"metric": OWN}
    ),
    "repetitions": Analysis(
        "How many attachments a narrow interval takes", "questions.variability:variability", {},
        {"metric": OWN, "question": "repetitions"}, drawn=False,
    ),
}  # fmt: skip
FAIRNESS: dict[str, Analysis] = {
    "fairness": Analysis("Are the targets compared fairly?", "questions.fairness:fairness")
}
LESSONS: dict[str, Analysis] = {"lessons": Analysis("Lessons", "lessons.lessons:lessons")}
# beside those of the report, for papers
EVERY: dict[str, Analysis] = LESSONS | FAIRNESS | STUDIES | VARIATION | {
    f"bars-{metric}": Analysis(title, "questions.bars:bars", {"pattern": 1}, {"metric": metric})
    for metric, title in (
        ("bandwidth", "Bandwidth"), ("iops", "Operations per second"),
        ("latency_mean", "Latency, mean"), ("latency_p99", "Latency, 99th percentile"),
    )
} | {
    "variability-latency_p99": Analysis(
        "How runs vary", "questions.variability:variability", {}, {"metric": "latency_p99"}
    )
}  # fmt: skip

# of other packages; values are instances of Analysis
OUTSIDE: Registry[Any] = Registry("fsmatrix.analyses", {}, "analysis")


def outside() -> dict[str, Analysis]:
    """The analyses of other packages; BrokenEntry if one cannot be loaded."""
    names = [name for name in OUTSIDE.outside() if name not in EVERY]
    return {name: cast("Analysis", OUTSIDE.load(name)) for name in names}


def possible(data: Rows, among: Mapping[str, Analysis]) -> dict[str, Analysis]:
    """Those that a campaign has the factors for."""
    levels = {role: _levels(data, names) for role, names in ROLES.items()}
    return {
        name: analysis
        for name, analysis in among.items()
        if all(levels[role] >= least for role, least in analysis.needs.items())
        and (not analysis.factors or _levels(data, analysis.factors) > 1)
        and (not analysis.metric or _measured(data, analysis.metric))
        and (not analysis.text_column or _has_texts(data, analysis.text_column))
    }


def _levels(data: Rows, names: tuple[str, ...]) -> int:
    """Most levels that a factor of a role has; a phase counts as a pattern."""
    columns = [
        data.factor(n) if n in data.factors else data[n]
        for n in names
        if n in data.factors or (n == "phase" and n in data.columns)
    ]
    return max((np.unique(column).size for column in columns), default=0)


def _has_texts(data: Rows, column: str) -> bool:
    return column in data.columns and bool((data[column] != "").any())


def _measured(data: Rows, metric: str) -> bool:
    return metric in data.columns and bool(np.isfinite(data[metric].astype(np.float64)).any())
