"""Three sentences under the matrix, and a line for each target.

The answer; what is against it; what to do next, with its command.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsmatrix.analysis.comparison.comparison_result import extension_of, fewest_blocks
from fsmatrix.analysis.comparison.extension import recorded
from fsmatrix.analysis.data.doubts import listed
from fsmatrix.analysis.lessons.backend import together, winner
from fsmatrix.analysis.lessons.standings import Pair, Standing, Standings, level_words
from fsmatrix.analysis.stats import words
from fsmatrix.analysis.stats.certainty import Certainty
from fsmatrix.analysis.stats.words import IMPORTED, lead
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.units import plural

# What to do next, with the command that does it.


def advice(standings: Standings, plan: JsonObject, place: str) -> tuple[str, str]:
    """What to do next and its command: what was lost first, then blocks, then other questions.

    `plan`: what the campaign says of itself; `place`: its results directory, quoted for a shell.
    """
    found = extension_of(standings.compared)
    own = recorded(plan)
    planned = replace(own, queued=found.record.queued, there=found.record.there)
    lost = [
        why for cell in standings.cells if cell.state is Certainty.INVALID for _, why in cell.lost
    ]
    if lost:
        failed = [why for why in lost if "failed" in why]
        if failed and planned.planned:
            again = replace(planned, queued=False).resume(place)
            return "Run again what failed:", f"{again} --retry-failed"
        return "See what was wrong there and how to fix it:", f"fsmatrix findings {place}"
    cells = [cell for comparison in standings.compared for cell in comparison.cells]
    if all(cell.certainty.settled for cell in cells):
        return (
            "This choice needs no more measurements; for chunk size and processes:",
            f"fsmatrix lessons {place}",
        )
    if planned.imported:
        return f"{IMPORTED}; see the differences:", f"fsmatrix compare {place}"
    if not found.cells:
        return "See the differences:", f"fsmatrix compare {place}"
    more = replace(found, record=planned)
    if more.unfinished:
        return f"{more.advice}:", planned.resume(place)
    if not more.target:
        return f"{more.advice}; see the differences:", f"fsmatrix compare {place}"
    if not planned.planned:
        same = more.advice.replace("), ", "), measured and imported in the same way, ", 1)
        return f"{same}; until then:", f"fsmatrix compare {place}"
    return f"{more.advice}:", more.resume(place)


def fewest(standings: Standings) -> int:
    """Blocks of each target below which nothing can be proven."""
    return max((fewest_blocks(comparison) for comparison in standings.compared), default=0)


OPEN = (Certainty.LIKELY, Certainty.UNDECIDED)
MOST_NAMED = 2  # cells that are named, doubts that are quoted; more are counted


@dataclass(frozen=True)
class Sentences:
    """What stands under the matrix, without full stops at the end of commands."""

    answer: str
    against: str
    todo: str
    command: str  # "" if there is nothing to do


@dataclass(frozen=True)
class Extremes:
    """One target: how often it leads, and its best and worst cell."""

    target: str
    leads: str
    best: str
    worst: str

    @property
    def says(self) -> str:
        """It in one line."""
        return f"{self.target}: leads in {self.leads}; best: {self.best}; worst: {self.worst}"


def sentences(standings: Standings, plan: JsonObject, place: str) -> Sentences:
    """`plan`: what the campaign says of itself; `place`: its results directory, "" if unknown."""
    unknown = "FILE" if plan.get("imported") else "DIR"
    todo, command = advice(standings, plan, shlex.quote(place) if place else unknown)
    return Sentences(_answer(standings, plan), _against(standings), todo, command)


def _answer(standings: Standings, plan: JsonObject) -> str:
    whole = len(standings.cells) - standings.count(Certainty.INVALID)
    if not whole:
        return "No cell has valid values of two targets: nothing can be compared."
    first = _first_of_all(standings)
    if first:
        cells = _led(standings, first[0])
        shared = _with(first, cells)
        whom = "" if shared else _of_whom(standings, first)
        sentence = f"{_joined(first)} {_verb(first)} ahead{whom} in {_of(len(cells), whole)}"
        sentence += f" (proven), {_span(cells)}{shared}"
    elif standings.count(Certainty.EQUAL) == whole:
        sentence = f"No difference larger than {_tolerance(standings)} in {_of(whole, whole)}"
    elif _too_few(standings):
        have = plural(max(cell.blocks for cell in standings.cells), "block")
        sentence = "No target can be shown to be ahead"
        if not plan.get("imported"):  # to which no blocks can be added
            sentence += f" with {have}: it takes {fewest(standings)}"
    else:
        where = f"any of {whole} cells" if whole > 1 else "the only valid cell"
        sentence = f"No target is shown to be ahead in {where}"
    return "; ".join([sentence, *_together(standings)]) + "."


def _too_few(standings: Standings) -> bool:
    """Whether no cell has as many blocks as it takes to prove anything."""
    return max(cell.blocks for cell in standings.cells) < fewest(standings)


def _led(standings: Standings, target: str) -> list[Standing]:
    """Cells in which a target is proven to be ahead, alone or with others."""
    return [cell for cell in standings.cells if target in cell.proven]


def _first_of_all(standings: Standings) -> list[str]:
    """Who is ahead in the most cells; several if always together."""
    led = {name: _led(standings, name) for name in standings.targets}
    best = max(standings.targets, key=lambda name: len(led[name]))
    led_cells = [id(cell) for cell in led[best]]
    return [
        name for name in standings.targets if led_cells and [id(c) for c in led[name]] == led_cells
    ]


def _with(first: Sequence[str], cells: Sequence[Standing]) -> str:
    """In how many cells they share the lead, and with whom; "" if nowhere."""
    others = Counter(tuple(n for n in cell.proven if n not in first) for cell in cells)
    shared = [
        f"{count} shared with {_joined(names)}" for names, count in others.most_common() if names
    ]
    if not shared:
        return ""
    alone = [f"{others[()]} alone"] if others[()] else []
    return f" ({', '.join([*alone, *shared])})"


def _span(cells: Sequence[Standing]) -> str:
    margins = sorted(cell.margin for cell in cells)
    first, last = words.short(margins[0]), words.short(margins[-1])
    return f"by {first}" if first == last else f"by {first} to {last}"


def _of_whom(standings: Standings, leaders: Sequence[str]) -> str:
    rest = [name for name in standings.targets if name not in leaders]
    return f" of {rest[0]}" if len(rest) == 1 else " of all others"


def _of(count: int, whole: int) -> str:
    if count == whole:
        return f"all {whole} cells" if whole > 1 else "the only valid cell"
    return f"{count} of {plural(whole, 'cell')}"


def _tolerance(standings: Standings) -> str:
    return f"{100 * standings.compared[0].tolerance:.3g} %"


def _together(standings: Standings) -> list[str]:
    """Who is proven ahead over all cells together, by how much."""
    lines = []
    for part, duels in together(standings.compared).items():
        if best := winner(duels, standings.targets):
            cells = max(duel.entry.cells for duel in duels)
            leads = [duel.lead for duel in duels if duel.seen.front == best]
            lines.append(
                f"over {_of(cells, cells)}{f' of {part}' * bool(part)} together {best} "
                f"is {listed(leads)}, proven"
            )
    return lines


def _against(standings: Standings) -> str:
    first = _first_of_all(standings)
    lines = []
    groups: dict[tuple[str, ...], list[Standing]] = {}
    for cell in standings.cells:
        if cell.proven and not set(first) & set(cell.proven):
            groups.setdefault(cell.proven, []).append(cell)
    for leaders in sorted(groups, key=lambda key: -len(groups[key]))[:MOST_NAMED]:
        cells = groups.pop(leaders)
        lines.append(
            f"{_joined(leaders)} {_verb(leaders)} ahead in {_named(cells, standings)}, "
            f"{_span(cells)} (proven)"
        )
    if rest := [cell for cells in groups.values() for cell in cells]:
        lines.append(f"others are ahead in {_named(rest, standings)}")
    equal = [cell for cell in standings.cells if cell.state is Certainty.EQUAL]
    if equal and len(equal) + standings.count(Certainty.INVALID) < len(standings.cells):
        lines.append(
            f"no difference larger than {_tolerance(standings)} in {_named(equal, standings)}"
        )
    chance = [cell for cell in standings.cells if cell.state in OPEN]
    told = first or (len(standings.targets) == 2 and not _too_few(standings))
    if chance and told:  # else the answer has said it
        lines.append(_chance(standings, chance))
    if invalid := [cell for cell in standings.cells if cell.state is Certainty.INVALID]:
        why = Counter(f"{name}: {text}" for cell in invalid for name, text in cell.lost)
        lines.append(f"{_named(invalid, standings)} cannot be compared ({_first(why)})")
    if doubtful := [
        cell for cell in standings.cells if cell.doubts and cell.state is not Certainty.INVALID
    ]:
        doubts = Counter(doubt.partition(" (")[0] for cell in doubtful for doubt in cell.doubts)
        where = (
            f"all {len(doubtful)} cells"
            if len(doubtful) == len(standings.cells) > 1
            else plural(len(doubtful), "cell")
        )
        lines.append(f"warnings in {where} ({_first(doubts)})")
    if standings.summary.cluster.emulated:
        lines.append("emulated levels do not show the speed of hardware")
    if not lines:
        return "No contrary evidence." if first else ""
    return f"{'Against it' if first else 'In doubt'}: {'; '.join(lines)}."


def _chance(standings: Standings, undecided: Sequence[Standing]) -> str:
    """ "in 8 cells the difference may be chance: home over temporary -7 to +12 %"."""
    sentence = f"in {_named(undecided, standings)} the difference may be chance"
    first, second = standings.targets[:2]
    ratios = [pair.over(first) for cell in undecided for pair in cell.pairs]
    if len(standings.targets) != 2 or not ratios:
        return sentence
    low, high = (f"{100 * (end - 1):+.0f}" for end in (min(ratios), max(ratios)))
    return f"{sentence}: {first} over {second} {low}{f' to {high}' * (high != low)} %"


def _named(cells: Sequence[Standing], standings: Standings) -> str:
    """ "2 cells (seq-read, 4 KiB; seq-write, 4 KiB)", "4 cells (all of rand-read)"."""
    sentence = plural(len(cells), "cell")
    if len(cells) <= MOST_NAMED and all(cell.named for cell in cells):
        return f"{sentence} ({'; '.join(cell.named for cell in cells)})"
    for name in standings.names:
        levels = {cell.levels[name] for cell in cells}
        whole = sum(cell.levels[name] in levels for cell in standings.cells)
        if len(levels) <= MOST_NAMED and len(cells) == whole < len(standings.cells):
            shown = sorted(level_words(name, level) for level in levels)
            return f"{sentence} (all of {' and '.join(shown)})"
    return sentence


def _first(counts: Counter[str]) -> str:
    shown = [text for text, _ in counts.most_common(MOST_NAMED)]
    more = len(counts) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def extremes(standings: Standings) -> list[Extremes]:
    """A line for each target, the one that leads most often first; none if nothing is proven."""
    ranked = []
    if not any(pair.state is Certainty.PROVEN for cell in standings.cells for pair in cell.pairs):
        return []
    for target in standings.targets:
        leads = _led(standings, target)
        share = f"{_of(len(leads), len(standings.cells))}{' (proven)' * bool(leads)}"
        sure = [
            (cell, pair)
            for cell in standings.cells
            for pair in cell.pairs
            if target in (pair.a, pair.b) and pair.state is Certainty.PROVEN
        ]
        sure.sort(key=lambda cell_and_pair: cell_and_pair[1].over(target))
        best = _end(target, sure[-1:], True) or "nowhere proven ahead"
        worst = _end(target, sure[:1], False) or "nowhere proven behind"
        ranked.append((-len(leads), Extremes(target, share, best, worst)))
    return [extreme for _, extreme in sorted(ranked, key=lambda key: key[0])]


def _end(target: str, pairs: Sequence[tuple[Standing, Pair]], ahead: bool) -> str:
    """ "rand-write, 4 KiB: 25 times as fast as btrfs (proven)"; "" if it is not so."""
    for cell, pair in pairs:
        if (pair.ahead == target) == ahead:
            ratio = pair.over(target)
            start = f"{cell.named}: " if cell.named else ""
            return f"{start}{lead(ratio, True, pair.other(target))}"
    return ""


def _joined(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
