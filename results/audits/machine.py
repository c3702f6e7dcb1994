"""Audits of the machines, the world of ranks, and what else went on."""

from __future__ import annotations

from collections.abc import Iterator

from fsmatrix.results.audits.audit import (
    Audit,
    Remark,
    data_bytes,
    in_memory,
    moved,
    passes_network,
    size,
    window,
)
from fsmatrix.results.evidence.evidence import CLIENT_BOUND
from fsmatrix.results.evidence.replay import FACT
from fsmatrix.results.evidence.stored import inside
from fsmatrix.results.evidence.target import POLLED, SHARED
from fsmatrix.results.record import Phase, RunRecord, Severity, operations

CPU_BUSY = 0.95  # of all CPUs of a client: what is left is rounding
CPU_STEAL = 0.1  # taken by a hypervisor for others: as much as other processes may
OTHER_FLOOR = 1 << 20  # bytes: a journal's or an inode's own writes
OTHER_SHARE = 0.05  # of the run's bytes: below, it is small beside the spread of repetitions
CLIENT_SHARE = 0.8  # of what the clients can make: the rest of their time is too short to tell
FOREIGN_CPU = 0.1  # of a client's CPUs, used by processes that are not the run's


def cpu_saturated(record: RunRecord) -> Iterator[Remark]:
    """The client itself was the limit."""
    for phase in record.phases:
        shares = record.evidence.cpu.get(phase.name, {})
        busy = {host: cpu.busy for host, cpu in shares.items() if cpu.busy is not None}
        full = {host: share for host, share in busy.items() if share > CPU_BUSY}
        if full:
            worst = max(full, key=lambda host: full[host])
            message = (
                f"the CPUs of {len(full)} of {len(shares)} clients were busy, {worst} to "
                f"{full[worst]:.0%}: {_limit(record)}"
            )
            severity: Severity = "info" if in_memory(record, phase) else "warning"
            yield severity, phase.name, message, {"busy": full}


def client_bound(record: RunRecord) -> Iterator[Remark]:
    """The clients, or their links, did nearly all that they can whatever the storage is."""
    for phase in record.phases:
        ceiling, seconds = record.evidence.ceilings.get(phase.name), window(phase)
        if ceiling is None or not ceiling.rate or not seconds > 0:
            continue
        share = operations(phase) / seconds / ceiling.rate
        evidence = {"share": share, "ceiling": ceiling.rate, "seconds": ceiling.seconds}
        told = f"the {ceiling.rate:.4g} operations per second that these clients can generate"
        limits = record.evidence.limits
        if limits is not None and limits.network_bytes_per_second and passes_network(record, phase):
            link = limits.network_bytes_per_second
            of_link = max(data_bytes(phase)) / seconds / link
            if of_link > share:
                share, told = of_link, f"the {size(link)}/s that the clients' links carry"
                evidence = {"share": share, "network_bytes_per_second": link}
        if share > CLIENT_SHARE:
            yield "warning", phase.name, f"{share:.0%} of {told}", evidence


def _limit(record: RunRecord) -> str:
    """What may be the limit where CPUs are busy."""
    shared = inside(record.environment, "target", "deployment").get("shared_cores")
    if shared == POLLED:
        return "the storage's servers work on them too, and poll: they are always busy"
    if shared == SHARED:
        return "the storage's servers work on them too: it is not known who is the limit"
    return "the client may be the limit, not the storage"


def fewer_ranks(record: RunRecord) -> Iterator[Remark]:
    """The world is smaller than the geometry."""
    world = record.evidence.world
    if world is None:
        return
    for what, asked, got in (
        ("ranks", world.asked_ranks, world.got_ranks),
        ("nodes", world.asked_nodes, world.got_nodes),
    ):
        if asked is not None and got is not None and got < asked:
            message = f"{asked} {what} were requested, {got} took part"
            yield "invalid", "", message, {"asked": asked, "got": got, "what": what}


def errors_ignored(record: RunRecord) -> Iterator[Remark]:
    """Operations failed and the engine went on; in a replay that is an outcome to be compared."""
    for phase in record.phases:
        if FACT in phase.facts:
            continue
        count = max(int(phase.errors.sum()), sum(phase.errors_by_errno.values()))
        if count:
            kinds = ", ".join(f"{n} x {name}" for name, n in sorted(phase.errors_by_errno.items()))
            message = (
                f"{count} operations failed{f' ({kinds})' if kinds else ''} and are not counted"
            )
            yield "invalid", phase.name, message, {"errors": count, **phase.errors_by_errno}


def background_load(record: RunRecord) -> Iterator[Remark]:
    """Somebody else used the clients' CPUs."""
    load = record.evidence.load
    if load is not None and load.foreign is not None:
        foreign, noise = load.foreign, load.noise or 0.0
        if foreign - noise > FOREIGN_CPU:
            message = f"other processes used {foreign:.0%} of the clients' CPUs"
            yield "warning", "", f"{message} (+- {noise:.0%})", load.document()
    for phase in record.phases:
        shares = record.evidence.cpu.get(phase.name, {})
        steal = {host: cpu.steal or 0.0 for host, cpu in shares.items()}
        taken = {host: share for host, share in steal.items() if share > CPU_STEAL}
        if taken:
            message = (
                f"the hypervisor gave {max(taken.values()):.0%} of a client's CPUs to other guests"
            )
            yield "warning", phase.name, message, {"steal": taken}


