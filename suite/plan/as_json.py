"""A plan as plain data: for `plan --json`, and stored with the results for `--resume`."""

from __future__ import annotations

import json
from typing import Any

import fsmatrix
from fsmatrix.results.case import canonical_json
from fsmatrix.results.evidence.values import JsonObject
from fsmatrix.suite.campaign.site import SiteFile
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.plan.estimate import deciding
from fsmatrix.suite.plan.fairness import fairness_of
from fsmatrix.suite.plan.matrix import footprint
from fsmatrix.suite.plan.order import Plot
from fsmatrix.suite.plan.plan import Plan


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
