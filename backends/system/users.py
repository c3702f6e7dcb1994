"""Which processes keep a mount or a device in use, and by what."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fsmatrix.backends.system import mounts

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
            points = [m.point for m in mounts.parse_mountinfo(text) if m.device == number]
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
