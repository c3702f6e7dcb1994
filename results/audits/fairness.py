"""Are targets compared fairly?  Facts of their deployments side by side: equal, unequal, unknown.

From outside: `fairness` (the question and its answer), `rules` (what each fact means for speed).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fsmatrix.results.evidence import target as d
from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.units import format_size

# Are several targets compared fairly?  A pure function of what is known of each.


# What each fact of a deployment means for speed: whom a difference favours, and why.
#
# A rule has an order only where more of a fact is always cheaper or faster by itself.  Where a
# difference helps one kind of work and harms another (the size of chunks, who encodes), it says so
# and favours nobody.


Order = Callable[[Any], float | None]  # the larger, the more favoured; None: no order
DFUSE_FACTORS = ("caching", "interception")  # factors of DFUSE
MEDIA = (d.HDD, d.SSD, d.NVME, d.PMEM, d.RAM)  # the slowest first


def _fewest_bytes(redundancy: str) -> float | None:
    stored = d.stored_bytes(redundancy)
    return None if stored is None else -stored


def _medium(media: str) -> float | None:
    return float(MEDIA.index(media)) if media in MEDIA else None


def _checksum(kind: str) -> float | None:
    if kind == d.NONE:
        return 0.0
    return next(
        (-cost for end, cost in ((" at rest", 1.0), (" end to end", 2.0)) if kind.endswith(end)),
        None,
    )


def _least(value: float) -> float:
    return -float(value)


def _is(best: Any) -> Order:
    return lambda value: float(value == best)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _bytes(value: float) -> str:
    return format_size(int(value), 1)


def _number(value: float) -> str:
    return f"{value:g}"


@dataclass(frozen=True)
class Rule:
    """One fact: its words, its order, and how far values may lie apart and still be equal."""

    name: str
    title: str
    why: str  # why it favours, or why it matters although it favours nobody
    order: Order | None = None
    ratio: float = 1.0  # largest value / smallest
    apart: float = 0.0  # largest value - smallest
    shown: Callable[[Any], str] = str
    factors: tuple[str, ...] = ()  # of a campaign that varies it on purpose, beside its own name
    best: Any = None  # a value that none is better than, also one without an order


RULES: tuple[Rule, ...] = (
    Rule(
        "redundancy", "Redundancy",
        "a write stores fewer bytes for each byte of a client", _fewest_bytes,
        factors=("object_class",),
    ),
    Rule(
        "failure_domain", "Failure domain",
        "they do not survive the same losses; what that costs depends on where the copies lie",
        factors=("redundancy_level",),
    ),
    Rule(
        "durability", "Durability of a write",
        "operations return before they would survive a loss of power; compare phases that end "
        "with fsync, and never small writes or creates without it", _is(d.WRITE_BACK),
        factors=DFUSE_FACTORS,
    ),
    Rule("checksums", "Checksums of data", "less is computed and checked", _checksum),
    Rule(
        "ec_encoder", "Who encodes erasure code",
        "a client that encodes spends its own CPU and sends the parity too, a server that does "
        "spends its CPU and its network: it depends on which of them is short",
    ),
    Rule(
        "chunk_size", "Chunk or object size",
        "larger pieces help large sequential transfers, smaller ones spread a file over more "
        "devices", shown=lambda size: _bytes(size) if size else "not cut",
        factors=("object_size", "stripe_unit"),
    ),
    Rule(
        "transport", "Transport", "a message takes less CPU and time, or there is none",
        lambda kind: {d.NONE: 2.0, d.RDMA: 1.0, d.TCP: 0.0}.get(kind), factors=("network",),
    ),
    Rule(
        "encrypted", "Encryption in flight", "nothing is encrypted", _is(False),
        shown=_yes_no,
    ),
    Rule(
        "data_cache", "Data cache in the client",
        "reads may come from the client's memory and writes be combined there, unless the "
        "cache state is bypass", lambda kind: float(kind != d.NONE), factors=DFUSE_FACTORS,
    ),
    Rule(
        "metadata_cache", "Metadata cache in the client",
        "names and attributes may come from the client's memory",
        lambda kind: float(kind != d.NONE), factors=DFUSE_FACTORS,
    ),
    Rule(
        "clients", "Client nodes", "more clients ask", float, shown=_number, factors=("nodes",)
    ),
    Rule("storage_nodes", "Storage nodes", "more servers do the work", float, shown=_number),
    Rule(
        "devices_per_node", "Devices per storage node", "more devices do the work", float,
        shown=_number, factors=("interface", "osds_per_node"),
    ),
    Rule(
        "media", "Media of data", "the media are faster", _medium, factors=("interface",),
        best=d.RAM,
    ),
    Rule(
        "metadata_media", "Media of metadata", "the media are faster", _medium,
        factors=("interface",), best=d.RAM,
    ),
    Rule(
        "fill", "Share of space in use", "there is more free space to place data in", _least,
        apart=0.1, shown=lambda share: f"{100 * share:.0f} %",
    ),
    Rule(
        "usable_bytes", "Usable bytes", "the same data fill less of it", float, ratio=1.1,
        shown=_bytes,
    ),
    Rule("server_cores", "Cores of the servers", "the servers have more CPU", float, shown=_number),
    Rule(
        "shared_cores", "Servers on the clients' cores",
        "no server takes processor time from the clients; one that polls takes its cores whole",
        lambda kind: {d.NONE: 2.0, d.SHARED: 1.0, d.POLLED: 0.0}.get(kind),
    ),
    Rule(
        "server_memory", "Memory of the servers", "the servers can keep more data in memory",
        float, ratio=1.1, shown=lambda size: _bytes(size) if size else "no server",
    ),
    Rule(
        "reads_from_server_memory", "Reads fit into server memory",
        "reads may come from the servers' memory", _is(True), shown=_yes_no,
    ),
    Rule(
        "realised", "Realised",
        "an emulated cluster shows how levels behave against each other, never how fast "
        "hardware is: nothing follows from this comparison about hardware",
    ),
)  # fmt: skip


Judgement = Literal["equal", "unequal", "unknown", "varied"]
JUDGEMENTS: tuple[Judgement, ...] = ("unequal", "unknown", "varied", "equal")
UNKNOWN = "unknown"
# of one target: fact -> its different values, in order; a fact that is not there is not known
Facts = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Judged:
    """One fact of all targets."""

    name: str
    title: str
    values: Mapping[str, str]  # target -> text; UNKNOWN
    judgement: Judgement
    favours: tuple[str, ...] = ()  # targets; none where it depends, or the values have no order
    why: str = ""  # of a difference: why it favours them, or on what it depends

    @property
    def whom(self) -> str:
        """Whom a difference favours, in words; empty where there is none."""
        if self.judgement != "unequal":
            return ""
        return ", ".join(self.favours) or ("depends" if self.why else "not known")

    @property
    def says(self) -> str:
        """It in one sentence."""
        together: dict[str, list[str]] = {}
        for target, text in self.values.items():
            together.setdefault(text, []).append(target)
        if self.judgement == "equal":
            return f"{self.title}: {next(iter(together))} on all."
        values = ", ".join(f"{text} ({', '.join(names)})" for text, names in together.items())
        if self.judgement == "varied":
            return f"{self.title}: {values}; the campaign varies it on purpose."
        if self.judgement == "unknown":
            return f"{self.title}: {values}."
        if self.favours:
            *others, last = self.favours
            whom = f"{', '.join(others)} and {last}" if others else last
            return f"{self.title}: {values}. It favours {whom}: {self.why}."
        if self.why:
            return f"{self.title}: {values}. Whom it favours depends: {self.why}."
        return f"{self.title}: {values}. Whom it favours is not known."


@dataclass(frozen=True)
class Fairness:
    """The facts of targets that are compared with each other."""

    targets: tuple[str, ...]
    facts: tuple[Judged, ...]
    known: Mapping[str, Facts]  # what was judged
    varied: frozenset[str]

    def among(self, targets: Collection[str]) -> Fairness:
        """The same of some of these targets; ValueError for fewer than two."""
        return fairness({n: f for n, f in self.known.items() if n in targets}, self.varied)

    def of(self, judgement: Judgement) -> tuple[Judged, ...]:
        """Facts judged so."""
        return tuple(fact for fact in self.facts if fact.judgement == judgement)

    @property
    def counts(self) -> dict[Judgement, int]:
        """How many facts are judged so, the gravest first."""
        return {judgement: len(self.of(judgement)) for judgement in JUDGEMENTS}

    @property
    def headline(self) -> str:
        """The counts, in one sentence."""
        counts = [f"{n} {judgement}" for judgement, n in self.counts.items() if n]
        return (
            f"Of {len(self.facts)} facts that decide whether {_listed(self.targets)} are compared "
            f"fairly: {', '.join(counts)}."
        )

    @property
    def says(self) -> list[str]:
        """The counts, every difference, and what is not known."""
        sentences = [self.headline, *(fact.says for fact in self.of("unequal"))]
        if unknown := self.of("unknown"):
            names = ", ".join(fact.title[0].lower() + fact.title[1:] for fact in unknown)
            sentences.append(
                f"Not known of every target: {names}. What you know can be declared "
                "(targets.NAME.deployment)."
            )
        return sentences

    def to_dict(self) -> dict[str, Json]:
        """JSON-able."""
        return {
            "targets": list(self.targets),
            "counts": {str(judgement): n for judgement, n in self.counts.items()},
            "says": self.says,
            "facts": [
                {
                    "fact": fact.name,
                    "title": fact.title,
                    "values": {
                        name: None if text == UNKNOWN else text
                        for name, text in fact.values.items()
                    },
                    "judgement": fact.judgement,
                    "favours": list(fact.favours),
                    "why": fact.why,
                    "says": fact.says,
                }
                for fact in self.facts
            ],
        }


def fairness(targets: Mapping[str, Facts], varied: Collection[str] = ()) -> Fairness:
    """Every fact of `RULES` over these targets, two or more (ValueError for fewer).

    `varied`: factors that the campaign varies on purpose: a difference that follows one of them
    is no unfairness (see `_varied`).
    """
    if len(targets) < 2:
        raise ValueError("one target alone is not compared with anything")
    facts = tuple(_judged(rule, targets, varied) for rule in RULES)
    return Fairness(tuple(targets), facts, targets, frozenset(varied))


def _judged(rule: Rule, targets: Mapping[str, Facts], varied: Collection[str]) -> Judged:
    judged = {
        name: list(facts[rule.name]) for name, facts in targets.items() if facts.get(rule.name)
    }
    texts = {name: _text(rule, judged.get(name, ())) for name in targets}

    def outcome(judgement: Judgement, **more: Any) -> Judged:
        return Judged(rule.name, rule.title, texts, judgement, **more)

    sides = list(judged.values())
    if {rule.name, *rule.factors} & set(varied) and _varied(rule, sides):
        return outcome("varied")
    if not _same(rule, sides):
        favours = _favoured(rule, judged)
        explained = rule.order is None or bool(favours)
        return outcome("unequal", favours=favours, why=rule.why if explained else "")
    return outcome("equal" if len(judged) == len(targets) else "unknown")


def _varied(rule: Rule, sides: Sequence[list[Any]]) -> bool:
    """Whether all that differs is what some targets have several values of.

    A target with one value has one of theirs, and all such targets have the same.
    """
    several = [value for side in sides if len(side) > 1 for value in side]
    alone = [side for side in sides if len(side) == 1]
    return bool(several) and _same(rule, alone) and all(side[0] in several for side in alone)


def _same(rule: Rule, sides: Sequence[list[Any]]) -> bool:
    """Whether all have the same values, as far as the rule's tolerance goes."""
    if _tolerant(rule):
        every = [value for side in sides for value in side]
        low, high = min(every, default=0), max(every, default=0)
        return bool(high <= low * rule.ratio or high - low <= rule.apart)
    return all(set(side) == set(sides[0]) for side in sides[1:])


