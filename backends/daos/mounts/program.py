"""The program dfuse: how it is called and started, and which mounts are its."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.local.mounts import fuse, mounting
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.mounts import Mount, mounted_at, mounts
from fsmatrix.results.evidence.values import JsonObject, text, texts

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
