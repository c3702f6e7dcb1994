"""The report of a campaign: one HTML file that needs nothing else and opens offline.

Campaigns are not trusted: templates escape everything, figures are embedded as JSON that
cannot end its element, and the page's own policy forbids it to load anything.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from markupsafe import Markup, escape

import fsmatrix
from fsmatrix.analysis import units
from fsmatrix.analysis.data import load, provenance
from fsmatrix.analysis.data.cells import Values
from fsmatrix.analysis.data.cluster import ONE_MACHINE
from fsmatrix.analysis.data.columns import Codes, coded, plain
from fsmatrix.analysis.data.load import Rows, campaign_json, runs_of
from fsmatrix.analysis.data.summary import Summary, made_once, summarise
from fsmatrix.analysis.draw import page
from fsmatrix.analysis.draw.charts import Chart, charts, colours
from fsmatrix.analysis.draw.panels import WIDTH, groups
from fsmatrix.analysis.lessons.first_screen import Extremes, Sentences, extremes, sentences
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.lessons.lessons_result import Lessons
from fsmatrix.analysis.lessons.standings import Pair, Places, Standing, places, standings
from fsmatrix.analysis.questions.fairness import Fairness, fairness
from fsmatrix.analysis.questions.findings import finding_groups
from fsmatrix.analysis.questions.replays import replays
from fsmatrix.analysis.report import matrix, pivot, sections
from fsmatrix.analysis.report.matrix import OTHER, Box
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.words import lead
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.studies.claims import claims_file as claims_files
from fsmatrix.analysis.studies.claims.claims_file import StudyFile
from fsmatrix.analysis.units import METRICS, OPERATION_RATES, Unit, brief, described, short_title
from fsmatrix.results.audits.audit import Tally, named
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.files.safefile import ResultError
from fsmatrix.results.files.store import Store

# What a cell of the first screen stands on: its values as dots, the ratios, the doubts.


WIDE, ROW, TOP, LABEL = 360, 24, 6, 96  # of the drawing, in its own units
MOST_LETTERS = 15  # of a target's name beside its dots
MOST_PAIRS = 12  # those of the best targets
STEEP = 8.0  # largest over smallest value, from which the axis is logarithmic


@dataclass(frozen=True)
class Evidence:
    """One cell, opened."""

    number: int
    title: str
    drawing: Markup  # inline SVG
    pairs: tuple[str, ...]
    doubts: tuple[str, ...]
    lost: tuple[str, ...]


def evidence_section(box: Box, cell: Standing, colours: Mapping[str, str]) -> Evidence:
    """The evidence of a cell; `colours` of the targets."""
    return Evidence(
        number=box.number,
        title=box.says,
        drawing=_drawing(cell, colours),
        pairs=_pairs(cell),
        doubts=cell.doubts,
        lost=tuple(f"{name}: {why}" for name, why in cell.lost),
    )


def _pairs(cell: Standing) -> tuple[str, ...]:
    sentences = [pair_says(oriented) for oriented in _oriented(cell)]
    more = len(sentences) - MOST_PAIRS
    return (
        *sentences[:MOST_PAIRS],
        *([f"{more} more pairs: fsmatrix compare"] if more > 0 else []),
    )


def _oriented(cell: Standing) -> Iterator[tuple[Pair, str]]:
    """Each pair, seen from the target that is ahead; those with the best medians first."""
    place = {values.cell.target: i for i, values in enumerate(cell.values)}
    for pair in sorted(cell.pairs, key=lambda p: sorted((place[p.a], place[p.b]))):
        yield pair, pair.ahead or max((pair.a, pair.b), key=pair.over)


def pair_says(seen: tuple[Pair, str]) -> str:
    """ "xfs is 25 times as fast as btrfs (95 % sure: 20 to 31), in all 6 blocks: proven"."""
    pair, first = seen
    ratio, interval = pair.over(first), pair.cell.ratio
    sentence = f"{first} is {lead(ratio, True, pair.other(first))}"
    low, high = pair.span(first)
    if interval.kind == "interval":
        sentence += f" (95 % sure: {brief(low)} to {brief(high)} times)"
    wins, blocks = pair.blocks(first)
    if blocks > 1:
        sentence += f", ahead in {'all ' if wins == blocks else f'{wins} of '}{blocks} blocks"
    if pair.state is Certainty.EQUAL:
        return f"{sentence}: no difference larger than {100 * pair.cell.verdict.x:.3g} %"
    if pair.state is Certainty.UNDECIDED and interval.kind != "interval":
        return f"{sentence}: too few blocks to tell"
    return f"{sentence}: {'may be chance' if pair.state is Certainty.UNDECIDED else pair.state}"


def _drawing(cell: Standing, colours: Mapping[str, str]) -> Markup:
    """A row of dots for each target, its median and its interval, on one axis."""
    every = [float(v) for values in cell.values for v in values.values]
    if not every:
        return Markup("")
    unit = units.fitting(cell.metric.quantity, [value.median.median for value in cell.values])
    scale = _Scale.of(every)
    height = TOP + ROW * len(cell.values) + 20
    parts = [_row(i, values, scale, unit, colours) for i, values in enumerate(cell.values)]
    parts.append(_axis(scale, unit, TOP + ROW * len(cell.values)))
    words = "; ".join(
        f"{values.cell.target} {', '.join(units.text(v, unit) for v in values.values)}"
        for values in cell.values
    )
    return Markup(
        '<svg class="dots" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{parts}</svg>'
    ).format(
        w=WIDE,
        h=height,
        label=f"{cell.metric.title} in {unit.label}: {words}",
        parts=Markup("").join(parts),
    )


@dataclass(frozen=True)
class _Scale:
    """From values to places."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, values: Sequence[float]) -> _Scale:
        low, high = min(values), max(values)
        logarithmic = low > 0 and high / low > STEEP
        return cls(low if logarithmic else min(low, 0.0), high, logarithmic)

    def x(self, value: float) -> float:
        """Place of a value, within the drawing."""
        room = WIDE - LABEL - 12
        if self.high <= self.low:
            return LABEL + room / 2
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return round(LABEL + 4 + (room - 8) * (at - low) / (high - low), 1)


