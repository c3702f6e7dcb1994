"""DFUSE as node leaders see it, with its options: mounted, revived, made cold, watched, unmounted.

Cold: mounted by the suite, it is unmounted and mounted again, and nothing of data or metadata is
left in the client; of a mount that is found the kernel's pages are dropped, and its names and
attributes stay.  dfuse itself keeps data only of files that are open.  Where caching is disabled
nothing is ever kept, so that `cold` and `bypass` hold and `warm` does not exist.  A program that
is intercepted reads from the servers whatever the kernel has: there is no `warm` either.  The
servers' caches are not emptied; the evidence says so.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from fsmatrix.backends import cache as page_cache
from fsmatrix.backends.access import Access
from fsmatrix.backends.allowed import Form, one_of, plain
from fsmatrix.backends.clusters.client_mounts import ClientMount, require_marker
from fsmatrix.backends.contract import CacheMethod, Evidence, Preload, RunPlace, Settled
from fsmatrix.backends.daos import libraries
from fsmatrix.backends.daos.containers import Place
from fsmatrix.backends.daos.daos_backend import DaosBackend, require_seen
from fsmatrix.backends.daos.daos_options import OPTION_OF, DaosOptions
from fsmatrix.backends.errors import BackendError, ToolError
from fsmatrix.backends.journal.journal import DATA, Journal
from fsmatrix.backends.local import own_mounts
from fsmatrix.backends.local.provenance import path_of
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import Mount, mounted_at, mounts
from fsmatrix.backends.system.workfolder import remove_tree
from fsmatrix.results.evidence.stored import JsonObject, mapping, text, texts

# Attributes of a container that say how dfuse caches: set on an own one, read of any.
PREFIX = "dfuse-"  # of those that dfuse reads
# The program dfuse: how it is called and started, and which mounts are its.
PROGRAM = "dfuse"
FSTYPES = frozenset({"fuse.daos", "fuse.dfuse"})
MOUNT_DEADLINE = 60.0  # seconds; engines that poll on the client's cores answer slowly
MISSING = f"no `{PROGRAM}` on PATH: install DAOS's client (its package daos-client)"
_ERROR = re.compile(r"^.*(?:DER_\w+\(-\d+\)|[Ee]rror|ERR |Mount ?point|Stale).*$", re.MULTILINE)


def set_on(place: Place, given: Mapping[str, str]) -> None:
    """Set them, by their names without the prefix; BackendError on a container of others."""
    if not place.own:
        raise BackendError(f"container {place.container} is not the suite's: left as it is")
    pairs = ",".join(f"{PREFIX}{name}:{value}" for name, value in given.items())
    place.client.ask("container", "set-attr", place.pool, place.container, pairs)


def of(place: Place) -> dict[str, str]:
    """All that are set, by their names without the prefix."""
    answer = place.client.ask("container", "get-attr", place.pool, place.container)
    items = answer if isinstance(answer, list) else []
    return {
        str(item["name"]).removeprefix(PREFIX): _text(item.get("value"))
        for item in items
        if isinstance(item, dict) and str(item.get("name", "")).startswith(PREFIX)
    }


def _text(value: object) -> str:
    """The tool writes values, which are bytes, in base64."""
    try:
        return base64.b64decode(str(value or ""), validate=True).decode().rstrip("\0")
    except (binascii.Error, UnicodeDecodeError):
        return str(value)


Caching = Literal["site", "write_through", "disabled"]
LibraryKind = Literal["none", "ioil", "pil4dfs"]
FOUND = "as_found"  # caching of a mount that somebody else made
# caching -> options of dfuse 2.0 to 2.6 (`dfuse --help`)
CACHING: Mapping[Caching, tuple[str, ...]] = {
    "site": (),  # dfuse's own: all caches on, unless the container's attributes say otherwise
    "write_through": ("--disable-wb-cache",),
    "disabled": ("--disable-caching",),  # the container's attributes do not count then
}
FACTORS = frozenset({"caching", "interception"})  # options that may be factors
_TIME = Form("a time: 0, 5, 5s, 10m, 1h", r"\d{1,6}[smhd]?")
_DATA = Form("on, off, otoc (open to close) or a time", r"on|off|true|false|otoc|\d{1,6}[smhd]?")
# container attributes that dfuse reads: its manual, "Caching"
_ATTRIBUTES: Mapping[str, Form | None] = {
    **plain(_TIME, "attr-time dentry-time dentry-dir-time ndentry-time"),
    "data-cache": _DATA,
    "direct-io-disable": one_of("on", "off"),
}
DIRECT_IO_OFF = "direct-io-disable"


class DaosDfuseOptions(DaosOptions):
    """A container mounted by the suite with dfuse, or a directory of a mount that is there."""

    option_of: ClassVar[Mapping[str, str]] = {**OPTION_OF, **{name: name for name in FACTORS}}

    path: str = Field("", description="a directory in an existing DFUSE mount, used as it is")
    caching: Caching = Field(
        "site", description="site: dfuse's own and the container's; write_through; disabled"
    )
    cache_attributes: dict[str, str] = Field(
        {}, description="of the suite's own container: data-cache, attr-time, dentry-time..."
    )
    multi_user: bool = Field(False, description="let other users use the mount")
    thread_count: int | None = Field(None, ge=2, le=1024, description="threads of each dfuse")
    eq_count: int | None = Field(None, ge=1, le=64, description="event queues of each dfuse")
    interception: LibraryKind = Field(
        "none", description="library loaded into programs and the player: none, ioil, pil4dfs"
    )
    interception_library: str = Field(
        "", description="its absolute path, if it is not where the loader looks"
    )

    @field_validator("path", "interception_library")
    @classmethod
    def _path(cls, value: str) -> str:
        if value and (not value.startswith("/") or "\0" in value):
            raise ValueError(f"must be absolute, not {value!r}")
        return value

    @field_validator("cache_attributes")
    @classmethod
    def _cache_attributes(cls, value: dict[str, str]) -> dict[str, str]:
        for name, setting in value.items():
            form = _ATTRIBUTES.get(name)
            if form is None:
                raise ValueError(f"{name!r} is not one of {', '.join(sorted(_ATTRIBUTES))}")
            if reason := form.refusal(setting):
                raise ValueError(f"{name}: {reason}")
        return value

    @model_validator(mode="after")
    def _one_pool(self) -> DaosDfuseOptions:
        given = [bool(self.pool), self.levels is not None, bool(self.path)]
        if sum(given) != 1:
            raise ValueError("give exactly one of pool, levels, and path (of an existing mount)")
        if self.container and self.levels is not None:
            raise ValueError("container: not with levels, since each level has its own pool")
        return self

    @model_validator(mode="after")
    def _of_our_mount(self) -> DaosDfuseOptions:
        beside = self.model_fields_set - _OF_ANY_MOUNT
        if self.path and beside:
            names = ", ".join(sorted(beside))
            raise ValueError(f"{names}: cannot be set on an existing mount (path)")
        if self.container and self.cache_attributes:
            raise ValueError("cache_attributes: the named container keeps its own attributes")
        if self.caching == "disabled" and self.cache_attributes:
            raise ValueError("cache_attributes: they have no effect where caching is disabled")
        return self

    @property
    def caching_word(self) -> str:
        """How the mount caches, for a coordinate: everything that makes two mounts differ."""
        if self.path:
            return FOUND
        given = [f"{name}={value}" for name, value in sorted(self.cache_attributes.items())]
        return " ".join([self.caching, *given])

    @property
    def flags(self) -> list[str]:
        """Options of dfuse."""
        counts = {"thread-count": self.thread_count, "eq-count": self.eq_count}
        return [
            *CACHING[self.caching],
            *(["--multi-user"] if self.multi_user else []),
            *(f"--{name}={value}" for name, value in counts.items() if value is not None),
        ]


_OF_ANY_MOUNT = {"path", "system", "deadline", "interception", "interception_library"}


def refusal() -> str:
    """Why this kernel cannot mount by dfuse (empty: it can)."""
    program = "" if tools.find(PROGRAM) else tools.refusal(PROGRAM) or MISSING
    if os.geteuid() == 0:
        right = own_mounts.root_refusal()
    else:
        right = (
            "" if tools.find(own_mounts.UNMOUNTER) else f"no {own_mounts.UNMOUNTER}: install fuse3"
        )
    return "; ".join(reason for reason in (program, right, own_mounts.device_refusal()) if reason)


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
    """Start it and wait until it is mounted and answers; returns its pid.  As start_client."""
    looks: list[str] = []

    def answers(_pid: int) -> bool:
        if not _mounted(point):
            return False
        looks.append(own_mounts.mount_trouble(point, servers=True))
        return not looks[-1]

    try:
        return own_mounts.start_client(words, point, answers, MOUNT_DEADLINE, _complaint)
    except ToolError as error:
        if looks:
            raise ToolError(f"{error}; it was mounted, and {looks[-1]}") from error
        raise


def serves(point: Path) -> bool:
    """Whether DFUSE is mounted there, and its pool answers."""
    return _mounted(point) and not own_mounts.mount_trouble(point, servers=True)


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
    def run_place(cls, access: Access, name: str) -> RunPlace:
        """As usual; with the library that goes around the kernel, if there is one."""
        place, kind = super().run_place(access, name), text(access.details, "interception")
        if kind == libraries.NONE:
            return place
        variables = libraries.interception_environment(kind, access.preloaded)
        return replace(place, preload=Preload(variables, partial(libraries.counted, kind)))

    @classmethod
    def workers(cls, access: Access) -> list[int]:
        """The dfuse of the mount, ours or found, and servers that run here."""
        found = access.details.get("found", "")
        return [*super().workers(access), *(servers_of(str(found)) if found else ())]

    @classmethod
    def settle(cls, access: Access, timeout: float) -> Settled:
        """Write back; then wait as every backend on DAOS does."""
        began = time.monotonic()
        try:
            cls.revive(access)
        except BackendError as error:
            return Settled(False, time.monotonic() - began, {"waiting_for": str(error)})
        settled = super().settle(access, timeout - (time.monotonic() - began))
        return replace(settled, seconds=time.monotonic() - began)

    @classmethod
    def knows_cluster(cls, details: JsonObject) -> bool:
        """Not of a mount that is found."""
        return "tree" not in details


def _require_library(access: Access) -> None:
    """BackendError if this node would not put the library into programs."""
    if access.preloaded and (reason := libraries.program_distrust(access.preloaded)):
        raise BackendError(f"{socket.gethostname()}: interception: {reason}")


def _require_tree(details: JsonObject) -> None:
    folder = Path(text(details, "tree"))
    if trouble := own_mounts.mount_trouble(folder, servers=True):
        raise BackendError(f"{socket.gethostname()}: {trouble}")
    require_marker(folder, details, "container")


def _pointless(details: JsonObject, state: str) -> bool:
    """Whether the state does not exist, or cannot be shown, as the mount is used."""
    around = bool(details["interception"] != libraries.NONE)
    if state == "warm":
        return around or details["caching"] == "disabled"
    direct = mapping(details, "attributes").get(DIRECT_IO_OFF) != "on"
    return state == "bypass" and not (around or direct)


def _around(details: JsonObject) -> dict[str, str]:
    """What else the evidence says of reads that do not come from the kernel, or may."""
    kind = details["interception"]
    if kind != libraries.NONE:
        return {"reads": f"by lib{kind} from the servers, around the kernel's caches"}
    return {"o_direct": "as the mount was made"} if details["caching"] == FOUND else {}
