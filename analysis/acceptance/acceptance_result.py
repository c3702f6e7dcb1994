"""What a history found: campaigns in order, a line for each cell, steps between campaigns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fsmatrix.analysis.acceptance.acceptance import Lost
from fsmatrix.analysis.comparison.compared import KINDS
from fsmatrix.analysis.comparison.counted_rows import CAMPAIGN, Levels, Table
from fsmatrix.analysis.data import provenance
from fsmatrix.analysis.data.load import environments, rows
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.stats.testing.verdict import Verdict
from fsmatrix.analysis.units import Metric, Unit, brief, labelled, level_text
from fsmatrix.results.evidence.stored import Json, JsonObject

if TYPE_CHECKING:
    import pandas as pd


# What changed around the storage from one campaign to the next, by the campaigns' own records.


# parts of a description that are new with each attachment, or name one place of it
PASSING = frozenset({
    "free", "inodes_free", "fsid", "mount_point", "mount_source", "mount_command", "mkfs",
    "image_rewritten", "tested", "pgs", "kb_used", "stored", "max_avail", "fill", "usable_bytes",
    "path", "path_written", "image", "image_written",
})  # fmt: skip
FIRST = ("version", "kernel", "ceph", "engine", "configuration", "mount_options", "mpi")
LONG = 80  # characters of a value in a sentence

Facts = dict[str, set[str]]  # name of a fact -> its values in one campaign


@dataclass(frozen=True)
class Change:
    """One fact that two campaigns have no value in common of; "" where one has none."""

    name: str
    old: str
    new: str

    @property
    def says(self) -> str:
        """The old value and the new one."""
        old, new = (_short(text) or "nothing" for text in (self.old, self.new))
        return f"{self.name}: {old} → {new}"


def changes(old: Facts, new: Facts) -> tuple[Change, ...]:
    """Facts without a common value, those of versions and configurations first.

    A fact that has several values inside one campaign and shares one with the other did not change.
    """
    differing = [
        Change(name, _joined(old.get(name, ())), _joined(new.get(name, ())))
        for name in dict.fromkeys((*old, *new))
        if not old.get(name, set()) & new.get(name, set())
    ]
    return tuple(sorted(differing, key=lambda change: _rank(change.name)))


def facts_of(of: Table, names: Iterable[str]) -> dict[str, Facts]:
    """For each campaign what its environments, engines and constant factors say.

    Facts of a target carry its name, unless each campaign has one target.  Where a campaign
    describes nothing, its Facts hold only what the runs themselves tell.
    """
    data = rows(of.ds)
    campaign = of.ds[CAMPAIGN].values.astype(str)
    described = environments(of.ds)
    index = data.columns.get("environment_index", np.full(len(data), -1))
    engines = _engines(of.ds)
    of_campaigns: dict[str, Facts] = {}
    own = {
        name: [
            described[int(i)]
            for i in np.unique(index[campaign == name]).tolist()
            if 0 <= int(i) < len(described)
        ]
        for name in names
    }
    same_target = all(len({_target(e) for e in many} - {""}) < 2 for many in own.values())
    for name, many in own.items():
        in_campaign = campaign == name
        facts: Facts = {}
        for environment in many:
            _add(facts, environment, "target" if same_target else _target(environment))
        for engine in sorted(set(engines[in_campaign].tolist())):
            facts.setdefault("engine", set()).add(engine)
        of_campaigns[name] = facts
    for factor, levels in following(of).items():
        for name in of_campaigns:
            if name in levels:
                of_campaigns[name][factor] = {levels[name]}
    return of_campaigns


def following(of: Table) -> dict[str, dict[str, str]]:
    """Factors with one level in each campaign and several in all -> campaign -> that level."""
    levels_by_factor = {}
    for name, axis in of.factors.items():
        pairs = np.unique(np.stack([of.sides.codes, axis.codes]), axis=1)
        if np.unique(axis.codes).size > 1 and np.unique(pairs[0]).size == pairs.shape[1]:
            levels_by_factor[name] = {
                str(of.sides.levels[side]): level_text(name, axis.levels[code])
                for side, code in pairs.T.tolist()
            }
    return levels_by_factor


def _engines(ds: xr.Dataset) -> Any:
    data = rows(ds)
    parts = [data[n].astype(str) for n in ("engine", "engine_version") if n in data.columns]
    if not parts:
        return np.full(len(data), "")
    joined = parts[0] if len(parts) == 1 else np.char.add(np.char.add(parts[0], " "), parts[1])
    return np.char.strip(joined)


def _target(environment: JsonObject) -> str:
    """The name of the target that an environment is of; "target" without a name."""
    target = environment.get("target")
    return str(target.get("name") or "target") if isinstance(target, Mapping) else ""


def _add(facts: Facts, environment: JsonObject, named: str) -> None:
    """One description; its target's part as `named`."""
    rest = {key: value for key, value in environment.items() if key != "target"}
    target = environment.get("target")
    if isinstance(target, Mapping):
        rest[named] = {k: v for k, v in target.items() if k != "name"}
    machine = rest.pop("machine", None)
    rest = rest | dict(machine) if isinstance(machine, Mapping) else rest
    for name, value in provenance.flat(_names_of_counts(rest), ""):
        if name.rpartition(".")[2] not in PASSING:
            facts.setdefault(name, set()).add(value)


