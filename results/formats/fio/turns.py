"""When the jobs of a document began, where fio does not say it: by startdelay and wait_for.

fio tells `job_start` from 3.36 on, and not under group_reporting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fsmatrix.results.formats.fio.job import TURNS, Job, seconds_of


def in_turn(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with their `delay` after the first; in the order of the document."""
    ends: dict[str, float] = {}
    placed = []
    for job in jobs:
        delay = seconds_of(job.options.get("startdelay", "0"))
        if delay is not None and (other := job.options.get("wait_for")):
            delay = ends[other] + delay if other in ends else None
        placed.append(replace(job, delay=delay))
        if delay is not None:
            ends[job.name] = max(ends.get(job.name, 0.0), delay + job.seconds)
    return placed


def unknown_turns(jobs: Sequence[Job]) -> str:
    """Why it is not known which jobs of a group worked at the same time; "" if it is."""
    for job in jobs:
        if told := [f"{name}={job.turns[name]}" for name in TURNS if name in job.turns]:
            return (
                f"its jobs did not begin together ({', '.join(told)}), and group_reporting lost "
                "when each of them worked: run fio without group_reporting"
            )
        if job.delay is None and len(jobs) > 1:
            told = [f"{name}={job.options[name]}" for name in TURNS if name in job.options]
            return f"when job {job.name} began is not known ({', '.join(told)})"
    return ""
