"""Other people's programs: found, started with a deadline, never through a shell.

Each is in a session of its own: a Ctrl-C of the terminal, or a signal to our process group, is for
us, and a tool that it ended would look like one that failed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsmatrix.backends.errors import NoAnswer, ToolError
from fsmatrix.backends.system.workfolder import work_folder

DEADLINE = 10.0  # seconds, unless the caller knows better
_GRACE = 1.0  # seconds that a killed program gets to disappear
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


def find(name: str) -> str | None:
    """Path of a program on PATH or in the system's sbin folders; None if there is none."""
    folders = [os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS]
    return shutil.which(name, path=os.pathsep.join(folders))


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

    ToolError if it is missing, may be changed by anybody who is not root while we are, or, with
    `check`, fails; NoAnswer if it takes longer than
    `deadline` seconds (it is then killed; one that cannot be killed is left behind and not
    waited for).
    """
    program = find(argv[0])
    if program is None:
        raise ToolError(f"{argv[0]} is not installed (not on PATH)")
    if os.geteuid() == 0 and (place := _open_to_all(Path(program))):
        raise ToolError(
            f"root does not run {program}: everybody may write {place}; mend its mode, or PATH"
        )
    with contextlib.ExitStack() as end:
        try:
            folder = end.enter_context(work_folder())
        except OSError as error:
            raise ToolError(f"{argv[0]} cannot be run: no folder for it: {error}") from error
        return _run((program, *argv[1:]), argv, deadline, check, folder)


def _open_to_all(program: Path) -> str:
    """The program itself or its folder, where everybody may write it (empty: neither)."""
    for path in (program.parent, program.resolve().parent, program.resolve()):
        if path.stat().st_mode & stat.S_IWOTH:
            return str(path)
    return ""


def _run(
    command: Sequence[str], argv: Sequence[str], deadline: float, check: bool, folder: Path
) -> Ran:
    with_c_locale = {**os.environ, "LC_ALL": "C"}
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
