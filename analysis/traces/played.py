"""How replays of one cell went, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fsmatrix.analysis import units
from fsmatrix.analysis.units import fitting
from fsmatrix.results.evidence.replay import Replayed
from fsmatrix.results.units import plural


def played_says(runs: Sequence[Replayed]) -> Iterator[str]:
    """Fidelity, how it was played, errors, what was left out, and how late it was issued."""
    seen = runs[0]
    operations, agreed = (sum(getattr(t, n) for t in runs) for n in ("operations", "agreed"))
    lowest = min(t.fidelity for t in runs)
    declared = share(seen.declared_fidelity)
    yield (
        f"Fidelity {share(lowest)} (declared: at least {declared}): {agreed} of {operations} "
        "operations had the captured outcome."
    )
    yield from _how(seen)
    for words, name in (
        ("failed with the captured errno", "errors_as_captured"),
        ("failed differently than captured", "errors_otherwise"),
    ):
        errors = added(getattr(t, name) for t in runs)
        if errors:
            shown = ", ".join(f"{count} x {number}" for number, count in errors.items())
            yield f"{sum(errors.values())} operations {words}: {shown}."
    left = added(t.left_out for t in runs)
    if left:
        shown = ", ".join(f"{count} {kind}" for kind, count in left.items())
        yield f"Not chosen by window, files and kinds: {shown}."
    issue = [t.issue_error for t in runs if t.issue_error is not None]
    if issue:
        worst = max(issue, key=lambda error: error.mean)
        unit = fitting("time", [worst.mean, worst.longest])
        p99 = "" if worst.p99 is None else f"99 % below {units.text(worst.p99, unit)}, "
        yield (
            f"Issued late by {units.text(worst.mean, unit)} {unit.label} on average, {p99}at most "
            f"{units.text(worst.longest, unit)} {unit.label}; {share(worst.within_100us)} within "
            "100 µs of their time."
        )


def _how(seen: Replayed) -> Iterator[str]:
    mode = {
        "closed": "each captured thread's operations one after the other",
        "queue": "reads and writes as fast as possible from a shared queue",
        "timed": "at the captured times",
    }.get(seen.mode, seen.mode)
    scale = f", times scaled by {seen.time_scale:g}" if seen.time_scale not in (0, 1) else ""
    clients = f" by {seen.clients} clients, each all of it" if seen.clients > 1 else ""
    threads = f"; {plural(seen.threads, 'captured thread')} in all ranks" if seen.threads else ""
    yield f"Played{clients}: {mode}{scale}{threads}."
    for count, words in (
        (seen.barriers, "barriers kept the order between threads"),
        (seen.sharing, "threads shared a lane with another of their time"),
        (seen.widened, "operations were widened to what O_DIRECT can do"),
        (seen.buffered, "operations went without O_DIRECT, not being aligned"),
        (seen.added, "opens and closes were added that the trace does not have"),
        (seen.added_failed, "of those failed"),
    ):
        if count:
            yield f"{count} {words} (first run)."
    if seen.fill == "sparse":
        yield "Files were made sparse: holes are read from no device."


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts of several runs by name, as sums."""
    total: dict[str, int] = {}
    for of in counts:
        for name, count in of.items():
            total[name] = total.get(name, 0) + count
    return total


def share(share: float) -> str:
    """Per cent; what is not all never reads as 100 %."""
    return "100 %" if share >= 1 else f"{min(100 * share, 99.99):.4g} %"