def _names_of_counts(value: Any) -> Any:
    """Counts by name ({"ceph version 16.2.15 ...": 2}) as the names: these are the fact."""
    if not isinstance(value, Mapping):
        return value
    if (
        value
        and all(isinstance(n, int) and not isinstance(n, bool) for n in value.values())
        and any(" " in str(key) for key in value)
    ):
        return ", ".join(sorted(map(str, value)))
    return {key: _names_of_counts(item) for key, item in value.items()}


def _joined(values: Iterable[str]) -> str:
    return "; ".join(sorted(values))


def _short(text: str) -> str:
    return text if len(text) <= LONG else f"{text[: LONG - 1]}…"


def _rank(name: str) -> tuple[int, str]:
    place = next((i for i, word in enumerate(FIRST) if word in name), len(FIRST))
    return place, name


DECIDED = ("faster", "slower")
NAMED = 3  # cells that a sentence names
MOST_CHANGES = 6  # facts that a sentence names


@dataclass(frozen=True)
class Campaign:
    """One campaign: start of its first and of its last run (None: not known), runs left out."""

    name: str
    began: datetime | None
    ended: datetime | None
    failed: int
    invalid: int

    @property
    def date(self) -> str:
        """The day of its first run; "" if it is not known."""
        return self.began.strftime("%Y-%m-%d") if self.began else ""


@dataclass(frozen=True)
class CampaignStep:
    """One cell of two campaigns (numbers in `History.campaigns`): new over old."""

    against: str  # previous: the campaign before that has the cell; or first
    old: int
    new: int
    verdict: Verdict

    @property
    def decided(self) -> bool:
        """Whether the median changed."""
        return self.verdict.kind in DECIDED


@dataclass(frozen=True)
class NotCompared:
    """A line's campaigns that have no ratio, and why."""

    line: int
    old: int
    new: int
    why: str


@dataclass(frozen=True)
class CellHistory:
    """One cell over all campaigns; a point without runs is of kind `none`."""

    levels: Levels
    named: str
    points: tuple[Median, ...]
    steps: tuple[CampaignStep, ...]

    def step(self, against: str, new: int) -> CampaignStep | None:
        """The step to a campaign."""
        return next((s for s in self.steps if s.against == against and s.new == new), None)


