"""Other people's programs: found, started with a deadline, never through a shell.

Each is in a session of its own: a Ctrl-C of the terminal, or a signal to our process group, is for
us, and a tool that it ended would look like one that failed.
Whatever the suite starts is found here: `find` is the one place that decides what root runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TypeVar

from fsmatrix.backends.errors import NoAnswer, ToolError
from fsmatrix.backends.system import trusted
from fsmatrix.backends.system.workfolder import work_folder

# Calls that may hang, in a thread of their own.


T = TypeVar("T")


class Overdue(Exception):
    """A call has not returned in its time; its thread still waits inside it."""


def within(seconds: float, call: Callable[[], T], name: str | None = None) -> T:
    """The result of `call`; Overdue after `seconds` (0 or less: at once, unless it has ended).

    `name`: of its thread.  What an overdue call uses must not be freed.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(call())
        except BaseException as error:  # noqa: BLE001  raised again by the caller
            failure.append(error)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if failure:
        raise failure[0]
    if not result:
        raise Overdue
    return result[0]


DEADLINE = 10.0  # seconds, unless the caller knows better
_GRACE = 1.0  # seconds that a killed program gets to disappear
VOUCHED = "FSMATRIX_PATH"  # folders that the user vouches for, as PATH has them
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


@dataclass(frozen=True)
class Ran:
    """How a program ended, and what it printed."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """Its error text in one line."""
        return " ".join((self.stderr.strip() or self.stdout.strip() or "no output").split())


def find(name: str, folder: str | None = None) -> str | None:
    """Absolute path of a program that may be started; None if there is none.

    `name` is looked for in `folder`, else in FSMATRIX_PATH, PATH and the system's sbin folders; one
    with a slash is a path.  The first one counts: root starts none that somebody else could change
    (`refusal` says so), unless FSMATRIX_PATH names a folder above it.
    """
    program = _first(name, folder)
    return program if program and not _distrust(program) else None


def refusal(name: str, folder: str | None = None) -> str:
    """Why root does not start the program that `find` came upon (empty: it does, or none is there).

    In a sentence with the remedy.
    """
    program = _first(name, folder)
    reason = _distrust(program) if program else ""
    return (
        f"root does not run {program}: {reason}; mend that, or vouch for its folder: "
        f"FSMATRIX_PATH={Path(program).parent}"
        if program and reason
        else ""
    )


def load_refusal(library: str) -> str:
    """Why root's ranks load no such library (empty: they do, or it is none), with the remedy."""
    reason = _distrust(library) if library else ""
    return (
        f"root does not load {library}: {reason}; mend that, or vouch for its folder: "
        f"FSMATRIX_PATH={Path(library).parent}"
        if reason
        else ""
    )


def folders() -> list[str]:
    """Where programs are looked for: FSMATRIX_PATH, then PATH, then the system's sbin folders."""
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [*_vouched(), *given, *_SYSTEM_FOLDERS]


def path() -> str:
    """PATH for what is started: FSMATRIX_PATH first, and as root no folder that others can change.

    Programs look there for others by themselves.
    """
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    kept = [folder for folder in given if os.geteuid() != 0 or _is_closed(folder)]
    return os.pathsep.join([*_vouched(), *kept]) or os.defpath


def _vouched() -> list[str]:
    return [part for part in os.environ.get(VOUCHED, "").split(os.pathsep) if part.startswith("/")]


def _first(name: str, folder: str | None) -> str | None:
    path = os.pathsep.join(folders()) if folder is None else folder
    program = shutil.which(name, path=path)
    return str(Path(program).absolute()) if program else None


def _distrust(program: str) -> str:
    """Why root does not start it (empty: it does, or we are somebody else)."""
    path = Path(program)
    is_vouched = ".." not in path.parts and any(map(path.is_relative_to, _vouched()))
    if os.geteuid() != 0 or is_vouched:
        return ""
    try:
        return trusted.distrust_file(path)
    except OSError as error:
        return str(error)


def _is_closed(folder: str) -> bool:
    """Whether nobody else can make programs in it."""
    if not folder.startswith("/"):
        return False
    try:
        place = Path(folder)
        return not trusted.distrust_way(place, closed=(place, place.resolve()))
    except OSError:
        return False


@functools.cache
def version(program: str, option: str) -> str:
    """The version number in the first line that a program prints about itself; "" if none."""
    try:
        ran = run([program, option], check=False)
    except ToolError:
        return ""
    match = re.search(r"\d+(\.\d+)+", ran.stdout or ran.stderr)
    return match[0] if match else ""


