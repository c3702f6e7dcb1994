"""Network traffic over time, from run files with counters of a known rate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fsmatrix.analysis.data import load
from fsmatrix.analysis.questions.bottleneck.traffic import (
    AROUND,
    STORAGE_NODES,
    Traffic,
    of_nodes,
    series,
    traffic,
)
from fsmatrix.analysis.result import Result
from fsmatrix.results.files.store import Store
from fsmatrix.results.record import Monitor, RunRecord
from tests.analysis import campaigns

KIB, MIB = 1 << 10, 1 << 20
RATES = {4 * KIB: 2e6, 128 * KIB: 4e7, 4 * MIB: 4.4e7}  # bytes per second of both hosts
STEP = 0.1


def measured(chunk: int, block: int, hosts: tuple[str, ...] = ("n1", "n2")) -> RunRecord:
    """A run whose hosts send at the rate of its chunk size while the phase lasts, in equal parts.

    The phase before it and a trickle of received bytes are in its series too.
    """
    rate = RATES[chunk] * (1 + block / 100)
    done = campaigns.phase("write", rate, chunk, 1, np.random.default_rng(block), operations=600)
    done = replace(done, end=done.end * 0 + 2.0)
    time = done.began + np.arange(-20, 26) * STEP
    inside = np.clip(time - done.began, 0, 2.0)
    sent = np.stack([5 + rate / len(hosts) * inside for _ in hosts])
    received = np.stack([np.linspace(0, 1000, time.size) for _ in hosts])
    return campaigns.record(
        "ceph",
        phases=(done,),
        block=block,
        coordinates={
            "pattern": "rand-write",
            "chunk": chunk,
            "storage_nodes": 4,
            "network": "100Mbit",
        },
        monitor=Monitor(
            hosts, time, {"network_sent_bytes": sent, "network_received_bytes": received}
        ),
    )


def stored(folder: Path, records: list[RunRecord]) -> xr.Dataset:
    store = Store.create(folder)
    for record in records:
        store.write(record)
    return load.open_campaign(store.merge())


def test_the_rate_of_a_series_is_what_the_counters_moved() -> None:
    found = series(measured(4 * KIB, 0), "write")
    assert found is not None
    assert found.hosts == ("n1", "n2")
    assert found.level == pytest.approx(2e6)
    inside = (found.begin > -STEP / 2) & (found.end < 2.0 + STEP / 2)
    assert inside.sum() == round(2.0 / STEP)
    np.testing.assert_allclose(found.rate[:, inside], 1e6, rtol=1e-6)
    np.testing.assert_allclose(found.rate[:, ~inside], 0, atol=1e-3)
    assert found.begin[0] >= -AROUND - STEP * 1.01
    assert found.end[-1] <= 2.0 + AROUND + STEP * 1.01


def test_without_counters_or_samples_around_the_phase_there_is_no_series() -> None:
    record = measured(4 * KIB, 0)
    assert record.monitor is not None
    assert series(record, "read") is None
    assert series(replace(record, monitor=None), "write") is None
    other = Monitor(("n1",), record.monitor.time, {"cpu_busy": record.monitor.time[np.newaxis]})
    assert series(replace(record, monitor=other), "write") is None
    late = replace(record.monitor, time=record.monitor.time + 100)
    assert series(replace(record, monitor=late), "write") is None


def test_runs_without_a_value_are_one_sentence_with_the_reason(tmp_path: Path) -> None:
    """Windows shorter than the counters' interval, and counters that a node does not have."""
    records = [measured(4 * KIB, block) for block in range(4)]
    short = [
        replace(record, phases=(replace(record.phases[0], end=record.phases[0].end * 0 + 0.05),))
        for record in records[:3]
    ]
    monitor = records[3].monitor
    assert monitor is not None
    unknown = {name: values * np.nan for name, values in monitor.series.items()}
    blind = replace(records[3], monitor=replace(monitor, series=unknown))
    ds = stored(tmp_path / "none", [*short, blind])
    with pytest.raises(ValueError, match="without a value") as refused:
        traffic(ds, tmp_path / "none")
    assert str(refused.value) == (
        "3 runs without a value: no interval of the counters (0.1 s) lies in a window of 0.05 s "
        "or less. 1 run without a value: in each interval of the window a node's network "
        "counters are missing."
    )
    some = [*short[:2], *records[2:]]
    found = traffic(stored(tmp_path / "some", some), tmp_path / "some")
    assert [len(cell.runs) for cell in found.cells] == [2]
    assert any(line.startswith("2 runs without a value: no interval") for line in found.says)


def test_a_host_with_fewer_samples_has_gaps_only_there() -> None:
    record = measured(4 * KIB, 0)
    assert record.monitor is not None
    sent = record.monitor.series["network_sent_bytes"].copy()
    sent[1, 30:] = np.nan
    gaps = replace(record.monitor, series={"network_sent_bytes": sent})
    found = series(replace(record, monitor=gaps), "write")
    assert found is not None
    assert not np.isnan(found.rate[0]).any()
    assert 0 < np.isnan(found.rate[1]).sum() < found.rate.shape[1]
    assert found.level == pytest.approx(2e6)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    folder = tmp_path_factory.mktemp("traffic") / "out"
    records = [measured(chunk, block, ("n1",)) for block in range(6) for chunk in RATES]
    records[0] = replace(records[0], monitor=None)
    return traffic(stored(folder, records), folder)


