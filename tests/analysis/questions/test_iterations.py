"""The engines' own summaries of their iterations: what they print, beside our numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fsmatrix.analysis.data.cells import Cell
from fsmatrix.analysis.data.load import open_campaign
from fsmatrix.analysis.data.summary import summarise
from fsmatrix.analysis.questions import iterations as analysis
from fsmatrix.results import iterations
from fsmatrix.results.formats.mdtest.mdtest_text import NAMES
from fsmatrix.results.formats.parsed import Parsed, recognise, totals
from fsmatrix.results.record import Phase
from fsmatrix.suite.importing.imported import Source, records
from tests.analysis import campaigns
from tests.analysis.commands import call

DATA = Path(__file__).parents[2] / "data"
MIB = 1 << 20
SUMMED = ("maximum", "minimum", "mean", "stddev")
NUMBER = r" +([0-9.]+)"
IOR_TEXT = re.compile(rf"^(write|read){NUMBER * 4}(?: +\S+){{20,}} *$", re.MULTILINE)
IOR_JSON = re.compile(
    r'"operation": "(write|read)".*?"bwMaxMIB": ([0-9.]+).*?"bwMinMIB": ([0-9.]+).*?'
    r'"bwMeanMIB": ([0-9.]+).*?"bwStdMIB": ([0-9.]+)',
    re.DOTALL,
)
MDTEST = re.compile(
    rf"^ +((?:Directory|File|Tree) \w+) *:?(?: +[0-9.]+){{0,3}}?{NUMBER * 4} *$", re.MULTILINE
)


def printed(text: str) -> dict[str, tuple[float, ...]]:
    """Phase -> maximum, minimum, mean, deviation as they stand in the text, in SI units."""
    lines = IOR_TEXT.findall(text) or IOR_JSON.findall(text)
    found = {name: tuple(float(value) * MIB for value in values) for name, *values in lines}
    rates = text.partition("SUMMARY rate")[2].partition("SUMMARY time")[0]
    for name, *values in MDTEST.findall(rates):
        if float(values[0]):
            found[NAMES[name]] = tuple(map(float, values))
    return found


def recorded() -> list[Path]:
    """Real outputs of one start of IOR or mdtest with several iterations, as they print them."""
    found = []
    for path in sorted([*DATA.glob("ior/*"), *DATA.glob("mdtest/*.txt")]):
        text = path.read_text(errors="replace") if path.is_file() else ""
        output = recognise(text)
        if output is not None and printed(text):
            runs = output.parse(text, path.name)
            if len(runs) == 1 and runs[0].options.get("iterations", 1) > 1:
                found.append(path)
    return found


def imported(folder: Path, *paths: Path) -> Path:
    """A campaign file of these outputs, as `fsmatrix import` makes it."""
    made = []
    for number, path in enumerate(paths):
        text = path.read_text(errors="replace")
        source = Source(path.name, f"{number:064x}", "f", "2026-01-01T00:00:00Z", "0", {})
        output = recognise(text)
        assert output is not None
        made += records(output.parse(text, path.name), source, {"target": "a"})
    return campaigns.write(folder / "c.h5", made)


def test_there_are_enough_outputs_to_compare_with() -> None:
    names = [path.name for path in recorded()]
    assert len(names) >= 15, names
    assert {"ior-3.2.1-fpp.txt", "ior-4.0.0-random.json", "ior-3.2.1-random.json"} <= set(names)


@pytest.mark.parametrize("path", recorded(), ids=lambda path: path.name)
def test_the_summary_is_the_one_that_is_printed(path: Path, tmp_path: Path) -> None:
    """Of every recorded output: IOR 3.2 to 4.1 in text and JSON, mdtest of IOR 3.2 to 4.1."""
    summary = summarise(open_campaign(imported(tmp_path, path)))
    expected = printed(path.read_text(errors="replace"))
    cells = {str(cell.levels["phase"]): cell for cell in summary.cells}
    assert expected
    assert cells.keys() <= expected.keys()
    assert [name for name, cell in cells.items() if cell.own is None] == []
    for name, cell in cells.items():
        assert cell.own is not None
        assert cell.own.runs == 1
        # a rate from 3600 MiB/s on has no decimals in IOR's lines, and two in its summary
        half = 0.51 * MIB if cell.own.engine == "ior" else 0.002
        shown = [getattr(cell.own, field) for field in SUMMED]
        assert shown == pytest.approx(expected[name], abs=half, rel=2e-6), name


# -- made up -----------------------------------------------------------------------------------
def phase(name: str = "write", **columns: Any) -> Phase:
    """Iterations of 1, 1 and 2 s that moved 100 B each: 75 B/s all together, 83.3 on average.

    Their rates are printed as they are, unless `columns` say otherwise.
    """
    told = {
        "number": np.arange(3),
        "seconds": np.array([1.0, 1.0, 2.0]),
        "bytes": np.full(3, 100),
        "operations": np.array([10, 10, 10]),
    }
    rates = {"bandwidth": np.array([100.0, 100.0, 50.0]), "iops": np.array([10.0, 10.0, 5.0])}
    told |= rates | columns
    own = iterations.summary(iterations.rows_of(told), "bandwidth")
    own |= iterations.summary(iterations.rows_of(told), "iops", sample=True)
    return totals(name, 4.0, 300, 30, iterations=told, summary=own)


def campaign(folder: Path, *phases: Phase, engine: str = "ior", blocks: int = 1) -> Path:
    made = [
        campaigns.record(
            "a",
            phases=phases,
            coordinates={},
            block=block,
            workload=engine,
            engine=engine,
            engine_version="4.1.0",
        )
        for block in range(blocks)
    ]
    return campaigns.write(folder / "c.h5", made)


def cells(path: Path) -> list[Cell]:
    return list(summarise(open_campaign(path)).cells)


def test_a_slow_iteration_makes_the_difference(tmp_path: Path) -> None:
    (cell,) = cells(campaign(tmp_path, phase()))
    assert cell.metrics["bandwidth"].median == 75
    assert cell.own is not None
    assert (cell.own.maximum, cell.own.minimum) == (100, 50)
    assert cell.own.mean == pytest.approx(250 / 3)
    assert cell.own.stddev == pytest.approx(np.std([100, 100, 50]))


def test_what_was_printed_counts_not_what_was_done(tmp_path: Path) -> None:
    """mdtest counts the trees of one task where each task makes one: its rates are half."""
    half = phase("mkdir-tree", iops=np.array([5.0, 5.0, 2.5]))
    path = campaign(tmp_path, half, engine="mdtest")
    (cell,) = cells(path)
    assert cell.own is not None
    assert (cell.own.metric, cell.own.maximum, cell.own.counted) == ("iops", 5.0, 0.5)
    assert analysis.miscounted([cell]) == [
        "Its rates count another number of operations than were done: 50 % in mkdir-tree."
    ]


def test_iterations_of_all_runs_that_count(tmp_path: Path) -> None:
    (cell,) = cells(campaign(tmp_path, phase(), blocks=4))
    assert cell.own is not None
    assert (cell.own.runs, cell.own.iterations, cell.own.maximum) == (4, 3, 100)


@pytest.mark.parametrize("kind", ["one iteration", "no summary", "nothing"])
def test_nothing_where_there_is_nothing_to_sum_up(kind: str, tmp_path: Path) -> None:
    """elbencho has iterations and prints no summary of them."""
    told = phase().iterations
    if kind == "one iteration":
        told = {name: column[:1] for name, column in told.items()}
    own = iterations.summary(iterations.rows_of(told), "bandwidth")
    if kind == "nothing":
        told = {}
    own = own if kind == "one iteration" else {}
    done = totals("write", 4.0, 300, 30, iterations=told, summary=own)
    (cell,) = cells(campaign(tmp_path, done))
    assert cell.own is None


def without_iterations(path: Path) -> Path:
    """The file as it was before campaign files had iterations."""
    with h5py.File(path, "a") as file:
        for name in [name for name in file if name.startswith(("iteration", "own_"))]:
            del file[name]
    return path


def test_files_of_before_are_read_and_join_with_new_ones(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old = without_iterations(campaign(tmp_path / "old", phase(), engine="mdtest"))
    new = campaign(tmp_path, phase(), blocks=2)
    (cell,) = cells(old)
    assert cell.own is None
    for order in ([old, new], [new, old], [old, new, new]):
        joined = open_campaign(order)
        assert joined["iteration_size"].dtype == np.int64
        summary = summarise(joined)
        own = {str(cell.levels["engine"]): cell.own for cell in summary.cells}
        assert own["mdtest"] is None
        assert own["ior"] is not None
        assert (own["ior"].iterations, own["ior"].mean) == (3, pytest.approx(250 / 3))
        told = analysis.with_values(joined, summary)
        assert [len(cell["iterations"]) for cell in told] == [
            6 if cell["engine"] == "ior" else 0 for cell in told
        ]


# -- show ----------------------------------------------------------------------------------------
def test_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = imported(tmp_path, DATA / "ior/ior-3.3.0-fpp.txt")
    assert call(monkeypatch, "show", path) == 0
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert "IOR's own summary of its iterations in MiB/s, beside ours" in text
    (line,) = [line for line in out.splitlines() if line.startswith("write") and "664" in line]
    # max, min, mean, stddev as IOR prints them; all bytes / all time
    assert line.split()[1:] == ["3", "664", "108", "430", "235", "236"]
    assert "a slow iteration counts no more than a fast one" in text
    assert "Its rates count another number" not in text


def test_show_without_iterations_says_nothing_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = campaign(tmp_path, totals("write", 1.0, 100, 10))
    assert call(monkeypatch, "show", path) == 0
    assert "own summary" not in capsys.readouterr().out


def test_show_json_has_every_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = imported(tmp_path, DATA / "ior/ior-3.3.0-fpp.txt")
    assert call(monkeypatch, "show", path, "--json") == 0
    told = {cell["phase"]: cell for cell in json.loads(capsys.readouterr().out)}
    write = told["write"]
    assert write["own_summary"]["maximum"] == 663.82 * MIB
    assert [one["open"] for one in write["iterations"]] == [0.008169, 0.012114, 0.017281]
    assert [one["close"] for one in write["iterations"]] == [0.262745, 0.016308, 0.009218]
    assert {one["block"] for one in write["iterations"]} == {8 * MIB}
    assert "rank_max" not in write["iterations"][0]
    assert iterations.NEEDED[1] in write["iterations"][0]


def test_parsers_of_other_packages_may_tell_iterations_too(tmp_path: Path) -> None:
    """Columns that a parser does not know are NaN in the file."""
    needed = {name: phase().iterations[name] for name in iterations.NEEDED}
    parsed = Parsed(engine="x", phases=(totals("write", 4.0, 300, 30, iterations=needed),))
    source = Source("a", "0" * 64, "f", "2026-01-01T00:00:00Z", "0", {})
    path = campaigns.write(tmp_path / "c.h5", records([parsed], source, {}))
    ds = open_campaign(path)
    assert np.isnan(ds["iteration_open"].values).all()
    assert ds["iteration_seconds"].values.tolist() == [1, 1, 2]
