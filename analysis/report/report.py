"""The report of a campaign: one HTML file that needs nothing else and opens offline.

Campaigns are not trusted: templates escape everything, figures are embedded as JSON that
cannot end its element, and the page's own policy forbids it to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import xarray as xr
from markupsafe import Markup

import fsmatrix
from fsmatrix.analysis.data import load, provenance
from fsmatrix.analysis.data.summary import Summary, summarise
from fsmatrix.analysis.draw import page
from fsmatrix.analysis.draw.charts import Chart, charts, colours
from fsmatrix.analysis.draw.layout import groups
from fsmatrix.analysis.draw.panels import WIDTH
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.lessons.result import Lessons
from fsmatrix.analysis.questions.fairness import Fairness, fairness
from fsmatrix.analysis.questions.findings import finding_groups
from fsmatrix.analysis.questions.replays import replays
from fsmatrix.analysis.report import failures, pivot, sections, started
from fsmatrix.analysis.report.first import first_screen
from fsmatrix.analysis.steps import step
from fsmatrix.analysis.studies.claims import files as claims_files
from fsmatrix.analysis.studies.claims.study import StudyFile
from fsmatrix.analysis.units import METRICS, OPERATION_RATES, short_title
from fsmatrix.results.audits.tally import named
from fsmatrix.results.evidence.values import Json

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
    failed = failures.failed_runs(data, summary)
    plan = load.campaign_json(ds)
    columns, metrics, cells = pivot.cell_table(summary)
    lessons = _lessons(ds)
    step("report: tables and charts")
    judged = {study.study: study for study in (*_own_studies(_title(plan)), *studies)}
    return {
        "title": _title(plan),
        "description": _text(provenance.plan_value(plan, "description")),
        "summary": summary,
        "counts": failures.counts(ds, data),
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
            ds, summary, None if isinstance(lessons, str) else lessons, list(judged.values())
        ),
        "width": WIDTH,
        "version": fsmatrix.__version__,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "collected": _text(ds.attrs.get("created")),
        "campaign_id": _text(provenance.plan_value(plan, "fingerprint")),
        "campaign_text": _source(plan),
        "command_lines": started.command_lines(data, place),
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
