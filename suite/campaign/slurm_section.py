"""What a user may say about Slurm, in the site file's defaults, the user's, or a campaign."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from fsmatrix.results.evidence.values import Json
from fsmatrix.results.units import SlurmDuration

# What all parts of the schemas share.


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=48)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class Section(BaseModel):
    """Base of all parts of the schema: unknown keys are refused, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True)


OPTION = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Burst buffers and DataWarp.  Not #PBS and #BSUB: sbatch obeys them, above its own directives.
DIRECTIVE = re.compile(r"#(BB|DW) [\x20-\x7e]+", re.ASCII)
# Options of sbatch that `submit` sets itself, and why nobody else may.
OWN = {
    **dict.fromkeys(
        ("nodes", "ntasks", "ntasks-per-node", "nodelist-count"),
        "the campaign's geometry says it",
    ),
    **dict.fromkeys(("job-name", "dependency"), "it keeps jobs of one storage system apart"),
    "comment": "it identifies a job whose submission was interrupted",
    **dict.fromkeys(
        ("output", "error", "open-mode", "chdir", "workdir"),
        "`fsmatrix status` must find what jobs print",
    ),
    **dict.fromkeys(
        (
            "array",
            "wrap",
            "wait",
            "test-only",
            "parsable",
            "quiet",
            "export",
            "input",
            "help",
            "usage",
            "version",
        ),
        "jobs would not do what was planned",
    ),
    **dict.fromkeys(("export-file", "bbf", "nodefile"), "it names a file that Slurm would read"),
    **dict.fromkeys(
        ("uid", "gid", "get-user-env", "reboot"),
        "jobs run as the user who submits them, on nodes as they are",
    ),
    **dict.fromkeys(
        ("signal", "requeue", "no-requeue", "kill-on-invalid-dep"),
        "it makes jobs end cleanly before their limit, and the next one continue",
    ),
}

WHOLE = frozenset({"nodelist"})  # options of sbatch that only look like the beginning of one of OWN


def _line(text: str) -> str:
    """One line of text that can stand in a script."""
    if not text.isprintable():
        raise ValueError(f"{text!r} must be one line of printable characters")
    return text


def _directive(text: str) -> str:
    if text.startswith("#SBATCH"):
        raise ValueError(f"{text!r} is an option of sbatch: write it as a key of this section")
    if not DIRECTIVE.fullmatch(text):
        raise ValueError(
            f"{text!r} is not a directive that is passed on: write #BB or #DW, a blank and text, "
            "such as '#BB create_persistent name=bb capacity=1TB'"
        )
    return text


def _option(value: Any) -> Any:
    """true, false, a number or a line of text."""
    if not isinstance(value, str | int | float | bool):
        raise ValueError(f"{value!r} must be text, a number, true or false")
    return _line(value) if isinstance(value, str) else value


def owned(name: str) -> str:
    """Why an option of sbatch cannot be set in `slurm` (empty: it can).

    sbatch takes the beginning of a name for the whole: `outpu` is `output`, `wra` is `wrap`.
    """
    asked = name.lower().replace("_", "-")
    if asked in WHOLE:
        return ""
    longer = next((option for option in OWN if option.startswith(asked)), "")
    return OWN.get(asked) or (f"sbatch takes it for {longer}: {OWN[longer]}" if longer else "")


Line = Annotated[str, AfterValidator(_line)]
Directive = Annotated[str, AfterValidator(_directive)]
SlurmOption = Annotated[Any, BeforeValidator(_option)]


class SlurmSection(Section):
    """Settings of jobs; keys beyond these become --key=value of sbatch."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, SlurmOption] = Field(init=False)

    partition: Line | None = Field(default=None, description="--partition")
    account: Line | None = Field(default=None, description="--account")
    qos: Line | None = Field(default=None, description="--qos")
    time: SlurmDuration | None = Field(
        default=None,
        description="limit of one job: 00:30:00, 1-00:00:00, 30 (minutes) or 2h; twice the "
        "estimate if absent",
    )
    exclusive: SlurmOption = Field(
        default=True, description="--exclusive: whole nodes; false, or user, mcs, topo"
    )
    cpus_per_task: Count | None = Field(
        default=None,
        description="--cpus-per-task, also of every step; the number of threads if absent",
    )
    parallel: Count = Field(
        default=1, description="jobs of one storage system that may run at once; recorded, audited"
    )
    blocks_per_job: Count = Field(
        default=1, description="blocks of a job; more make fewer jobs, on fewer different nodes"
    )
    licenses: dict[Name, Line] = Field(
        default={}, description="storage system -> licence that its jobs hold, such as ceph_a:1"
    )
    directives: tuple[Directive, ...] = Field(
        default=(), description="lines for other programs: '#BB ...', '#DW ...'"
    )
    modules: tuple[Line, ...] = Field(
        default=(), description="environment modules to load, after the site's"
    )
    engine_modules: dict[Name, tuple[Line, ...]] = Field(
        default={}, description="engine -> modules that jobs load where it is used: {ior: [ior/4]}"
    )
    venv: Line | None = Field(
        default=None,
        description="virtual environment to activate; if absent, the one from which you submit",
    )
    conda: Line | None = Field(default=None, description="conda environment to activate instead")
    container: Line | None = Field(
        default=None, description="Apptainer image in which `fsmatrix run` is started"
    )
    container_options: tuple[Line, ...] = Field(
        default=(), description="arguments of `apptainer exec`, such as --bind=/scratch"
    )
    environment: dict[str, Line] = Field(
        default={}, description="variables to export before the run"
    )

    @model_validator(mode="after")
    def _names(self) -> SlurmSection:
        for name in self.options:
            if not OPTION.fullmatch(name.lower()):
                raise ValueError(f"{name!r} is not an option of sbatch")
            if reason := owned(name):
                raise ValueError(f"{name!r} cannot be set here: {reason}")
        for name in self.environment:
            if not VARIABLE.fullmatch(name):
                raise ValueError(f"environment: {name!r} is not the name of a variable")
        chosen = [name for name in ("venv", "conda", "container") if getattr(self, name)]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} exclude each other")
        return self

    @property
    def options(self) -> dict[str, Json]:
        """The keys beyond the known ones, as they were written."""
        return dict(self.__pydantic_extra__ or {})
