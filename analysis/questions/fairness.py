"""Are the targets compared fairly?  What is stored of their deployments, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.data.load import Rows, environments, rows
from fsmatrix.analysis.data.summary import Summary, summarise
from fsmatrix.results.audits import fairness as judging
from fsmatrix.results.evidence.stored import Json, StoredError
from fsmatrix.results.evidence.target import NAMES, Deployment, deployment_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHADES = {"equal": "#e6f2e6", "unequal": "#fbdcd0", "varied": "#e3edf7", "unknown": "#ffffff"}
LONGEST = 30  # characters of a value in the picture


@dataclass(frozen=True)
class Fairness:
    """The judgement, as a result of an analysis."""

    judged: judging.Fairness
    stored: bool  # a target's runs tell something of its deployment

    @property
    def says(self) -> list[str]:
        """The counts, the differences, and what is not known."""
        return self.judged.says

    def short(self, place: str) -> list[str]:
        """The counts and the differences, for a page about something else; nothing if none of
        the runs tells of it.  `place`: the results, for the command that says more.
        """
        if not self.stored:
            return []
        more = f"All facts: `fsmatrix fairness {place}`."
        return [self.judged.headline, *(fact.says for fact in self.judged.of("unequal")), more]

    @property
    def rows(self) -> list[judging.Judged]:
        """All facts, the gravest judgement first."""
        return [fact for name in judging.JUDGEMENTS for fact in self.judged.of(name)]

    def table(self) -> pd.DataFrame:
        """One row per fact, with a column for each target; `says` has the reasons."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "fact": fact.title,
                    **fact.values,
                    "judgement": fact.judgement,
                    "favours": fact.whom,
                }
                for fact in self.rows
            ]
        )

    def figure(self) -> Figure:
        """The table as a picture, shaded by judgement."""
        from fsmatrix.analysis.draw import drawing

        facts, targets = self.rows, self.judged.targets
        width, height = 2.4 + 2.0 * len(targets), 0.26 * len(facts) + 0.6
        title = "Are the targets compared fairly?"
        notes = [self.judged.headline]
        figure, ax = drawing.panel(title=title, notes=notes, width=width, height=height)
        for place, fact in enumerate(facts):
            shade = SHADES[fact.judgement]
            ax.barh(-place, len(targets), left=-0.5, height=0.94, color=shade)
            for column, name in enumerate(targets):
                text = fact.values[name].replace("$", r"\$")
                short = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
                ax.text(column, -place, short, ha="center", va="center", fontsize=drawing.SMALL)
        labels = [f"{fact.title} ({fact.judgement})" for fact in facts]
        ax.set_yticks([-place for place in range(len(facts))], labels, fontsize=drawing.SMALL)
        names = [name.replace("$", r"\$") for name in targets]
        ax.set_xticks(range(len(targets)), names, fontsize=drawing.MEDIUM)
        ax.set_xlim(-0.5, len(targets) - 0.5)
        ax.set_ylim(0.6 - len(facts), 0.6)
        ax.grid(False)
        return figure

    def among(self, targets: Collection[str]) -> Fairness:
        """Of some of these targets."""
        return Fairness(self.judged.among(targets), self.stored)

    def to_dict(self) -> dict[str, Json]:
        """Every fact with its values, its judgement and whom it favours."""
        return self.judged.to_dict()


def fairness(
    ds: xr.Dataset, targets: Collection[str] = (), summary: Summary | None = None
) -> Fairness:
    """Of the targets that the campaign compares, or of these; `summary`: of `ds`, if it is made.

    References are left out unless they are named.  ValueError for one that is not there, and
    for fewer than two targets.
    """
    data = rows(ds)
    whole = summary or summarise(ds, include=["reference"] if targets else [])
    names = [name for name in whole.targets if targets or name not in whole.references]
    if strange := [name for name in targets if name not in names]:
        there = ", ".join(names)
        raise ValueError(f"no target {', '.join(strange)} is compared here (there are: {there})")
    chosen = [name for name in names if not targets or name in targets]
    deployments = _deployments(ds)
    return Fairness(
        judging.fairness({name: _facts(data, name, deployments) for name in chosen}, whole.varying),
        any(deployment.facts for name in chosen for deployment, _ in _own(data, name, deployments)),
    )


def _deployments(ds: xr.Dataset) -> list[tuple[Deployment, bool]]:
    """Of each environment, and whether its cluster is emulated; what cannot be read is unknown."""
    deployments_seen = []
    for environment in environments(ds):
        try:
            deployment = deployment_of(environment)
        except StoredError:
            deployment = Deployment()
        realised = environment.get("realised")
        emulated = isinstance(realised, Mapping) and "emulated" in realised.values()
        deployments_seen.append((deployment, emulated))
    return deployments_seen


def _own(
    data: Rows, target: str, deployments: list[tuple[Deployment, bool]]
) -> list[tuple[Deployment, bool]]:
    """Those of one target's runs; of failed ones, which may have met no storage, if no other is."""
    index = data.columns.get("environment_index", np.empty(0, dtype=np.int64))
    mine = data.factor("target") == target
    ran = mine & ~data.failed
    indices = np.unique(index[ran if ran.any() else mine]) if index.size else index
    return [deployments[int(i)] for i in indices.tolist() if 0 <= int(i) < len(deployments)]


def _facts(
    data: Rows, target: str, deployments: list[tuple[Deployment, bool]]
) -> dict[str, list[Any]]:
    """Every fact's different values; of its clients and its data, what the runs themselves say."""
    own = _own(data, target, deployments)
    facts: dict[str, list[Any]] = {
        name: sorted({deployment.facts[name] for deployment, _ in own if name in deployment.facts})
        for name in NAMES
    }
    own_rows = data.where(data.factor("target") == target)
    for fact, factor in (("clients", "nodes"), ("storage_nodes", "storage_nodes")):
        if not facts.get(fact) and factor in own_rows.factors:
            levels = own_rows.factor(factor)
            numbers = np.unique(levels) if levels.dtype.kind in "if" else np.empty(0)
            facts[fact] = [value for value in numbers.tolist() if value == value]
    if own:
        facts["realised"] = sorted({"emulated" if made else "hardware" for _, made in own})
    facts["reads_from_server_memory"] = _fits(own_rows, facts["server_memory"])
    return facts


def _fits(own_rows: Rows, memory: list[int]) -> list[bool]:
    """Whether the bytes of a read fit into the servers' memory, over all read phases."""
    if not memory or not {"bytes", "phase"} <= own_rows.columns.keys():
        return []
    is_read = np.char.startswith(own_rows["phase"].astype(str), "read")
    moved = own_rows["bytes"][is_read].astype(np.float64)
    return sorted({bool(size <= max(memory)) for size in moved[moved > 0].tolist()})
