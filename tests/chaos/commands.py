"""Commands of fsmatrix as children of a process that has its modules loaded already.

A fork of it costs no interpreter and no imports; now and then a fresh interpreter is started, so
that their beginning is met too.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import fsmatrix.analysis.report.report
import fsmatrix.results.files.campaignfile
import fsmatrix.suite.run.execute  # noqa: F401  (loaded for the children)
from fsmatrix.cli import main

DEADLINE = 180.0  # seconds; a command that takes longer hangs
MODULE = [sys.executable, "-P", "-m", "fsmatrix.cli.main"]
_ENDED: dict[int, int] = {}  # pid -> status of children that were waited for


class Command:
    """One command that runs or has ended; what it prints goes into files."""

    def __init__(self, folder: Path, *words: object, fresh: bool = False) -> None:
        self.words = tuple(map(str, words))
        folder.joinpath("printed").mkdir(exist_ok=True)
        number = len(list(folder.glob("printed/*.out")))
        self._files = [
            folder / "printed" / f"{number:02d}-{self.words[0]}.{end}" for end in ("out", "err")
        ]
        for file in self._files:
            file.touch()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(self.words, folder, self._files, fresh)

    @property
    def status(self) -> int | None:
        """Its exit status, the negative number of the signal that ended it, None while it runs."""
        reap()
        return _ENDED.get(self.pid)

    def wait(self, seconds: float = DEADLINE) -> int | None:
        """Its status; None if it still runs after `seconds`."""
        end = time.monotonic() + seconds
        while (status := self.status) is None and time.monotonic() < end:
            time.sleep(0.02)
        return status

    @property
    def out(self) -> str:
        """Its standard output so far."""
        return self._files[0].read_text(errors="replace")

    @property
    def err(self) -> str:
        """Its standard error so far."""
        return self._files[1].read_text(errors="replace")


def reap() -> None:
    """Wait for every child that has ended: as the first process of a PID namespace, orphans too."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _ENDED[pid] = os.waitstatus_to_exitcode(status)


def _become(words: tuple[str, ...], folder: Path, files: list[Path], fresh: bool) -> None:
    """Be the command, in the forked child; never returns."""
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in enumerate(["/dev/null", *map(str, files)]):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_APPEND
            os.dup2(os.open(name, flags), number)
        os.environ["TMPDIR"] = str(folder / "tmp")
        tempfile.tempdir = None
        if fresh:
            os.execv(MODULE[0], [*MODULE, *words])
        sys.argv = ["fsmatrix", *words]
        status = _run()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _run() -> int:
    """The command's status, as the interpreter would give it."""
    try:
        main.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        traceback.print_exc()
        return 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001  (printed, as an interpreter does)
        traceback.print_exc()
        return 1
    return 0