def _row(place: int, cell: Values, scale: _Scale, unit: Unit, colours: Mapping[str, str]) -> Markup:
    y = TOP + ROW * place + ROW / 2
    name = cell.cell.target
    colour = colours.get(name, OTHER)
    short = name if len(name) <= MOST_LETTERS else name[: MOST_LETTERS - 1] + "…"
    shapes = [Markup('<text x="0" y="{y}">{name}</text>').format(y=y + 4, name=short)]
    median = cell.median
    if math.isfinite(median.low) and math.isfinite(median.high):
        shapes.append(
            Markup('<line x1="{a}" x2="{b}" y1="{y}" y2="{y}" class="span" stroke="{c}"/>').format(
                a=scale.x(median.low), b=scale.x(median.high), y=y, c=colour
            )
        )
    for block, value in zip(cell.blocks, cell.values, strict=True):
        words = f"block {block}: {units.text(float(value), unit)} {unit.label}"
        shapes.append(
            Markup(
                '<circle cx="{x}" cy="{y}" r="3.2" fill="{c}"><title>{t}</title></circle>'
            ).format(x=scale.x(float(value)), y=y, c=colour, t=words)
        )
    shapes.append(
        Markup('<line x1="{x}" x2="{x}" y1="{a}" y2="{b}" class="middle"/>').format(
            x=scale.x(median.median), a=y - 8, b=y + 8
        )
    )
    return Markup("").join(shapes)


