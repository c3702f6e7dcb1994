"""Amdahl's law and the Universal Scalability Law, fitted to throughput over nodes.

    X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))

sigma: serialised share; kappa: cost of keeping nodes coherent; Amdahl's law is kappa = 0.
Sources: Amdahl, AFIPS 1967; Gunther, "A General Theory of Computational Scalability Based on
Rational Functions", arXiv:0808.1431.

N / X is linear in ((1 - sigma), sigma, kappa) / lambda, all of them >= 0: non-negative least
squares on relative errors, without start values.  Intervals: bootstrap of the logs of attachments
around their level (residuals pooled over the levels, widened by sqrt(n / (n - levels)) and by
the ratio of Student's to the normal quantile: percentiles alone cover too little); they hold the
spread of attachments, not a misfit of the law.

There is one criterion: the USL where kappa's whole interval lies above 0, else Amdahl's law.  AICc
of the levels' means, which knows nothing of how attachments spread, misses the USL far more often
(python -P bench/laws.py; docs/statistics.md).  The law that is chosen must hold: where its levels'
means miss it by more than attachments vary (F test of lack of fit: Draper and Smith, Applied
Regression Analysis, 1998, section 2.1), neither is used, and what was measured is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy

from fsmatrix.analysis.stats.estimates.medians import LEVEL, Floats

RESAMPLES = 500
TAIL = 50 * (1 - LEVEL)  # per cent on each side
FEWEST_LEVELS = 6  # three parameters, and as many levels to contradict them
TINY = 1e-12  # of a misfit: attachments that vary less are equal but for rounding
FEWEST_FREEDOM = 5  # attachments beyond one per level: below, their spread is unknown


@dataclass(frozen=True)
class Estimate:
    """A parameter with its bootstrap interval of LEVEL; NaN ends without one."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Law:
    """A law of growth over nodes, fitted to one series."""

    name: str
    parameters: int
    rate: Estimate  # lambda: throughput of one node, SI
    sigma: Estimate
    kappa: Estimate  # 0 in Amdahl's law
    peak: Estimate  # nodes of the largest throughput, sqrt((1 - sigma) / kappa); inf without
    error: float  # RMS of the logs of levels around it
    misfit: float  # p that chance moves the levels so far from it
    drawn: Floats = field(repr=False, compare=False)  # the bootstrap's [resample, rate sigma kappa]

    def at(self, nodes: Floats) -> Floats:
        """Throughput at node counts, SI."""
        return throughput(nodes, self.rate.value, self.sigma.value, self.kappa.value)


@dataclass(frozen=True)
class Top:
    """The most that was measured, and whether more nodes than it takes gained or lost anything."""

    nodes: float  # of the largest mean
    enough: float  # the fewest nodes that are not shown to have less
    last: float  # the most nodes that were measured
    after: Estimate  # throughput there over that at `enough`

    @property
    def says(self) -> str:
        """The plateau or the fall, or that there is none."""
        ratio = (
            f"{self.last:g} nodes have {_span(self.after, '.3g')} times what {self.enough:g} have"
        )
        if self.after.high < 1:
            return f"the most is measured at {self.nodes:g} nodes; {ratio}"
        if self.enough < self.last:
            return f"from {self.enough:g} nodes on no gain is shown; {ratio}"
        return f"the most is measured at {self.last:g} nodes, the most that there were"