def test_every_cell_has_its_runs_and_the_median_of_their_levels(made: Traffic) -> None:
    assert isinstance(made, Result)
    assert [cell.chunk for cell in made.cells] == list(RATES)
    assert [len(cell.runs) for cell in made.cells] == [5, 6, 6]
    for cell in made.cells[1:]:
        assert cell.median.decides
        assert cell.median.median == pytest.approx(RATES[int(cell.chunk)] * 1.025)
        assert cell.limit == pytest.approx(4 * 100e6 / 8)
    assert "4 MiB: " in made.says[2]
    assert "90% of the storage nodes' links" in made.says[2]
    assert "no verdict" in made.says[0]
    assert "1 run without a series of its client nodes' network." in made.says
    table = made.table()
    assert len(table) == sum(run.rate.size for cell in made.cells for run in cell.runs)
    largest = table[f"traffic, {made.unit.label}"].max() * made.unit.divisor
    assert largest == pytest.approx(RATES[4 * MIB] * 1.05)
    assert json.loads(json.dumps(made.to_dict()))["cells"][0]["chunk"] == 4 * KIB


def test_the_figure_has_a_panel_for_each_chunk_and_a_line_for_each_run(made: Traffic) -> None:
    figure = made.figure()
    assert [ax.get_title() for ax in figure.axes] == ["4 KiB", "128 KiB", "4 MiB"]
    assert [len(ax.lines) for ax in figure.axes] == [5 + 1, 6 + 1, 6 + 1]  # and the limit
    assert len({ax.get_ylim() for ax in figure.axes}) == 1
    assert figure.axes[0].get_ylabel().startswith("traffic, ")
    with pytest.raises(ValueError, match="pages 0 to 0, not 1"):
        made.figure(1)


def test_two_client_nodes_are_two_lines_and_no_limit_is_drawn(tmp_path: Path) -> None:
    ds = stored(tmp_path / "out", [measured(4 * KIB, block) for block in range(2)])
    figure = traffic(ds, tmp_path / "out").figure()
    assert [len(ax.lines) for ax in figure.axes] == [4]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["n1", "n2"]


def test_a_store_without_counters_is_refused_in_words(tmp_path: Path) -> None:
    ds = stored(tmp_path / "out", [replace(measured(4 * KIB, 0), monitor=None)])
    with pytest.raises(ValueError, match=r"no run file in .* has network counters"):
        traffic(ds, tmp_path / "out")


def watched(chunk: int, block: int) -> RunRecord:
    """As `measured`, seen by two storage nodes; the second one's looks are fewer, and between."""
    record = measured(chunk, block)
    done = record.phases[0]
    first, second = np.arange(-20, 26) * STEP, np.arange(-10, 13) * 2 * STEP + STEP / 2
    time = np.union1d(first, second)
    received = np.full((3, time.size), np.nan)  # the third one has no links
    for host, (own, share) in enumerate(((first, 0.75), (second, 0.25))):
        ended, began = own[1:], own[:-1]
        busy = (ended > STEP / 2) & (began < 2.0 - STEP / 2)
        received[host, np.searchsorted(time, ended)] = np.where(busy, share * RATES[chunk], 0.0)
    memory = np.array([np.where(np.isin(time, own), 1e9, np.nan) for own in (first, second, first)])
    series_of = {"link_received:eth0": received, "memory_used": memory}
    return replace(record, nodes=Monitor(("s1", "s2", "services"), done.began + time, series_of))


def test_the_storage_nodes_traffic_is_of_their_links(tmp_path: Path) -> None:
    record = watched(4 * MIB, 0)
    found = of_nodes(record, "write")
    assert found is not None
    assert found.hosts == ("s1", "s2")
    inside = (found.begin >= 3 * STEP) & (found.end <= 2.0 - 3 * STEP)
    np.testing.assert_allclose(found.rate[0, inside], 0.75 * RATES[4 * MIB])
    np.testing.assert_allclose(found.rate[1, inside], 0.25 * RATES[4 * MIB])
    assert of_nodes(replace(record, nodes=None), "write") is None
    assert of_nodes(record, "read") is None
    folder = tmp_path / "out"
    ds = stored(folder, [watched(chunk, block) for block in range(6) for chunk in RATES])
    made = traffic(ds, folder, whose=STORAGE_NODES)
    assert [len(cell.runs) for cell in made.cells] == [6, 6, 6]
    assert made.cells[2].median.median == pytest.approx(RATES[4 * MIB])
    assert made.figure().legends[0].get_title().get_text() == "storage node"
    plain = tmp_path / "plain"
    ds = stored(plain, [measured(4 * KIB, 0)])
    with pytest.raises(ValueError, match=r"no run file .* has network counters of storage nodes"):
        traffic(ds, plain, whose=STORAGE_NODES)
