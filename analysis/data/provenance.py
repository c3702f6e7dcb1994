"""What a report says about how it was measured, from the campaign's own records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from fsmatrix.analysis import units
from fsmatrix.analysis.data.columns import coded, combined
from fsmatrix.analysis.data.load import Rows, campaign_json, environments
from fsmatrix.analysis.data.summary import Summary
from fsmatrix.results.evidence.stored import Json, JsonObject

Facts = list[tuple[str, str]]
MOST_VALUES = 4
PLAN = (
    "seed",
    "order_seed",
    "repetitions",
    "block",
    "cache_method",
    "launcher",
    "settle",
    "limits",
    "exclude",
)


@dataclass(frozen=True)
class TargetFacts:
    """One target as it was measured."""

    name: str
    reference: bool
    counts: Facts
    facts: Facts


def measured(ds: xr.Dataset, data: Rows, summary: Summary) -> list[tuple[str, Facts]]:
    """Sections of facts that hold for the whole campaign."""
    blocks = np.unique(data["block"]).size if "block" in data.columns else 0
    structure: Facts = [
        ("blocks (passes in random order)", str(blocks)),
        ("attachments per target", _span(_attachments(data))),
        ("sessions", _count(data, "session")),
        ("engine", _engines(data)),
        ("hosts", _several(_split(data, "hosts"))),
        ("measured", _period(data)),
    ]
    constants = [
        (summary.cluster.title(name), units.level_text(name, level))
        for name, level in summary.constants.items()
        if name != "engine"
    ]
    title = summary.cluster.title
    varied = [(title(n), _levels(data, n)) for n in summary.varying if n != "target"]
    plan = campaign_json(ds)
    planned = [fact for name in PLAN for fact in flat(plan_value(plan, name), name)]
    shared = [_without_target(environment) for environment in environments(ds)]
    return [
        (title, facts)
        for title, facts in (
            ("Order and repetitions", [f for f in structure if f[1]] + planned),
            ("Factors that vary", varied),
            ("The same in all runs", constants),
            ("Machine and software", merged(shared)),
        )
        if facts
    ]


def _without_target(environment: JsonObject) -> dict[str, Json]:
    """What is not of one target; the facts about the machine without their heading."""
    rest = {key: value for key, value in environment.items() if key != "target"}
    machine = rest.pop("machine", {})
    return (dict(machine) if isinstance(machine, Mapping) else {"machine": machine}) | rest


def targets(ds: xr.Dataset, data: Rows, summary: Summary) -> list[TargetFacts]:
    """Every target: how often attached and run, its attributes, its storage."""
    result = []
    everything = environments(ds)
    names = data.factor("target")
    for name in sorted({str(n) for n in names}):
        own_rows = data.where(names == name)
        index = own_rows.columns.get("environment_index", np.empty(0, dtype=np.int64))
        storages = [
            value
            for i in np.unique(index)
            if 0 <= i < len(everything)
            and isinstance(value := everything[int(i)].get("target", {}), dict)
        ]
        title = summary.cluster.title
        attributes = [(title(n), _levels(own_rows, n)) for n in summary.attributes]
        states = set(zip(own_rows["run_id"].tolist(), own_rows["status"].tolist(), strict=True))
        counts = [
            (status, str(sum(status == own for _, own in states)))
            for status in ("ok", "failed", "timeout")
        ]
        counts.append(("attachments", str(len(coded(own_rows["attachment"])[0]))))
        result.append(
            TargetFacts(name, name in summary.references, counts, attributes + merged(storages))
        )
    return result


def absent(plan: JsonObject) -> list[tuple[str, str]]:
    """(target, reason) of those that took no part, since the machine could not have them."""
    stored = plan.get("left_out")
    entries = stored if isinstance(stored, list) else []
    return [
        (str(entry["target"]), str(entry["reason"]))
        for entry in entries
        if isinstance(entry, Mapping) and {"target", "reason"} <= entry.keys()
    ]


def plan_value(plan: JsonObject, name: str) -> Json:
    """A key of campaign.json, at its top or inside its `campaign`."""
    inner = plan.get("campaign")
    if isinstance(inner, Mapping) and name in inner:
        return inner[name]
    return plan.get(name)


def flat(value: Json, name: str) -> Facts:
    """Nested facts as (dotted name, text); empty values are left out."""
    if isinstance(value, Mapping):
        return [
            fact
            for key, inner in value.items()
            for fact in flat(inner, f"{name}.{key}" if name else str(key))
        ]
    if value is None or value == "" or value == []:
        return []
    if isinstance(value, bool):
        return [(name, "yes" if value else "no")]
    if isinstance(value, int | float) and units.is_size(name.rpartition(".")[2]):
        return [(name, units.size(value))]
    if isinstance(value, list):
        simple = all(not isinstance(item, list | Mapping) for item in value)
        return [(name, ", ".join(map(str, value)) if simple else json.dumps(value))]
    return [(name, str(value))]


def merged(values: Iterable[JsonObject]) -> Facts:
    """Facts of several descriptions; where they differ, the different values."""
    texts_by_name: dict[str, dict[str, None]] = {}
    for value in values:
        for name, text in flat(value, ""):
            texts_by_name.setdefault(name, {})[text] = None
    return [(name, _several(list(texts))) for name, texts in texts_by_name.items()]


def _several(values: Sequence[str]) -> str:
    shown = "; ".join(values[:MOST_VALUES])
    more = len(values) - MOST_VALUES
    return f"{shown}; and {more} more" if more > 0 else shown


def _attachments(data: Rows) -> list[int]:
    targets = coded(data.factor("target"))[1]
    pairs = combined([targets, coded(data["attachment"])[1]], targets.size)[0]
    counts: list[int] = np.bincount(targets[pairs]).tolist()
    return counts


def _span(counts: Sequence[int]) -> str:
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _count(data: Rows, name: str) -> str:
    return str(len(coded(data[name])[0])) if name in data.columns else ""


def _split(data: Rows, name: str) -> list[str]:
    if name not in data.columns:
        return []
    return sorted({host for text in coded(data[name])[0] for host in str(text).split()})


def _engines(data: Rows) -> str:
    if "engine" not in data.columns or "engine_version" not in data.columns:
        return ""
    pairs = zip(data["engine"].tolist(), data["engine_version"].tolist(), strict=True)
    return _several([f"{name} {version}".strip() for name, version in sorted(set(pairs))])


def _period(data: Rows) -> str:
    if "started" not in data.columns:
        return ""
    times = sorted(str(text) for text in coded(data["started"])[0] if text)
    return f"{times[0]} to {times[-1]}" if times else ""


def _levels(data: Rows, name: str) -> str:
    column = data.factor(name) if name in data.factors else data.columns.get(name)
    if column is None:
        return ""
    present = [level for level in coded(column)[0] if level == level and level != ""]
    return ", ".join(units.level_text(name, level) for level in present)
