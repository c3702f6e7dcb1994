"""DFUSE as node leaders see it: mounted, revived, made cold, watched, unmounted.

Cold: mounted by the suite, it is unmounted and mounted again, and nothing of data or metadata is
left in the client; of a mount that is found the kernel's pages are dropped, and its names and
attributes stay.  dfuse itself keeps data only of files that are open.  Where caching is disabled
nothing is ever kept, so that `cold` and `bypass` hold and `warm` does not exist.  A program that
is intercepted reads from the servers whatever the kernel has: there is no `warm` either.  The
servers' caches are not emptied; the evidence says so.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access
from fsmatrix.backends.base import CacheMethod, Evidence, Settled
from fsmatrix.backends.daos.daos_backend import DaosBackend, require_seen
from fsmatrix.backends.daos.mounts import interception
from fsmatrix.backends.daos.mounts.options import DIRECT_IO_OFF, FOUND
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import DATA, Journal
from fsmatrix.backends.local import provenance
from fsmatrix.backends.local.mounts import fuse, mounting
from fsmatrix.backends.local.mounts.client_mount import ClientMount, require_marker
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import Mount, mounted_at, mounts
from fsmatrix.backends.system.workfolder import remove_tree
from fsmatrix.results.evidence.evidence import Interception
from fsmatrix.results.evidence.values import JsonObject, mapping, text, texts

# The program dfuse: how it is called and started, and which mounts are its.


PROGRAM = "dfuse"
FSTYPES = frozenset({"fuse.daos", "fuse.dfuse"})
MOUNT_DEADLINE = 60.0  # seconds; engines that poll on the client's cores answer slowly
MISSING = f"no `{PROGRAM}` on PATH: install DAOS's client (its package daos-client)"
_ERROR = re.compile(r"^.*(?:DER_\w+\(-\d+\)|[Ee]rror|ERR |Mount ?point|Stale).*$", re.MULTILINE)


def refusal() -> str:
    """Why this kernel cannot mount by dfuse (empty: it can)."""
    program = "" if tools.find(PROGRAM) else tools.refusal(PROGRAM) or MISSING
    if os.geteuid() == 0:
        right = mounting.root_refusal()
    else:
        right = "" if tools.find(fuse.UNMOUNTER) else f"no {fuse.UNMOUNTER}: install fuse3"
    return "; ".join(reason for reason in (program, right, fuse.device_refusal()) if reason)


def version() -> str:
    """What dfuse says of its version; "" if it says none."""
    return tools.version(PROGRAM, "--version")


def argv(details: JsonObject) -> list[str]:
    """In the foreground: its pid is known from the beginning.  All words are known to 2.0."""
    system = text(details, "system")
    return [
        *(tools.find(PROGRAM) or PROGRAM, "--foreground"),
        f"--mountpoint={details['point']}",
        f"--pool={details['pool']}",
        f"--container={details['container']}",
        *([f"--sys-name={system}"] if system else []),
        *texts(details, "flags"),
    ]


def start(words: Sequence[str], point: Path) -> int:
    """Start it and wait until it is mounted and answers; returns its pid.  As fuse.start."""
    looks: list[str] = []

    def answers(_pid: int) -> bool:
        if not _mounted(point):
            return False
        looks.append(fuse.trouble(point, servers=True))
        return not looks[-1]

    try:
        return fuse.start(words, point, answers, MOUNT_DEADLINE, _complaint)
    except ToolError as error:
        if looks:
            raise ToolError(f"{error}; it was mounted, and {looks[-1]}") from error
        raise


def serves(point: Path) -> bool:
    """Whether DFUSE is mounted there, and its pool answers."""
    return _mounted(point) and not fuse.trouble(point, servers=True)


def _mounted(point: Path) -> bool:
    mount = mounted_at(point)
    return mount is not None and is_dfuse(mount)


def is_dfuse(mount: Mount) -> bool:
    """Whether it is one of DFUSE, ours or not: they all have the same type and source."""
    return mount.fstype in FSTYPES


def found_at(path: Path) -> Mount | None:
    """The mount that a path is on, by its name alone: nothing is touched."""
    return max(
        (mount for mount in mounts() if path.is_relative_to(mount.point)),
        key=lambda mount: len(mount.point),
        default=None,
    )


def servers_of(point: str) -> dict[int, list[str]]:
    """Processes called dfuse that have that mount point among their arguments: pid -> argv."""
    commands: dict[int, list[str]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = os.fsdecode((entry / "cmdline").read_bytes()).rstrip("\0").split("\0")
        except OSError:
            continue
        named = {point, f"--mountpoint={point}", f"-m{point}"}
        if Path(words[0]).name == PROGRAM and named & set(words):
            commands[int(entry.name)] = words
    return commands


def _complaint(text: str) -> str:
    errors = _ERROR.findall(text)
    return " ".join(errors[-1].split()) if errors else ""


MEMORY = 20.0  # seconds: names and attributes are remembered for up to 5 s, and servers are slow


class DfuseNode(ClientMount, DaosBackend):
    """The node-side half of daos-dfuse."""

    entry = "dfuse-mount"
    expected = "DFUSE"
    asks_servers = True

    @classmethod
    def argv(cls, details: JsonObject) -> list[str]:
        """As of `program`."""
        return argv(details)

    @classmethod
    def attach(cls, argv: Sequence[str], point: Path) -> None:
        """As of `program`."""
        start(argv, point)

    @classmethod
    def is_ours(cls, mount: Mount, details: JsonObject) -> bool:
        """All DFUSE mounts have the same type and source."""
        del details
        return is_dfuse(mount)

    @classmethod
    def mount(cls, access: Access, journal: Journal) -> None:
        """Mount the container; a mount whose client has died or hangs is taken down first."""
        details = access.details
        _require_library(access)
        if "tree" in details:
            return _require_tree(details)
        if cls.answers(details):
            return None
        require_seen(access)  # dfuse says less of why, where the container is not there
        try:
            cls.begin(details, journal)
        except ToolError as error:
            raise BackendError(f"{socket.gethostname()}: {error}") from error
        if details["own"]:
            (Path(text(details, "point")) / DATA).mkdir(exist_ok=True)
        return None

    @classmethod
    def revive(cls, access: Access) -> None:
        """As usual; a mount that is found must answer too."""
        if "tree" in access.details and (
            trouble := cls.trouble(Path(text(access.details, "tree")))
        ):
            raise BackendError(trouble)
        super().revive(access)

    @classmethod
    def remove_run(cls, access: Access, name: str) -> None:
        """As usual, for as long as names that are gone are remembered."""
        cls.revive(access)
        remove_tree(Path(path_of(access)) / name, MEMORY)

    # -- caches ------------------------------------------------------------------------
    @classmethod
    def cache(
        cls, access: Access, state: str, files: Sequence[str], *, method: CacheMethod = "auto"
    ) -> Evidence:
        """Make a cache state: see the module."""
        cls.revive(access)
        evidence = cls._made(access, state, files, method)
        facts = {"caching": access.details["caching"], **evidence.facts, "server_caches": "unknown"}
        reached = evidence.state if not _pointless(access.details, state) else "unknown"
        return Evidence(reached, evidence.method, facts | _around(access.details))

    @classmethod
    def _made(
        cls, access: Access, state: str, files: Sequence[str], method: CacheMethod
    ) -> Evidence:
        if access.details["caching"] == "disabled":
            if state not in cls.cache_states:
                raise BackendError(f"unknown cache state {state!r}")
            nothing = {"client_cache": "none", "metadata_caches": "none"}
            return Evidence(state, "none", nothing)
        if state == "cold" and "point" in access.details and method != "fadvise":
            return cls.remounted(access, files)
        evidence = page_cache.bring(Path(path_of(access)), files, state, method)
        beside = {"client_cache": "none beside the kernel's"}
        return Evidence(evidence.state, evidence.method, {**evidence.facts, **beside})

    @classmethod
    def dropped(cls, access: Access, files: Sequence[str], method: CacheMethod) -> Evidence:
        """The kernel's pages."""
        return page_cache.cold(Path(path_of(access)), files, method)

    # -- what it does ------------------------------------------------------------------
    @classmethod
    def environment(cls, access: Access) -> dict[str, str]:
        """LD_PRELOAD with the library that goes around the kernel, if there is one."""
        return interception.environment(text(access.details, "interception"), access.preloaded)

    @classmethod
    def intercepted(cls, access: Access, texts: Iterable[str]) -> Interception | None:
        """What the library says that it took over."""
        kind = text(access.details, "interception")
        return None if kind == interception.NONE else interception.counted(kind, texts)

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """The dfuse of the mount, and servers that run here."""
        servers = super().workers(access)
        if "point" in access.details:
            return servers + fuse.processes(argv(access.details))
        return servers + list(servers_of(text(access.details, "found")))

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back; then wait as every backend on DAOS does."""
        began = time.monotonic()
        try:
            cls.revive(access)
        except BackendError as error:
            return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})
        client = provenance.settle(path_of(access), timeout - (time.monotonic() - began))
        if not client.reached or "tree" in access.details:
            return client
        cluster = super().settle(access, timeout - (time.monotonic() - began))
        seconds = time.monotonic() - began
        return Settled(cluster.reached, seconds, {**client.state, **cluster.state})

    @classmethod
    def health(cls, access: Access) -> list[str]:
        """The mount has died or hangs; what is wrong with the pool."""
        details = access.details
        if "tree" in details:
            trouble = fuse.trouble(Path(text(details, "tree")), servers=True)
            return [trouble] if trouble else []
        point = Path(text(details, "point"))
        if mounted_at(point) is None:
            trouble = f"nothing is mounted at {point}"
        else:
            trouble = fuse.trouble(point, servers=True)
        return [*([trouble] if trouble else []), *super().health(access)]


def _require_library(access: Access) -> None:
    """BackendError if this node would not put the library into programs."""
    if access.preloaded and (reason := interception.distrust(access.preloaded)):
        raise BackendError(f"{socket.gethostname()}: interception: {reason}")


def _require_tree(details: JsonObject) -> None:
    folder = Path(text(details, "tree"))
    if trouble := fuse.trouble(folder, servers=True):
        raise BackendError(f"{socket.gethostname()}: {trouble}")
    require_marker(folder, details, "container")


def _pointless(details: JsonObject, state: str) -> bool:
    """Whether the state does not exist, or cannot be shown, as the mount is used."""
    around = bool(details["interception"] != interception.NONE)
    if state == "warm":
        return around or details["caching"] == "disabled"
    direct = mapping(details, "attributes").get(DIRECT_IO_OFF) != "on"
    return state == "bypass" and not (around or direct)


def _around(details: JsonObject) -> dict[str, str]:
    """What else the evidence says of reads that do not come from the kernel, or may."""
    kind = details["interception"]
    if kind != interception.NONE:
        return {"reads": f"by lib{kind} from the servers, around the kernel's caches"}
    return {"o_direct": "as the mount was made"} if details["caching"] == FOUND else {}
