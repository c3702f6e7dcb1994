"""The order of a campaign: blocks of whole plots, shards, selections.  Pure functions.

A random order is made by sorting on hashes of (seed, block, plot, repetition, case): every
order is equally likely, it is the same on every machine and with every library, and leaving
some cases out (a shard, a selection, runs done before) does not change the order of the rest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.results.case import Geometry, canonical_json, digest
from fsmatrix.suite.cases import Planned


@dataclass(frozen=True)
class PlotKey:
    """What is hard to change, and therefore the same in a whole plot."""

    target: str
    level: str  # canonical JSON
    nodes: int
    device_state: str
    part: str = ""  # "2of4" where shards divide the cases of one plot among them

    @property
    def id(self) -> str:
        """Eight hexadecimal digits."""
        return digest(list(vars(self).values()))[:8]


@dataclass(frozen=True)
class Plot:
    """One target level with one number of client nodes, attached once in a block."""

    block: int
    attachment: str  # b003-<target>-<hash>
    key: PlotKey
    runs: tuple[tuple[Planned, int], ...]  # case, repetition; in the order of execution

    @property
    def target(self) -> str:
        """Name of the target."""
        return self.key.target

    @property
    def level(self) -> Mapping[str, object]:
        """Levels of the cluster factors."""
        return self.runs[0][0].case.level

    @property
    def nodes(self) -> int:
        """Client nodes."""
        return self.key.nodes

    @property
    def geometry(self) -> Geometry:
        """The largest of its cases: the size of its session."""
        shapes = [planned.case.geometry for planned, _ in self.runs]
        return Geometry(
            self.key.nodes,
            max(shape.processes_per_node for shape in shapes),
            max(shape.threads for shape in shapes),
        )


Groups = dict[PlotKey, list[Planned]]


def groups(cases: Iterable[Planned]) -> Groups:
    """Cases by whole plot, plots and cases in an order that does not depend on the input's."""
    found: Groups = {}
    for planned in sorted(cases, key=lambda planned: planned.case.case_id):
        case = planned.case
        level = canonical_json(case.level)
        key = PlotKey(case.target, level, case.geometry.nodes, case.device_state)
        found.setdefault(key, []).append(planned)
    return dict(sorted(found.items(), key=lambda item: item[0].id))


def plots(plan: Groups, repetitions: int, block: int, seed: int) -> Iterator[Plot]:
    """All plots in order: ceil(repetitions / block) blocks, in each every plot once.

    The plots of a block are in random order.  Inside a plot the repetitions follow each
    other, each a pass over the plot's cases in a fresh random order.
    """
    for number in range(math.ceil(repetitions / block)):
        inside = range(number * block, min(repetitions, (number + 1) * block))
        for key in sorted(plan, key=lambda key: _draw(seed, number, key.id)):
            cases = {planned.case.case_id: planned for planned in plan[key]}
            runs = tuple(
                (cases[case_id], repetition)
                for repetition in inside
                for case_id in _shuffled(cases, seed, number, key.id, repetition)
            )
            yield Plot(number, f"b{number:03d}-{key.target}-{key.id}", key, runs)


def shard(plan: Groups, k: int, n: int) -> Groups:
    """The part of shard k of n (1 <= k <= n).

    A shard holds one client-node count.  Shards are given to the node counts in proportion to
    their numbers of cases, at least one each (ValueError if n is smaller than the number of
    node counts).  The shards of a node count take whole plots, the largest first, each to the
    shard with the fewest cases; where there are more shards than plots, the largest plots are
    divided by cases.  A case belongs wholly to one shard; a shard may be empty.  Shard 1 of 1
    is the whole plan, whatever its client-node counts.
    """
    if not 1 <= k <= n:
        raise ValueError(f"shard {k}/{n}: k must be from 1 to n")
    if n == 1:
        return plan
    counts = sorted({key.nodes for key in plan})
    weights = [sum(len(plan[key]) for key in plan if key.nodes == count) for count in counts]
    if n < len(counts):
        raise ValueError(
            f"{n} shards for {len(counts)} client-node counts ({', '.join(map(str, counts))}): "
            "a shard has one of them, so there must be at least as many shards"
        )
    start = 0
    for count, share in zip(counts, _shares(weights, n), strict=True):
        if start < k <= start + share:
            here = {key: cases for key, cases in plan.items() if key.nodes == count}
            return _part(here, k - start - 1, share)
        start += share
    return {}


def _part(plan: Groups, index: int, shares: int) -> Groups:
    """The part of shard `index` among `shares` that divide plots of one node count."""
    if shares <= len(plan):
        bins: list[Groups] = [{} for _ in range(shares)]
        load = [0] * shares
        for key in sorted(plan, key=lambda key: (-len(plan[key]), key.id)):
            lightest = load.index(min(load))
            bins[lightest][key] = plan[key]
            load[lightest] += len(plan[key])
        return bins[index]
    pieces = _shares([len(cases) for cases in plan.values()], shares)
    for (key, cases), share in zip(plan.items(), pieces, strict=True):
        if index < share:
            mine = cases[index::share]
            part = f"{index + 1}of{share}" if share > 1 else ""
            return {PlotKey(**(vars(key) | {"part": part})): mine} if mine else {}
        index -= share
    return {}


def _shares(weights: Sequence[int], n: int) -> list[int]:
    """n in whole parts, each at least 1, in proportion to the weights (D'Hondt's method)."""
    shares = [1] * len(weights)
    for _ in range(n - len(weights)):
        best = max(range(len(weights)), key=lambda i: (weights[i] / (shares[i] + 1), -i))
        shares[best] += 1
    return shares


def _shuffled(ids: Iterable[str], *place: object) -> list[str]:
    return sorted(ids, key=lambda case_id: _draw(*place, case_id))


def _draw(*place: object) -> bytes:
    """128 random bits that depend on nothing but the arguments."""
    return hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=16).digest()