def run(argv: Sequence[str], deadline: float = DEADLINE, check: bool = True) -> Ran:
    """Run a program to its end, in an empty folder of its own: relative names mean nothing.

    ToolError if it is missing, is not to be started (`refusal`), or, with `check`, fails;
    NoAnswer if it takes longer than `deadline` seconds (it is then killed; one that cannot be
    killed is left behind and not waited for).
    """
    program = find(argv[0])
    if program is None:
        raise ToolError(refusal(argv[0]) or f"{argv[0]} is not installed (not on PATH)")
    with contextlib.ExitStack() as end:
        try:
            folder = end.enter_context(work_folder())
        except OSError as error:
            raise ToolError(f"{argv[0]} cannot be run: no folder for it: {error}") from error
        return _run((program, *argv[1:]), argv, deadline, check, folder)


def _run(
    command: Sequence[str], argv: Sequence[str], deadline: float, check: bool, folder: Path
) -> Ran:
    with_c_locale = {**os.environ, "LC_ALL": "C", "PATH": path()}
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=with_c_locale,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise NoAnswer(
            f"{shlex.join(argv)} did not end within {deadline:g} s and was killed"
        ) from error
    except BaseException:
        _end(process)
        raise
    ran = Ran(tuple(argv), process.returncode, stdout, stderr)
    if check and ran.returncode:
        raise ToolError(f"{shlex.join(argv)} failed ({ran.returncode}): {ran.complaint}")
    return ran


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:  # stuck in the kernel: waiting would hang us as well
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


# The user's quota on a file system, as the `quota` program tells it.


_BLOCK = 1024  # bytes; the unit of the program's blocks
_NO_LIMIT = 2**63  # more than any file system holds: -1 as an unsigned number


@dataclass(frozen=True)
class Quota:
    """What is left of a quota; None: not limited."""

    bytes: int | None
    inodes: int | None


def user_quota(mount_point: str) -> Quota | None:
    """What is left of this user's quota at `mount_point`; None if there is none or no tool.

    Root is not held to quotas.
    """
    if os.geteuid() == 0 or find("quota") is None:
        return None
    argv = ["quota", "--no-wrap", "--raw-grace", "--show-mntpoint", "--hide-device"]
    try:
        ran = run(argv, check=False)  # exit status 1: over quota
    except ToolError:
        return None
    return parse_quota(ran.stdout).get(mount_point)


def parse_quota(text: str) -> dict[str, Quota]:
    """By mount point, from `quota --no-wrap --raw-grace --show-mntpoint --hide-device`.

    Columns after the mount point: blocks, soft, hard, grace, files, soft, hard, grace; a `*`
    marks what is over its soft limit.  The lower limit that is not 0 counts: over the soft
    one writes stop when the grace time ends.
    """
    quotas = {}
    for line in text.splitlines():
        fields = line.rsplit(maxsplit=8)
        if len(fields) != 9:
            continue
        point, *columns = fields
        try:
            numbers = [int(column.rstrip("*")) for column in columns]
        except ValueError:
            continue
        size, soft, hard, _, files, files_soft, files_hard, _ = numbers
        quotas[point.strip()] = Quota(
            _left(size, soft, hard, _BLOCK), _left(files, files_soft, files_hard, 1)
        )
    return quotas


def _left(used: int, soft: int, hard: int, unit: int) -> int | None:
    limits = [limit for limit in (soft, hard) if 0 < limit < _NO_LIMIT]
    return max(0, min(limits) - used) * unit if limits else None


# Which command brings a program that is missing, in the words of this machine's distribution.


MANAGERS = ("apt-get", "dnf", "zypper")  # columns of packages.tsv, in its order
NONE = "-"


def missing(program: str) -> str:
    """As `lacking`, if the program is not there (empty: it is)."""
    return "" if find(program) else lacking(program)


def lacking(name: str) -> str:
    """In words that a thing is missing: "mkfs.xfs is missing: apt-get install xfsprogs".

    Or, of a program that is there, why root does not run it.
    """
    if reason := refusal(name):
        return reason
    cure = install(name)
    return f"{name} is missing: {cure}" if cure else f"{name} is missing"


def install(*names: str) -> str:
    """The command that installs what these names need; empty where it is not known.

    On a machine without a known package manager the packages are named as Debian has them.
    """
    manager = next((name for name in MANAGERS if find(name)), "")
    column = MANAGERS.index(manager) if manager else 0
    wanted = [word for name in names for word in _table().get(name, {}).get(column, ())]
    packages = " ".join(dict.fromkeys(wanted))
    if not packages:
        return ""
    return f"{manager} install {packages}" if manager else f"package {packages}"


@functools.cache
def _table() -> dict[str, dict[int, tuple[str, ...]]]:
    """Name -> column of its manager -> packages."""
    text = resources.files("fsmatrix.backends.system").joinpath("packages.tsv").read_text("utf-8")
    table: dict[str, dict[int, tuple[str, ...]]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, *columns = line.split("\t")
        table[name] = {
            index: tuple(cell.split()) for index, cell in enumerate(columns) if cell != NONE
        }
    return table
