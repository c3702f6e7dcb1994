"""What a history found: campaigns in order, a line for each cell, steps between campaigns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fsmatrix.analysis.acceptance.changes import Change
from fsmatrix.analysis.acceptance.lost import Lost
from fsmatrix.analysis.comparison.compared import KINDS
from fsmatrix.analysis.comparison.rows import Levels
from fsmatrix.analysis.result import Drawn, plain
from fsmatrix.analysis.stats.estimates.medians import Median
from fsmatrix.analysis.stats.testing.tests import Correction
from fsmatrix.analysis.stats.testing.verdict import Verdict
from fsmatrix.analysis.units import Metric, Unit, brief, labelled, level_text
from fsmatrix.results.evidence.values import Json

if TYPE_CHECKING:
    import pandas as pd

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