@dataclass(frozen=True)
class History(Drawn):
    """Cells over campaigns; `changes[i]`: what changed from campaign i to i + 1."""

    metric: Metric
    unit: Unit
    by: str
    tolerance: float
    alpha: float
    correction: Correction
    families: Mapping[str, int]  # tests that p is corrected over
    campaigns: tuple[Campaign, ...]
    varying: tuple[str, ...]
    lines: tuple[CellHistory, ...]
    changes: tuple[tuple[Change, ...], ...]
    lost: tuple[Lost, ...]
    apart: tuple[NotCompared, ...]
    remarks: tuple[str, ...]

    @property
    def says(self) -> list[str]:
        """The newest campaign against the first, then every step with what changed there."""
        first, last = self.campaigns[0], self.campaigns[-1]
        head = (
            f"{len(self.campaigns)} campaigns, {len(self.lines)} cells, "
            f"{self.metric.title.lower()}; {last.name} against {first.name}: "
        )
        sentences = [head + self._counted(self._whole()) + "."]
        for new in range(1, len(self.campaigns)):
            sentences += self._step(new)
        reasons = Counter(step.why for step in self.apart)
        sentences += [f"Not compared: {why}, {n} times." for why, n in reasons.items()]
        first_ones = self.families["first"]
        sentences.append(
            f"p is corrected ({self.correction}) over the {self.families['previous']} comparisons "
            "with the previous campaign"
            + (f", and over the {first_ones} with the first one." if first_ones else ".")
        )
        return sentences + list(self.remarks)

    def _whole(self) -> list[CampaignStep]:
        """From the first campaign to the last."""
        last = len(self.campaigns) - 1
        steps = [line.step("first", last) or line.step("previous", last) for line in self.lines]
        return [step for step in steps if step is not None and step.old == 0]

    def _counted(self, steps: Sequence[CampaignStep]) -> str:
        if not steps:
            return "no cell is in both"
        counts = Counter[str](step.verdict.kind for step in steps)
        return "; ".join(
            f"{self._verdict(kind)} in {counts[kind]} of {len(steps)}"
            for kind in KINDS
            if counts[kind]
        )

    def _verdict(self, kind: str) -> str:
        """A kind of verdict for readers."""
        return KINDS[kind].format(x=f"{100 * self.tolerance:.3g} %")

    def _step(self, new: int) -> list[str]:
        """The sentences about one campaign and the one before it."""
        name, old = self.campaigns[new].name, self.campaigns[new - 1].name
        own = [(line, step) for line in self.lines if (step := line.step("previous", new))]
        sentences = [f"{name} after {old}: {self._counted([step for _, step in own])}."]
        for kind in DECIDED:
            cells = [(line, step) for line, step in own if step.verdict.kind == kind]
            shown = [
                f"{line.named or 'the only cell'} ({brief(step.verdict.interval.ratio)})"
                for line, step in cells[:NAMED]
            ]
            more = f" and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
            sentences += [f"  {kind}, ratio: {'; '.join(shown)}{more}."] if cells else []
        drifted = [
            line.named or "the only cell"
            for line in self.lines
            if (step := line.step("first", new))
            and step.decided
            and (last := line.step("previous", new)) is not None
            and not last.decided
        ]
        if drifted:
            sentences.append(
                f"  No step here, but a median that differs from that of the first campaign: "
                f"{'; '.join(drifted[:NAMED])}"
                f"{' and others' * (len(drifted) > NAMED)}."
            )
        sentences += [
            f"  Lost: {lost_cell.says}." for lost_cell in self.lost if lost_cell.side == name
        ][:NAMED]
        changes = self.changes[new - 1]
        shown_changes = "; ".join(change.says for change in changes[:MOST_CHANGES])
        more = f"; and {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
        if changes:
            sentences.append(f"  Changed beside it: {shown_changes}{more}.")
        elif any(step.decided for _, step in own):
            sentences.append("  None of the recorded facts about the campaigns changed there.")
        return sentences

    def table(self) -> pd.DataFrame:
        """One row per cell and campaign; medians in `unit`, ratios new / old."""
        import pandas as pd

        rows = []
        for line in self.lines:
            for number, (campaign, point) in enumerate(
                zip(self.campaigns, line.points, strict=True)
            ):
                if point.kind != "none":
                    rows.append(self._row(line, number, campaign, point))
        frame = pd.DataFrame(rows)
        frame.attrs |= {"metric": self.metric.name, "unit": self.unit.label}
        return frame

    def _row(
        self, line: CellHistory, number: int, campaign: Campaign, point: Median
    ) -> dict[str, Json]:
        label = self.unit.label
        row: dict[str, Json] = {name: line.levels.get(name, "") for name in self.varying}
        row |= {"campaign": campaign.name, "began": campaign.date}
        row |= {
            f"{name}, {label}": getattr(point, name) / self.unit.divisor
            for name in ("median", "low", "high")
        }
        row |= {"kind": point.kind, "attachments": point.independent, "runs": point.runs}
        for against in ("previous", "first"):
            step = line.step(against, number)
            interval = step.verdict.interval if step else None
            row |= {
                f"over {against}": interval.ratio if interval else float("nan"),
                f"over {against} low": interval.low if interval else float("nan"),
                f"over {against} high": interval.high if interval else float("nan"),
                f"p, over {against}": step.verdict.p if step else float("nan"),
                f"against {against}": self._verdict(step.verdict.kind) if step else "",
            }
        return row

    def to_dict(self) -> dict[str, Json]:
        """SI units, times in ISO 8601."""
        campaigns = [
            {
                "name": c.name,
                "began": c.began.isoformat() if c.began else None,
                "ended": c.ended.isoformat() if c.ended else None,
                "failed": c.failed,
                "invalid": c.invalid,
            }
            for c in self.campaigns
        ]
        data: dict[str, Json] = plain(
            {
                "metric": self.metric.name,
                "by": self.by,
                "tolerance": self.tolerance,
                "alpha": self.alpha,
                "correction": self.correction,
                "families": self.families,
                "campaigns": campaigns,
                "says": self.says,
                "changes": self.changes,
                "lines": [
                    {
                        "levels": line.levels,
                        "named": line.named,
                        "points": line.points,
                        "steps": [
                            {
                                "against": s.against,
                                "old": self.campaigns[s.old].name,
                                "new": self.campaigns[s.new].name,
                                "verdict": s.verdict.to_dict(),
                            }
                            for s in line.steps
                        ],
                    }
                    for line in self.lines
                ],
                "lost": self.lost,
                "not_compared": self.apart,
                "remarks": self.remarks,
            }
        )
        return data

    def panel_of(self, line: CellHistory) -> str:
        """The panel of a line: its cell without `by`."""
        return ", ".join(
            labelled(n, line.levels[n])
            for n in self.varying
            if n != self.by and line.levels.get(n, "") != ""
        )

    def series_of(self, line: CellHistory) -> str:
        """What a line is in its panel."""
        if self.by not in line.levels:
            return "every level"  # one in each campaign
        return level_text(self.by, line.levels[self.by])
