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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import NoAnswer, ToolError
from fsmatrix.backends.system.files import trusted
from fsmatrix.backends.system.workfolder import work_folder

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
