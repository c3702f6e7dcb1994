"""A plan as plain data: for `plan --json`, and stored with the results for `--resume`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import fsmatrix
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.audits.fairness import Fairness, fairness
from fsmatrix.results.evidence.stored import JsonObject, Level
from fsmatrix.results.evidence.target import (
    NAMES,
    Deployment,
    parse_redundancy,
    redundancy_of,
)
from fsmatrix.results.record import canonical_json
from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.cases.target import TargetMember
from fsmatrix.suite.plan.estimate import deciding
from fsmatrix.suite.plan.matrix import footprint
from fsmatrix.suite.plan.order import Plot
from fsmatrix.suite.plan.plan import Plan

# Are a plan's targets compared fairly?  What options, beds and the campaign tell beforehand.


def fairness_of(plan: Plan) -> Fairness | None:
    """Of the targets that take part, references left out; None for fewer than two."""
    cases: dict[str, list[Planned]] = {}
    for planned in plan.cases:
        if not planned.reference:
            cases.setdefault(planned.case.target, []).append(planned)
    if len(cases) < 2:
        return None
    facts = {name: _facts(plan.target(name), own) for name, own in cases.items()}
    return fairness(facts, frozenset(plan.settings.campaign.factors))


def deployment_of(member: TargetMember, level: Level) -> Deployment:
    """What is known of a target at a level before it is attached."""
    own = member.backend(member.options).deployment(level)
    return own.completed(_of_cluster(member, level)).completed(member.target.deployment.facts)


def _of_cluster(member: TargetMember, level: Level) -> Deployment:
    """What the attributes of a cluster say, declared or of a test bed."""
    try:
        facts = {**member.attributes(level), **level}
    except BackendError:
        return Deployment()  # no such bed: the matrix says so
    nodes, devices = facts.get("storage_nodes"), facts.get("osds_per_node")
    seen = Deployment(
        storage_nodes=nodes if isinstance(nodes, int) else None,
        devices_per_node=float(devices) if isinstance(devices, int) else None,
    )
    try:
        copies = redundancy_of(parse_redundancy(str(facts.get("redundancy", ""))))
    except ValueError:
        return seen
    domain = str(facts["failure_domain"]) if "failure_domain" in facts else None
    return seen.completed(copies).completed(Deployment(failure_domain=domain))


def _facts(member: TargetMember, cases: Sequence[Planned]) -> dict[str, list[Any]]:
    """Every fact's different values over a target's cases."""
    facts: dict[str, set[Any]] = {name: set() for name in NAMES}
    facts |= {"clients": set(), "realised": set(), "reads_from_server_memory": set()}
    for planned in cases:
        deployment = deployment_of(member, planned.case.level)
        for name, value in deployment.facts.items():
            facts[name].add(value)
        facts["clients"].add(planned.case.geometry.nodes)
        facts["realised"].add("emulated" if "emulated" in planned.realised.values() else "hardware")
        needs = footprint(planned)
        if deployment.server_memory is not None and needs.read:
            facts["reads_from_server_memory"].add(needs.space <= deployment.server_memory)
    return {name: sorted(values) for name, values in facts.items()}


def plan_json(plan: Plan) -> dict[str, Any]:
    """Everything about a plan; sizes in bytes, times in seconds.

    Its seed, source and request make the same plan again.
    """
    campaign = plan.settings.campaign
    fair = fairness_of(plan)
    return {
        "plan_version": 1,
        "fsmatrix": fsmatrix.__version__,
        "campaign": campaign.campaign,
        "description": campaign.description,
        "seed": plan.seed,
        "order_seed": plan.order_seed,
        "fingerprint": plan.fingerprint,
        "source": {"file": plan.source.file, "text": plan.source.text},
        "request": {
            "sets": list(plan.request.sets),
            "only": list(plan.request.only),
            "shard": list(plan.request.shard),
            "blocks": None if plan.request.blocks is None else list(plan.request.blocks),
            "targets": [member.name for member in plan.members.targets],
        },
        "repetitions": campaign.repetitions,
        "block": campaign.order.block,
        "matrix": [cell.to_json() for cell in plan.matrix.cells],
        "cases": [_case(planned) for planned in plan.cases],
        "impossible": [
            {"case_id": planned.case.case_id, "reason": reason}
            for planned, reason in plan.matrix.impossible
        ],
        "excluded": plan.excluded,
        "timed": plan.timed,
        "order": [_plot(plot) for plot in plan.plots()],
        "estimate": vars(plan.estimate),
        "comparisons": plan.comparisons,
        "deciding_repetitions": deciding(),
        "fairness": fair.to_dict() if fair else None,
        "monitor": plan.watched(),
        "warnings": list(plan.warnings),
        "left_out": [left.document() for left in plan.left_out],
        "settings": [
            {"key": key, "value": value, "origin": origin} for key, value, origin in plan.explain()
        ],
        "site": _site(plan.settings.site),
    }


def _case(planned: Planned) -> JsonObject:
    needs = footprint(planned)
    return {
        "case_id": planned.case.case_id,
        "work_id": planned.case.work_id,
        "case": json.loads(planned.case.canonical),
        "entry": planned.entry,
        "engine": planned.engine,
        "coordinates": json.loads(canonical_json(planned.coordinates)),
        "realised": dict(planned.realised),
        "reference": planned.reference,
        "space": needs.space,
        "written": needs.written,
        "files": needs.files,
    }


def _plot(plot: Plot) -> JsonObject:
    return {
        "block": plot.block,
        "attachment": plot.attachment,
        "target": plot.target,
        "level": dict(plot.level),
        "device_state": plot.key.device_state,
        "geometry": vars(plot.geometry),
        "runs": [[planned.case.case_id, repetition] for planned, repetition in plot.runs],
    }


def _site(file: SiteFile) -> JsonObject:
    """The site file's own sections that were written."""
    return file.site.model_dump(mode="json", exclude_unset=True, by_alias=True)
