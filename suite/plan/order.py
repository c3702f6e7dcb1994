"""The order of a campaign: blocks of whole plots, shards, selections.  Pure functions.

A random order is made by sorting on hashes of (seed, block, plot, repetition, case): every
order is equally likely, it is the same on every machine and with every library, and leaving
some cases out (a shard, a selection, runs done before) does not change the order of the rest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsmatrix.results.evidence.stored import Level
from fsmatrix.results.record import Geometry, canonical_json, digest
from fsmatrix.suite.cases.cases import Planned


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
        """A short name of the plot: eight hexadecimal digits of the digest of its fields."""
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
        """Name of the plot's target."""
        return self.key.target

    @property
    def level(self) -> Level:
        """Levels of the cluster factors."""
        return self.runs[0][0].case.level

    @property
    def nodes(self) -> int:
        """Client nodes of the plot's geometry."""
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
    groups_of: Groups = {}
    for planned in sorted(cases, key=lambda planned: planned.case.case_id):
        case = planned.case
        level = canonical_json(case.level)
        key = PlotKey(case.target, level, case.geometry.nodes, case.device_state)
        groups_of.setdefault(key, []).append(planned)
    return dict(sorted(groups_of.items(), key=lambda item: item[0].id))


def blocks(repetitions: int, block: int) -> range:
    """The numbers of a campaign's blocks: ceil(repetitions / block), from 0."""
    return range(math.ceil(repetitions / block))


def plots(
    plan: Groups, repetitions: int, block: int, seed: int, only: range | None = None
) -> Iterator[Plot]:
    """All plots in order: in each block (or each of `only`) every plot once.

    The plots of a block are in random order.  Inside a plot the repetitions follow each
    other, each a pass over the plot's cases in a fresh random order; only what loads are shares
    of comes before the first of these.
    """
    numbers = blocks(repetitions, block)
    for number in numbers if only is None else only:
        inside = range(number * block, min(repetitions, (number + 1) * block))
        for key in sorted(plan, key=lambda key: _draw(seed, number, key.id)):
            cases = {planned.case.case_id: planned for planned in plan[key]}
            runs = tuple(
                (cases[case_id], repetition)
                for repetition in inside
                for case_id in _closed_first(
                    cases, shuffled(cases, seed, number, key.id, repetition)
                )
            )
            yield Plot(number, f"b{number:03d}-{key.target}-{key.id}", key, runs)


def divisions(
    plan: Groups, system: Callable[[str], str] = lambda _target: ""
) -> list[tuple[str, int]]:
    """What shards are made of: (storage system, client-node count), sorted."""
    return sorted({(system(key.target), key.nodes) for key in plan})


def shard(
    plan: Groups, k: int, n: int, system: Callable[[str], str] = lambda _target: ""
) -> Groups:
    """The part of shard k of n (1 <= k <= n).

    A shard holds one client-node count on one storage system (`system` of a target).  Shards
    are given to these divisions in proportion to their numbers of cases, at least one each
    (ValueError if n is smaller than the number of divisions).  The shards of a division take
    whole plots, the largest first, each to the shard with the fewest cases; where there are
    more shards than plots, the largest plots are divided by cases.  A case belongs wholly to
    one shard; a shard may be empty.  Shard 1 of 1 is the whole plan.
    """
    if not 1 <= k <= n:
        raise ValueError(f"shard {k}/{n}: k must be from 1 to n")
    if n == 1:
        return plan
    parts: dict[tuple[str, int], Groups] = {each: {} for each in divisions(plan, system)}
    for key, cases in plan.items():
        parts[system(key.target), key.nodes][key] = cases
    if n < len(parts):
        listed = ", ".join(f"{nodes} on {name}" if name else str(nodes) for name, nodes in parts)
        raise ValueError(
            f"{n} shards for {len(parts)} client-node counts of storage systems ({listed}): "
            f"a shard has one of them, so at least {len(parts)} shards are needed"
        )
    weights = [sum(map(len, part.values())) for part in parts.values()]
    start = 0
    for part, share in zip(parts.values(), _shares(weights, n), strict=True):
        if start < k <= start + share:
            return _part(part, k - start - 1, share)
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
            share_of_cases = _apart(cases, index, share)
            part = f"{index + 1}of{share}" if share > 1 else ""
            return (
                {PlotKey(**(vars(key) | {"part": part})): share_of_cases} if share_of_cases else {}
            )
        index -= share
    return {}


def _apart(cases: Sequence[Planned], index: int, share: int) -> list[Planned]:
    """Every share-th case from `index` on; loads stay together with what they are shares of."""
    ladders: dict[str, list[Planned]] = {}
    for planned in cases:
        ladders.setdefault(planned.closed_loop or planned.case.case_id, []).append(planned)
    return [planned for ladder in list(ladders.values())[index::share] for planned in ladder]


def _closed_first(cases: Mapping[str, Planned], ids: Iterable[str]) -> list[str]:
    """In this order, but what a load is a share of stands before the first such load."""
    ordered: dict[str, None] = {}
    for case_id in ids:
        if (first := cases[case_id].closed_loop) in cases:
            ordered.setdefault(first)
        ordered.setdefault(case_id)
    return list(ordered)


def _shares(weights: Sequence[int], n: int) -> list[int]:
    """n in whole parts, each at least 1, in proportion to the weights (D'Hondt's method)."""
    shares = [1] * len(weights)
    for _ in range(n - len(weights)):
        best = max(range(len(weights)), key=lambda i: (weights[i] / (shares[i] + 1), -i))
        shares[best] += 1
    return shares


def shuffled(ids: Iterable[str], *place: object) -> list[str]:
    """In a random order that depends on nothing but the arguments."""
    return sorted(ids, key=lambda case_id: _draw(*place, case_id))


def _draw(*place: object) -> bytes:
    """128 random bits that depend on nothing but the arguments."""
    return hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=16).digest()
