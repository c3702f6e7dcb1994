"""What was seen of a run beside its numbers.  docs/audits.md says which audit reads what.

The suite writes it (suite/run) and imports do (suite/importing); audits and `usage` read it.
"By phase": a mapping from the name of a timed phase.  Times and spans are in seconds, amounts in
bytes, shares between 0 and 1.  None stands for what is not known, as in files of before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fsmatrix.results.evidence.nodes import WatchedNode
from fsmatrix.results.evidence.stored import JsonObject, Stored

# Where one rank of a session was: sent by its session, stored with each run.
#
# Standard library only: ranks import it.


@dataclass(frozen=True, kw_only=True)
class Rank(Stored):
    """Where one rank of a session's world really is.  None: not known, as in files of before."""

    rank: int
    host: str
    node: int  # index of the node, in order of their first rank
    node_rank: int  # index of the rank inside its node
    boot_id: str
    mounts: str  # identity of the mount namespace
    pid: int
    cpus: tuple[int, ...]  # that it may use; of a run: that it might use in the last step
    processor: str | None = None  # MPI's name of the node
    shared: int | None = None  # lowest rank of those that share memory with this one, as MPI says
    links: float | None = None  # bytes/s of all links of the kernel, each way; 0 = not known
    affinity: str | None = None  # policy of a run: core, none

    @property
    def kernel(self) -> str:
        """One mount, one cache drop and one sampler per kernel and mount namespace."""
        return f"{self.boot_id}/{self.mounts}"


@dataclass(frozen=True, kw_only=True)
class KernelCache(Stored):
    """The cache state of one kernel, as its backend made and showed it."""

    state: str  # the state reached: cold, warm, bypass, memory, unknown
    method: str  # drop_caches, fadvise, read, O_DIRECT, none
    facts: JsonObject  # what the backend adds, by names of its own


