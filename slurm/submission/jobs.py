"""From a part of a campaign to its batch job: settings of the site, the user and the campaign."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fsmatrix.results.evidence.values import Json
from fsmatrix.results.registry import did_you_mean
from fsmatrix.results.units import format_duration
from fsmatrix.slurm.scheduler import BatchJob
from fsmatrix.slurm.submission.division import Part
from fsmatrix.slurm.submission.submission import COLLECT, Submission
from fsmatrix.suite.campaign.problems import CampaignError, Problem
from fsmatrix.suite.campaign.slurm_section import SlurmSection
from fsmatrix.suite.plan.plan import Plan

SPARE = 2.0  # limit of a job / its estimate
STARTING = 600.0  # seconds for what an estimate does not know
LONGEST = 24 * 3600.0  # of a job, where neither the site nor the user says one
ENDING = 60.0  # seconds to unmount and to write, between the warning and the limit
WORKING = 60  # seconds that a job has at least before it is warned
COLLECT_SECONDS = (1800.0, 0.05)  # of the last job: at least, and per run

# options of sbatch that the last job has no use for
HARDWARE = ("gres", "gpus", "constraint", "bb", "bbf", "exclusive", "licenses", "mem")


def batch_job(
    plan: Plan,
    submission: Submission,
    part: Part,
    out: Path,
    retry_failed: bool = False,
    longest: float | None = None,
) -> BatchJob:
    """The job that carries out a part; `longest`: seconds that the batch system allows."""
    section = plan.settings.campaign.slurm
    warned = _warned(plan)
    seconds = _limit(plan, part.seconds * SPARE + STARTING + warned, longest)
    command = [*_fsmatrix(section), "run", "-o", str(out), "--resume", *part.words]
    command += ["--retry-failed"] if retry_failed else []
    command += [word for text in submission.only for word in ("--only", text)]
    first, last = part.blocks
    return BatchJob(
        name=submission.names[part.key],
        token=submission.token_of(part.key),
        about=(
            f"fsmatrix: campaign {plan.settings.campaign.campaign}, "
            + (f"blocks {first} to {last}" if last > first else f"block {first}"),
            f"{len(part.runs)} runs on storage system {part.system} from {part.nodes} client "
            f"node{'s' * (part.nodes > 1)} x up to {part.tasks_per_node} processes, about "
            f"{format_duration(part.seconds)}",
        ),
        command=(*command, "--requeue", "--quiet"),
        directory=Path(submission.directory),
        log=f"{part.key}-%j.log",
        seconds=seconds,
        warned=warned,
        nodes=part.nodes,
        tasks_per_node=part.tasks_per_node,
        cpus_per_task=section.cpus_per_task or part.threads,
        one_at_a_time=True,
        options=dict(_options(section, part)),
        directives=section.directives,
        modules=tuple(_modules(plan, part)),
        environment={**section.environment, "FSMATRIX_PARALLEL_JOBS": str(submission.parallel)},
        venv=_venv(section),
        conda=section.conda or "",
    )


def collect_job(
    plan: Plan, submission: Submission, out: Path, longest: float | None = None
) -> BatchJob:
    """The last job: merges the runs and writes the report; `longest` as of `batch_job`."""
    section = plan.settings.campaign.slurm
    runs = sum(len(part.runs) for part in submission.parts)
    least, each = COLLECT_SECONDS
    small = {
        name: value
        for name, value in section.options.items()
        if name not in HARDWARE and value is not False
    }
    return BatchJob(
        name=f"fsmatrix-collect-{plan.settings.campaign.campaign}",
        token=submission.token_of(COLLECT),
        about=(
            f"fsmatrix: campaign {plan.settings.campaign.campaign}, merges its runs and writes "
            "report.html",
        ),
        command=(*_fsmatrix(section), "report", str(out)),
        directory=Path(submission.directory),
        log=f"{COLLECT}-%j.log",
        seconds=_limit(plan, least + each * runs, longest),
        options={**_place(section), **small},
        modules=tuple(_modules(plan, None)),
        environment=section.environment,
        venv=_venv(section),
        conda=section.conda or "",
    )


def check(
    plan: Plan,
    parts: Sequence[Part],
    allowed: float | None = None,
    most_nodes: int | None = None,
) -> None:
    """CampaignError for what the site's file says cannot be.

    `allowed`, `most_nodes`: seconds that the batch system lets a job of the partition take, and
    nodes that it lets it have.
    """
    section, site = plan.settings.campaign.slurm, plan.settings.site.site
    partitions = site.partitions
    problems: list[Problem] = []

    def refuse(name: str, message: str) -> None:
        origin = plan.settings.origin("slurm", name)
        problems.append(Problem(origin.source, origin.line, f"slurm.{name}", message))

    if section.partition and partitions and section.partition not in partitions:
        hint = did_you_mean(section.partition, partitions, "the site has")
        refuse("partition", f"no partition {section.partition!r}{hint}")
    partition = partitions.get(section.partition or "")
    where = section.partition or "the default partition"
    nodes = max((part.nodes for part in parts), default=0)
    chosen_otherwise = section.directives or "clusters" in section.options
    if most_nodes is not None and nodes > most_nodes and not chosen_otherwise:
        which = "factors" if "nodes" in plan.settings.campaign.factors else "geometry"
        message = f"{nodes} nodes are needed; a job of {where} has at most {most_nodes}, says the"
        problems.append(plan.settings.tree.problem((which, "nodes"), f"{message} batch system"))
    if partition is not None:
        if partition.nodes is not None and nodes > partition.nodes:
            refuse("partition", f"{nodes} nodes are needed; a job there has {partition.nodes}")
        if partition.hours is not None and (section.time or 0) > partition.hours * 3600:
            refuse("time", f"a job of {section.partition} has at most {partition.hours:g} hours")
    if allowed is not None and (section.time or 0) > allowed:
        refuse("time", f"a job of {where} has at most {allowed / 60:g} min, says the batch system")
    needed, longest = _warned(plan) + WORKING, _limit(plan, math.inf, allowed)
    if longest < needed:
        refuse(
            "time" if section.time is not None else "partition",
            f"a job of {longest} s is too short, {needed} s are needed: a run may take "
            f"{plan.settings.campaign.limits.time_per_run:g} s (limits.time_per_run), and must end "
            f"before its job, which is warned {_warned(plan)} s before the limit",
        )
    systems = {part.system for part in parts}
    for name in section.licenses.keys() - systems:
        refuse("licenses", f"no target is of system {name!r}{did_you_mean(name, systems, 'are')}")
    if problems:
        raise CampaignError(problems)


def _warned(plan: Plan) -> int:
    """Seconds that the run which is under way may need to end, and the job after it."""
    campaign = plan.settings.campaign
    return math.ceil(campaign.limits.time_per_run + campaign.settle.timeout + ENDING)


def _limit(plan: Plan, seconds: float, allowed: float | None) -> int:
    """Seconds of a job's limit: as the user says, else as asked, up to the partition's own.

    What that is the batch system says, if the site's file does not.
    """
    section, partitions = plan.settings.campaign.slurm, plan.settings.site.site.partitions
    if section.time is not None:
        return math.ceil(section.time)
    partition = partitions.get(section.partition or "")
    longest = LONGEST
    if partition is not None and partition.hours is not None:
        longest = partition.hours * 3600
    elif allowed is not None:
        longest = allowed
    return math.ceil(min(seconds, longest) / 60) * 60


def _place(section: SlurmSection) -> dict[str, Json]:
    named = {name: getattr(section, name) for name in ("partition", "account", "qos")}
    return {name: value for name, value in named.items() if value is not None}


def _options(section: SlurmSection, part: Part) -> Iterator[tuple[str, Any]]:
    yield from _place(section).items()
    if section.exclusive is not False:
        yield "exclusive", section.exclusive
    if part.system in section.licenses:
        yield "licenses", section.licenses[part.system]
    yield from ((name, value) for name, value in section.options.items() if value is not False)


def _modules(plan: Plan, part: Part | None) -> Iterator[str]:
    """The site's, its MPI's, the campaign's, and those of the engines that the part uses."""
    site, section = plan.settings.site.site, plan.settings.campaign.slurm
    engines = part.engines if part is not None else ()
    wanted = [
        *site.modules,
        *([site.mpi.module] if site.mpi.module and part is not None else []),
        *section.modules,
        *(m for engine in engines for m in section.engine_modules.get(engine, ())),
    ]
    yield from dict.fromkeys(wanted)


def _fsmatrix(section: SlurmSection) -> list[str]:
    """How a job starts fsmatrix: by the environment that it activates, else by this very one."""
    if section.container:
        words = ["apptainer", "exec", *section.container_options, section.container]
        return [*words, "fsmatrix"]
    own = Path(sys.executable).with_name("fsmatrix")
    if section.venv or section.conda or not own.exists():
        return ["fsmatrix"]
    return [str(own)]


def _venv(section: SlurmSection) -> str:
    return section.venv or ""
