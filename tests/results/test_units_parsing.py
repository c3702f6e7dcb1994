"""Sizes and durations: what people write, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fsmatrix.results.units import (
    LARGEST,
    SIZE_UNITS,
    Duration,
    PositiveDuration,
    PositiveSize,
    Size,
    UnitError,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4KiB", 4096),
        ("4KB", 4000),
        ("4kB", 4000),
        ("4194304", 4194304),
        (4194304, 4194304),
        ("1.5GiB", 3 << 29),
        (" 2 MB ", 2_000_000),
        ("0", 0),
        ("7B", 7),
        (2.0, 2),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["4k", "4K", "4Kb", "4kib", "4m", "1.5G"])
def test_ambiguous_units_are_refused_and_both_meanings_named(text: str) -> None:
    with pytest.raises(UnitError, match="ambiguous") as caught:
        parse_size(text)
    letter = text.strip("0123456789.")[0].upper()
    assert f"{letter}iB" in str(caught.value)
    assert f"{letter}B" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("-1", "too small"),
        (-4096, "too small"),
        ("0.3KiB", "no whole number"),
        (1.5, "no whole number"),
        ("4 parsecs", "unknown unit"),
        ("", "no size"),
        ("KiB", "no size"),
        ("1e6", "unknown unit|no size"),
        ("٤KiB", "no size"),
        (True, "must be text"),
        (None, "must be text"),
        ([1], "must be text"),
        (float("inf"), "finite"),
        (float("nan"), "finite"),
        (LARGEST + 1, "larger"),
    ],
)
def test_refused_sizes(value: object, why: str) -> None:
    with pytest.raises(UnitError, match=why):
        parse_size(value)


@given(st.integers(0, LARGEST))
def test_exact_text_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 999), st.sampled_from(sorted(SIZE_UNITS)))
def test_number_and_unit(number: int, unit: str) -> None:
    size = number * SIZE_UNITS[unit]
    if size <= LARGEST:
        assert parse_size(f"{number}{unit}") == size
    else:
        with pytest.raises(UnitError, match="larger"):
            parse_size(f"{number}{unit}")


@given(st.integers(0, LARGEST))
def test_rounded_text_is_near(size: int) -> None:
    text = format_size(size, 3)
    unit = text.lstrip("0123456789.")
    near = float(text[: -len(unit)]) * SIZE_UNITS[unit]
    assert abs(near - size) <= 0.001 * SIZE_UNITS[unit] + 1e-9 * size


def test_shortest_exact_text() -> None:
    assert format_size(4096) == "4KiB"
    assert format_size(64_000_000) == "64MB"
    assert format_size(0) == "0B"
    assert format_size(1 << 30) == "1GiB"
    assert format_size(3 << 29, 1) == "1.5GiB"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60.0),
        ("5min", 300.0),
        ("2h", 7200.0),
        ("1h30min", 5400.0),
        ("250ms", 0.25),
        ("10us", 1e-5),
        (0.25, 0.25),
        ("0.25", 0.25),
        (0, 0.0),
        ("1d", 86400.0),
    ],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("value", ["5m", "5 M", "-1s", -1, "s", "1h-5min", True, None, "nan"])
def test_refused_durations(value: object) -> None:
    with pytest.raises(UnitError):
        parse_duration(value)


def test_minutes_are_not_m() -> None:
    with pytest.raises(UnitError, match="min is minutes"):
        parse_duration("5m")


def test_types_for_options() -> None:
    assert TypeAdapter(Size).validate_python("4KiB") == 4096
    assert TypeAdapter(Duration).validate_python("2min") == 120
    with pytest.raises(ValidationError, match="at least 1B"):
        TypeAdapter(PositiveSize).validate_python(0)
    with pytest.raises(ValidationError, match="more than zero"):
        TypeAdapter(PositiveDuration).validate_python("0s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (8.4, "8 s"),
        (89, "89 s"),
        (150, "2 min"),
        (9000, "2.5 h"),
        (47 * 3600, "47.0 h"),
        (60 * 3600, "2.5 days"),
        (1003.9 * 3600, "42 days"),
    ],
)
def test_durations_are_said_in_a_unit_that_people_count_in(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
