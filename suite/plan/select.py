"""`--only`: cases chosen by their coordinates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from fsmatrix.results.evidence.values import Json
from fsmatrix.results.registry import did_you_mean
from fsmatrix.results.units import parse_size
from fsmatrix.suite.campaign.problems import Origin, refuse
from fsmatrix.suite.cases.cases import Planned

MOST_NAMED = 8  # values of a coordinate


def only(cases: Iterable[Planned], expressions: Sequence[str]) -> list[Planned]:
    """Cases that match: `key=value,key=value`, values with * and ?; sizes as 4KiB or 4096.

    Different keys must all match; of values given for one key any may.  `workload` is also
    the name of a workload entry, `case` the case's id.  CampaignError for an unknown key or
    a selection that leaves nothing.
    """
    chosen = list(cases)
    if not expressions:
        return chosen
    source = f"--only {','.join(expressions)}"
    coordinates = {"case"}.union(*(planned.coordinates for planned in chosen))
    wanted = _wanted(expressions, source, coordinates)
    for key in wanted:
        if key not in coordinates:
            raise refuse(Origin(source), key, f"no such coordinate{did_you_mean(key, coordinates)}")
    kept = [
        planned
        for planned in chosen
        if all(_matches(planned, key, values) for key, values in wanted.items())
    ]
    if not kept:
        raise refuse(Origin(source), "", _nothing(chosen, wanted))
    return kept


def _nothing(chosen: Sequence[Planned], wanted: Mapping[str, Sequence[str]]) -> str:
    """Why no case matches: the first key none of whose values is there, and those that are."""
    text = f"matches none of {len(chosen)} cases"
    for key, patterns in wanted.items():
        if key != "case" and not any(_matches(planned, key, patterns) for planned in chosen):
            values = sorted({_text(planned.coordinates.get(key)) for planned in chosen})
            more = f" and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else ""
            return f"{text}: {key} is {', '.join(values[:MOST_NAMED])}{more}"
    return text


def _wanted(
    expressions: Sequence[str], source: str, coordinates: Iterable[str]
) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for part in ",".join(expressions).split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            keys = ", ".join(sorted(coordinates))
            raise refuse(Origin(source), "", f"{part!r} is not key=value (keys: {keys})")
        wanted.setdefault(key.strip(), []).append(value.strip())
    return wanted


def _matches(planned: Planned, key: str, patterns: Iterable[str]) -> bool:
    values: list[Json] = [planned.coordinates.get(key)]
    if key == "workload":
        values.append(planned.entry)
    elif key == "case":
        values = [planned.case.case_id]
    elif key not in planned.coordinates:
        return False
    return any(_one(value, pattern) for value in values for pattern in patterns)


def _one(value: Json, pattern: str) -> bool:
    if fnmatchcase(_text(value), pattern):
        return True
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    try:
        return parse_size(pattern) == value
    except (ValueError, OverflowError):
        return False


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
