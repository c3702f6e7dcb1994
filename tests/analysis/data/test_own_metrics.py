"""Each phase is compared in its own metric; no mean mixes engines, or data and metadata."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest
import xarray as xr

from fsmatrix.analysis.comparison.compare import compare, comparisons
from fsmatrix.analysis.comparison.counted_rows import ComparisonOptions
from fsmatrix.analysis.lessons.lessons import lessons
from fsmatrix.analysis.units import own_metric
from tests.analysis import study_data as studies
from tests.analysis.commands import call

# (engine, workload, phase, bandwidth of target a, operations per second of target a)
WORK = (
    ("fio", "fio", "read", 4e8, 100.0),
    ("ior", "ior", "read", 2e8, 50.0),
    ("mdtest", "mdtest", "read", 1e6, 2000.0),
    ("mdtest", "mdtest", "create", 2e6, 4000.0),
    ("mdtest", "mdtest", "stat", math.nan, 9000.0),
)
TIMES = {"fio": 2.0, "ior": 4.0, "mdtest": 0.5}  # a over b


def mixed(work: Sequence[tuple[str, str, str, float, float]] = WORK) -> xr.Dataset:
    def rows() -> Iterator[dict[str, object]]:
        for engine, workload, phase, bandwidth, rate in work:
            for target in "ab":
                for block in range(8):
                    share = (1 if target == "a" else 1 / TIMES[engine]) * 1.01 ** (block % 3)
                    yield {
                        "target": target,
                        "workload": workload,
                        "engine": engine,
                        "phase": phase,
                        "bandwidth": bandwidth * share,
                        "iops": rate * share,
                        "block": block,
                        "attachment": f"{target}{block}",
                        "cache": "cold",
                        "bytes": 0.0 if math.isnan(bandwidth) else 1.0,
                        "work_id": f"{workload}{phase}",
                    }

    return studies.dataset(list(rows()), ["cache"])


@pytest.mark.parametrize(
    ("engine", "phase", "metric"),
    [
        ("fio", "read", "bandwidth"),
        ("player-c", "mixed", "bandwidth"),
        ("io500", "ior-hard-write", "bandwidth"),
        ("io500", "ior-rnd4K-easy-read", "bandwidth"),
        ("io500", "mdtest-hard-read", "iops"),
        ("player-c", "read-mdtest-hard", "iops"),  # of the suite's own io500
        ("ior+mdtest", "create-mdtest-easy", "iops"),
        ("player-c", "read-ior-hard", "bandwidth"),
        ("io500", "find", "iops"),
        ("mdtest", "read", "iops"),  # opens small files one after another
        ("mdtest", "create", "iops"),
        ("player-c", "open-read", "iops"),
    ],
)
def test_a_phase_is_judged_by_what_it_is(engine: str, phase: str, metric: str) -> None:
    assert own_metric(engine, phase) == metric


def test_no_mean_mixes_engines_or_metrics() -> None:
    found = {one.part: one for one in comparisons(mixed())}
    assert list(found) == ["fio, data", "ior, data", "mdtest, metadata"]
    assert [one.metric.name for one in found.values()] == ["bandwidth", "bandwidth", "iops"]
    for part, one in found.items():
        assert one.mean_ratio == pytest.approx(TIMES[part.partition(",")[0]])
        assert one.family == len(WORK)  # p is corrected over all of them together
    assert [len(one.cells) for one in found.values()] == [1, 1, 3]


def test_one_metric_for_all_keeps_engines_and_metadata_apart_too() -> None:
    found = comparisons(mixed(), "iops")
    assert [one.part for one in found] == ["fio, data", "ior, data", "mdtest, metadata"]
    assert {one.metric.name for one in found} == {"iops"}
    with pytest.raises(ValueError, match="never in one comparison"):
        compare(mixed(), "a", "b", "iops")
    one = compare(mixed(), "a", "b", "iops", options=ComparisonOptions(where={"engine": "ior"}))
    assert one.mean_ratio == pytest.approx(4)


def test_fsyncs_and_trims_are_called_so_and_are_no_metadata() -> None:
    data = ("fio", "fio", "write", 4e8, 100.0)
    others = [("fio", "fio", name, math.nan, 9e3) for name in ("create", "write-fsync", "trim")]
    found = comparisons(mixed([data, *others]))
    assert [one.part for one in found] == ["data", "fsync", "metadata", "trim"]
    assert [one.metric.name for one in found] == ["bandwidth", "iops", "iops", "iops"]
    only = comparisons(mixed([data, others[1]]))
    assert [one.part for one in only] == ["data", "fsync"]
    said = lessons(mixed([data, *others])).says
    assert any("bandwidth, fsync, metadata, trim by operations per second" in t for t in said)


def test_lessons_answer_for_metadata_by_operations_per_second() -> None:
    made = lessons(mixed())
    mine = {one.where: one.short for one in made.lessons if one.question == "backend"}
    assert any("create" in where and short == "b" for where, short in mine.items())
    assert any("fio" in where and short == "a" for where, short in mine.items())
    assert not any("without bandwidth" in text for text in made.excluded)


def test_rows_of_compare_fit_100_columns_and_say_what_they_share_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A factor that differs between the sides in the same way in all rows stands above them."""
    from fsmatrix.cli.questions import compare as compared

    long = {"a": "/a/very/long/test/file/" + "x" * 60, "b": "/another/long/file/" + "y" * 60}
    ds = mixed()
    column = [long[t] for t in ds["target"].values.tolist()]
    ds = ds.assign(test_file=("run", column))
    ds.attrs["factors"] = ds.attrs["factors"].replace("{", '{"test_file": "test_file", ', 1)
    for one in comparisons(ds):
        compared._print_comparison(one, set())
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if "▲" in line or "▼" in line]
    assert len(rows) == len(WORK)
    assert max(len(line.rstrip()) for line in rows) <= 100
    assert not any("xxxx" in line for line in rows)
    assert "xxxx" in out  # once above or below


def test_compare_prints_the_published_tables_in_100_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "published:cern-lhcb-rntuple"
    assert call(monkeypatch, "compare", name, "--by", "cluster+trial", "--cells") == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if " × " in line]
    assert rows
    assert max(len(line.rstrip()) for line in rows) <= 100
