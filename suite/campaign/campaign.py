"""The campaign's schema: what a user may write in campaign.yaml.

Names of backends, workloads, launchers, options and factors are checked later (cases.py),
where the registries are at hand; here only the shape.

What may be said about Slurm stands in the site file's defaults or the user's as well.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from fsmatrix.results.evidence.stored import Json
from fsmatrix.results.evidence.target import Deployment
from fsmatrix.results.record import DEFAULT_DEVICE_STATE
from fsmatrix.results.units import Duration, PositiveDuration, PositiveSize, SlurmDuration
from fsmatrix.suite.campaign.yamlio import CampaignError, Problem

# What all parts of the schemas share.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=48)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]

# What a campaign declares about a target that nobody can be asked for: `targets.X.deployment`.
_Words = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 .+_-]*$", max_length=60)]
_Redundancy = Annotated[
    str, StringConstraints(pattern=r"^(none|replica [1-9][0-9]?|EC [1-9][0-9]?\+[1-9][0-9]?)$")
]


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


def _slurm_line(text: str) -> str:
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
    return _slurm_line(value) if isinstance(value, str) else value


def owned(name: str) -> str:
    """Why an option of sbatch cannot be set in `slurm` (empty: it can).

    sbatch takes the beginning of a name for the whole: `outpu` is `output`, `wra` is `wrap`.
    """
    asked = name.lower().replace("_", "-")
    if asked in WHOLE:
        return ""
    longer = next((option for option in OWN if option.startswith(asked)), "")
    return OWN.get(asked) or (f"sbatch takes it for {longer}: {OWN[longer]}" if longer else "")


Line = Annotated[str, AfterValidator(_slurm_line)]
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


class DeploymentSection(Section):
    """Facts that decide whether targets are compared fairly.  What the storage tells counts first:
    declared facts fill what it does not tell."""

    redundancy: _Redundancy | None = Field(default=None, description="none, replica 3, EC 2+1")
    failure_domain: _Words | None = Field(
        default=None, description="what copies of the same data never share: osd, host, rank"
    )
    durability: Literal["write-back", "durable on return"] | None = Field(
        default=None,
        description="of a write without O_DIRECT: only fsync makes it durable, or its return does",
    )
    checksums: _Words | None = Field(
        default=None, description="of data: none, crc32c at rest, crc64 end to end"
    )
    ec_encoder: Literal["client", "server", "none"] | None = Field(
        default=None, description="who computes an erasure code"
    )
    chunk_size: PositiveSize | None = Field(
        default=None, description="bytes of one piece (object, stripe) of a file"
    )
    transport: Literal["TCP", "RDMA", "none"] | None = Field(
        default=None, description="between clients and servers"
    )
    encrypted: bool | None = Field(default=None, strict=True, description="in flight")
    data_cache: _Words | None = Field(
        default=None, description="what keeps data in a client: none, page cache"
    )
    metadata_cache: _Words | None = Field(
        default=None, description="what keeps names and attributes in a client"
    )
    storage_nodes: Count | None = Field(default=None, description="that hold data")
    devices_per_node: Count | None = Field(default=None, description="of each storage node")
    media: _Words | None = Field(
        default=None, description="of data: HDD, SSD, NVMe SSD, PMem, RAM, file"
    )
    metadata_media: _Words | None = Field(default=None, description="of metadata, likewise")
    usable_bytes: PositiveSize | None = Field(
        default=None, description="that users can fill, redundancy deducted"
    )
    server_cores: Count | None = Field(default=None, description="of all storage nodes together")
    server_memory: PositiveSize | None = Field(
        default=None, description="bytes, of all storage nodes together"
    )

    shared_cores: Literal["none", "shared", "shared, and the servers poll"] | None = Field(
        default=None, description="whether servers work on the cores of clients"
    )

    @property
    def facts(self) -> Deployment:
        """As backends tell it."""
        return Deployment(**self.model_dump(exclude_none=True))


__all__ = ["Campaign", "CampaignError", "Problem", "Section"]


def _host(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", name):
        raise ValueError(f"{name!r} is not the name of a host: letters, digits, . _ -")
    return name


Host = Annotated[str, AfterValidator(_host)]
CampaignName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
SEEDS = range(2**53)  # exact in JSON
Seed = Annotated[int, Field(strict=True, ge=SEEDS.start, lt=SEEDS.stop)]
CacheState = Literal["cold", "warm", "bypass"]


def _level(value: Any) -> Any:
    """A level is text, a number, a boolean, or a list of those."""
    parts = value if isinstance(value, list) and value else [value]
    if not all(isinstance(part, str | int | float | bool) for part in parts):
        raise ValueError("a level must be text, a number, true, false, or a list of those")
    return value


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise ValueError("must be text, a number, true or false")
    return value


Level = Annotated[Any, BeforeValidator(_level)]
Scalar = Annotated[Any, BeforeValidator(_scalar)]


class GeometrySection(Section):
    """Client nodes x processes per node x threads per process."""

    nodes: Count = Field(default=1, description="client nodes")
    processes_per_node: Count = Field(
        default=1, description="processes (MPI ranks) on each client node"
    )
    threads: Count = Field(default=1, description="threads of each process")


class PartialGeometry(Section):
    """A workload's own geometry; what is absent comes from the campaign's."""

    nodes: Count | None = Field(default=None, description="client nodes")
    processes_per_node: Count | None = Field(
        default=None, description="processes on each client node"
    )
    threads: Count | None = Field(default=None, description="threads of each process")


class LauncherSection(Section):
    """How processes are started.  `launcher: mpirun` is short for `launcher: {name: mpirun}`."""

    name: str = Field(default="auto", description="auto, or the name of a launcher")
    emulated_nodes: int = Field(
        default=0,
        ge=0,
        le=4096,
        strict=True,
        description="virtual client nodes to make on this machine; 0 = use the real ones",
    )
    hosts: tuple[Host, ...] = Field(default=(), description="host names of the client nodes")
    options: tuple[str, ...] = Field(
        default=(), description="further arguments of the launcher's command"
    )
    own_network: bool = Field(
        default=True,
        strict=True,
        description="MPI that root starts on this machine alone is in a network of its own",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class LimitsSection(Section):
    """What the campaign may use; exceeding it is refused before anything runs."""

    time_per_run: PositiveDuration = Field(default=60.0, description="deadline of one run")
    time_without_progress: PositiveDuration = Field(
        default=10.0,
        description="when no operation was seen to complete for so long, the storage is "
        "asked for its health; the run ends if it does not answer or says what is wrong",
    )
    space: PositiveSize | None = Field(
        default=None, description="bytes stored at once on one target"
    )
    bytes_written: PositiveSize | None = Field(
        default=None, description="bytes written by all runs"
    )
    cases: Count = Field(default=100_000, description="cases, counted before exclusions")
    runs: Annotated[int, Field(strict=True, ge=1, le=100_000_000)] = Field(
        default=1_000_000, description="runs (cases x repetitions), counted before exclusions"
    )


class OrderSection(Section):
    """The split plot: what is repeated inside one attachment, and how often one attaches."""

    seed: Seed | None = Field(
        default=None, description="seed of the order; the campaign's if absent"
    )
    block: Count = Field(default=1, description="repetitions that share one attachment")
    attachments: Count = Field(
        default=6, description="how many independent attachments there should be"
    )


class SettleSection(Section):
    """Waiting before each run until the system is quiet."""

    timeout: Duration = Field(default=10.0, description="longest wait; 0 = none")


def _named(value: Any) -> Any:
    """No names where the word says that they are not given."""
    return () if value == "auto" else value


class MonitorSection(Section):
    """Storage nodes watched during runs.  What cannot be watched costs its series, never a run."""

    sources: tuple[Name, ...] = Field(
        default=("testbed",),
        description="who tells of them, in this order: testbed (nodes of the suite's own beds), "
        "ssh (one fixed command that reads /proc), prometheus (the server of the site file); "
        "[]: nothing is watched",
    )
    nodes: Annotated[tuple[Host, ...], BeforeValidator(_named)] = Field(
        default=(),
        description="host names; auto (or none): the hosts that the storage names (Ceph: of its "
        "pools' OSDs; DAOS: of its engines)",
    )
    interval: PositiveDuration = Field(
        default=1.0, ge=0.1, le=60.0, description="between two looks, 0.1s to 60s"
    )


class TargetLimits(Section):
    """What a target cannot exceed, from data sheets or other measurements."""

    device_bandwidth: PositiveSize | None = Field(
        default=None, description="bytes per second of all its devices together"
    )
    network_bandwidth: PositiveSize | None = Field(
        default=None,
        description="bytes per second of all its clients' links together, each way; if absent the "
        "site's fabric, else the link speeds that the nodes tell",
    )


class Target(Section):
    """A storage system under test."""

    backend: str = Field(description="name of the backend")
    options: dict[str, Json] = Field(default={}, description="options of the backend")
    when: Literal["always", "usable", "fallback", "root", "not-root"] = Field(
        default="always",
        description="usable: take part if this machine can provide it now; fallback: likewise, but "
        "only while fewer than two others do; root, not-root: as this user only.  If a target "
        "is `always` and cannot be provided, the campaign is refused",
    )
    testbed: dict[str, Json] | None = Field(
        default=None,
        description="bring up a real Ceph or DAOS on this machine for it, with these options of "
        "`fsmatrix testbed up`; storage_nodes (and for Ceph interface) is then a cluster factor",
    )
    system: Name | None = Field(
        default=None, description="the cluster behind it; each runs one job at a time"
    )
    attributes: dict[Name, Scalar] = Field(
        default={},
        description="facts about the cluster that become coordinates: storage_nodes, interface",
    )
    realised: dict[str, Literal["hardware", "emulated"]] = Field(
        default={}, description="how an attribute or a level is made; hardware if absent"
    )
    deployment: DeploymentSection = Field(
        default=DeploymentSection(), description="facts that cannot be queried from the storage"
    )
    limits: TargetLimits = Field(default=TargetLimits(), description="what it cannot exceed")
    reference: bool = Field(
        default=False, strict=True, description="shown for orientation, compared only on request"
    )
    device_state: str = Field(
        default=DEFAULT_DEVICE_STATE, description="state of the device before a run"
    )


class WorkloadEntry(Section):
    """An entry of `workloads`: which workload, and its options."""

    workload: str = Field(description="name of the workload")
    engine: str | None = Field(
        default=None, description="program that does it; default: the workload's first"
    )
    options: dict[str, Json] = Field(default={}, description="options of the workload")
    geometry: PartialGeometry = Field(
        default=PartialGeometry(), description="overrides the campaign's"
    )
    cache: CacheState | None = Field(default=None, description="overrides the campaign's")


class Defaults(Section):
    """What site and user files may preset and a campaign may override."""

    launcher: LauncherSection = Field(
        default=LauncherSection(), description="how processes are started"
    )
    limits: LimitsSection = Field(
        default=LimitsSection(), description="time, space, bytes, cases, runs"
    )
    cache_method: Literal["auto", "drop_caches", "fadvise"] = Field(
        default="auto",
        description="how caches are emptied; auto: fadvise where it works, otherwise drop_caches",
    )
    settle: SettleSection = Field(default=SettleSection(), description="waiting for a quiet system")
    affinity: Literal["none", "core"] = Field(
        default="none", description="CPUs of a rank: all of its node, or one of its own per thread"
    )
    monitor: MonitorSection = Field(
        default=MonitorSection(), description="storage nodes watched during runs"
    )
    client_ceiling: bool = Field(
        default=True,
        strict=True,
        description="measure how many operations these clients can make at all, in at most 5 % of "
        "the time of the runs",
    )
    geometry: GeometrySection = Field(
        default=GeometrySection(), description="geometry where an entry gives none"
    )
    order: OrderSection = Field(default=OrderSection(), description="blocks, attachments, seed")
    engines: dict[Name, str] = Field(
        default={},
        description="program of an external engine (ior: /opt/ior/bin/ior); if absent: the "
        "environment's FSMATRIX_IOR and so on, else the first on PATH",
    )
    repetitions: Annotated[int, Field(strict=True, ge=1, le=10_000)] = Field(
        default=6, description="runs of every case"
    )
    slurm: SlurmSection = Field(
        default=SlurmSection(), description="what `fsmatrix submit` asks of Slurm"
    )


# percent of what a closed loop does, for a factor `load: ladder`
LADDER = (5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100)


def _laddered(value: Any) -> Any:
    """With the ladder's levels where its name stands for them."""
    if isinstance(value, dict) and value.get("load") == "ladder":
        return {**value, "load": list(LADDER)}
    return value


