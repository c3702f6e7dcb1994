"""What is mounted where: /proc/self/mountinfo."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fsmatrix.backends.system import libc

MOUNTINFO = Path("/proc/self/mountinfo")
INIT_MOUNTINFO = Path("/proc/1/mountinfo")
# f_type of statfs(2), where nothing else tells: statfs(2), linux/magic.h
TYPES = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x794C7630: "overlay",
    0x6969: "nfs",
    0x00C36400: "ceph",
    0x65735546: "fuse",
    0x2FC12FC1: "zfs",
    0x0BD00BD0: "lustre",
}
# folders of the system itself, whose mounts programs may need
_NAMES = ("bin", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "sys", "usr")
SYSTEM = tuple(Path("/", name) for name in _NAMES)
PATIENCE = 5.0  # seconds that processes which end anyway get to let go of a mount


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo (proc(5))."""

    id: int
    device: str  # "major:minor" of st_dev
    root: str
    point: str
    options: str  # of this mount
    fstype: str
    source: str
    super_options: str  # of the file system

    @property
    def read_only(self) -> bool:
        """Whether the mount or its file system refuses to write."""
        return "ro" in self.options.split(",") or "ro" in self.super_options.split(",")


def parse_mountinfo(text: str) -> list[Mount]:
    """The mounts of a mountinfo text, in its order; lines that are none are left out."""
    parsed = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 2:
            continue
        parsed.append(
            Mount(
                id=int(fields[0]),
                device=fields[2],
                root=_plain(fields[3]),
                point=_plain(fields[4]),
                options=fields[5],
                fstype=rest[0],
                source=_plain(rest[1]),
                super_options=rest[2] if len(rest) > 2 else "",
            )
        )
    return parsed


def option_values(text: str) -> dict[str, str]:
    """Mount options by name; "" for a switch, the last one of a name given twice."""
    pairs = (option.partition("=") for option in text.split(",") if option)
    return {name: value for name, _, value in pairs}


def _plain(field: str) -> str:
    """mountinfo writes blank, tab, newline and backslash as octal."""
    octal = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
    return octal


def mounts() -> list[Mount]:
    """The mounts of this mount namespace; a later one hides an earlier one at its point."""
    return parse_mountinfo(os.fsdecode(MOUNTINFO.read_bytes()))


def not_needed(paths: Iterable[Path]) -> list[str]:
    """Points of mounts that hold none of `paths` and nothing of the system; the innermost first.

    A mount namespace that keeps them keeps other people's file systems busy.
    """
    needed = [path.resolve() for path in paths]

    def holds(point: Path) -> bool:
        return any(path.is_relative_to(point) for path in needed) or any(
            point.is_relative_to(folder) for folder in (*needed, *SYSTEM)
        )

    return [mount.point for mount in reversed(mounts()) if not holds(Path(mount.point))]


def mount_of(path: Path | str) -> Mount:
    """The mount that holds `path` (exact: by mount id, links followed); OSError if missing."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        info = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    finally:
        os.close(descriptor)
    number = int(re.findall(r"^mnt_id:\s*(\d+)", info, re.MULTILINE)[0])
    for mount in mounts():
        if mount.id == number:
            return mount
    return _hidden(path, number)


def _hidden(path: Path | str, number: int) -> Mount:
    """The mount that holds the root of a chroot, which is no mount point of its own.

    mountinfo leaves it out, since nothing below our root is where it is mounted.  Another process
    that sees it (init) tells what it is; else statfs(2) and the device number do.
    """
    with contextlib.suppress(OSError):
        for mount in parse_mountinfo(os.fsdecode(INIT_MOUNTINFO.read_bytes())):
            if mount.id == number:
                return replace(mount, point="/", root="/")
    device = Path(path).stat().st_dev
    read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    return Mount(
        id=number,
        device=f"{os.major(device)}:{os.minor(device)}",
        root="/",
        point="/",
        options="ro" if read_only else "rw",
        fstype=TYPES.get(libc.statfs_magic(path), "unknown"),
        source="unknown",
        super_options="",
    )


def mounted_at(point: Path | str) -> Mount | None:
    """The topmost mount exactly at `point` (an absolute path without links)."""
    at_point = [mount for mount in mounts() if mount.point == str(point)]
    return at_point[-1] if at_point else None


def mounted_below(folder: Path | str) -> list[Mount]:
    """All mounts at or below `folder`."""
    prefix = str(folder).rstrip("/") + "/"
    return [mount for mount in mounts() if f"{mount.point}/".startswith(prefix)]


def unmount(point: Path | str) -> None:
    """Detach what is mounted at `point`; a busy one is tried again for PATIENCE seconds.

    OSError with EBUSY if it is still in use then: it is never detached lazily, because the
    device below would stay taken by nobody knows whom.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return libc.umount(str(point))
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


