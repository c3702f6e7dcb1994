"""What a trace is like, in sentences: for `fsmatrix trace info` and for reports of its replays."""

from __future__ import annotations

from collections.abc import Iterator

from fsmatrix.analysis.units import brief, number, rounded_size, size
from fsmatrix.results.evidence.trace import Order, PageReuse, TraceSummary, WorkingSet

CACHES = (1 / 64, 1 / 8, 1.0)  # of the bytes of unique pages


def summary_says(of: TraceSummary) -> Iterator[str]:
    """Pages and caches, working set, reads and writes, their order."""
    if of.reuse:
        yield from _pages(of.reuse)
    if of.working_set:
        yield _working_set(of.working_set)
    if of.reads + of.writes:
        yield _mix(of)
    yield from _order("reads", of.read_order)
    yield from _order("writes", of.write_order)


def _working_set(of: WorkingSet) -> str:
    """The unit is s or operations."""
    return (
        f"The working set, pages touched within {brief(of.length)} {of.unit}, is "
        f"{rounded_size(round(of.median))} in the median and {rounded_size(round(of.largest))} at "
        "most."
    )


def _mix(of: TraceSummary) -> str:
    transfers, moved = of.reads + of.writes, of.read_bytes + of.written_bytes
    text = f"Of {transfers} reads and writes, {100 * of.reads / transfers:.1f} % are reads"
    if not moved:
        return f"{text}."
    return f"{text}; of {rounded_size(moved)} moved, {100 * of.read_bytes / moved:.1f} % are read."


def _pages(of: PageReuse) -> Iterator[str]:
    """Numbers that are estimated carry two standard errors."""
    unique = f"{of.unique:.0f}" + (f" ± {2 * of.unique_error:.0f}" if of.unique_error else "")
    touched = rounded_size(round(of.unique) * of.page_bytes)
    yield (
        f"They touch {unique} unique pages of {size(of.page_bytes)} ({touched}), "
        f"each {number(of.accesses / of.unique)} times on average."
    )
    if of.rate < 1:
        yield (
            f"One page in {1 / of.rate:.0f} was followed ({of.followed} at the end): ± is two "
            "standard errors."
        )
    if of.distance_p50 is not None:
        yield (
            "Of the accesses to a page that was touched before, half have a reuse distance of at "
            f"most {rounded_size(of.distance_p50)}: bytes of other pages touched since."
        )
    points = list(dict.fromkeys(_points(of)))
    if points:
        misses = ", ".join(
            f"{rounded_size(cache)} {100 * ratio:.1f}{f' ± {200 * error:.1f}' if error else ''} %"
            for cache, ratio, error in points
        )
        yield f"An LRU cache, empty at the start, misses of all accesses to pages: with {misses}."


def _points(of: PageReuse) -> Iterator[tuple[int, float, float]]:
    curve = list(zip(of.cache_bytes, of.miss_ratio, of.miss_ratio_error, strict=True))
    for share in CACHES:
        wanted = share * of.unique * of.page_bytes
        larger = [point for point in curve if point[0] >= wanted]
        if larger:
            yield larger[0]


def _order(what: str, of: Order) -> Iterator[str]:
    if of.consecutive_share is not None and of.sequential_share is not None:
        yield (
            f"Of {of.transfers - of.first} {what} that have one before them on the handle, "
            f"{100 * of.consecutive_share:.1f} % begin where that one ended, "
            f"{100 * of.sequential_share:.1f} % there or beyond."
        )
