"""As whom a database server runs, and how that user comes to its files.

PostgreSQL refuses to run as root.  Root therefore starts it as the system account `postgres`, or
as `nobody` where there is none: never as a person's account, whose uid is 1000 or more.  Others
start it as themselves.  No right of a folder that is not the suite's own is changed for that:
where a folder above the data keeps the account out, the data directory is bound to a folder of
ours in a mount namespace that ends with its last process.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fsmatrix.backends.system import libc, tools

# What is asked of a client node, as the JSON that the workload writes into its folder.


TASK, RESULT = "task.json", "result.json"
DATA = "pgdata"  # PostgreSQL's, in the run's own directory on the target
SQLITE_DATA = "sqlite"  # SQLite's
POSTGRESQL, SQLITE = "postgresql", "sqlite"


@dataclass(frozen=True)
class Task:
    """One step: load, run or check."""

    do: str
    programs: str  # folder of the PostgreSQL; of SQLite that of the Python
    path: str  # the run's own directory on the target
    seed: str  # a number; a text because it is filled in late
    warehouses: int
    users: int
    settings: Mapping[str, str] = field(default_factory=dict)  # of the server, or of connections
    warm_up: int = 0  # seconds
    seconds: int = 0
    rate: float = 0.0
    max_tries: int = 1
    engine: str = POSTGRESQL
    memory: int = 0  # bytes that the server and its users may have together; 0: no limit
    journal: str = ""  # folder of the store's journals, if something is made that it undoes

    def text(self) -> str:
        """As a file holds it."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: Path) -> Task:
        """From such a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


# What goes wrong here, as one sentence for the run's record.


NO_SPACE = "No space left on device"
_FULL = re.compile(rf"{NO_SPACE}|wrote only \d+ of \d+ bytes")  # PostgreSQL's words for it


class OltpError(Exception):
    """A database cannot be made, filled, used or checked; the text says why and what to do."""


def is_full(text: str) -> bool:
    """Whether a program says that the disk, or a quota, is full."""
    return bool(_FULL.search(text))


def reason_of(text: str, lines: int = 3) -> str:
    """The sentence for what a program printed: the full disk, else its errors, else its end."""
    printed = [line.strip() for line in text.splitlines() if line.strip()]
    full = [line for line in printed if is_full(line)]
    full = [line if NO_SPACE in line else f"{line} ({NO_SPACE})" for line in full]
    errors = [line for line in printed if any(word in line for word in ("ERROR", "FATAL", "PANIC"))]
    errors = errors or [line for line in printed if "error:" in line]
    chosen = full[:1] or errors[:lines] or printed[-lines:]
    return " | ".join(chosen) or "it printed nothing"


NAMES = ("postgres", "nobody")
FIRST_PERSON = 1000  # uid, as login.defs(5) has it everywhere
NOBODY = 65534
MEMORY = Path("/dev/shm")  # of POSIX shared memory: shm_overview(7)


@dataclass(frozen=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int

    @property
    def is_own(self) -> bool:
        """Whether this process runs as it."""
        return self.uid == os.geteuid()

    def words(self, signal: str) -> list[str]:
        """Words before an argv: run as this user, and get `signal` when the starter dies."""
        setpriv = tools.find("setpriv")
        if setpriv is None:
            raise OltpError(tools.lacking("setpriv"))
        become = [
            *(f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"),
            *("--inh-caps=-all", "--no-new-privs"),
        ]
        return [setpriv, *([] if self.is_own else become), f"--pdeathsig={signal}", "--"]


def choose() -> Account:
    """Who runs the server; OltpError if root finds no account for it."""
    if os.geteuid() != 0:
        return Account(libc.name_of_user(os.geteuid()), os.geteuid(), os.getegid())
    for name in NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if 0 < entry.pw_uid < FIRST_PERSON or entry.pw_uid == NOBODY:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise OltpError(
        "PostgreSQL does not run as root, and there is no system account postgres or nobody: "
        "install the package postgresql, which makes one, or run as an ordinary user"
    )


def barrier(path: Path, account: Account) -> Path | None:
    """The first folder on the way down to `path` that keeps the account out; None: it gets there.

    The kernel is asked, as that user: access lists and network file systems have their say.
    """
    for folder in (*reversed(path.parents), path):
        if not _may_enter(folder, account):
            return folder
    return None


def _may_enter(folder: Path, account: Account) -> bool:
    if account.is_own:
        return os.access(folder, os.X_OK)
    argv = [*account.words("KILL"), "test", "-x", str(folder)]
    return not tools.run(argv, check=False).returncode


def own(path: Path, account: Account, mode: int) -> None:
    """Give what the suite has just made in a folder of its own to the account.

    Never in a folder of the account's, where the name may be a link by now.  OltpError if the file
    system refuses.
    """
    try:
        path.chmod(mode)
        if not account.is_own:
            os.chown(path, account.uid, account.gid)
    except OSError as error:
        raise OltpError(
            f"{path} cannot be given to the user {account.name}, who runs PostgreSQL "
            f"({error.strerror}): a server's data must be its user's; run fsmatrix as an ordinary "
            "user who may write there"
        ) from error


def set_apart(*used: Path) -> None:
    """Root: shared memory of our own, which ends with the last process that uses it.

    System V's, and POSIX's unless one of the paths that are `used` lies there: initdb's servers
    make some, whatever the settings say.
    """
    if os.geteuid() != 0:
        return
    libc.unshare(libc.NEW_IPC)
    if not any(path.resolve().is_relative_to(MEMORY) for path in used):
        with contextlib.suppress(OSError):  # as in a container
            libc.private_mounts()
            libc.mount_memory(MEMORY)


def reachable(path: Path, below: Path, account: Account) -> Path:
    """A path by which the account reaches `path`: itself, or `below` bound to it for us alone.

    `below`: an empty folder of ours that the account reaches.  OltpError if neither can be.
    """
    bar = barrier(path, account)
    if bar is None:
        return path
    try:
        if os.geteuid() != 0:
            raise PermissionError
        libc.private_mounts()
        libc.bind(path, below)
    except OSError as error:
        raise OltpError(
            f"{bar} keeps the user {account.name}, who runs PostgreSQL, from {path}, and this "
            "process may not make a mount namespace: choose a target that others may enter "
            "(mode 0711), or run as root outside a container"
        ) from error
    return below


def started(argv: Sequence[str], account: Account, signal: str) -> list[str]:
    """`argv`, run as the account."""
    return [*account.words(signal), *argv]
