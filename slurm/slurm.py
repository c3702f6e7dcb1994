"""Slurm by its own commands: sbatch, squeue, scancel, scontrol; sacct where it works.

A controller that does not answer is not an answer: SchedulerAway, after Slurm's own patience.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fsmatrix.slurm.scheduler import (
    BatchJob,
    JobState,
    Scheduler,
    SchedulerAway,
    SchedulerError,
    State,
)
from fsmatrix.slurm.script import script_text

SECONDS = 60.0  # longest wait for one command
AWAY = re.compile(
    r"unable to contact|socket timed out|connection (refused|reset)|communication connection"
    r"|zero bytes were transmitted|transport endpoint|temporarily unable",
    re.IGNORECASE,
)
ENDED = re.compile(r"invalid job id|already (completing|completed)|already finished", re.IGNORECASE)
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
RUNNING = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING",
           "STAGE_OUT")  # fmt: skip
FORMAT = "%i|%T|%r|%N|%S|%k"  # the comment last: it is the only one that could hold a bar
# what users preset for all their jobs, and a script may leave to them
PRESETS = ("SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION",
           "SBATCH_CONSTRAINT", "SBATCH_CLUSTERS")  # fmt: skip
CURES = (
    ("invalid partition", "sinfo lists them; slurm.partition says which"),
    ("invalid account", "sacctmgr show associations user=$USER lists them; slurm.account says it"),
    ("invalid qos", "sacctmgr show qos lists them; slurm.qos says which"),
    ("submit limit", "when some have ended, `fsmatrix submit --resume` goes on"),
)


class Slurm(Scheduler):
    """The cluster that the environment names (SLURM_CONF, or the machine's own)."""

    name = "slurm"

    def script(self, job: BatchJob) -> str:
        return script_text(job, job.log.replace("-%j.log", ".sh"))

    def refusal(self, folder: Path) -> str:
        # seen with 22.05: a job whose folder has one of them ends at once, without a trace
        found = [character for character in "%\\" if character in str(folder)]
        return f"Slurm takes {' and '.join(found)} for patterns in paths" if found else ""

    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        words = ["sbatch", "--parsable"]
        if after:
            # with the job's own kill-on-invalid-dep: what can never start must not wait
            words += [f"--dependency=afterany:{':'.join(after)}", "--kill-on-invalid-dep=yes"]
        told = _ask(
            [*words, script.name],
            cwd=script.parent,  # where its log goes
            env=_environment(os.environ, script.read_text(encoding="utf-8")),
        )
        return told.strip().splitlines()[-1].partition(";")[0]

    def mine(self) -> dict[str, JobState]:
        told = _ask(
            ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", f"--format={FORMAT}"]
        )
        return {state.job: state for state in _states(told)}

    def ended(self, job: str) -> bool:
        """Of anybody's job, which `mine` would not show."""
        try:
            words = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
            return all(_state(said) == "ended" for said in _ask(words).split())
        except SchedulerAway:
            return False
        except SchedulerError as error:
            return bool(ENDED.search(str(error)))  # not known any more

    def past(self, jobs: Iterable[str]) -> dict[str, JobState]:
        ids = ",".join(jobs)
        if not ids:
            return {}
        try:
            told = _ask(["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={ids}",
                         "--format=JobIDRaw,State,NodeList,Start"])  # fmt: skip
        except SchedulerError:  # no accounting on this cluster: nothing is known
            return {}
        rows = (line.split("|") for line in told.splitlines())
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
        if not job:
            raise SchedulerError("this is no Slurm job: there is nothing to queue again")
        _ask(["scontrol", "requeue", job])


def _states(told: str) -> Iterator[JobState]:
    for line in told.splitlines():
        fields = line.split("|", 5)
        if len(fields) == 6:
            job, said, reason, nodes, starts, token = fields
            yield JobState(
                job=job,
                state=_state(said),
                said=said,
                token="" if token == "(null)" else token,
                reason="" if reason == "None" else reason,
                nodes=nodes,
                starts="" if starts == "N/A" else starts,
            )


def _state(said: str) -> State:
    if said in WAITING:
        return "waiting"
    return "running" if said in RUNNING else "ended"


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
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=env, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise SchedulerError(
            f"{argv[0]} is not on PATH: this machine is no login node of a Slurm cluster "
            "(fsmatrix testbed up slurm makes one to try)"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SchedulerAway(f"{argv[0]} did not answer within {SECONDS:g} s") from error
    if done.returncode == 0:
        return done.stdout
    text = " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
    if AWAY.search(text):
        raise SchedulerAway(f"{argv[0]}: {text}")
    cure = next((cure for what, cure in CURES if what in text.lower()), "")
    raise SchedulerError(f"{argv[0]}: {text}" + (f"; {cure}" if cure else ""))
