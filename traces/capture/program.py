"""Runs a command, or the ranks of an MPI program, under strace, whose texts become one trace."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fsmatrix.backends.errors import ToolError
from fsmatrix.backends.system import tools
from fsmatrix.backends.system.workfolder import work_folder
from fsmatrix.results.files import safefile
from fsmatrix.traces.capture import files, strace
from fsmatrix.traces.capture.text import HEADER
from fsmatrix.traces.model import Roots
from fsmatrix.traces.writer import writing

STRACE = "strace"
_NANOSECONDS = ("--absolute-timestamps=format:unix,precision:ns", "--syscall-times=ns")  # 5.6
_MICROSECONDS = ("-ttt", "-T")
_FILTER = "--seccomp-bpf"  # 5.3: only the calls that are asked for stop the program
_VECTORS = "readv,writev,preadv,pwritev,preadv2,pwritev2"
_SIGNALLED = 128  # and the signal's number: what shells give

# Where launchers tell a process its rank, the surest first.
VARIABLES = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
END = ".strace"


@functools.cache
def options() -> tuple[str, ...]:
    """The words for the strace of this machine.  ToolError: there is none, or it may not trace."""
    if reason := tools.missing(STRACE):
        raise ToolError(reason)
    calls = "trace=" + ",".join(f"?{name}" for name in strace.NAMES)
    # -s 0: no data is written down; paths are whole nevertheless
    common = ("-f", "-q", "-s", "0", "-e", calls, "-e", "signal=none", "-e", f"abbrev=!{_VECTORS}")
    complaint = ""
    for more in ((_FILTER, *_NANOSECONDS), _NANOSECONDS, _MICROSECONDS):
        words = (*common, *more)
        ran = tools.run([STRACE, *words, "-o", os.devnull, "true"], check=False)
        if ran.returncode == 0 and not ran.stderr:
            return words
        complaint = ran.complaint
    raise ToolError(
        f"strace cannot trace here: {complaint}; ptrace must be allowed (containers: the "
        "capability SYS_PTRACE; else kernel.yama.ptrace_scope below 3)"
    )


def capture(
    command: Sequence[str], roots: Sequence[Path], out: Path, to_stderr: bool = False
) -> int:
    """Run a command and write the trace of what it did below `roots` to `out`; its status.

    The text of strace, about 100 bytes for each call, stands in TMPDIR meanwhile.
    ToolError if the command cannot be run, OSError if `out` or the text cannot be written.
    """
    options()  # before anything takes time
    try:
        sizes = files.sizes(Roots([os.fsencode(root) for root in roots]))
    except ValueError as error:
        raise ToolError(f"roots: {error}") from error
    folder = Path.cwd()
    with work_folder() as work:
        text = work / "text"
        status = run(command, text, to_stderr)
        with writing(out) as writer:
            writer.finish(
                strace.read(
                    [text],
                    writer,
                    roots,
                    folder=folder,
                    sizes=sizes,
                    command=command,
                )
            )
    return status


def run(command: Sequence[str], text: Path, to_stderr: bool = False) -> int:
    """Run a command under strace, which writes to `text`; the command's exit status.

    Its standard streams are ours; `to_stderr`: its standard output is our standard error.
    A command that a signal ends has 128 + the number of the signal.  Ctrl-C is the command's.
    ToolError if it cannot be started.
    """
    program = tools.find(STRACE)
    if program is None or not options():
        raise ToolError(tools.lacking(STRACE))
    found = tools.find(command[0]) if command else None
    if found is None:
        name = command[0] if command else "the command"
        raise ToolError(tools.refusal(name) or f"{name}: no such program")
    sys.stdout.flush()
    argv = [program, *options(), "-o", str(text), "--", found, *command[1:]]
    with _deaf(), subprocess.Popen(argv, stdout=sys.stderr if to_stderr else None) as process:
        status = process.wait()
    if not text.exists() or text.stat().st_size == 0:
        raise ToolError(f"{command[0]} was not started: strace wrote nothing")
    return status if status >= 0 else _SIGNALLED - status


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C reaches the command, which has the same terminal; we wait for its end."""
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def this_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Our rank.  ToolError if no launcher has started us."""
    for variable in VARIABLES:
        value = environment.get(variable, "")
        if value.isdecimal() and len(value) < 8:
            return int(value)
    raise ToolError(
        f"no rank: none of {', '.join(VARIABLES)} is set; start it by mpirun, mpiexec or srun"
    )


def run_rank(command: Sequence[str], roots: Sequence[Path], folder: Path) -> int:
    """Run our rank's part of a command; its text appears in `folder`.  The exit status.

    ToolError if it cannot be started; OSError if the text cannot be written.
    """
    number = this_rank()
    path = folder / f"rank-{number}{END}"
    with work_folder() as work:
        text = work / "text"
        facts = {
            "rank": number,
            "folder": str(Path.cwd()),
            "roots": [str(root.absolute()) for root in roots],
            "command": list(command),
        }
        status = run(command, text)
        with (
            safefile.naming(path),
            safefile.replacing(path) as aside,
            text.open("rb") as source,
            aside.open("xb") as target,
        ):
            target.write(HEADER + json.dumps(facts).encode("ascii") + b"\n")
            shutil.copyfileobj(source, target)
    return status
