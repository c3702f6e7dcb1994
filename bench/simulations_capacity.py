"""The search for a capacity on virtual queues whose capacity is known.

A part of bench/simulations.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext

import numpy as np
from tables_of_docs import table

from fsmatrix.analysis.stats.estimates import medians
from fsmatrix.suite.workloads.capacity import Limit

BLOCKS = 6
RATE = 10_000.0  # operations per second that a server ends
LIMIT = 0.002  # s, of the time from arrival to end: 20 service times
OPERATIONS = (5_000, 20_000)  # due in a step at the capacity
STALL = 0.02  # s
SATURATED = 0.99
MEASURED = 0.02  # standard deviation of the logs of what the closed loop shows of the server


def true_capacity(queue: str) -> float:
    """The rate of Poisson arrivals at which p99 is the limit, operations per second."""
    if queue == "M/M/1":
        return RATE - math.log(100) / LIMIT
    low, high = 0.01, 0.9999  # loads
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle) >= 0.99 else (low, middle)
    return low * RATE


def _within(load: float) -> float:
    """M/D/1: share that ends within the limit (Erlang 1909; terms of opposite signs cancel)."""
    with localcontext() as context:
        context.prec = 80
        each = Decimal(load)
        waited = Decimal(LIMIT) * Decimal(RATE) - 1  # service times
        terms = (
            (-each * (waited - k)) ** k / math.factorial(k) * (each * (waited - k)).exp()
            for k in range(int(waited) + 1)
        )
        return float((1 - each) * sum(terms, Decimal(0)))


def probed(
    random: np.random.Generator, queue: str, rate: float, server: float, seconds: float, stall: bool
) -> bool:
    """Whether one step at that rate keeps the limit; `server`: operations per second it ends."""
    count = random.poisson(rate * seconds)
    arrivals = np.sort(random.random(count)) * seconds
    services = np.full(count, 1 / server)
    if queue == "M/M/1":
        services = random.standard_exponential(count) / server
    if stall:
        services[random.integers(count)] += STALL
    worked = np.cumsum(services)
    ends = worked + np.maximum.accumulate(arrivals - worked + services)
    if np.mean(ends - services <= seconds) < SATURATED:
        return False
    return bool(np.quantile(ends - arrivals, 0.99, method="inverted_cdf") <= LIMIT)


def searched(
    random: np.random.Generator, queue: str, seconds: float, spread: float, stalls: float
) -> tuple[float, int]:
    """(What one attachment finds, NaN for nothing; its steps)."""
    server = RATE * math.exp(spread * random.standard_normal())
    maximum = server * math.exp(MEASURED * random.standard_normal())
    search = Limit.of({"p99": f"{LIMIT * 1e3:g}ms"}).search(maximum, seconds)
    assert search is not None  # the steps are long enough
    kept: list[bool] = []
    while (rate := search.after(kept).rate) is not None:
        kept.append(probed(random, queue, rate, server, seconds, random.random() < stalls))
    end = search.after(kept)
    return end.found if end.found and not end.highest else math.nan, len(kept)


def capacity(campaigns: int) -> Iterator[str]:
    """Bias, coverage and cost of the median over six attachments."""
    random = np.random.default_rng(9)
    rows = []
    for queue in ("M/M/1", "M/D/1"):
        truth = true_capacity(queue)
        for operations in OPERATIONS:
            for spread, stalls in ((0.0, 0.0), (0.05, 0.0), (0.05, 0.05)):
                given = [
                    searched(random, queue, operations / truth, spread, stalls)
                    for _ in range(campaigns * BLOCKS)
                ]
                found, steps = np.array(given).T
                numbers = found[np.isfinite(found)]
                parts = numbers[: numbers.size // BLOCKS * BLOCKS].reshape(-1, BLOCKS)
                each = [medians.of_independent(part) for part in parts]
                held = np.mean([one.low <= truth <= one.high for one in each])
                bias = np.median([one.median for one in each]) / truth - 1
                width = np.median([(one.high - one.low) / truth for one in each])
                low, high = np.quantile(numbers / truth - 1, (0.05, 0.95))
                rows.append(
                    [
                        queue,
                        f"{truth / RATE:.0%}",
                        f"{operations}",
                        f"{spread:.0%}",
                        f"{stalls:.0%}",
                        f"{numbers.size / found.size:.0%}",
                        f"{low:+.1%} to {high:+.1%}",
                        f"{bias:+.1%}",
                        f"{held:.0%} ({width:.0%})",
                        f"{np.mean(steps):.1f}",
                    ]
                )
    yield (
        "## Capacity under a limit: queues whose capacity is known\n\n"
        f"{campaigns * BLOCKS} attachments a line, by the search of `capacity`; p99 within 20 mean "
        "service times, Poisson arrivals. True: the capacity as a share of what the closed loop "
        f"reaches, which is known to {MEASURED:.0%}. Operations: due in a step at the capacity. "
        "Spread: of the server's speed between attachments. Stalls: steps in which it stands still "
        f"once for {STALL * 1e3:g} ms, ten times the limit; the truth is without them. A number: "
        "attachments in which the steps do not contradict each other. Then where nine of ten of "
        f"these lie, how far the median of {BLOCKS} of them is off, how often its interval holds "
        "the truth (in brackets its median width), and the mean number of steps.\n"
    )
    head = ["queue", "true", "operations", "spread", "stalls", "a number", "one block, 90 %"]
    yield table([*head, "bias of the median", "95 % interval holds", "steps"], rows)
