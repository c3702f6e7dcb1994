"""The table of docs/reliability.md, of the lines that the program has written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos.worker import SCENARIOS

HEAD = (
    "| fault | tries | faults given | what was hit ended | `run --resume` afterwards |"
    " something left | violations |\n|---|---|---|---|---|---|---|"
)


def table(outcomes: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each kind of fault, and one for all."""
    lines = [HEAD]
    for kind in SCENARIOS:
        of_kind = [outcome for outcome in outcomes if outcome["fault"] == kind]
        if of_kind:
            lines.append(_line(kind, of_kind))
    lines.append(_line("**all**", outcomes))
    kills = sum(int(one["faults"]) for one in outcomes if str(one["fault"]).startswith("SIG"))
    seeds = sorted({outcome["seed"] for outcome in outcomes})
    wrong = sum(bool(outcome["wrong"]) for outcome in outcomes)
    text = f"{kills} kills in {len(outcomes)} scenarios, {wrong} with violations; seeds "
    return "\n".join([*lines, "", text + ", ".join(map(str, seeds)) + "."])


def _line(name: str, outcomes: Sequence[Mapping[str, Any]]) -> str:
    met = Counter(text for outcome in outcomes for text in outcome["met"])
    after = Counter(outcome["after"] for outcome in outcomes if outcome["after"])
    cells = [
        name,
        str(len(outcomes)),
        str(sum(outcome["faults"] for outcome in outcomes)),
        _counts(met),
        _counts(after),
        str(sum(bool(outcome["left"]) for outcome in outcomes)),
        str(sum(bool(outcome["wrong"]) for outcome in outcomes)),
    ]
    return f"| {' | '.join(cells)} |"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{number} x {text}" for text, number in sorted(counter.items())) or "-"
