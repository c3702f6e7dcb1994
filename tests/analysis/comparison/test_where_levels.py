"""--where: a level is found whether its factor holds numbers or texts."""

from __future__ import annotations

import pytest
import xarray as xr

from fsmatrix.analysis.comparison.counted_rows import table
from fsmatrix.analysis.data.factors import same
from fsmatrix.analysis.data.metric_cells import study
from fsmatrix.analysis.units import wanted_level
from fsmatrix.cli.questions.analyse import levels
from tests.analysis import study_data as studies


def campaign(*years: object) -> xr.Dataset:
    """One run for each level of `year`."""
    rows = [
        {"year": year, "bandwidth": 1e8, "attachment": f"a{i}", "cache": "cold", "pattern": "read"}
        for i, year in enumerate(years)
    ]
    return studies.dataset(rows, ["year", "pattern", "cache"])


@pytest.mark.parametrize("years", [(2024, 2025), ("2024", "2025", "unknown")])
@pytest.mark.parametrize("typed", ["2025", "2024"])
def test_a_number_is_found_among_numbers_and_among_texts(
    years: tuple[object, ...], typed: str
) -> None:
    ds, only = campaign(*years), levels([f"year={typed}"])
    assert [str(cell.level("year")) for cell in study(ds, "bandwidth", only).valued] == [typed]
    assert table(ds, "bandwidth", ("target",), only).values.size == 1


def test_texts_that_read_as_one_number_are_two_levels() -> None:
    ds = campaign("3.1", "3.10", "4.0.0rc1")
    for typed in ("3.1", "3.10", "4.0.0rc1"):
        only = levels([f"year={typed}"])
        (cell,) = study(ds, "bandwidth", only).valued
        assert cell.level("year") == typed
        assert table(ds, "bandwidth", ("target",), only).values.size == 1


@pytest.mark.parametrize(
    ("level", "wanted", "equal"),
    [
        (4096, wanted_level("4KiB"), True),
        (4096, wanted_level("4096.0"), True),
        ("4KiB", wanted_level("4KiB"), True),
        ("4096", wanted_level("4KiB"), False),
        ("2025", 2025, True),
        ("2025", 2025.0, True),
        ("1234567", 1234567, True),
        (2025, "2025", False),  # a text of Python is a text
        ("true", wanted_level("true"), True),
        ("nan", wanted_level("nan"), True),
    ],
)
def test_same(level: str | int, wanted: str | float, equal: bool) -> None:
    assert same(level, wanted) is equal
