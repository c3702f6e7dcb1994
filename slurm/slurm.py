"""Slurm by its own commands: sbatch, squeue, scancel, scontrol; sacct where it works.

A controller that does not answer is not an answer: SchedulerAway, after Slurm's own patience.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fsmatrix.backends.system import tools
from fsmatrix.results.currentjob import NO_JOB, CurrentJob
from fsmatrix.results.units import slurm_seconds
from fsmatrix.slurm.nodes import allocation
from fsmatrix.slurm.scheduler import (
    BatchJob,
    JobState,
    Scheduler,
    SchedulerAway,
    SchedulerError,
    State,
)
from fsmatrix.slurm.script import script_text
from fsmatrix.suite.launchers.allocation import Allocation

SECONDS = 60.0  # longest wait for one command
AWAY = re.compile(
    r"unable to contact|socket timed out|connection (refused|reset)|communication connection"
    r"|zero bytes were transmitted|transport endpoint|temporarily unable",
    re.IGNORECASE,
)
ENDED = re.compile(r"invalid job id|already (completing|completed)|already finished", re.IGNORECASE)
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
RUNNING = (
    "RUNNING",
    "CONFIGURING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
)
FORMAT = "%i|%T|%r|%N|%S|%l|%k"  # the comment last: it is the only one that could hold a bar
# what users preset for all their jobs, and a script may leave to them
PRESETS = (
    "SBATCH_ACCOUNT",
    "SBATCH_PARTITION",
    "SBATCH_QOS",
    "SBATCH_RESERVATION",
    "SBATCH_CONSTRAINT",
    "SBATCH_CLUSTERS",
)
CURES = (
    ("invalid partition", "sinfo lists them; slurm.partition says which"),
    ("invalid account", "sacctmgr show associations user=$USER lists them; slurm.account says it"),
    ("invalid qos", "sacctmgr show qos lists them; slurm.qos says which"),
    (
        "configuration source",
        "this machine is in no Slurm cluster, or SLURM_CONF does not name the slurm.conf of one "
        "(fsmatrix testbed up slurm prints its own)",
    ),
    ("submit limit", "when some have ended, `fsmatrix submit --resume` goes on"),
)


# reasons with which a job waits for ever -> what to do
NEVER = {
    "PartitionTimeLimit": "its limit is longer than its partition allows; --resume queues it anew "
    "with what is allowed, or set slurm.time",
    "PartitionNodeLimit": "it asks for more nodes than a job of its partition may have: set "
    "slurm.partition",
    "BadConstraints": "no node is as it asks for: look at slurm.options",
    "DependencyNeverSatisfied": "a job that it waits for was cancelled; --resume queues it anew",
    "QOSMaxWallDurationPerJobLimit": "its limit is longer than its QOS allows: set slurm.time",
    "AssocMaxWallDurationPerJobLimit": "its limit is longer than its account allows: set "
    "slurm.time",
}
# reasons with which it waits for somebody
HELD = {
    "JobHeldUser": "it is held: scontrol release lets it go",
    "JobHeldAdmin": "an administrator holds it",
}


class Slurm(Scheduler):
    """The cluster that the environment names (SLURM_CONF, or the machine's own)."""

    name = "slurm"

    def current(self, environ: Mapping[str, str]) -> CurrentJob:
        restarts = environ.get("SLURM_RESTART_COUNT", "")
        job = environ.get("SLURM_JOB_ID", "")
        if not job:
            return NO_JOB
        return CurrentJob(self.name, job, int(restarts) if restarts.isdecimal() else 0)

    def nodes(self, environ: Mapping[str, str]) -> Allocation | None:
        return allocation(environ)

    def script(self, job: BatchJob) -> str:
        return script_text(job, job.log.replace("-%j.log", ".sh"))

    def refusal(self, folder: Path) -> str:
        # seen with 22.05: a job whose folder has one of them ends at once, without a trace
        unusable = [character for character in "%\\" if character in str(folder)]
        return f"Slurm takes {' and '.join(unusable)} for patterns in paths" if unusable else ""

    def longest(self, partition: str | None) -> float | None:
        return slurm_seconds(self._partition(partition).get("MaxTime", ""))

    def most_nodes(self, partition: str | None) -> int | None:
        facts = self._partition(partition)
        limits = [facts.get(name, "") for name in ("MaxNodes", "TotalNodes")]
        return min((int(limit) for limit in limits if limit.isdecimal()), default=None)

    @staticmethod
    def _partition(partition: str | None) -> dict[str, str]:
        """What Slurm says of a partition (None: the one that sbatch takes); {}: not known."""
        if "SBATCH_CLUSTERS" in os.environ:
            return {}
        partition = partition or os.environ.get("SBATCH_PARTITION")
        name = [partition] if partition else []
        try:
            answer = _ask(["scontrol", "--oneliner", "show", "partition", *name])
        except SchedulerAway:
            raise
        except SchedulerError:  # no such partition: sbatch says so, with the cure
            return {}
        for line in answer.splitlines():
            facts = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if partition or facts.get("Default") == "YES":
                return facts
        return {}

    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        words = ["sbatch", "--parsable"]
        if after:
            # with the job's own kill-on-invalid-dep: what can never start must not wait
            words += [f"--dependency=afterany:{':'.join(after)}", "--kill-on-invalid-dep=yes"]
        answer = _ask(
            [*words, script.name],
            cwd=script.parent,  # where its log goes
            env=_environment(os.environ, script.read_text(encoding="utf-8")),
        )
        return answer.strip().splitlines()[-1].partition(";")[0]

    def jobs_of_user(self) -> dict[str, JobState]:
        answer = _ask(
            ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", f"--format={FORMAT}"]
        )
        return {state.job: state for state in _states(answer)}

    def ended(self, job: str) -> bool:
        """Of anybody's job, which `jobs_of_user` would not show."""
        try:
            words = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
            return all(_state(state) == "ended" for state in _ask(words).split())
        except SchedulerAway:
            return False
        except SchedulerError as error:
            return bool(ENDED.search(str(error)))  # not known any more

    def past(self, jobs: Iterable[str]) -> dict[str, JobState]:
        ids = ",".join(jobs)
        if not ids:
            return {}
        try:
            answer = _ask(
                [
                    "sacct",
                    "--noheader",
                    "--parsable2",
                    "--allocations",
                    f"--jobs={ids}",
                    "--format=JobIDRaw,State,NodeList,Start",
                ]
            )
        except SchedulerError:  # no accounting on this cluster: nothing is known
            return {}
        rows = (line.split("|") for line in answer.splitlines())
        return {
            row[0]: JobState(row[0], _state(word), word, nodes=row[2], starts=row[3])
            for row in rows
            if len(row) == 4 and (word := row[1].partition(" ")[0])
        }

    def cancel(self, jobs: Iterable[str]) -> None:
        ids = list(jobs)
        for start in range(0, len(ids), 200):
            try:
                _ask(["scancel", *ids[start : start + 200]])
            except SchedulerAway:
                raise
            except SchedulerError as error:
                if not ENDED.search(str(error)):
                    raise

    def requeue(self, job: str) -> None:
        _ask(["scontrol", "requeue", job])


def _states(output: str) -> Iterator[JobState]:
    for line in output.splitlines():
        fields = line.split("|", 6)
        if len(fields) == 7:
            job, state, reason, nodes, starts, limit, token = fields
            yield JobState(
                job=job,
                state=_state(state),
                said=state,
                token="" if token == "(null)" else token,
                reason="" if reason == "None" else HELD.get(reason, reason),
                nodes=nodes,
                starts="" if starts == "N/A" else starts,
                seconds=slurm_seconds(limit),
                never=_never(reason) if _state(state) == "waiting" else "",
            )


def _never(reason: str) -> str:
    cure = NEVER.get(reason)
    return f"it can never start ({reason}): {cure}" if cure else ""


def _state(word: str) -> State:
    if word in WAITING:
        return "waiting"
    return "running" if word in RUNNING else "ended"


def _environment(environ: Mapping[str, str], script: str) -> dict[str, str]:
    """Without the SBATCH_* that sbatch would believe rather than the script."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("SBATCH_")
        or (name in PRESETS and f"#SBATCH --{name[7:].lower()}=" not in script)
    }


def _ask(argv: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command of Slurm answers on standard output."""
    program = tools.find(argv[0])
    if program is None:
        raise SchedulerError(
            tools.refusal(argv[0])
            or f"{argv[0]} is not on PATH: this machine is not a login node of a Slurm cluster "
            "(fsmatrix testbed up slurm makes one to try)"
        )
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is not for it
        )
    except subprocess.TimeoutExpired as error:
        raise SchedulerAway(f"{argv[0]} did not answer within {SECONDS:g} s") from error
    if done.returncode == 0:
        return done.stdout
    text = " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
    if AWAY.search(text):
        raise SchedulerAway(f"{argv[0]}: {text}")
    cure = next((cure for what, cure in CURES if what in text.lower()), "")
    raise SchedulerError(f"{argv[0]}: {text}" + (f"; {cure}" if cure else ""))
