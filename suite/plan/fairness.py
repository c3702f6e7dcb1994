"""Are a plan's targets compared fairly?  What options, beds and the campaign tell beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsmatrix.backends.ceph.deployment import redundancy_of
from fsmatrix.backends.ceph.levels.redundancy import parse_redundancy
from fsmatrix.backends.errors import BackendError
from fsmatrix.results.audits.fairness.fairness import Fairness, fairness
from fsmatrix.results.evidence.deployment import NAMES, Deployment
from fsmatrix.results.evidence.values import Level
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.cases.target import TargetMember
from fsmatrix.suite.plan.matrix import footprint
from fsmatrix.suite.plan.plan import Plan


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
