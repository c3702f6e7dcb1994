"""Which launcher starts the sessions, and whether it has the nodes that a plan needs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from fsmatrix.results.files.lock import JobEnded
from fsmatrix.results.process import NO_JOB, CurrentJob
from fsmatrix.suite.campaign.yamlio import CampaignError, Problem
from fsmatrix.suite.cases.cases import Planned
from fsmatrix.suite.launchers import mpirun
from fsmatrix.suite.launchers.launcher import Allocation, Launcher, LauncherError
from fsmatrix.suite.plan.plan import Plan
from fsmatrix.suite.registry import LAUNCHERS


@dataclass(frozen=True)
class Batch:
    """What a run asks of the batch system whose job it is part of (slurm/scheduler.py).

    By default no job, and nobody to ask.
    """

    job: CurrentJob = NO_JOB
    ended: JobEnded = lambda _scheduler, _job: False
    nodes: Callable[[], Allocation | None] = lambda: None


# mpirun and mpiexec bring their MPI library and its PMI along; srun must guess which PMI fits
AUTO_LAUNCHERS = ("mpirun", "mpiexec", "srun")


def choose_launcher(plan: Plan, batch: Batch) -> Launcher:
    """The launcher of all sessions.

    LauncherError that names the cure if there is none, CampaignError if it has too few nodes.
    """
    launcher = _usable(plan, batch)
    if problem := short_of_nodes(plan, launcher):
        raise CampaignError([problem])
    return launcher


def too_few_nodes(plan: Plan, batch: Batch) -> str:
    """Why `run` would refuse the plan in this place for its nodes (empty: it has them)."""
    try:
        problem = short_of_nodes(plan, _usable(plan, batch))
    except LauncherError as error:
        return str(error)
    return problem.message if problem else ""


def exposed(plan: Plan, batch: Batch) -> str:
    """Who could act as root while the plan runs, in a sentence (empty: nobody, by its launcher)."""
    if os.geteuid() != 0:
        return ""
    with contextlib.suppress(LauncherError):  # without a launcher nothing runs
        launcher = _usable(plan, batch)
        for planned in plan.cases:
            reason = launcher.exposure(planned.case.geometry) or _speaks(plan, planned)
            if launcher.needs_mpi and reason:
                return (
                    f"while root runs this, other users who reach the ports of {launcher.name} "
                    f"can run programs as root ({reason}): see SECURITY.md, What listens"
                )
    return ""


def _speaks(plan: Plan, planned: Planned) -> str:
    """Which MPI program is left in this machine's network (empty: none of this case)."""
    target = next(each for each in plan.members.targets if each.name == planned.case.target)
    by_launcher = planned.work is not None and planned.work.by_launcher
    if by_launcher and target.foreseen(planned.case.level).programs_speak:
        return f"{planned.engine} speaks to the servers of {target.name}"
    return ""


def short_of_nodes(plan: Plan, launcher: Launcher) -> Problem | None:
    """Why a launcher cannot place the largest geometry of a plan; None if it can."""
    try:
        launcher.place(max((p.case.geometry for p in plan.cases), key=lambda g: g.nodes))
    except LauncherError as error:
        settings = plan.settings
        varied = "nodes" in settings.campaign.factors
        path = ("factors", "nodes") if varied else ("geometry", "nodes")
        return settings.tree.problem(path, str(error))
    return None


def _usable(plan: Plan, batch: Batch) -> Launcher:
    """The first launcher that can be used here, with the hosts that it has."""
    section = plan.settings.campaign.launcher
    name = section.name
    single = all(planned.case.geometry.processes == 1 for planned in plan.cases)
    if name == "auto":
        name = plan.settings.site.site.mpi.launcher or ("local" if single else "auto")
    names = AUTO_LAUNCHERS if name == "auto" else (name,)
    probes = {each: LAUNCHERS.load(each).probe() for each in names}
    usable = [each for each in names if probes[each].ok]
    if not usable:
        reasons = "; ".join(f"{each}: {probe.reason}" for each, probe in probes.items())
        raise LauncherError(f"no launcher can be used here: {reasons}")
    emulated = section.emulated_nodes
    if emulated and (reason := mpirun.refusal()):
        raise LauncherError(f"launcher.emulated_nodes: {reason}")
    hosts = tuple(f"node{i + 1}" for i in range(emulated)) if emulated else section.hosts
    kind = LAUNCHERS.load(usable[0])
    given = batch.nodes() if kind.needs_mpi and not emulated else None
    if given is not None:
        hosts = hosts or given.hosts
    return kind(
        probe_result=probes[usable[0]],
        hosts=tuple(hosts),
        cpus=given.of(hosts) if given else (),
        emulated=bool(emulated),
        own_network=section.own_network,
        options=(*plan.settings.site.site.mpi.options, *section.options),
    )