def _axis(scale: _Scale, unit: Unit, y: float) -> Markup:
    first, last = units.text(scale.low, unit), units.text(scale.high, unit)
    how = ", log scale" if scale.logarithmic else ""
    return Markup(
        '<line x1="{a}" x2="{b}" y1="{y}" y2="{y}" class="axis"/>'
        '<text x="{a}" y="{t}" class="tick">{first}</text>'
        '<text x="{m}" y="{t}" class="tick" text-anchor="middle">{unit}</text>'
        '<text x="{b}" y="{t}" class="tick" text-anchor="end">{last}</text>'
    ).format(
        a=LABEL,
        b=WIDE - 8,
        m=(LABEL + WIDE - 8) / 2,
        y=y,
        t=y + 14,
        first=first,
        last=last,
        unit=escape(unit.label + how),
    )


# What became of a campaign's runs, and its failed runs, as a report lists them.


@dataclass(frozen=True)
class FailedRuns:
    """Runs of one case that failed for one reason."""

    target: str
    what: str  # levels of the factors that vary
    status: str
    error: str
    run_ids: tuple[str, ...]
    blocks: tuple[int, ...]
    repeated: int  # how many of them have a later attempt


def counts(ds: xr.Dataset, data: Rows) -> Tally:
    """Newest attempts by outcome."""
    run, current = runs_of(data), data.current
    ok, worst = current & ~data.failed, data["worst_finding"]
    every, good, timeout = (
        np.unique(run[keep]) for keep in (current, ok, current & (data["status"] == "timeout"))
    )
    invalid = np.unique(run[ok & data.invalid])
    doubtful = np.setdiff1d(run[ok & (worst == "warning")], invalid)
    return Tally(
        valid=good.size - invalid.size,
        doubtful=doubtful.size,
        invalid=invalid.size,
        failed=every.size - good.size,
        timeout=timeout.size,
        doubtful_by=_audits(ds, run, doubtful, "warning"),
        invalid_by=_audits(ds, run, invalid, "invalid"),
    )


def _audits(ds: xr.Dataset, run: Codes, runs: Codes, severity: str) -> dict[str, int]:
    """Audits with findings so grave -> in how many of these runs; `run`: of each row."""
    if "finding_run" not in ds:
        return {}
    names, audit = coded(ds["finding_audit"].values)
    run = run[ds["finding_run"].values]
    grave = np.isin(run, runs) & (plain(ds["finding_severity"].values) == severity)
    pairs = np.unique(np.stack([run[grave], audit[grave]]), axis=1)
    number = np.bincount(pairs[1], minlength=len(names))
    return {str(name): int(count) for name, count in zip(names, number, strict=True) if count}


def failed_runs(data: Rows, summary: Summary) -> list[FailedRuns]:
    """Runs that failed or timed out, all attempts, by case and reason."""
    rows = np.flatnonzero(data.failed)
    _, first = np.unique(data["run_id"][rows], return_index=True)
    names = [n for n in summary.varying if n not in ("target", "engine", "phase")]
    cases: dict[tuple[str, str, str, str], list[int]] = {}
    for row in rows[first].tolist():
        what = described({name: data.factor(name)[[row]].tolist()[0] for name in names}, names)
        error = str(data["error"][row])
        key = (str(data.factor("target")[row]), what, str(data["status"][row]), error)
        cases.setdefault(key, []).append(row)
    return [
        FailedRuns(
            *key,
            run_ids=tuple(str(data["run_id"][row]) for row in members),
            blocks=tuple(sorted({int(data["block"][row]) for row in members})),
            repeated=sum(not data["last_attempt"][row] for row in members),
        )
        for key, members in sorted(cases.items())
    ]


# The first screen of the report: the matrix, three sentences, a line for each target.


@dataclass(frozen=True)
class First:
    """What the template shows first; `picture` and `places` are not both there."""

    answer: str  # the lessons' own, where there is no matrix
    picture: matrix.Picture | None = None
    evidence: tuple[Evidence, ...] = ()
    sentences: Sentences | None = None
    targets: tuple[Extremes, ...] = ()
    values: str = matrix.VALUES
    legend: tuple[tuple[str, str, str], ...] = ()  # state, mark, meaning
    places: Places | None = None


