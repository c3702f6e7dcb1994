"""The workload seam: what is done, as a list of steps; both `steps` and `parse` are pure."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from fsmatrix.backends.access import Access, CephfsAccess, DfsAccess, PathAccess, RadosAccess
from fsmatrix.backends.player.ops import Io
from fsmatrix.results.evidence.stored import JsonObject
from fsmatrix.results.formats.parsed import Parsed
from fsmatrix.results.record import Case, Monitor, Phase
from fsmatrix.results.units import Duration, PositiveSize
from fsmatrix.suite.engines.engine import Engine
from fsmatrix.suite.session.messages import Argv, Function, Stream
from fsmatrix.suite.session.survey import Where

# Options that name a file: it is known by the SHA-256 of its bytes, never by its path.


PREFIX = "sha256:"
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ContentFile:
    """A file by its content; `path` is known where it can be read."""

    sha256: str
    path: str = field(default="", compare=False)

    def __str__(self) -> str:
        """What stands in cases."""
        return f"{PREFIX}{self.sha256}"


def stored_digest(text: str, what: str) -> str:
    """The digest in a text of a case, `sha256:...`; empty for a path.

    `what` it is of, for the ValueError of a digest that is none.
    """
    if not text.startswith(PREFIX):
        return ""
    digest = text.removeprefix(PREFIX)
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"{text!r} is no SHA-256 of a {what}")
    return digest


__all__ = [
    "Argv",
    "Footprint",
    "Function",
    "Output",
    "Role",
    "Step",
    "Stream",
    "Where",
    "Workload",
    "WorkloadOptions",
]
Role = Literal["setup", "timed", "check"]


class WorkloadOptions(BaseModel):
    """Base of all typed workload options: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def labels(self) -> dict[str, str]:
        """Levels to show in results, of options that a case knows by a digest only."""
        return {}


@dataclass(frozen=True)
class Step:
    """One step of a workload.  The session does barriers, clocks and cache states."""

    name: str  # of the phase, if timed
    where: Where
    role: Role
    what: Argv | Stream | Function
    reads: bool = False  # the declared cache state is made before it
    files: tuple[str, ...] = ()  # files (relative) whose cache state matters
    phases: tuple[str, ...] = ()  # that a timed program gives, if not one of the step's name
    # the same work for a driver that does nothing: as fast as possible, nothing verified, depth 1
    ceiling: Stream | None = None


@dataclass(frozen=True)
class Output:
    """What one step gave at one place (a rank, a node, or the conductor)."""

    step: str
    host: str
    rank: int
    returncode: int = 0
    stdout: str = ""
    stderr: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # of an Argv: name -> text
    value: JsonObject = field(default_factory=dict)  # of a Function
    phase: Phase | None = None  # of a Stream: the whole phase, given once
    began: float = 0.0  # Unix time, common clock
    ended: float = 0.0
    clock_correction: float = 0.0  # seconds from this host's Unix time to the common clock's
    clock_uncertainty: float = 0.0  # of it, seconds


class Workload(ABC):
    """One kind of work.  Subclasses: one file each, one line in registry.WORKLOADS."""

    name: ClassVar[str]
    Options: ClassVar[type[WorkloadOptions]]
    accesses: ClassVar[frozenset[str]]  # types of access that it speaks
    engines: ClassVar[tuple[str, ...]] = ("player",)
    by_launcher: ClassVar[bool] = False  # steps `mpi`, where the access may be without a path
    cold_metadata: ClassVar[bool] = False  # a cold cache must be empty of inodes and names too

    def __init__(self, options: WorkloadOptions) -> None:
        self.options = options

    @classmethod
    def default_engine(cls, usable: Callable[[str], bool]) -> str:
        """The engine of an entry that names none; `usable`: whether an engine can be used here."""
        del usable
        return cls.engines[0]

    @property
    def closed_loop(self) -> Workload | None:
        """The work of which this one's rate is a share, run before it in a block; None: none."""
        return None

    def measured(self, maxima: Mapping[str, float]) -> Workload:
        """With what `closed_loop` did in this block: phase -> operations per second."""
        del maxima
        return self

    @abstractmethod
    def steps(self, case: Case, access: Access, engine: Engine) -> list[Step]:
        """The steps of one run, in order."""

    def next_step(
        self, case: Case, access: Access, engine: Engine, outputs: Sequence[Output]
    ) -> Step | None:
        """One more timed step, which depends on what the run gave so far; None: no more.

        Of such steps the last one counts: counters of the run are those of it alone.  Pure.
        """
        del case, access, engine, outputs
        return None

    def parse(self, case: Case, outputs: Sequence[Output]) -> Parsed:
        """One run from the outputs of all its steps; ParseError if they cannot be understood.

        The phases of Streams are made by the session already.
        """
        del case
        return Parsed(phases=tuple(o.phase for o in outputs if o.phase is not None))

    def with_samples(self, case: Case, parsed: Parsed, monitor: Monitor | None) -> Parsed:
        """The run with what the samplers saw while its steps ran; by default as it is.  Pure."""
        del case, monitor
        return parsed

    def refusal(self, case: Case) -> str:
        """Why this case cannot be run (empty: it can)."""
        del case
        return ""

    def misfit(self, case: Case, access: str) -> str:
        """Why this case cannot be run on that type of access, by any engine (empty: it can)."""
        del case, access
        return ""

    def sizes(self, case: Case) -> Mapping[str, int]:
        """Option -> bytes of which its operations' sizes and offsets are made up."""
        del case
        return {}

    def explain(self, output: Output) -> str:
        """Why a program failed, in a sentence, from what it printed; empty if it is not clear."""
        del output
        return ""

    def unsupported(self, case: Case, access: str, engine: Engine) -> str:
        """Why this engine cannot do the case on that type of access (empty: it can)."""
        del case, access, engine
        return ""

    @abstractmethod
    def footprint(self, case: Case) -> Footprint:
        """What one run needs, for estimates and limits."""


