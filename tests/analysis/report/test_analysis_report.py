"""Charts and the report: what is in them, hostile text, and a look by a real browser."""

from __future__ import annotations

import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.analysis.data import load, summary
from fsmatrix.analysis.draw import charts, panels
from fsmatrix.analysis.report import pivot, report
from fsmatrix.results.record import Finding, RunRecord
from tests.analysis import campaigns
from tests.waiting import PATIENCE

HOSTILE = (
    '</script><script>window.stolen=1</script><img src=x onerror="window.stolen=2">&amp;{{7*7}}'
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def realistic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign file: 3 targets and a reference, 6 blocks, failed runs, findings."""
    records = list(campaigns.realistic())
    records += campaigns.realistic(("memory",), troubles=False)
    plan = {"campaign": "quickstart", "seed": 4711, "order": {"block": 1, "attachments": 5}}
    return campaigns.write(tmp_path_factory.mktemp("realistic") / "campaign.h5", records, plan)


@pytest.fixture(scope="module")
def page(realistic: Path) -> Path:
    """Its report."""
    return report.write_report(realistic, realistic.with_name("report.html"))


def test_runs_that_tell_nothing_of_their_deployment_have_no_section_of_it(page: Path) -> None:
    assert "fairly" not in page.read_text()


def test_the_tiles_say_what_became_of_the_runs_and_by_which_audit(page: Path) -> None:
    (tiles,) = re.findall(r'id="headline">(.*?)</ul>', page.read_text(), re.DOTALL)
    assert re.findall(r"<b>(\d+)</b><span>(.*?)</span>", tiles)[1:] == [
        ("384", "runs, with references"),
        ("369", "valid"),
        ("12", "of them doubtful: client-cpu-saturated"),
        ("8", "invalid: read-served-by-cache"),
        ("7", "failed, 1 by time-out"),
    ]


def made(path: Path, **options: Any) -> list[charts.Chart]:
    return charts.charts(summary.summarise(load.open_campaign(path), **options))


def few(
    folder: Path,
    targets: tuple[str, ...] = ("a", "b"),
    levels: list[dict[str, Any]] | None = None,
    **others: Any,
) -> Path:
    """A small campaign: 2 blocks of each target and combination of levels."""
    rng = np.random.default_rng(3)
    records: list[RunRecord] = []
    for target in targets:
        for block in range(2):
            for coordinates in levels or [{"pattern": "seq-read", "chunk": 4096}]:
                chunk = coordinates.get("chunk", 4096)
                done = campaigns.phase("read", 2e4 * chunk, chunk, 1, rng)
                values = {"coordinates": coordinates, "phases": (done,), "block": block}
                records.append(campaigns.record(target, **(values | others)))
    return campaigns.write(folder / "campaign.h5", records)


def bars(chart: charts.Chart) -> dict[str, list[Any]]:
    """Values by target, over all panels."""
    found: dict[str, list[Any]] = {}
    for trace in chart.data:
        found.setdefault(trace["legendgroup"], []).extend(trace["y"])
    return found


def test_one_chart_per_metric_with_every_cell(realistic: Path) -> None:
    pictures = made(realistic)
    assert [c.metric for c in pictures] == list(dict.fromkeys(c.metric for c in pictures))
    assert {c.metric for c in pictures} == set(charts.METRICS)
    drawn = bars(pictures[0])
    assert {name: len([v for v in ys if v is not None]) for name, ys in drawn.items()} == {
        "xfs": 16,
        "ext4": 16,
        "btrfs": 15,
    }


def test_a_steep_factor_leaves_the_x_axis(realistic: Path) -> None:
    """4 KiB and 1 MiB differ so much that bars side by side on one axis would vanish."""
    (group,) = panels.groups(summary.summarise(load.open_campaign(realistic)))
    assert group.layout.columns == ("pattern",)
    assert group.layout.x == "processes_per_node"
    assert group.layout.rows == ("chunk",)
    assert not group.layout.logarithmic


def test_a_gentle_chunk_size_is_on_the_x_axis(tmp_path: Path) -> None:
    levels = [
        {"pattern": p, "chunk": c, "processes_per_node": n}
        for p in ("seq-read", "rand-read")
        for c in (4096, 8192)
        for n in (1, 2)
    ]
    (group,) = panels.groups(summary.summarise(load.open_campaign(few(tmp_path, levels=levels))))
    assert group.layout == panels.Layout(("pattern",), ("processes_per_node",), "chunk", False)


def test_many_steep_levels_get_a_logarithmic_axis(tmp_path: Path) -> None:
    levels = [{"chunk": 4096 << i} for i in range(8)]
    path = few(tmp_path, levels=levels)
    first = made(path)[0]
    assert first.layout["yaxis"]["type"] == "log"
    assert "log scale" in first.layout["yaxis"]["title"]["text"]


@pytest.mark.parametrize("name", ["cache", "device_state"])
def test_states_are_never_in_one_chart(tmp_path: Path, name: str) -> None:
    levels = [{name: "cold"}, {name: "warm"}]
    pictures = [c for c in made(few(tmp_path, levels=levels)) if c.metric == "bandwidth"]
    assert len(pictures) == 2
    assert {c.conditions for c in pictures} == {
        f"{name.replace('_', ' ')} cold",
        f"{name.replace('_', ' ')} warm",
    }


def test_direct_and_buffered_are_never_in_one_chart(tmp_path: Path) -> None:
    """Nor with what has no such option; a replay that is widened counts other bytes."""
    levels = [{"phase": "stat"}, *({"direct": d, "phase": "replay"} for d in (False, True))]
    path = few(tmp_path, levels=[{**level, "threads": t} for level in levels for t in (1, 2)])
    pictures = [c for c in made(path) if c.metric == "bandwidth"]
    assert {c.conditions for c in pictures} == {"", "direct false", "direct true"}
    bandwidth = next(p for p in pivot.pivots(summary.summarise(load.open_campaign(path))))
    assert {part.conditions for part in bandwidth.parts} == {"", "direct false", "direct true"}


def test_many_panels_go_to_several_charts(tmp_path: Path) -> None:
    levels = [{"pattern": f"p{i}", "depth": d} for i in range(9) for d in range(8)]
    levels = [{**level, "threads": t} for level in levels for t in (1, 2)]
    pictures = [c for c in made(few(tmp_path, ("a",), levels)) if c.metric == "iops"]
    assert sum(len(bars(c)["a"]) for c in pictures) == 9 * 8 * 2
    assert max(c.layout["height"] for c in pictures) < 900


def test_whiskers_hover_and_marks(realistic: Path) -> None:
    chart = made(realistic)[0]
    for trace in chart.data:
        for y, up, down in zip(
            trace["y"], trace["error_y"]["array"], trace["error_y"]["arrayminus"], strict=True
        ):
            assert y is None or (up >= 0 and 0 <= down <= y)
    hovers = [text for trace in chart.data for text in trace["hovertext"]]
    assert any("coverage 95 %" in text and "6 runs in 6 attachments" in text for text in hovers)
    assert any("coverage 93.75 %, no verdict" in text for text in hovers)
    shapes = {s for trace in chart.data for s in trace["marker"]["pattern"]["shape"]}
    assert shapes == {"", "/", "x"}
    assert "MiB/s" in chart.layout["yaxis"]["title"]["text"]


def test_missing_percentiles_are_said_and_not_zero(realistic: Path) -> None:
    chart = next(c for c in made(realistic) if c.metric == "latency_p99")
    assert 0 not in [value for ys in bars(chart).values() for value in ys]
    notes = [a["text"] for a in chart.layout["annotations"]]
    assert "too few operations" in notes
    assert any("10/(1-q)" in remark for remark in chart.remarks)
    assert "failed" in [a["text"] for a in made(realistic)[0].layout["annotations"]]


def test_colours_stay_with_targets(realistic: Path) -> None:
    def seen(**options: Any) -> dict[str, str]:
        return {
            t["legendgroup"]: t["marker"]["color"]
            for c in made(realistic, **options)
            for t in c.data
        }

    alone, together = seen(), seen(include=["reference"])
    assert set(together) == {*alone, "memory"}
    assert {name: together[name] for name in alone} == alone
    assert len(set(together.values())) == 4


def test_plotly_accepts_every_chart(realistic: Path) -> None:
    drawn = made(realistic)
    assert drawn
    for chart in drawn:
        assert len(chart.figure().data) == len(chart.data)  # it validates each property


# -- the report ------------------------------------------------------------------------


class Reader(html.parser.HTMLParser):
    """Elements and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.figures: list[Any] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = str(dict(attrs).get("class")) if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self.inside == "figure":
            self.figures.append(json.loads(data))
            self.inside = ""


def test_report_is_one_file_that_needs_nothing(page: Path) -> None:
    reader = Reader(page.read_text(encoding="utf-8"))
    for tag, attributes in reader.tags:
        for name in ("src", "href", "srcset", "data", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    assert "default-src 'none'" in page.read_text(encoding="utf-8")[:600]
    assert [tag for tag, _ in reader.tags].count("link") == 1
    assert not list(page.parent.glob(".*.tmp"))


def test_failed_runs_stand_before_the_charts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.index('id="answer"') < text.index('id="failed"')
    failed = text.index("ENOSPC writing data/file-1", text.index('id="failed"'))
    assert failed < text.index("read-served-by-cache", failed) < text.index('id="summary"')
    assert text.index('id="summary"') < text.index('class="chart')
    assert "deadline of 60 s passed" in text


def test_report_says_how_it_was_measured(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = (
        "AMD EPYC 7543",
        "6.1.0-18-amd64",
        "Open MPI 5.0.11",
        "4711",
        "as_found",
        "cold",
        "rw,noatime",
        "player-c 0.1.0",
        "node1",
        "attachments per target",
    )
    for fact in shown:
        assert fact in text, fact
    assert "8 runs are invalid and left out of all medians" in text
    assert "Reference left out of tables and charts: memory" in text


def test_reference_is_shown_when_asked(realistic: Path, tmp_path: Path) -> None:
    out = report.write_report(realistic, tmp_path / "r.html", include_reference=True)
    text = out.read_text(encoding="utf-8")
    assert "memory (reference)" in text
    assert "Reference left out" not in text


def hostile(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    records = []
    for block in range(2):
        coordinates = {"pattern": HOSTILE, f"odd{HOSTILE}": f"{HOSTILE}{block}", "chunk": 4096}
        findings = (Finding(HOSTILE, 1, "warning", HOSTILE, HOSTILE),)
        done = (campaigns.phase("read", 1e8, 4096, 1, rng),)
        values = {"coordinates": coordinates, "block": block, "environment": {HOSTILE: HOSTILE}}
        records.append(campaigns.record(HOSTILE, phases=done, findings=findings, **values))
        records.append(
            campaigns.record("b", phases=(), status="failed", error=HOSTILE + "\udcff\0", **values)
        )
    plan = {"campaign": HOSTILE, "description": HOSTILE, "seed": HOSTILE}
    return campaigns.write(
        folder / "campaign.h5", records, plan, [{"file": HOSTILE, "reason": HOSTILE}]
    )


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    out = report.write_report(hostile(tmp_path), tmp_path / "r.html")
    text = out.read_text(encoding="utf-8")
    assert "window.stolen=1</script>" not in text
    assert "<img src=x" not in text
    assert "49" not in re.findall(r"&amp;amp;(\d+)", text)
    reader = Reader(text)
    images = [attributes["src"] for tag, attributes in reader.tags if tag == "img"]
    assert all(str(source).startswith("data:image/svg+xml;base64,") for source in images)
    assert reader.figures
    for figure in reader.figures:
        assert "<script" not in json.dumps(figure)  # plotly reads HTML in labels
        assert "<img" not in json.dumps(figure)


def test_embedded_json_cannot_end_its_element() -> None:
    value = {"a": "</script><!--<script>&\u2028", "b": [1.5, None]}
    text = str(report.embedded(value))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


@pytest.mark.parametrize("records", [0, 1])
def test_report_of_next_to_nothing(tmp_path: Path, records: int) -> None:
    failed = campaigns.record("xfs", phases=(), coordinates={}, status="failed", error="EIO")
    path = campaigns.write(tmp_path / "campaign.h5", [failed][:records])
    if records:
        assert "EIO" in report.write_report(path, tmp_path / "r.html").read_text(encoding="utf-8")
    else:
        with pytest.raises(ValueError, match="no runs"):
            report.write_report(path, tmp_path / "r.html")


# -- the browser -----------------------------------------------------------------------

SHOWN = """<script>
window.addEventListener("load", function () {
  document.body.setAttribute("data-drawn", document.querySelectorAll(".chart .main-svg").length);
  var bars = document.querySelectorAll(".chart .bars .point path");
  document.body.setAttribute("data-bars", bars.length);
  document.body.setAttribute("data-stolen", String(window.stolen));
  document.body.setAttribute("data-requests", performance.getEntriesByType("resource")
    .filter(function (entry) { return /^http/.test(entry.name); }).length);
  var wide = document.documentElement;
  document.body.setAttribute("data-overflow", wide.scrollWidth - wide.clientWidth);
  var tab = document.querySelectorAll("[data-pivot]")[1];
  tab.click();
  document.body.setAttribute("data-tab", document.getElementById(tab.dataset.pivot).hidden);
});
</script>"""


def browse(
    file: Path, profile: Path, fragment: str = "", script: str = SHOWN
) -> tuple[dict[str, str], str]:
    """(data attributes of the body after loading, console messages) in headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no chromium: install the distribution's package chromium")
    watched = file.with_name("watched-" + file.name)
    text = file.read_text(encoding="utf-8").replace("</body>", script + "</body>")
    watched.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            "--window-size=1366,900",
            "--virtual-time-budget=30000",
            "--dump-dom",
            watched.as_uri() + fragment,
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    body = next(attrs for tag, attrs in Reader(done.stdout).tags if tag == "body")
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return {name: str(value) for name, value in body.items()}, console


def test_chromium_draws_all_charts(page: Path, realistic: Path, tmp_path: Path) -> None:
    seen, console = browse(page, tmp_path / "profile")
    pictures = made(realistic)
    assert console == ""
    # plotly draws three svg elements per chart, the bars in the first
    assert int(seen["data-drawn"]) == 3 * len(pictures)
    values = [y for chart in pictures for ys in bars(chart).values() for y in ys]
    assert int(seen["data-bars"]) >= len([y for y in values if y is not None])
    assert seen["data-requests"] == "0"
    assert int(seen["data-overflow"]) <= 0
    assert seen["data-tab"] == "false"


def test_chromium_runs_nothing_from_a_campaign(tmp_path: Path) -> None:
    out = report.write_report(hostile(tmp_path), tmp_path / "r.html")
    seen, console = browse(out, tmp_path / "profile")
    assert console == ""
    assert seen["data-stolen"] == "undefined"
    assert int(seen["data-drawn"]) > 0