def first_screen(
    ds: xr.Dataset, summary: Summary, lessons: Lessons | str, colours: Mapping[str, str], place: str
) -> First:
    """From lessons, or the sentence why there are none; `place`: the results directory."""
    if summary.cluster.one_machine:
        return First(f"{ONE_MACHINE}.")
    if isinstance(lessons, str):
        return First(lessons)
    if summary.many_targets:
        return First(lessons.answer, places=places(lessons.study))
    if not lessons.compared:
        return First(lessons.answer)
    where = standings(summary, lessons.compared)
    drawn = matrix.picture(where, colours)
    return First(
        lessons.answer,
        picture=drawn,
        evidence=tuple(evidence_section(box, cell, colours) for box, cell in drawn.cells),
        sentences=sentences(where, campaign_json(ds), place),
        targets=tuple(extremes(where)) if len(where.targets) > 2 else (),
        legend=tuple((state, state.mark, state.meaning) for state in drawn.states),
    )


# How a campaign's engines were started: the command lines of one run of each case.


MOST_CASES = 100
OWN = "player"  # how the names of engines begin that are no program


def command_lines(data: Rows, place: str) -> list[str]:
    """Lines of text; none without the results directory `place`, or without other programs."""
    runs: dict[str, str] = {}  # case id -> a run of it
    for run, engine in zip(data["run_id"].tolist(), data["engine"].tolist(), strict=True):
        if not engine.startswith(OWN):
            runs.setdefault(run.rpartition("-r")[0], run)
    if not runs or not place:
        return []
    try:
        store = Store.open(place)
        records = [store.read(run) for run in list(runs.values())[:MOST_CASES]]
    except (ResultError, KeyError, OSError):  # the runs were moved, or one is damaged
        return []
    lines = []
    for record in filter(lambda one: one.argv, records):
        lines += [f"# {record.coordinates.get('target', '')}, run {record.run_id}"]
        lines += [shlex.join(argv) for argv in record.argv]
    more = len(runs) - MOST_CASES
    return [*lines, f"# and {more} more cases: show --run ID"] if more > 0 else lines


MOST_FAILED = 100  # cases in the table; more are counted
TEMPLATE = "report.html.j2"
RATES = (METRICS["bandwidth"], METRICS["iops"], *OPERATION_RATES.values())
ORDER = (*RATES, *(metric for metric in METRICS.values() if metric not in RATES))


def write_report(
    source: xr.Dataset | load.Paths,
    out_path: str | Path,
    include_reference: bool = False,
    studies: Sequence[StudyFile] = (),
    place: str = "",
) -> Path:
    """Write the report of a campaign (a Dataset, or campaign files) to `out_path`.

    `place`: its results directory, for the commands that the report advises.

    `studies`: their claims are judged too, beside those of a study that the campaign is named
    after (ssd-cluster-emulated after ssd-cluster).
    Written aside and renamed.  schema.ResultError for files that are no campaign; OSError
    as the system gives it.
    """
    ds = source if isinstance(source, xr.Dataset) else load.open_campaign(source)
    return page.write(render(ds, include_reference, studies, place), Path(out_path))


def render(
    ds: xr.Dataset,
    include_reference: bool = False,
    studies: Sequence[StudyFile] = (),
    place: str = "",
) -> str:
    """The report as text."""
    return page.rendered(TEMPLATE, **context(ds, include_reference, studies, place))