def carry_over(record: RunRecord) -> Iterator[Remark]:
    """Work of before was still going on."""
    for name, settling in record.evidence.settle.items():
        if not settling.reached:
            message = f"the system was not quiet after waiting {settling.seconds:.3g} s"
            yield "warning", name, message, settling.state or {}


def oversubscribed(record: RunRecord) -> Iterator[Remark]:
    """The world has more processes or threads than a client has CPUs."""
    world = record.evidence.world
    if world is not None and world.oversubscribed:
        yield "warning", "", "more processes or threads than the client has CPUs", {}


def emulated_nodes(record: RunRecord) -> Iterator[Remark]:
    """Client nodes that share a kernel."""
    world = record.evidence.world
    if world is not None and world.emulated_nodes:
        message = "client nodes are emulated: they share a kernel, its caches and its CPUs"
        yield "info", "", message, {"kernels": world.kernels}


def nodes_disagree(record: RunRecord) -> Iterator[Remark]:
    """MPI divides the ranks into nodes otherwise than the kernels do, which were followed."""
    world = record.evidence.world
    if world is not None and world.disagreements:
        evidence = {
            "got_nodes": world.got_nodes,
            "processors": world.processors,
            "shared_memories": world.shared_memories,
        }
        yield "warning", "", "; ".join(world.disagreements), evidence


def output_on_target(record: RunRecord) -> Iterator[Remark]:
    """Results are written to what is measured; it matters if that was inside a window."""
    output = record.evidence.output
    if output is None or not output.on_target:
        return
    where = "the output directory is on the file system under test"
    if output.written is None:
        yield "warning", "", f"{where}, and it is not known when results were written", {}
        return
    disturbed = False
    if output.written:
        disturbed = True
        message = f"{where}, and {size(output.written)} of results were written inside a window"
        yield "warning", "", message, {"written": output.written}
    for phase in record.phases:
        if other := _other_bytes(record, phase):
            disturbed = True
            amounts = " and ".join(f"{size(count)} were {how}" for how, count in other.items())
            message = f"{where}, and inside the window {amounts} on its device, not by the run"
            yield "warning", phase.name, message, other
    if not disturbed:
        yield "info", "", f"{where}; results were written while nothing was timed", {}


def data_left(record: RunRecord) -> Iterator[Remark]:
    """The measurement was finished, and the run's data could not be removed."""
    if reason := record.evidence.not_removed:
        message = f"the run's data could not be removed: {reason}"
        yield "warning", "", message, {"not_removed": reason}


def _other_bytes(record: RunRecord, phase: Phase) -> dict[str, float]:
    """Bytes that a device moved in the direction in which a phase of data moves none itself."""
    read, written = data_bytes(phase)
    bytes_ = {}
    for how, own, opposite in (("read", read, written), ("written", written, read)):
        counters = moved(record, phase, f"device_{how}_bytes") or {}
        count = counters.get(f"device_{how}_bytes", 0.0)
        if opposite and not own and count > max(OTHER_FLOOR, OTHER_SHARE * opposite):
            bytes_[how] = count
    return bytes_


AUDITS = (
    Audit(
        "cpu-saturated",
        3,
        "phase",
        cpu_saturated,
        "use more client nodes, larger chunks or fewer processes per node; for transactions, a "
        "client with more CPUs; where servers work on the clients' cores (`fsmatrix fairness`, "
        "Servers on the clients' cores), run the clients on machines of their own first",
    ),
    Audit(
        CLIENT_BOUND,
        1,
        "phase",
        client_bound,
        "it tells of the clients, not of the storage: use more client nodes, processes or threads, "
        "or larger operations; switch verify off",
    ),
    Audit("fewer-ranks", 1, "run", fewer_ranks, "check the launcher and its MPI (srun --mpi=pmix)"),
    Audit("errors-ignored", 1, "phase", errors_ignored, "do not use the number: find the errors"),
    Audit(
        "background-load",
        2,
        "run",
        background_load,
        "repeat the run on clients that nobody else uses, or at a quiet time",
    ),
    Audit(
        "carry-over",
        1,
        "run",
        carry_over,
        "wait longer before a run, or find what keeps the system busy",
    ),
    Audit(
        "oversubscribed",
        1,
        "run",
        oversubscribed,
        "waiting for a CPU is part of these latencies: use fewer processes per node",
    ),
    Audit(
        "emulated-nodes",
        1,
        "run",
        emulated_nodes,
        "treat it as a test of function; claims about nodes need real nodes",
    ),
    Audit(
        "nodes-disagree",
        1,
        "run",
        nodes_disagree,
        "nodes are counted by boot id and host name: give each host a name of its own, and check "
        "that MPI uses shared memory within a node and nowhere else",
    ),
    Audit(
        "data-left",
        1,
        "phase",
        data_left,
        "the numbers hold, they were measured before; runs after it had less space until its "
        "target was detached (or --resume removed it): look at what the storage said then",
    ),
    Audit("output-on-target", 2, "run", output_on_target, "put the output (-o) elsewhere"),
)