@dataclass(frozen=True, kw_only=True)
class CacheState(Stored):
    """The cache state of a phase: what the case declares, and the kernel furthest from it."""

    declared: str | None  # cold, warm, bypass
    reads: bool | None  # the state was made, for a phase that reads
    state: str | None
    method: str | None = None
    facts: JsonObject | None = None
    kernels: tuple[KernelCache, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Counters(Stored):
    """Monotonic counters of one kernel (device_read_bytes, ...) around a phase."""

    host: str | None
    before: Mapping[str, float]
    after: Mapping[str, float]


def counter_differences(kernels: Iterable[Counters]) -> dict[str, float]:
    """How far each counter went that was looked at twice, summed over kernels."""
    total: dict[str, float] = {}
    for kernel in kernels:
        for name in kernel.before.keys() & kernel.after.keys():
            went = float(kernel.after[name]) - float(kernel.before[name])
            total[name] = total.get(name, 0.0) + went
    return total


@dataclass(frozen=True, kw_only=True)
class CpuShares(Stored):
    """Shares of the time of all CPUs of one host around a phase."""

    busy: float | None  # user, system and interrupts
    idle: float | None
    iowait: float | None
    steal: float | None  # taken by a hypervisor for others


@dataclass(frozen=True, kw_only=True)
class Settling(Stored):
    """The wait for a quiet system before a phase, of the kernel that was quiet last."""

    reached: bool  # quiet, before the wait ended
    seconds: float
    state: JsonObject | None  # what the backend looked at, by names of its own


@dataclass(frozen=True, kw_only=True)
class HealthEvent(Stored):
    """What the storage said at a look, and had not said before."""

    time: float  # Unix time, after the look
    says: str


@dataclass(frozen=True, kw_only=True)
class HealthLooks(Stored):
    """How well the storage's health was watched during a phase."""

    looks: int  # how often it was asked for
    interval: float  # seconds between two
    events: tuple[HealthEvent, ...] = ()  # in order of time; files of before have none


@dataclass(frozen=True, kw_only=True)
class World(Stored):
    """Ranks and client nodes: as the geometry asks for them, and as they are."""

    asked_ranks: int | None
    got_ranks: int | None
    asked_nodes: int | None
    got_nodes: int | None
    kernels: int | None
    processors: int | None  # distinct names that MPI gives to nodes
    shared_memories: int | None  # groups of ranks that share memory, as MPI says
    disagreements: tuple[str, ...] | None  # of MPI with kernels about nodes; sentences
    oversubscribed: bool | None  # more threads than CPUs
    emulated_nodes: bool | None  # nodes that share a kernel


@dataclass(frozen=True, kw_only=True)
class OutputPlace(Stored):
    """Whether results were written to what is measured."""

    on_target: bool | None  # the output directory is on the file system under test
    written: int | None = None  # bytes that the suite wrote there inside timed windows


@dataclass(frozen=True, kw_only=True)
class Limits(Stored):
    """What storage and network cannot exceed, bytes per second."""

    device_bytes_per_second: float | None = None  # all devices together
    network_bytes_per_second: float | None = None  # all clients together, each way
    sources: Mapping[str, str] | None  # name of a limit -> who says it: campaign, site, links, ...


@dataclass(frozen=True, kw_only=True)
class Load(Stored):
    """What other processes used of the CPUs of the busiest client."""

    foreign: float | None  # share, user time only
    noise: float | None  # what it may be wrong by


@dataclass(frozen=True)
class Note(Stored):
    """Something odd in an output, for the audits.  `key`: see docs/engines.md for all of them."""

    key: str
    message: str
    line: int = 0  # in the text, from 1; 0 = nowhere in particular
    phase: str = ""


@dataclass(frozen=True, kw_only=True)
class EngineOutput(Stored):
    """What the output of an engine tells beside numbers."""

    name: str | None
    version: str | None
    nodes: int | None  # client nodes
    processes: int | None  # all together
    started: str | None = None  # as printed; of imports only
    notes: tuple[Note, ...] | None
    facts: JsonObject | None  # what else a parser tells (`Parsed.facts`)


@dataclass(frozen=True, kw_only=True)
class Interception(Stored):
    """Calls of programs that a preloaded library took over, as it says itself."""

    library: str  # ioil, pil4dfs
    summaries: int  # of processes that said so
    calls: Mapping[str, int]  # read, write, open... -> calls of all processes


CLIENT_BOUND = "client-bound"  # the audit


@dataclass(frozen=True, kw_only=True)
class Ceiling(Stored):
    """How fast the clients of a phase make its operations for a driver that does nothing.

    Kernel, network and libraries are not in it: no storage lets these clients do more.
    """

    rate: float | None  # operations per second of all ranks; None: not measured
    seconds: float = 0.0  # for which they were made
    why_not: str | None = None  # measured


@dataclass(frozen=True, kw_only=True)
class Evidence(Stored):
    """Of one run.  `more`: what another version knows."""

    engine_before: str | None = None  # version when the campaign began, if it was another
    world: World | None = None
    output: OutputPlace | None = None
    limits: Limits | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)  # wall time by program, settle, ...
    settle: Mapping[str, Settling] = field(default_factory=dict)  # by phase
    health: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by phase: sentences
    health_watch: Mapping[str, HealthLooks] = field(default_factory=dict)  # by phase
    cache: Mapping[str, CacheState] = field(default_factory=dict)  # by phase
    counters: Mapping[str, tuple[Counters, ...]] = field(default_factory=dict)  # by phase: kernels
    cpu: Mapping[str, Mapping[str, CpuShares]] = field(default_factory=dict)  # by phase, then host
    load: Load | None = None  # of the timed step in which it was highest
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)  # by phase
    nodes: Mapping[str, WatchedNode] = field(default_factory=dict)  # storage nodes, by name
    engine: EngineOutput | None = None
    interception: Mapping[str, Interception] = field(default_factory=dict)  # by phase
    not_removed: str | None = None  # why the run's own directory is still there