@made_once
def context(
    ds: xr.Dataset,
    include_reference: bool = False,
    studies: Sequence[StudyFile] = (),
    place: str = "",
) -> dict[str, object]:
    """What the template shows."""
    step("report: medians of every cell")
    data = load.rows(ds)
    summary = summarise(ds, include=["reference"] if include_reference else [])
    failed = failed_runs(data, summary)
    plan = load.campaign_json(ds)
    columns, metrics, cells = pivot.cell_table(summary)
    lessons = _lessons(ds)
    step("report: tables and charts")
    judged = {study.study: study for study in (*_own_studies(_title(plan)), *studies)}
    return {
        "title": _title(plan),
        "description": _text(provenance.plan_value(plan, "description")),
        "summary": summary,
        "counts": counts(ds, data),
        "named": named,
        "failed": failed[:MOST_FAILED],
        "failed_unlisted": sum(len(group.run_ids) for group in failed[MOST_FAILED:]),
        "left_out": load.left_out(ds),
        "absent": provenance.absent(plan),
        "findings": finding_groups(ds, data),
        "compared": _compared(summary),
        "replays": replays(ds),
        "fairness": _fairness(ds, summary),
        "measured": provenance.measured(ds, data, summary),
        "targets": provenance.targets(ds, data, summary),
        "colours": colours(summary),
        "pivots": pivot.pivots(summary),
        "cell_columns": columns,
        "cell_metrics": metrics,
        "cell_rows": cells,
        "kinds": {m.kind for cell in summary.cells for m in cell.metrics.values()},
        "sections": _sections(charts(summary)),
        "first": first_screen(ds, summary, lessons, colours(summary), place),
        "analyses": sections.sections(
            ds,
            summary,
            None if isinstance(lessons, str) else lessons,
            list(judged.values()),
            place,
        ),
        "width": WIDTH,
        "version": fsmatrix.__version__,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "collected": _text(ds.attrs.get("created")),
        "campaign_id": _text(provenance.plan_value(plan, "fingerprint")),
        "campaign_text": _source(plan),
        "command_lines": command_lines(data, place),
        "plotly": _plotly,
    }


def _fairness(ds: xr.Dataset, summary: Summary) -> Fairness | None:
    """Facts of the targets side by side; None where nothing is stored, or nothing compared."""
    compared = [name for name in summary.targets if name not in summary.references]
    if len(compared) < 2 or summary.many_targets:
        return None
    result = fairness(ds, summary=summary)
    return result if result.stored else None


def _lessons(ds: xr.Dataset) -> Lessons | str:
    """The lessons, or why there are none."""
    if ds.sizes["run"] > sections.MOST_RUNS:
        return "No answer on this page: so many runs are for `fsmatrix lessons`."
    try:
        return lessons(ds)
    except ValueError as error:
        return f"No answer: {error}."


def _own_studies(title: str) -> list[StudyFile]:
    """Studies whose name the campaign's name is, or begins with."""
    return [
        claims_files.load(name)
        for name in claims_files.names()
        if title == name or title.startswith(f"{name}-")
    ]


def embedded(value: Any) -> Markup:
    """JSON that is safe inside <script>: no character in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # every character that HTML gives a meaning is escaped


def _plotly() -> Markup:
    """plotly.js, to be inlined once."""
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())  # the library's own file, no text of a campaign


def _sections(charts: list[Chart]) -> list[dict[str, object]]:
    """Charts by metric; rates of transactions and of events apart."""
    return [
        {
            "id": metric.quantity if metric in OPERATION_RATES.values() else metric.name,
            "metric": metric,
            "short": short_title(metric),
            "charts": [
                {
                    "conditions": chart.conditions,
                    "remarks": chart.remarks,
                    "height": chart.layout["height"],
                    "json": embedded({"data": chart.data, "layout": chart.layout}),
                }
                for chart in charts
                if chart.title == metric.title
            ],
        }
        for metric in ORDER
        if any(chart.title == metric.title for chart in charts)
    ]


def _title(plan: dict[str, Json]) -> str:
    name = provenance.plan_value(plan, "campaign") or provenance.plan_value(plan, "name")
    return name if isinstance(name, str) and name else "campaign"


def _source(plan: dict[str, Json]) -> str:
    """The campaign as its author wrote it, if campaign.json holds it."""
    source = plan.get("source")
    return _text(source.get("text")) if isinstance(source, dict) else ""


def _compared(summary: Summary) -> str:
    grouped = groups(summary)
    used = {name for group in grouped for name in group.layout.factors}
    used |= {name for group in grouped for name, _ in group.conditions}
    names = [summary.cluster.title(name) for name in summary.varying if name in used]
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _text(value: Any) -> str:
    return "" if value is None else str(value)
