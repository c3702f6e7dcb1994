"""A run over time: what is said of a stall, what is drawn, and which run stands for a cell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsmatrix.analysis.data import load, summary
from fsmatrix.analysis.draw import tables
from fsmatrix.analysis.questions.timeline import timeline as question
from fsmatrix.analysis.report import sections
from fsmatrix.results import histogram, iterations
from fsmatrix.results.evidence.evidence import Evidence, HealthEvent, HealthLooks
from fsmatrix.results.evidence.workloads import OpenLoop
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Finding, Monitor, Phase, RunRecord
from tests.analysis import campaigns
from tests.analysis.commands import call

WIDTH, INTERVALS = 0.02, 150  # seconds; a phase of 3 s
STALLED = range(75, 85)  # intervals without a completed operation: 1.5 s to 1.7 s
FAST, STALL = 200_000, 210_000_000  # ns
EACH = 40  # operations of an interval


def stalled(block: int = 0) -> Phase:
    """Writes of 4 KiB that take FAST, and one that took STALL and ended after the pause."""
    counts = np.zeros((INTERVALS, histogram.COARSE), dtype=np.int64)
    counts[:, histogram.bin_of(FAST) // histogram.PER_COARSE] = EACH
    counts[STALLED.start : STALLED.stop] = 0
    counts[STALLED.stop, histogram.bin_of(STALL) // histogram.PER_COARSE] += 1
    speed = 4096 * EACH / WIDTH * (1 + block / 100)
    done = campaigns.phase("write", speed, 4096, 1, np.random.default_rng(block), operations=600)
    operations = counts.sum(axis=1)
    return replace(
        done,
        end=np.array([3.0 - block / 1000]),
        interval=WIDTH,
        interval_bytes=operations * 4096,
        interval_operations=operations,
        timeline={"write": counts},
    )


def run(block: int = 0, **changes: Any) -> RunRecord:
    phase = changes.pop("phase", stalled(block))
    time = phase.began + np.arange(0, 3.1, 0.5)
    busy = np.arange(time.size) * 0.25  # a quarter of two CPUs
    series = {"cpu_busy": busy, "cpu_idle": 3 * busy, "cpu_iowait": 0 * busy, "cpu_steal": 0 * busy}
    said = HealthEvent(time=phase.began + 1.6, says="1 of 2 OSDs is down")
    looks = {phase.name: HealthLooks(looks=3, interval=1.0, events=(said,))}
    values: dict[str, Any] = {
        "phases": (phase,),
        "block": block,
        "coordinates": {"pattern": "rand-write", "chunk": 4096},
        "monitor": Monitor(("n1",), time, {name: one[np.newaxis] for name, one in series.items()}),
        "evidence": Evidence(health_watch=looks),
        "findings": (Finding("not-stationary", 1, "warning", "fell", "look", phase.name),),
    }
    return campaigns.record("xfs", **(values | changes))


def stored(folder: Path, *records: RunRecord) -> Path:
    store = Store.create(folder)
    for record in records:
        store.write(record)
    store.merge()
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return stored(tmp_path / "out", *(run(block) for block in range(3)))


def test_a_stall_is_said_with_its_time_and_length() -> None:
    (shown,) = question.of_run(run()).runs
    (phase,) = shown.phases
    assert phase.pause == pytest.approx((0.2, 1.5))
    assert phase.slowest is not None
    low, high, at = phase.slowest
    assert low <= STALL / 1e9 < high
    assert at == pytest.approx((STALLED.stop + 0.5) * WIDTH)
    first, second, *rest = question.of_run(run()).says
    assert first.startswith(f"{run().run_id}: xfs, pattern, rand-write, chunk 4 KiB")
    assert "none completed for 200 ms from 1.5 s on" in second
    assert "client CPU up to 25%" in second
    assert rest == ["write, 1.6 s: 1 of 2 OSDs is down", "Findings: not-stationary (warning)."]


def test_a_drive_that_was_throttled_is_said_with_its_time() -> None:
    moved = np.full(INTERVALS, 40 * 4096)
    moved[50:100] //= 3
    (phase,) = question.of_run(run(phase=replace(stalled(), interval_bytes=moved))).runs[0].phases
    assert phase.slump == pytest.approx((1.0, 1.0))
    assert "less than half the median throughput for 1 s from 1 s on" in phase.says
    even = replace(stalled(), interval_bytes=moved * 0 + 4096)
    (phase,) = question.of_run(run(phase=even)).runs[0].phases
    assert phase.slump[0] == 0
    assert "less than half" not in phase.says


def test_the_picture_has_one_axis_for_all() -> None:
    figure = question.of_run(run()).figure()
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels == ["latency, s", "throughput, MiB/s", "client CPU, busy share"]
    assert len({ax.get_xlim() for ax in figure.axes}) == 1
    heat = figure.axes[0].collections[0].get_array()
    assert heat is not None
    assert int(heat.sum()) == EACH * (INTERVALS - len(STALLED)) + 1
    assert all(
        any(list(line.get_xdata()) == pytest.approx([1.6, 1.6]) for line in ax.lines)
        for ax in figure.axes
    )


def test_opens_and_closes_are_shown_where_they_are_slower() -> None:
    other = np.zeros_like(stalled().timeline["write"])
    other[[3, 9], [histogram.bin_of(ns) // histogram.PER_COARSE for ns in (300, 10**9)]] = 1
    both = replace(stalled(), timeline={**stalled().timeline, "other": other})
    ax = question.of_run(run(phase=both)).figure().axes[0]
    low, high = ax.get_ylim()
    assert 1e-4 < low < FAST / 1e9
    assert 1 < high < 1.5
    alone = question.of_run(run(phase=replace(stalled(), timeline={"other": other})))
    assert alone.figure().axes[0].get_ylim()[0] < 3e-7


def test_many_intervals_are_narrowed_and_none_is_lost() -> None:
    long = stalled()
    counts = np.concatenate([long.timeline["write"]] * 7)
    moved = counts.sum(axis=1)
    many = replace(long, end=np.array([21.0]), timeline={"write": counts})
    many = replace(many, interval_bytes=moved * 4096, interval_operations=moved)
    figure = question.of_run(run(phase=many)).figure()
    heat = figure.axes[0].collections[0].get_array()
    assert heat is not None
    assert heat.shape[1] <= 300
    assert int(heat.sum()) == int(counts.sum())


def test_the_table_has_every_interval(out: Path, tmp_path: Path) -> None:
    table = question.of_run(run()).table()
    assert len(table) == INTERVALS
    assert table["operations"].sum() == EACH * (INTERVALS - len(STALLED)) + 1
    at_stall = table.iloc[STALLED.stop]
    assert at_stall["latency p50, s"] < 1e-3 < STALL / 1e9 <= at_stall["latency up to, s"]
    assert table.iloc[STALLED.start][["bytes/s", "operations"]].tolist() == [0, 0]
    assert tables.save([question.of_run(run())], tmp_path / "t.csv")


def test_of_a_cell_the_run_nearest_its_median(out: Path) -> None:
    ds = load.open_campaign(out / "campaign.h5")
    found = question.timeline(ds, out)
    assert [one.run_id for one in found.runs] == [run(1).run_id]
    assert "(of 3 runs nearest the median: " in found.says[0]
    with pytest.raises(ValueError, match="no runs with pattern seq-read"):
        question.timeline(ds, out, where={"pattern": "seq-read"})


def test_engines_that_tell_less_are_in_the_same_picture() -> None:
    rows = [{"seconds": 1.0, "bytes": 1 << 28, "operations": 256} for _ in range(3)]
    bare = replace(
        stalled(), timeline={}, interval=0.0, interval_bytes=None, interval_operations=None
    )
    ior = question.of_run(run(phase=replace(bare, iterations=iterations.columns(rows))))
    assert "in 3 iterations" in ior.says[1]
    assert ior.figure().axes[0].get_ylabel() == "throughput, MiB/s"
    assert len(ior.table()) == 3
    largest = np.full(3, 0.01)
    largest[1] = 0.5
    each_second = replace(
        bare, interval=1.0, interval_bytes=np.array([9, 1, 9]) << 20, interval_latency_max=largest
    )
    dbench = question.of_run(run(phase=each_second))
    assert "slowest operation 500 ms, at 1.5 s" in dbench.says[1]
    assert dbench.figure().axes[0].get_ylabel() == "latency, s"
    with pytest.raises(ValueError, match="has nothing over time"):
        question.of_run(run(phase=bare))


def test_text_is_short_whatever_happened() -> None:
    events = tuple(HealthEvent(time=1.7e9 + i, says=f"thing {i}") for i in range(40))
    phases = tuple(replace(stalled(), name=f"write-{i}") for i in range(13))
    looks = {one.name: HealthLooks(looks=40, interval=1.0, events=events) for one in phases}
    many = question.of_run(run(phases=phases, evidence=Evidence(health_watch=looks)))
    assert len(many.says) <= 14
    assert many.pages == 4


def test_the_report_opens_cells_that_were_not_even(out: Path, tmp_path: Path) -> None:
    ds = load.open_campaign(out / "campaign.h5")
    made = sections.sections(ds, summary.summarise(ds), place=str(out))
    (inside,) = [section for section in made if section.id == "inside"]
    first, rule = inside.blocks
    assert first.images
    assert not first.opened
    assert "not-stationary" in rule.says[0]
    even = stored(tmp_path / "even", run(findings=()))
    ds = load.open_campaign(even / "campaign.h5")
    for place in (str(even), "", str(tmp_path / "moved")):
        made = sections.sections(ds, summary.summarise(ds), place=place)
        assert "inside" not in {section.id for section in made}


def test_the_command(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = run(2).run_id
    picture = tmp_path / "t.pdf"
    assert call(monkeypatch, "timeline", out, "--run", wanted, "--out", picture) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(wanted)
    assert len(said) <= 14
    assert picture.read_bytes().startswith(b"%PDF")
    assert call(monkeypatch, "timeline", out, "--where", "pattern=rand-write", "--json") == 0
    (document,) = json.loads(capsys.readouterr().out)["runs"]
    (phase,) = document["phases"]
    assert document["run_id"] == run(1).run_id
    assert len(phase["latency_edges"]) == len(phase["latency"]["write"][0]) + 1
    assert np.sum(phase["latency"]["write"]) == EACH * (INTERVALS - len(STALLED)) + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--run", "ffff"), "has no run whose id begins so"),
        (("--run", "a", "--where", "pattern=x"), "either --run or --where"),
        (("--where", "pattern"), "must be factor=level"),
        (("--where", "colour=red"), "colour"),
        (("--out", "t.txt"), "must end in"),
    ],
)
def test_bad_input_is_a_message_and_status_2(
    words: tuple[str, ...],
    said: str,
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "timeline", out, *words) == 2
    captured = capsys.readouterr()
    assert said in " ".join(captured.err.split())
    assert not captured.out


def test_what_has_no_run_files_or_nothing_over_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = replace(
        stalled(), timeline={}, interval=0.0, interval_bytes=None, interval_operations=None
    )
    folder = stored(tmp_path / "old", run(phase=bare, engine="fio"))
    assert call(monkeypatch, "timeline", folder, "--run", run().run_id) == 2
    assert "(fio) has nothing over time" in " ".join(capsys.readouterr().err.split())
    assert call(monkeypatch, "timeline", folder) == 2
    assert "(fio) has nothing over time" in " ".join(capsys.readouterr().err.split())
    assert call(monkeypatch, "timeline", folder / "campaign.h5") == 2
    assert "must be a results directory" in " ".join(capsys.readouterr().err.split())


def test_an_open_loop_is_shown_by_the_rate_that_it_reached(tmp_path: Path) -> None:
    """Its throughput was given, so that no median of it stands in any comparison."""
    loop = OpenLoop(rate=200, arrivals="constant", seconds=3.0, due=600, backlog=0, unplayed=0)
    played = replace(stalled(), facts={"open_loop": loop.document()})
    folder = stored(tmp_path / "out", *(run(block, phase=played) for block in range(3)))
    (shown,) = question.timeline(load.open_campaign(folder), folder).runs
    assert shown.why == "of 3 runs nearest the median: 200 of 200 IOPS"


def test_storage_nodes_are_drawn_below_the_run() -> None:
    began = run().phases[0].began
    nan = np.nan
    nodes = Monitor(
        ("node1", "node2"),
        began + np.array([-0.5, 0.5, 1.5, 2.5]),
        {
            "link_received:eth0": np.array([[nan, 1e8, 2e8, 1e8], [nan, 1e7, nan, 1e7]]),
            "link_sent:eth0": np.array([[nan, 1e6, 2e6, 1e6], [nan, 1e6, nan, 1e6]]),
            "cpu_user": np.array([[nan, 0.5, 0.75, 0.5], [nan, 0.1, nan, 0.1]]),
            "cpu_system": np.array([[nan, 0.1, 0.125, 0.1], [nan, 0.1, nan, 0.1]]),
        },
    )
    shown = question.of_run(run(nodes=nodes))
    (phase,) = shown.runs[0].phases
    assert phase.nodes is not None
    assert phase.nodes.traffic[0].tolist()[1:] == [1.01e8, 2.02e8, 1.01e8]
    assert (
        phase.nodes.says == "storage nodes: traffic up to 193 MiB/s (node1), CPU up to 88% (node1)"
    )
    assert phase.says.endswith(f"client CPU up to 25%; {phase.nodes.says}.")
    figure = shown.figure()
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels[3:] == ["storage nodes' links, MiB/s", "storage nodes' CPU, share"]
    assert [line.get_label() for line in figure.axes[3].lines][:2] == ["node1", "node2"]
    assert figure.axes[3].lines[0].get_xdata()[0] == -0.5, "the first value is of the time before"
    assert question.of_run(run()).runs[0].phases[0].nodes is None