def _tolerant(rule: Rule) -> bool:
    """Whether values may lie apart and still be equal."""
    return rule.ratio > 1.0 or rule.apart > 0


def _with_the_best(rule: Rule, judged: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Targets that have nothing but the best value, where others have values without an order."""
    if rule.best is None:
        return ()
    first = tuple(name for name, values in judged.items() if set(values) == {rule.best})
    others = (str(value) for name in judged.keys() - set(first) for value in judged[name])
    return () if any(rule.best in value.split(" or ") for value in others) else first


def _favoured(rule: Rule, judged: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Targets that the difference favours; none without an order of all known values."""
    if rule.order is None:
        return ()
    scores = {}
    for name, values in judged.items():
        ordered = [rule.order(value) for value in values]
        numbers = [number for number in ordered if number is not None]
        if len(numbers) < len(ordered):
            return _with_the_best(rule, judged)
        scores[name] = sum(numbers) / len(numbers)
    first = max(scores, key=lambda name: scores[name])
    if scores[first] == min(scores.values()):
        return ()
    return tuple(
        name
        for name, score in scores.items()
        if score == scores[first]
        or (_tolerant(rule) and _same(rule, [list(judged[first]), list(judged[name])]))
    )


def _text(rule: Rule, values: Sequence[Any]) -> str:
    """Values for readers; of a fact with a tolerance the smallest and the largest."""
    if not values:
        return UNKNOWN
    if _tolerant(rule):
        ends = dict.fromkeys((rule.shown(min(values)), rule.shown(max(values))))
        return " to ".join(ends)
    return " or ".join(dict.fromkeys(rule.shown(value) for value in values))


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