@dataclass(frozen=True)
class Laws:
    """Both laws of one series."""

    amdahl: Law
    usl: Law
    superlinear: bool  # more than proportional: neither law can say that
    top: Top

    @property
    def hold(self) -> bool:
        """Whether the chosen law may be used: the levels do not contradict it."""
        return not self.superlinear and self.chosen.misfit > 1 - LEVEL

    @property
    def apart(self) -> bool:
        """Whether the data need the USL: the interval of kappa lies above 0."""
        return self.usl.kappa.low > 0

    @property
    def chosen(self) -> Law:
        """The simplest law that the data do not exclude."""
        return self.usl if self.apart else self.amdahl

    def nodes_for(self, wanted: float) -> Estimate:
        """Nodes at which the chosen law's throughput (SI) reaches `wanted`; inf: it never does.

        Not rounded.  The interval is that of both laws together, and holds if one of them does:
        beyond the nodes that were measured nothing tests them.
        """
        law = self.chosen
        parameters = np.array([[law.rate.value], [law.sigma.value], [law.kappa.value]])
        (value,) = reached(wanted, *parameters).tolist()
        drawn = [reached(wanted, *law.drawn.T) for law in (self.amdahl, self.usl)]
        ends = np.percentile(drawn, [TAIL, 100 - TAIL], axis=1, method="inverted_cdf")
        return Estimate(value, float(ends[0].min()), float(ends[1].max()))

    @property
    def says(self) -> str:
        """The verdict in words."""
        sigma, kappa, peak = self.chosen.sigma, self.usl.kappa, self.usl.peak
        if self.superlinear:
            return "it grows more than proportionally at first: neither law can say that"
        if not self.hold:
            return (
                f"neither law describes it ({self.chosen.name} misses the numbers of nodes by "
                f"{100 * self.chosen.error:.2g} %, more than attachments vary): {self.top.says}"
            )
        serial = f"{_percent(sigma)} of the work is not shared by the nodes"
        if self.apart:
            return (
                f"the USL describes it: {serial}, and each pair of nodes costs {_percent(kappa)} "
                f"more; the most is reached at {_span(peak, '.3g')} nodes"
            )
        return (
            f"Amdahl's law describes it: {serial}; that more nodes get slower together (kappa "
            f"of the USL) is not shown, 95 % sure: {kappa.low:.2g} to {kappa.high:.2g}"
        )


def _percent(of: Estimate) -> str:
    return f"{100 * of.value:.2g} % (95 % sure: {100 * of.low:.2g} to {100 * of.high:.2g} %)"


def _span(of: Estimate, form: str) -> str:
    return f"{of.value:{form}} (95 % sure: {of.low:{form}} to {of.high:{form}})"


def throughput(nodes: Floats, rate: float, sigma: float, kappa: float) -> Floats:
    """X(N) of the Universal Scalability Law."""
    return rate * nodes / (1 + sigma * (nodes - 1) + kappa * nodes * (nodes - 1))


def reached(wanted: float, rate: Floats, sigma: Floats, kappa: Floats) -> Floats:
    """The smaller N with X(N) = wanted, [law]; inf where X never gets there.

    kappa X N^2 - (rate - sigma X + kappa X) N + (1 - sigma) X = 0.
    """
    a, b, c = kappa * wanted, rate - sigma * wanted + kappa * wanted, (1 - sigma) * wanted
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(b**2 - 4 * a * c)
        peak: Floats = np.where(b > 0, 2 * c / (b + root), math.inf)
    return np.where(np.isnan(peak), math.inf, peak)


def fit(nodes: Floats, values: Sequence[Floats], seed: int = 0) -> Laws | str:
    """Both laws for node counts [level] and the attachments' throughputs of each; or why not."""
    if nodes.size < FEWEST_LEVELS:
        return (
            f"{nodes.size} numbers of storage nodes: a law of up to 3 parameters needs at least "
            f"{FEWEST_LEVELS} to be tested on"
        )
    if any(np.any(throughputs <= 0) for throughputs in values):
        return "throughputs must be positive"
    logs = [np.log(value) for value in values]
    means = np.array([values_of.mean() for values_of in logs])
    total = sum(of_level.size for of_level in logs)
    if total - nodes.size < FEWEST_FREEDOM:
        return f"{total} attachments at {nodes.size} levels: their spread is unknown"
    residuals = np.concatenate([of_level - of_level.mean() for of_level in logs])
    freedom = total - nodes.size
    tail = (1 + LEVEL) / 2
    residuals *= (
        math.sqrt(total / freedom)
        * scipy.special.stdtrit(freedom, tail)
        / scipy.special.ndtri(tail)
    )
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [
            mean + rng.choice(residuals, (RESAMPLES, of_level.size)).mean(axis=1)
            for mean, of_level in zip(means, logs, strict=True)
        ],
        axis=1,
    )
    laws = [_law(name, nodes, logs, drawn) for name in ("Amdahl", "USL")]
    # growth from the first to the second level, beyond the interval of proportional growth
    steps = drawn[:, 1] - drawn[:, 0] - math.log(nodes[1] / nodes[0])
    superlinear = float(np.percentile(steps, TAIL)) > 0
    return Laws(laws[0], laws[1], superlinear, _top(nodes, means, drawn))


