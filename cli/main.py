"""The command `fsmatrix` as a process: its streams, its interruption, its exit status.

Nothing else is imported until Ctrl-C is taken care of: the commands take a moment to load.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

OUTPUT = "standard output"
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def main() -> None:
    """Be the command, and nothing else in this process."""
    _leave_at_once(signal.getsignal(signal.SIGINT))
    sys.exit(command())


def command() -> int | str | None:
    """Run the command: its status.  Bad input is a message and status 2, never a traceback.

    Only while it runs is Ctrl-C a KeyboardInterrupt, which ends what it has begun; before, and
    after in a process that is nothing else (`main`), there is nothing to end.
    """
    sys.stdout = _named(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a locale may have no sign for "µ"
    from fsmatrix.cli.app import program

    return _status(program())


class _Output(io.FileIO):
    """Standard output whose errors say that it is this which cannot be written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = OUTPUT
            raise


def _named(stream: TextIO) -> TextIO:
    """Standard output with such errors; one that does not write to a file stays as it is."""
    if type(stream) is not io.TextIOWrapper:
        return stream
    buffered = isinstance(stream.buffer, io.BufferedWriter)  # not with PYTHONUNBUFFERED
    if not buffered and not isinstance(stream.buffer, io.FileIO):
        return stream
    stream.flush()
    output: Any = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(output) if buffered else output,
        encoding=stream.encoding,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _leave_at_once(handler: Any) -> None:
    """Ctrl-C ends this process from now on; where it is ignored it stays so."""
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt meanwhile, unless it is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if callable(before):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _status(run: Callable[[], object]) -> int | str | None:
    """The exit status of a command that printed all it had to say, or said why not."""
    from fsmatrix.cli import completion

    try:
        with _interruptible():
            try:
                if completion.VARIABLE in os.environ:
                    completion.complete(run)
                else:
                    run()
            except SystemExit as end:
                sys.stdout.flush()
                return end.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except _refused() as error:
        return _refusal(str(error))
    except BrokenPipeError:
        _discard_output()
        return FAILED  # the reader of our output went away
    except OSError as error:
        if error.filename is None:
            raise  # no file that a user could look at
        if error.filename == OUTPUT:
            _discard_output()
        return _refusal(f"{error.filename}: {error.strerror}")
    return None


def _refused() -> tuple[type[Exception], ...]:
    """What says that the input is bad; imported when something was raised."""
    from fsmatrix.backends.errors import BackendError
    from fsmatrix.results.files.safefile import ResultError
    from fsmatrix.results.registry import BrokenEntry, UnknownName
    from fsmatrix.slurm.scheduler import SchedulerError
    from fsmatrix.suite.campaign.yamlio import CampaignError
    from fsmatrix.suite.engines.engine import EngineError
    from fsmatrix.suite.launchers.launcher import LauncherError

    return (
        CampaignError,
        ResultError,
        LauncherError,
        BackendError,
        EngineError,
        SchedulerError,
        UnknownName,
        BrokenEntry,
    )


def _discard_output() -> None:
    """What is left in the buffer goes nowhere, or Python complains about it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _refusal(message: str) -> int:
    from fsmatrix.cli import progress

    progress.line(progress.console(stderr=True), f"error: {message}", "red")
    return BAD_INPUT


if __name__ == "__main__":
    main()
