"""Slurm by its own commands: sbatch, squeue, scancel, scontrol; sacct where it works.

A controller that does not answer is not an answer: SchedulerAway, after Slurm's own patience.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.results.process import NO_JOB, CurrentJob
from fsmatrix.results.units import slurm_seconds
from fsmatrix.slurm.scheduler import (
    BatchJob,
    JobState,
    Scheduler,
    SchedulerAway,
    SchedulerError,
    State,
)
from fsmatrix.suite.launchers.launcher import PROBE_SECONDS, Allocation, LauncherError

# The text of an sbatch script, from nothing but the job.


SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
LONGEST = 8000  # characters of a line that sbatch reads


def script_text(job: BatchJob, script: str) -> str:
    """The script of a job that will be stored as `script`.

    ValueError for an option that no script can hold.  Every word of a user is quoted: for bash
    by shlex, for sbatch, which reads #SBATCH lines itself, by double quotes.
    """
    return _template().render(
        about=[_comment(line) for line in job.about],
        script=script,
        directives=job.directives,
        options=[option_text(name, value) for name, value in options_of(job)],
        modules=job.modules,
        venv=job.venv,
        conda=job.conda,
        environment=sorted(job.environment.items()),
        directory=str(job.directory),
        warned=job.warned,
        signal="SIGUSR1",
        command=shlex.join(job.command),
    )


def options_of(job: BatchJob) -> Iterator[tuple[str, Any]]:
    """Options of sbatch, in the order of the script."""
    yield "job-name", job.name
    yield "comment", job.token
    yield "nodes", job.nodes
    yield "ntasks-per-node", job.tasks_per_node
    yield "cpus-per-task", job.cpus_per_task
    yield "time", time_text(job.seconds)
    yield "output", job.log
    yield "open-mode", "append"
    if job.one_at_a_time:
        yield "dependency", "singleton"
    if job.warned:
        yield "signal", f"B:USR1@{job.warned}"
        yield "requeue", True
    for name, value in job.options.items():
        yield name.replace("_", "-"), value


def option_text(name: str, value: Any) -> str:
    """`--name=value` as an #SBATCH line takes it; True is the bare option."""
    if value is True:
        return f"--{name}"
    text = f"--{name}={sbatch_word(str(value))}"
    if len(text) > LONGEST:
        raise ValueError(f"--{name} has {len(text)} characters; a script can hold {LONGEST}")
    return text


def sbatch_word(text: str) -> str:
    """A word as sbatch reads it in #SBATCH lines.

    Seen with 22.05: in double quotes a backslash takes the next character as it is, and nothing
    else is special; outside of them a backslash does not hold a blank.
    """
    if not text.isprintable():
        raise ValueError(f"{text!r} must be one line of printable characters")
    if SAFE.fullmatch(text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def time_text(seconds: int) -> str:
    """A duration as Slurm takes it: days-hours:minutes:seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{rest:02}"


def _comment(line: str) -> str:
    """Text that cannot leave its comment."""
    return line if line.isprintable() else repr(line)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fsmatrix.slurm"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: every word goes through `quote`
    )
    environment.filters["quote"] = lambda text: shlex.quote(str(text))
    return environment.get_template("job.sh")


# The nodes of a Slurm allocation, and the CPUs of each, from Slurm's own notation.


def allocation(environ: Mapping[str, str]) -> Allocation | None:
    """The allocation in an environment; None without one.  LauncherError if it cannot be read."""
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    if not environ.get("SLURM_JOB_ID") or not nodes:
        return None
    hosts = _hosts(nodes)
    cpus = counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return Allocation(hosts, cpus if len(cpus) == len(hosts) else ())


def _hosts(nodes: str) -> tuple[str, ...]:
    """Names in a list such as "node[1,3-4]": Slurm knows its own notation best."""
    try:
        done = tools.run(["scontrol", "show", "hostnames", nodes], PROBE_SECONDS, check=False)
        names = tuple(done.stdout.split())
        if done.returncode == 0 and names:
            return names
        trouble = done.stderr.strip() or f"status {done.returncode}"
    except ToolError as error:
        trouble = str(error)
    raise LauncherError(
        f"the nodes of this Slurm allocation ({nodes}) cannot be read: scontrol show hostnames: "
        f"{trouble}; give launcher.hosts"
    )


def counts(text: str) -> tuple[int, ...]:
    """Numbers per node as Slurm writes them: "4(x2),8" is (4, 4, 8); () if it is not that."""
    per_node: list[int] = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            return ()
        per_node += [int(match[1])] * int(match[2] or 1)
    return tuple(per_node)


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