class Campaign(Defaults):
    """A campaign as one YAML file states it."""

    campaign: CampaignName = Field(description="name: lower-case letters, digits, hyphens")
    description: str = Field(default="", description="a sentence for the report")
    seed: Seed | None = Field(default=None, description="drawn and stored if absent")
    targets: dict[Name, Target] = Field(min_length=1, description="storage systems under test")
    workloads: dict[Name, WorkloadEntry] = Field(min_length=1, description="what is done")
    factors: Annotated[
        dict[str, Annotated[tuple[Level, ...], Field(min_length=1)]], BeforeValidator(_laddered)
    ] = Field(
        default={},
        description="name -> levels; every combination is a case.  A factor is an option of a "
        "workload, a field of the geometry, cache, device_state, or a cluster factor of a backend; "
        "`load: ladder` stands for twelve loads from 5 to 100",
    )
    exclude: tuple[Annotated[dict[str, Level], Field(min_length=1)], ...] = Field(
        default=(),
        description="combinations to leave out: all given levels match; a list matches any of its "
        "items; target and workload may be given too",
    )
    cache: CacheState = Field(default="cold", description="state of the caches before a read")
    impossible: Literal["refuse", "skip"] = Field(
        default="refuse", description="what happens to impossible pairs of workload and target"
    )
