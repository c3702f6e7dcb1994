"""The text of an sbatch script, from nothing but the job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import jinja2

from fsmatrix.slurm.scheduler import BatchJob

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
