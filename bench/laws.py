"""Which law of scalability is named, on campaigns whose law is known.

    python -P bench/laws.py [--campaigns 300]

Prints a Markdown table: in how many campaigns the USL is named by kappa's interval (what
`fsmatrix scalability` does), by an F test of kappa > 0, and by AICc of the levels' means; and in
how many the law that is named is refused, since the levels contradict it.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy import stats

from fsmatrix.analysis.questions import scalability
from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats

NODES = np.array([1.0, 2, 3, 4, 5, 6, 8])
TRUTHS = {
    "Amdahl, sigma 0.05": scalability.throughput(NODES, 1e8, 0.05, 0.0),
    "Amdahl, sigma 0.3": scalability.throughput(NODES, 1e8, 0.3, 0.0),
    "USL, kappa 0.002": scalability.throughput(NODES, 1e8, 0.05, 0.002),
    "USL, kappa 0.01": scalability.throughput(NODES, 1e8, 0.05, 0.01),
    "no law: a cap at 4 nodes": 1e8 * np.minimum(NODES, 4),
}
ATTACHMENTS = (6, 10)
SPREADS = (0.03, 0.10)  # standard deviation of attachments' logs


def campaign(random: np.random.Generator, means: Floats, n: int, spread: float) -> list[Floats]:
    """Throughputs of n attachments at each level."""
    return [mean * np.exp(spread * random.standard_normal(n)) for mean in means]


def f_test(fitted: scalability.Laws, values: list[Floats]) -> bool:
    """Whether the USL's smaller misfit is more than the spread of attachments explains."""
    sizes = np.array([sample.size for sample in values])
    freedom = int(sizes.sum()) - sizes.size
    within = sum(float(np.log(sample).var() * sample.size) for sample in values) / freedom
    gain = float(sizes[0]) * sizes.size * (fitted.amdahl.error**2 - fitted.usl.error**2)
    t = math.sqrt(max(gain, 0) / within)
    return bool(stats.t.sf(t, freedom) < (1 - LEVEL) / 2)


def aicc(law: scalability.Law) -> float:
    """Akaike's criterion for small samples, of the levels' means."""
    count, k = NODES.size, law.parameters + 1  # and the variance
    return count * math.log(law.error**2) + 2 * k + 2 * k * (k + 1) / (count - k - 1)


def shares(
    random: np.random.Generator, means: Floats, n: int, spread: float, campaigns: int
) -> list[str]:
    """In how many campaigns each criterion names the USL, and the law that is named is refused."""
    named = np.zeros(4)
    for seed in range(campaigns):
        values = campaign(random, means, n, spread)
        fitted = scalability.fit(NODES, values, seed)
        assert isinstance(fitted, scalability.Laws)
        named += [
            fitted.apart,
            f_test(fitted, values),
            aicc(fitted.usl) < aicc(fitted.amdahl),
            not fitted.hold,
        ]
    return [f"{share:.1%}" for share in named / campaigns]


def main() -> None:
    """Simulate the campaigns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=300)
    campaigns = parser.parse_args().campaigns
    random = np.random.default_rng(11)
    print(
        "| law | attachments | spread | USL by kappa's interval | by F test | by AICc | refused |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, means in TRUTHS.items():
        for n in ATTACHMENTS:
            for spread in SPREADS:
                row = shares(random, means, n, spread, campaigns)
                print(f"| {name} | {n} | {spread:.0%} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