@dataclass(frozen=True)
class Footprint:
    """Space and traffic of one run, bytes and files over all ranks; seconds if it knows."""

    space: int
    written: int
    files: int
    seconds: float | None = None  # of timed windows, where the time is fixed
    read: int = 0  # bytes, also of a check
    kinds: frozenset[str] = frozenset()  # operation kinds that a driver must have
    depth: int = 1
    io: Io = "auto"  # who carries out the operations, if not the target's own driver


# What IOR and mdtest share: the I/O backends of IOR (aiori) and how they are told of a target.


CEPH_CONF = "/etc/ceph/ceph.conf"  # what Ceph's libraries read; IOR wants it named
LONGEST_STONEWALL = 10**6  # s


class AioriOptions(WorkloadOptions):
    """Options that IOR and mdtest have in common."""

    stonewall: Duration = Field(0.0, description="whole seconds until no new work; 0: none")
    direct: bool = Field(False, description="O_DIRECT; the cache state bypass means it too")
    dfs_oclass: str = Field("", description="--dfs.oclass, object class of files")
    dfs_dir_oclass: str = Field("", description="--dfs.dir_oclass, object class of directories")
    dfs_chunk_size: PositiveSize | None = Field(None, description="--dfs.chunk_size of files")
    bind_to: Literal["none", "core", "socket", "numa"] = Field(
        "none", description="the launcher's binding of each process"
    )
    extra_arguments: tuple[str, ...] = Field(
        (), description="handed on at the end: those in SECURITY.md"
    )

    @field_validator("stonewall")
    @classmethod
    def _whole_seconds(cls, value: float) -> float:
        if value != int(value) or value > LONGEST_STONEWALL:
            raise ValueError(f"stonewall: whole seconds up to {LONGEST_STONEWALL}, not {value:g}")
        return value

    @property
    def dfs(self) -> bool:
        """Whether something is asked for that only DFS has."""
        return bool(self.dfs_oclass or self.dfs_dir_oclass or self.dfs_chunk_size)


def unlike_api(options: AioriOptions, api: str) -> str:
    """Why these options and that API (or auto) do not go together (empty: they do)."""
    if options.direct and api not in ("auto", "POSIX"):
        return f"direct: {api} knows no O_DIRECT"
    if options.dfs and api not in ("auto", "DFS"):
        return "dfs_oclass, dfs_dir_oclass and dfs_chunk_size need api: DFS"
    return ""


def target_arguments(access: Access, options: AioriOptions, engine: Engine) -> list[str]:
    """Words that name the container, pool or file system; none for a path."""
    if isinstance(access, DfsAccess):
        # releases of IOR call the server group "group"; builds of DAOS's own may say "sys"
        group = "sys" if "option:dfs.sys" in engine.features else "group"
        given = {
            "pool": access.pool,
            "cont": access.container,
            group: access.system,
            "oclass": options.dfs_oclass,
            "dir_oclass": options.dfs_dir_oclass,
            "chunk_size": options.dfs_chunk_size,
        }
        return [f"--dfs.{name}={value}" for name, value in given.items() if value]
    if isinstance(access, RadosAccess):
        conf = access.conf or CEPH_CONF
        given = {"user": access.user, "conf": conf, "pool": access.pool}
        return [f"--rados.{name}={value}" for name, value in given.items()]
    if isinstance(access, CephfsAccess):
        # the prefix is taken off the names; "/" leaves paths from the root of the mount
        given = {"user": access.user, "conf": access.conf or CEPH_CONF, "prefix": "/"}
        return [f"--cephfs.{name}={value}" for name, value in given.items()]
    return []


def status_file(access: Access) -> str:
    """Where the programs note how far a stonewall let them come: never on DFS or RADOS."""
    return "{path}/stonewall" if isinstance(access, PathAccess) else "{beside}"


def place(access: Access, name: str) -> str:
    """Where a file or directory of that name is, as the programs are told it."""
    if isinstance(access, DfsAccess):
        return f"{access.prefix.rstrip('/')}/{{run}}/{name}"
    if isinstance(access, RadosAccess):
        return f"{access.prefix}.{{run}}.{name}"
    if isinstance(access, CephfsAccess):
        return f"{access.path.rstrip('/')}/{{run}}/{name}"
    return f"{{path}}/{name}"