# Which processes keep a mount or a device in use, and by what.


_MOST = 5  # that are named with what they use


@dataclass(frozen=True)
class User:
    """A process and the first thing by which it keeps a place in use."""

    pid: int
    program: str
    path: str
    cure: str = ""  # the command that ends the use; default kill

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.program}) in {self.path}"


def of_place(place: Path | str) -> list[User]:
    """Processes with a working directory, a program, a mapping or an open file at or below it."""
    users = (_looked_at(process, str(place)) for process in _processes())
    return [user for user in users if user is not None]


def of_device(device: str) -> list[User]:
    """Processes that have it open, and one of each other mount namespace that has it mounted."""
    facts = Path(device).stat()
    number = f"{os.major(facts.st_rdev)}:{os.minor(facts.st_rdev)}"
    seen: dict[str, User | None] = {str(Path("/proc/self/ns/mnt").readlink()): None}
    for process in _processes():
        with contextlib.suppress(OSError):
            namespace = str((process / "ns/mnt").readlink())
            if namespace in seen or not (process / "cmdline").read_bytes():  # a kernel thread
                continue
            text = os.fsdecode((process / "mountinfo").read_bytes())
            points = [m.point for m in parse_mountinfo(text) if m.device == number]
            if points:
                user = _user(process, f"a mount namespace that has it at {points[0]}")
                cure = f"nsenter -t {user.pid} -m umount {shlex.quote(points[0])}"
                seen[namespace] = replace(user, cure=cure)
    return [*of_place(device), *filter(None, seen.values())]


def described(users: list[User]) -> str:
    """Who they are, and the command that ends them; in words if there is none."""
    if not users:
        return "nobody that can be seen"
    named = ", ".join(map(str, users[:_MOST]))
    more = f" and {len(users) - _MOST} more" if len(users) > _MOST else ""
    killed = [str(user.pid) for user in users if not user.cure]
    cures = [f"kill {' '.join(killed)}"] if killed else []
    return f"{named}{more}; to end: {'; '.join([*cures, *(u.cure for u in users if u.cure)])}"


def _processes() -> Iterator[Path]:
    return Path("/proc").glob("[0-9]*")


def _looked_at(process: Path, place: str) -> User | None:
    prefix = f"{place.rstrip('/')}/"
    with contextlib.suppress(OSError):  # it ended, or is not ours to look at
        for path in _used(process):
            if f"{path}/".startswith(prefix):
                return _user(process, path)
    return None


def _used(process: Path) -> Iterator[str]:
    for link in (process / "cwd", process / "root", process / "exe", *(process / "fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # closed since
            yield str(link.readlink())
    for line in os.fsdecode((process / "maps").read_bytes()).splitlines():
        fields = line.split(maxsplit=5)  # proc(5): address, rights, offset, device, inode, path
        if len(fields) == 6:
            yield fields[5]


def _user(process: Path, path: str) -> User:
    return User(int(process.name), (process / "comm").read_text().strip(), path)