def _misfit(logs: Sequence[Floats], residual: Floats, spare: int) -> float:
    """p of the F test of lack of fit, from the logs of attachments at each level.

    `residual`, [level]: of their means; `spare`: levels beyond the parameters of the law.
    """
    sizes = np.array([of_level.size for of_level in logs])
    missed = float(sizes @ np.square(residual)) / spare
    freedom = int(sizes.sum()) - sizes.size
    within = sum(float(np.square(v - v.mean()).sum()) for v in logs) / freedom
    if within <= TINY * missed:
        return 0.0
    f = missed / max(within, np.finfo(float).tiny)
    return float(scipy.special.fdtrc(spare, freedom, f))


def _top(nodes: Floats, means: Floats, drawn: Floats) -> Top:
    """From the levels' means of logs [level] and those of the bootstrap [resample, level].

    The best of several levels is the luckiest too, so every pair of levels is judged at once: by
    how far apart chance alone drives the two that are farthest from each other.
    """
    best = int(np.argmax(means))
    apart = float(np.percentile(np.ptp(drawn - means, axis=1), 100 * LEVEL))
    enough = int(np.argmax(means > means[best] - apart))
    after = float(means[-1] - means[enough])
    ends = (math.exp(after + side) for side in (0.0, -apart, apart))
    return Top(float(nodes[best]), float(nodes[enough]), float(nodes[-1]), Estimate(*ends))


def _law(name: str, nodes: Floats, logs: Sequence[Floats], drawn: Floats) -> Law:
    terms = 3 if name == "USL" else 2
    means = np.array([of_level.mean() for of_level in logs])
    solution = _solve(nodes, means, terms)
    boot = np.array([_solve(nodes, resampled, terms) for resampled in drawn])
    low, high = np.percentile(boot, [TAIL, 100 - TAIL], axis=0, method="inverted_cdf")
    residual = means - np.log(throughput(nodes, *(float(v) for v in solution[:3])))
    square = float(np.square(residual).mean())
    rate, sigma, kappa, peak = (
        Estimate(float(v), float(a), float(b)) for v, a, b in zip(solution, low, high, strict=True)
    )
    misfit = _misfit(logs, residual, nodes.size - terms)
    return Law(name, terms, rate, sigma, kappa, peak, math.sqrt(square), misfit, boot[:, :3])


def _solve(nodes: Floats, logs: Floats, terms: int) -> Floats:
    """(lambda, sigma, kappa, peak) from the logs of throughput at each level."""
    cost = nodes / np.exp(logs - logs[0])
    columns = np.stack([np.ones_like(nodes), nodes, nodes * (nodes - 1)], axis=1)[:, :terms]
    part, _ = scipy.optimize.nnls(columns / cost[:, None], np.ones_like(nodes))
    alone = part[0] + part[1]  # 1 / lambda
    if alone <= 0:
        return np.array([math.inf, 0.0, 0.0, math.inf])
    sigma = part[1] / alone
    kappa = part[2] / alone if terms == 3 else 0.0
    peak = math.sqrt((1 - sigma) / kappa) if kappa > 0 else math.inf
    return np.array([math.exp(logs[0]) / alone, sigma, kappa, peak])
