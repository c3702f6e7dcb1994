"""Pages of a trace: reuse distances against a list that is kept by hand, and sampled ones."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsmatrix.results.evidence.trace import PageReuse
from fsmatrix.traces import touched_pages
from fsmatrix.traces.page_cache import Zipf
from fsmatrix.traces.touched_pages import NEVER, Pages, distances, previous, smaller_before

PAGE = 4096


def by_hand(accesses: list[Any]) -> list[int]:
    """Reuse distances from a list in the order of last accesses."""
    recent: list[Any] = []
    found = []
    for page in accesses:
        if page in recent:
            place = recent.index(page)
            found.append(len(recent) - place - 1)
            del recent[place]
        else:
            found.append(NEVER)
        recent.append(page)
    return found


def misses(accesses: list[Any], cache: int) -> int:
    """Misses of an LRU cache of so many pages."""
    held: OrderedDict[Any, None] = OrderedDict()
    missed = 0
    for page in accesses:
        missed += page not in held
        held[page] = None
        held.move_to_end(page)
        if len(held) > cache:
            held.popitem(last=False)
    return missed


@given(st.lists(st.integers(0, 12), max_size=120))
def test_distances_are_those_of_a_list_kept_by_hand(accesses: list[int]) -> None:
    found = distances(previous(np.array(accesses, dtype=np.uint64)))
    assert found.tolist() == by_hand(accesses)


@given(st.integers(0, 70), st.integers(0, 1000))
def test_smaller_numbers_before(n: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).permutation(n)
    expected = [int((numbers[:i] < numbers[i]).sum()) for i in range(n)]
    assert smaller_before(numbers).tolist() == expected


def looked(
    file: Any, offset: Any, moved: Any, window: Any = None, parts: int = 5, **limits: Any
) -> tuple[Pages, PageReuse]:
    """Statistics of accesses that are given in some parts."""
    count = len(offset)
    window = np.zeros(count, dtype=np.int64) if window is None else np.asarray(window)
    of = Pages(int(window.max()) + 1, **limits)
    for part in np.array_split(np.arange(count), parts):
        of.add(*(np.asarray(column, dtype=np.int64)[part] for column in (file, offset, moved)),
               window[part])  # fmt: skip
    reuse = of.reuse()
    assert reuse is not None
    return of, reuse


def expanded(file: Any, offset: Any, moved: Any) -> list[tuple[int, int]]:
    """(file, page) of every access."""
    return [
        (int(f), page)
        for f, o, m in zip(file, offset, moved, strict=True)
        for page in range(int(o) // PAGE, (int(o) + int(m) - 1) // PAGE + 1)
    ]


@pytest.mark.parametrize("at_once", [1, 50, 1 << 17])
def test_small_traces_are_followed_exactly(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(touched_pages, "AT_ONCE", at_once)
    random = np.random.default_rng(at_once)
    count = 600
    file = random.integers(0, 3, count)
    offset = random.integers(0, 40, count) * 1000
    moved = random.integers(1, 9000, count)
    window = np.sort(random.integers(0, 4, count))
    of, reuse = looked(file, offset, moved, window)
    accesses = expanded(file, offset, moved)
    assert (reuse.accesses, reuse.unique) == (len(accesses), len(set(accesses)))
    assert (reuse.rate, reuse.unique_error, reuse.followed) == (1, 0, len(set(accesses)))
    assert reuse.cache_bytes[0] == PAGE
    assert reuse.cache_bytes[-1] >= PAGE * len(set(accesses))
    for cache, ratio in zip(reuse.cache_bytes, reuse.miss_ratio, strict=True):
        assert ratio == misses(accesses, cache // PAGE) / len(accesses)
    assert set(reuse.miss_ratio_error) == {0.0}
    again = sorted(d for d in by_hand(accesses) if d != NEVER)
    for q, found in ((0.1, reuse.distance_p10), (0.5, reuse.distance_p50)):
        assert found == again[int(np.ceil(q * len(again))) - 1] * PAGE
    for number in range(4):
        some = window == number
        within = set(expanded(file[some], offset[some], moved[some]))
        earlier = window < number
        before = set(expanded(file[earlier], offset[earlier], moved[earlier]))
        assert of.working_set[number] == len(within)
        assert of.new[number] == len(within - before)


def test_no_page_twice_has_no_distances() -> None:
    count = 3001
    _, reuse = looked(np.zeros(count), np.arange(count) * PAGE, np.full(count, 128))
    assert set(reuse.miss_ratio) == {1.0}
    assert (reuse.distance_p10, reuse.distance_p90) == (None, None)


def test_one_page_again_and_again() -> None:
    _, reuse = looked(np.zeros(1000), np.arange(1000), np.ones(1000))
    assert (reuse.unique, reuse.cache_bytes, reuse.miss_ratio) == (1, (PAGE,), (0.001,))
    assert (reuse.distance_p10, reuse.distance_p90) == (0, 0)


def test_a_large_request_touches_all_its_pages() -> None:
    _, reuse = looked([0], [100], [(1 << 31) - 1], parts=1)
    assert reuse.accesses == 524_289
    assert reuse.unique == pytest.approx(524_289, abs=4 * reuse.unique_error + 1e-9)


def test_no_accesses() -> None:
    assert Pages(1).reuse() is None


def sampled(offset: Any, most_pages: int) -> tuple[PageReuse, PageReuse]:
    """(followed exactly, at a rate) of the same accesses of 1 byte."""
    zeros, ones = np.zeros(len(offset)), np.ones(len(offset))
    _, exact = looked(zeros, offset, ones)
    of, estimated = looked(zeros, offset, ones, parts=40, most_pages=most_pages)
    assert exact.rate == 1
    assert 2 * of.rate * exact.unique > 0.5 * most_pages
    assert estimated.followed <= most_pages
    return exact, estimated


@pytest.mark.parametrize("most_pages", [1 << 10, 1 << 12])
@pytest.mark.parametrize("kind", ["zipf", "uniform", "scan", "loop"])
def test_errors_of_sampled_pages_are_as_large_as_they_say(
    monkeypatch: pytest.MonkeyPatch, kind: str, most_pages: int
) -> None:
    """Every estimate within 4 of its standard errors of what exact statistics are."""
    monkeypatch.setattr(touched_pages, "AT_ONCE", 1 << 13)
    count = 150_000
    index = np.arange(count)
    offset = (
        PAGE
        * {
            "zipf": Zipf(40_000, 0.99).ranks(index, 5),
            "uniform": np.random.default_rng(7).integers(0, 30_000, count),
            "scan": index,
            "loop": index % 20_000,
        }[kind]
    )
    exact, estimated = sampled(offset, most_pages)
    assert estimated.rate < 1
    assert abs(estimated.unique - exact.unique) <= 4 * estimated.unique_error
    assert estimated.unique_error < 0.06 * exact.unique
    true = dict(zip(exact.cache_bytes, exact.miss_ratio, strict=True))
    compared = 0
    for cache, ratio, error in zip(
        estimated.cache_bytes, estimated.miss_ratio, estimated.miss_ratio_error, strict=True
    ):
        assert cache >= 32 * PAGE / estimated.rate
        if cache in true:
            compared += 1
            assert abs(ratio - true[cache]) <= 4 * error + 1e-9, cache
    assert compared > 5
    assert max(estimated.miss_ratio_error) < (0.6 if kind == "loop" else 0.06)


def test_the_rate_falls_where_a_trace_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages would fit, but so many accesses need not be looked at."""
    monkeypatch.setattr(touched_pages, "AT_ONCE", 1 << 10)
    monkeypatch.setattr(touched_pages, "LEAST_PAGES", 1 << 8)
    offset = PAGE * np.random.default_rng(1).integers(0, 2_000, 60_000)
    zeros, ones = np.zeros(len(offset)), np.ones(len(offset))
    of, reuse = looked(zeros, offset, ones, parts=60, most_accesses=5_000)
    assert of.rate == 0.25  # 2000 pages, of which at least 256 stay
    assert reuse.unique == pytest.approx(len(np.unique(offset)), abs=4 * reuse.unique_error + 1)


def test_statistics_do_not_depend_on_how_operations_are_divided() -> None:
    offset = PAGE * np.random.default_rng(2).integers(0, 500, 3_000)
    columns = (np.zeros(len(offset)), offset, np.ones(len(offset)))
    assert looked(*columns, parts=1)[1] == looked(*columns, parts=99)[1]
