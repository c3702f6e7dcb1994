"""The directory of a test bed: what lies where, its own file, the lock, the folder of sockets.

Unix sockets have a folder elsewhere, because their paths must be short.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fsmatrix.backends.errors import BackendError
from fsmatrix.backends.journal import proof, tree
from fsmatrix.backends.journal.journal import Journal
from fsmatrix.backends.journal.proof import FILE as IDENTITY
from fsmatrix.backends.system.trusted import distrust
from fsmatrix.results.evidence.stored import Json, JsonObject, Stored, read
from fsmatrix.results.files import safefile

SOCKETS_PLACE, SOCKETS_PREFIX = Path("/run"), "fsmatrix-bed-"
LONGEST_SOCKET = 100  # bytes of a socket's path, with room for a suffix that a program may add


# How long each step of a bring-up took: waiting for other programs, and our own time.


@dataclass(frozen=True)
class Step(Stored):
    """One step; seconds.  `waited` is the part in which another program worked."""

    name: str
    seconds: float
    waited: float

    @property
    def own(self) -> float:
        """What was neither: our own time."""
        return max(0.0, self.seconds - self.waited)

    def as_json(self) -> dict[str, Json]:
        """Name and seconds of the step as plain values."""
        return {**self.document(), "own": self.own}


class Steps:
    """Collects steps; `begun` and `ended` are called as they come."""

    def __init__(
        self,
        begun: Callable[[str], None] = lambda _: None,
        ended: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self.all: list[Step] = []
        self._begun, self._ended = begun, ended
        self._waited = 0.0
        self._depth = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure how long one step takes, by its name."""
        self._begun(name)
        began, self._waited = time.monotonic(), 0.0
        yield
        step = Step(name, time.monotonic() - began, self._waited)
        self.all.append(step)
        self._ended(step)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What happens inside is waiting for somebody else; may be nested."""
        began = time.monotonic()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._waited += time.monotonic() - began

    def until(
        self, done: Callable[[], bool], seconds: float, check: Callable[[], None], pause: float
    ) -> bool:
        """Wait until `done`, at most so long; whether it was reached.

        After each look in vain `check` raises what makes waiting hopeless.
        """
        deadline = time.monotonic() + seconds
        while True:
            with self.waiting():
                if done():
                    return True
            check()
            if time.monotonic() >= deadline:
                return False
            with self.waiting():
                time.sleep(pause)


_FILES = ("bed.json", "bed.json.new", "lock", "journal.jsonl", IDENTITY)  # of every bed


@dataclass(frozen=True)
class Kind:
    """What a storage or queueing system puts into its bed's directory."""

    tag: str  # in the directory's marker
    conf: str  # name of its configuration file
    folders: tuple[str, ...]  # made with the directory
    files: tuple[str, ...] = ()  # that come later
    prefixes: tuple[str, ...] = ()  # of other entries that come later
    words: str = "test bed"  # what messages call it


@dataclass(frozen=True, kw_only=True)
class Recorded(Stored):
    """What bed.json says.  `more`: what beds of one system have."""

    complete: bool  # the bed came up
    id: str  # of `fresh_id`
    options: JsonObject
    facts: JsonObject | None = None  # from here on of a bed that came up
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Home:
    """Names of everything in the bed's directory (absolute, without links)."""

    folder: Path
    kind: Kind
    asked: Path | None = field(default=None, compare=False)  # the folder as it was named

    @classmethod
    def at(cls, directory: Path | str, kind: Kind) -> Home:
        """The home in `directory`, whether it exists or not."""
        asked = Path(directory).absolute()
        return cls(asked.resolve(), kind, asked)

    @property
    def conf(self) -> Path:
        """The configuration file of the system, such as ceph.conf."""
        return self.folder / self.kind.conf

    @property
    def journal(self) -> Journal:
        """What was done to the machine."""
        return Journal(self.folder / "journal.jsonl")

    def log(self, role: str) -> Path:
        """What a daemon printed; its own log is beside it."""
        return self.folder / "log" / f"{role}.out"

    def exists(self) -> bool:
        """Whether there is a test bed of ours, whole or not."""
        return tree.read_marker(self.folder) == self.kind.tag

    def distrust(self) -> str:
        """Why the directory, if there is one, may hold what somebody else put there."""
        reason = distrust(self.asked or self.folder)
        return f"{reason}: a test bed's directory must be safe from others" if reason else ""

    def refuse_distrusted(self) -> None:
        """BackendError if somebody else could change what is in the directory."""
        if reason := self.distrust():
            raise BackendError(f"{reason}; choose another one with --directory")

    def make(self) -> None:
        """Make and mark the directory; BackendError if it is in use for something else.

        Also if somebody else made it before us, or could put another one in its place.
        """
        self.refuse_distrusted()
        if self.exists():
            raise BackendError(
                f"{self.folder} holds a test bed already: use it, or take it down first "
                f"(fsmatrix testbed down --directory {self.folder})"
            )
        try:
            self.folder.mkdir(safefile.FOLDER_MODE, parents=True, exist_ok=True)
            self.refuse_distrusted()
            if any(self.folder.iterdir()):
                raise BackendError(
                    f"{self.folder} is not empty: a test bed needs its own directory"
                )
            tree.write_marker(self.folder, self.kind.tag)
        except FileExistsError as error:
            raise BackendError(f"{self.folder}: somebody else just made it") from error
        except NotADirectoryError as error:
            raise BackendError(f"{self.folder} is no directory") from error
        for name in self.kind.folders:
            (self.folder / name).mkdir()

    def foreign(self) -> list[str]:
        """Entries of the directory that a bed does not make."""
        kind = self.kind
        expected = {*_FILES, kind.conf, *kind.folders, *kind.files, tree.MARKER}
        names = (path.name for path in self.folder.iterdir())
        return sorted(
            name for name in names if name not in expected and not name.startswith(kind.prefixes)
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time brings up or takes down; the lock ends with its process."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BackendError(
                    f"{self.folder}: another process is bringing this test bed up or down"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def write(self, facts: JsonObject) -> None:
        """Replace the bed's own file, whole."""
        text = json.dumps(facts, indent=1)
        aside = self.folder / "bed.json.new"
        safefile.write_whole(self.folder / "bed.json", text.encode(), aside)

    def read(self) -> Recorded | None:
        """The bed's own file; None if a crash came before it.  BackendError if it is damaged."""
        file = self.folder / "bed.json"
        try:
            return read(Recorded, json.loads(file.read_text()), "bed")
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise BackendError(f"{file}: {error}") from error


def fresh_id() -> str:
    """Six hex digits that make the names of a bed's namespaces, links and cgroups its own."""
    return secrets.token_hex(3)


def make_sockets(home: Home, bed: str, longest: str) -> Path:
    """The bed's folder `run`, or a journalled one in /run if that path is too long.

    `longest`: the longest name of a socket in it.
    """
    own = home.folder / "run"
    if len(os.fsencode(own / longest)) <= LONGEST_SOCKET:
        return own
    folder = SOCKETS_PLACE / f"{SOCKETS_PREFIX}{bed}"
    entry = home.journal.begin("sockets", path=str(folder))
    folder.mkdir(mode=0o700)
    home.journal.confirm(entry)
    return folder


def remove_sockets(folder: Path) -> str:
    """Remove sockets only, in a folder where and as `make` makes it; what was done.

    NotProvenOurs if it is another one.
    """
    if not os.path.lexists(folder):
        return ""
    ours = folder.parent == SOCKETS_PLACE and folder.name.startswith(SOCKETS_PREFIX)
    if not ours or folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise proof.NotProvenOurs(f"{folder} is not as the test bed made it")
    for path in folder.iterdir():
        if path.is_socket():
            path.unlink()
    folder.rmdir()
    return f"removed {folder}"
